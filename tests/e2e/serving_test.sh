# SPDX-License-Identifier: Apache-2.0
# Serving from end to end: search, simulate, limits, and requests that cannot be.
. "$(dirname "$0")/lib.sh"

serve() { expect "$1" plan corpus/tiny-network.json hgx-h100:1 --serve "$2" "${@:3}"; }

# A search writes a plan that simulates to the same result, and again.
serve 0 corpus/requests.json --json --fix token_budget=512,max_requests=256
cp stdout searched.json
grep -q '"tokens_per_s_per_gpu"' searched.json || fail 'no throughput'
grep -q '"late": 0' searched.json || fail 'no account of the space'
expect 0 simulate searched.json --json
cp stdout once.json
expect 0 simulate once.json --json
cmp -s stdout once.json || fail 'simulating again differs'
for key in time_to_first_token_s time_per_output_token_s kv_occupancy p99; do
  grep -q "\"$key\"" once.json || fail "no $key"
done
serve 0 corpus/requests.json -q --fix tp=1 -o served.json
grep -q 'tokens/s/GPU' stdout || fail 'no table'
grep -q 'requests a second' stdout || fail "no word of why the first is first: $(cat stdout)"
expect 0 show layout served.json
grep -q 'gradients\|backward' stdout && fail "gradients of a plan that serves: $(cat stdout)"
expect 0 simulate served.json --report report.txt -q
cmp -s stdout report.txt || fail 'the report differs from what is printed'

# Parts that overlap are said to, where they do.
for batches in 1 2; do
  serve 0 corpus/requests.json -q --fix tp=8,prefill=separate,token_budget=1024,max_requests=256,nano_batches=$batches -o parts.json
  [ "$(grep -c '^parts that nano-batches overlap count in full' stdout)" -eq $((batches - 1)) ] ||
    fail "$batches nano-batches: $(cat stdout)"
done

# A trace as a table.
printf 'arrival_s,prompt,output\n0,100,20\n0.5,50,1\n' >trace.csv
serve 0 trace.csv --json --fix tp=1,prefill=chunked,token_budget=512,max_requests=256

# A limit on time waits for a plan and says how far it may be from the best.
serve 0 corpus/requests.json -q --time-limit '1 ns' -o early.json
grep -q 'not reached; stopped early: no plan in this space takes less than' stdout ||
  fail "no word of the limit: $(cat stdout)"
expect 0 simulate early.json
serve 0 corpus/requests.json --json -q --time-limit '1 ns'
for member in '"timed_out": true' '"interrupted": false' '"unexplored": ' '"lower_bound_s": '; do
  grep -qF "$member" stdout || fail "no $member"
done
serve 3 corpus/requests.json --time-limit '1 ns' --max-output-token '1 ns'
grep -q 'every plan simulated so far breaks a latency limit' stderr ||
  fail "no reason: $(cat stderr)"

# Limits that nothing meets, and requests that no cache holds.
serve 3 corpus/requests.json --max-output-token '1 ns' --fix tp=1,token_budget=512
grep -q 'latency limit' stderr || fail "no limit named: $(cat stderr)"
printf '{"schema": "orrery-requests", "version": 1, "count": 1, "prompt": 16000000, "output": 5}' >long.json
rejects 2 'learned positions for 1024' plan corpus/tiny-network.json hgx-h100:1 --serve long.json
serve 3 long.json --set position=rotary --fix tp=1,pp=1,token_budget=512,prefill=chunked
grep -q 'the longest request has 16000005' stderr || fail "no reason: $(cat stderr)"
grep -q 'tokens fit' stderr || fail "no nearest change: $(cat stderr)"

# Parameters that no device holds come from the host, or the answer is that nothing fits.
away() { expect "$1" plan llama2-13b p3-2xlarge:1 --serve corpus/requests.json --precision fp16 -q \
  --fix "token_budget=512,max_requests=256,prefill=chunked,nano_batches=1$2" "${@:3}"; }
away 0 '' -o away.json
grep -q 'of 42 blocks on host, 2 at a time on the device' stdout || fail "no window: $(cat stdout)"
grep -q 'waiting for copies' stdout || fail "no time of copies: $(cat stdout)"
expect 0 simulate away.json --json
grep -q '"host_parameters": [1-9]' stdout || fail "nothing on the host: $(cat stdout)"
grep -q '"copies": [0-9.]*[1-9]' stdout || fail "no time of copies: $(cat stdout)"
expect 0 show layout away.json
grep -q 'on host' stdout || fail "no tier: $(cat stdout)"
away 3 ',offload_parameters=device'
grep -q 'no plan fits' stderr || fail "no reason: $(cat stderr)"
away 2 ',offload_parameters=disk'
grep -q 'have no disk' stderr || fail "no reason: $(cat stderr)"
away 2 ',offload_parameters=host,gathers_in_flight=41'
grep -q 'holds 41 blocks on the device, but stage 0 has' stderr || fail "no reason: $(cat stderr)"
away 0 ',offload_parameters=host,offload_share=1,all_reduce=star' --json
grep -q '"all_reduce": "star"' stdout || fail "all_reduce is lost: $(cat stdout)"
grep -q '"serving.all_reduce"' stdout || fail "not named as without effect: $(cat stdout)"

# Requests that cannot be read.
wrong() {
  printf '%s' "$2" >wrong.json
  rejects 2 "$1" plan corpus/tiny-network.json hgx-h100:1 --serve wrong.json
}
head='{"schema": "orrery-requests", "version": 1'
wrong 'before request 0' "$head, \"requests\": [{\"arrival_s\": 1, \"prompt\": 1, \"output\": 1}, {\"arrival_s\": 0.5, \"prompt\": 1, \"output\": 1}]}"
wrong 'there are no requests' "$head, \"requests\": []}"
wrong '/requests/0/prompt' "$head, \"requests\": [{\"prompt\": -1, \"output\": 1}]}"
wrong 'output' "$head, \"count\": 1, \"prompt\": 1, \"outputs\": 1}"
wrong 'orrery-requests' '{"schema": "orrery-plan", "version": 1}'
wrong 'wrong.json' ''
rejects 4 'missing.json' plan corpus/tiny-network.json hgx-h100:1 --serve missing.json
rejects 2 'belong to training' plan corpus/tiny-network.json hgx-h100:1 --serve corpus/requests.json --batch 8
rejects 2 'belong to training' plan corpus/tiny-network.json hgx-h100:1 --serve corpus/requests.json --gap 0.1
rejects 2 '"offload" belongs to training' plan corpus/tiny-network.json hgx-h100:1 --serve corpus/requests.json --allow offload
rejects 2 'add --allow lossy' plan corpus/tiny-network.json hgx-h100:1 --serve corpus/requests.json --fix fp8_cache=true
rejects 2 'did you mean "token_budget"' plan corpus/tiny-network.json hgx-h100:1 --serve corpus/requests.json --fix token_buget=3
rejects 2 'tp = 3 does not divide the 8 GPUs of hgx-h100:1 (tp = 2 would)' \
  plan corpus/tiny-network.json hgx-h100:1 --serve corpus/requests.json --fix tp=3
rejects 2 'tp x pp = 4 x 4 = 16 does not divide the 8 GPUs of hgx-h100:1 (tp = 2 would)' \
  plan corpus/tiny-network.json hgx-h100:1 --serve corpus/requests.json --fix tp=4,pp=4
rejects 2 'does not generate text' plan bert-large hgx-h100:1 --serve corpus/requests.json

# A serving plan is not a training plan.
rejects 2 'it does not train' compare served.json served.json
rejects 2 'it does not train' export served.json --to megatron

# Its trace shows the requests; the last one ends with the run.
rejects 2 'shows its requests' simulate served.json --trace trace.json --trace-detail kernels
expect 0 simulate served.json --json --trace trace.json
[ "$(grep -o '"cat":"prompt"' trace.json | wc -l)" -eq "$(value_of stdout requests)" ] ||
  fail "not every request has a prompt: $(head -c 300 trace.json)"
grep -o '"ts":[0-9.]*,"dur":[0-9.]*' trace.json | tr ':,' '  ' |
  awk -v makespan="$(value_of stdout makespan_s)" \
    '$2 + $4 > last { last = $2 + $4 } END { exit !(last > 999999 * makespan && last < 1000001 * makespan) }' ||
  fail "the trace does not end with the run: $(value_of stdout makespan_s)"
sed -n 's/.*"ph":"X","pid":\([0-9]*\),"tid":\([0-9]*\),"ts":\([0-9]*\)\.\([0-9]*\),"dur":\([0-9]*\)\.\([0-9]*\),.*/\1.\2 \3\4 \5\6/p' \
  trace.json | awk '$2 < end[$1] { bad = 1 } { end[$1] = $2 + $3 } END { exit bad || NR == 0 }' ||
  fail "requests of one track overlap"

finish
