# SPDX-License-Identifier: Apache-2.0
# From a network and a cluster to a plan, its explanation, its trace and a launch script and back.
. "$(dirname "$0")/lib.sh"

expect 0 plan llama3-8b hgx-h100:2 --batch 128 --fix pp=2,tp=2,zero=1,cp=1 --set nodes=4 \
  --trace trace.json --report report.txt
grep -q 'no plan in this space is faster' stdout || fail 'no proof'
grep -q '32 x h100-sxm5-80gb' stdout || fail '--set nodes=4 had no effect'
! grep -q 'MFU counts' stdout report.txt || fail 'sequences of 8,192 are not long'
for file in plan.json trace.json report.txt; do
  [ -s $file ] || fail "no $file"
done
for text in '"traceEvents"' '"ph":"X"' '"ph":"C"' '"ph":"s"' '"optimizer"' '"stage 1"'; do
  grep -qF "$text" trace.json || fail "no $text in the trace"
done
for text in 'critical path' 'MFU' 'where the time goes' 'memory per GPU' 'trillion tokens  '; do
  grep -qF "$text" report.txt || fail "no \"$text\" in the report"
done

expect 0 simulate plan.json
grep -qF "PyTorch's caching allocator" stdout || fail 'simulate does not replay the allocator'
expect 0 simulate plan.json --json
for key in iteration_time_s iteration_time_interval_s tokens_per_s_per_gpu mfu hfu bubble_fraction \
  exposed_communication_s peak_memory_bytes memory_bytes replayed_memory suggestions plan; do
  grep -q "^  \"$key\"" stdout || fail "simulate --json has no $key"
done
cp stdout simulated.json
# 10^12 tokens on 32 GPUs of 2.69 USD an hour.
awk -v rate="$(value_of stdout tokens_per_s_per_gpu)" -v days="$(value_of stdout days_per_trillion_tokens)" \
  -v hours="$(value_of stdout gpu_hours_per_trillion_tokens)" \
  -v dollars="$(value_of stdout cost_usd_per_trillion_tokens)" '
  function near(a, b) { return a / b > 0.999999 && a / b < 1.000001 }
  BEGIN { exit !(near(hours, 1e12 / rate / 3600) && near(days, hours / 32 / 24) && near(dollars, hours * 2.69)) }' ||
  fail "days, hours and dollars do not go together: $(grep per_trillion stdout)"
expect 0 plan gpt2 gtx-1080ti-8 --batch 8 -q -o unpriced.json
expect 0 simulate unpriced.json
grep -qE '^trillion tokens   [0-9.]+ days, [0-9]+ GPU-hours$' stdout ||
  fail "a GPU without a price: $(grep '^trillion' stdout)"
expect 0 simulate simulated.json
"$program" simulate - <plan.json >piped 2>stderr || fail 'simulate - fails'
same piped stdout 'simulate - and simulate of its JSON'

expect 0 plan llama3-8b hgx-h100:2 --batch 128 --fix pp=2,tp=2 --json
for key in space certificate search_time_s alternatives suggestions plan; do
  grep -q "^  \"$key\"" stdout || fail "plan --json has no $key"
done
for key in plans pruned simulated lower_bound_s gap; do
  grep -q "\"$key\"" stdout || fail "plan --json has no $key"
done

# A trace that cannot be drawn is refused before the report.
expect 0 plan llama3-8b hgx-h100:1 --batch 16 --fix pp=2,tp=4,schedule=chimera -o two-ways.json
expect 2 simulate two-ways.json --trace t.json --trace-detail kernels
grep -q 'passes or auto' stderr || fail 'no hint at what can be drawn'
[ ! -s stdout ] && [ ! -e t.json ] || fail 'a refused trace leaves a report or a file'
expect 0 simulate two-ways.json --trace t.json --trace-detail auto

# Experts on two nodes: what tokens that travel once a node would gain, unless the choice is fixed.
experts='plan deepseek-v2-lite hgx-h100:2 --batch 64 --seq 4096 --fix tp=1,cp=1,pp=1,ep=16,zero=1'
expect 0 $experts
grep -q -- '--fix deduplicated_dispatch=true' stderr || fail 'plan suggests nothing'
expect 0 simulate plan.json --json
grep -q '"field": *"execution.deduplicated_dispatch"' stdout || fail 'simulate suggests nothing'
expect 0 $experts,deduplicated_dispatch=false
! grep -q 'deduplicated_dispatch=true' stderr || fail 'plan talks about a fixed choice'

# Context ranks hold the same parameters: their gradients are reduced together.
expect 0 plan llama3-8b hgx-h100:2 --batch 128 --fix pp=2,tp=2,cp=2,zero=1 --report report.txt
grep -q '^data-parallel communication, exposed .* 4 ranks in one node' report.txt ||
  fail 'wrong group of data-parallel communication'
# Of shards in a node their replicas on other nodes; without data ranks sums over the tensor ranks.
expect 0 plan llama3-8b hgx-h100:2 --batch 64 --report report.txt \
  --fix pp=1,tp=1,cp=1,zero=3,shard_degree=8,micro_batch=1
grep -q '^data-parallel .* 8 ranks in one node, 2 replicas of them across nodes' report.txt ||
  fail 'wrong groups of replicated shards'
expect 0 plan llama3.2-3b hgx-h100:1 --batch 4 --seq 4096 --report report.txt \
  --fix tp=8,cp=1,pp=1,sequence_parallel=true,overlap_grad_reduce=false
grep -q '^data-parallel .* 8 tensor-parallel ranks in one node' report.txt ||
  fail 'wrong group of gradients that tensor ranks sum'
# Shards of embedding and head talk over the stages, whatever tensor parallelism there is.
expect 0 plan llama3-8b hgx-h100:2 --batch 128 --fix pp=4,tp=2,cp=1,zero=1 --schedule vocab-1 \
  --report report.txt
grep -q '^vocabulary-parallel communication, exposed .* 4 ranks across nodes' report.txt ||
  fail 'wrong group of vocabulary-parallel communication'
# Groups that do not divide a node's GPUs do not all lie in one node.
expect 0 plan corpus/tiny-network.json hgx-h100:4 --batch 24 --set node.gpus=6 -q -o sixes.json \
  --fix tp=4,pp=1,cp=1
expect 0 simulate sixes.json
grep -q 'tensor-parallel .* 4 ranks in one node, but of some groups across two' stdout ||
  fail "groups of 4 on nodes of 6: $(grep tensor-parallel stdout)"

expect 0 plan llama3-8b hgx-h100:4 --batch 128 --fix pp=2,tp=2,zero=1,cp=1 --schedule 1f1b \
  --schedule interleaved
expect 0 export plan.json --to megatron --output script.sh
grep -q -- '--tensor-model-parallel-size 2' script.sh || fail 'no tp in the launch script'
expect 0 import script.sh --from megatron --cluster hgx-h100:4 -o imported.json
! grep -q 'processes' stderr || fail 'import remarks on a script of the same size'
expect 0 import script.sh --from megatron --cluster hgx-h100:8 -o larger.json
grep -q 'script.sh starts 32 processes, hgx-h100:8 has 64 GPUs' stderr ||
  fail 'import says nothing of a script of another size'
expect 0 compare plan.json imported.json
for row in iteration 'GPU-hours per trillion tokens' 'USD per trillion tokens'; do
  grep -q "^$row  " stdout || fail "compare shows no $row"
done
expect 0 compare plan.json imported.json --json
[ "$(grep -c '"differences_to_first"' stdout)" -eq 2 ] || fail 'compare --json has not two plans'

# Times of an asynchronous plan are shown, not set against those of a synchronous one.
stages="plan gpt3-1.3b dgx-a100:1 --batch 32 -q --fix tp=2,pp=4"
expect 0 $stages,schedule=1f1b -o synchronous.json
expect 0 $stages,schedule=pipedream --allow asynchronous -o asynchronous.json
expect 0 compare synchronous.json asynchronous.json
grep -q '^plan 2 is asynchronous: gradients are up to 3 updates late' stdout || fail 'no word of it'
grep -qE '^iteration .*\(' stdout && fail "compared by time: $(grep '^iteration' stdout)"
expect 0 compare synchronous.json asynchronous.json --json
[ "$(grep -c '"differences_to_first"' stdout)" -eq 1 ] || fail 'compare --json sets them against each other'
# Nor those of one staleness against another's; of one schedule they are.
expect 0 $stages,schedule=pipedream-2bw --allow asynchronous -o once.json
expect 0 compare asynchronous.json once.json
grep -qE '^iteration .*\(' stdout && fail "stalenesses compared by time: $(grep '^iteration' stdout)"
expect 0 plan gpt3-1.3b dgx-a100:1 --batch 64 -q --fix tp=2,pp=4,schedule=pipedream-2bw \
  --allow asynchronous -o longer.json
expect 0 compare once.json longer.json
grep -qE '^iteration .*\(' stdout || fail "of one schedule: $(grep '^iteration' stdout)"

for kind in 'network mixtral-8x7b' 'cluster dgx-a100:4' 'gpu a100-sxm4-80gb' \
  'profile a100-sxm4-80gb' 'schedule interleaved'; do
  expect 0 show $kind
  [ -s stdout ] || fail "show $kind prints nothing"
  expect 0 show $kind --json
done
if [ -f "$here/../data/measurements/training_runs.csv" ]; then
  expect 0 validate "$here/../data/measurements/training_runs.csv" --json
  grep -q '"overall"' stdout || fail 'validate --json has no "overall"'
fi
# Of long sequences most FLOPs that MFU counts are attention's, and the mask leaves out half.
expect 0 plan llama3-8b hgx-h100:1 --batch 1 --seq 131072 --fix tp=8,recompute=full -o long.json
grep -q '^MFU counts causal attention in full; by half it is [0-9.]* %$' stdout ||
  fail 'how MFU counts attention is not told'
expect 0 simulate long.json
awk '/^utilisation/ { full = $3 } /MFU counts causal attention in full/ { half = $(NF - 1) }
  END { exit !(half > full / 2 && half < 0.65 * full) }' stdout || fail "MFU: $(grep MFU stdout)"
finish
