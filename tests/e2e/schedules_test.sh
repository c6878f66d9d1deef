# SPDX-License-Identifier: Apache-2.0
# Constraints of schedules: one line that names them and the smallest change, with which it runs.
. "$(dirname "$0")/lib.sh"

# fixes TEXT "BAD ARGUMENTS" "ARGUMENTS AS THE MESSAGE SAYS"
fixes() {
  rejects 2 "$1" schedule $2
  expect 0 schedule $3 --json
}
fixes 'set chunks to 2' "v-half --stages 4 --microbatches 8 --chunks 1" \
  "v-half --stages 4 --microbatches 8 --chunks 2"
fixes 'set micro-batches to 8' "interleaved --stages 4 --microbatches 6 --chunks 2" \
  "interleaved --stages 4 --microbatches 8 --chunks 2"
fixes 'set slices to 8' "slimpipe --stages 8 --microbatches 2 --slices 4" \
  "slimpipe --stages 8 --microbatches 2 --slices 8"
fixes 'set --cap to 4' "zb-v --stages 4 --microbatches 8 --chunks 2 --cap 2" \
  "zb-v --stages 4 --microbatches 8 --chunks 2 --cap 4"
for cap in 0 -1 0.5; do  # of any schedule, also of one without a cap
  fixes "$cap is out of range (1 to" "zb-1p --stages 4 --microbatches 8 --cap $cap" \
    "zb-1p --stages 4 --microbatches 8 --cap 1"
  rejects 2 "$cap is out of range" schedule gpipe --stages 4 --microbatches 8 --cap $cap
done
fixes 'set slices to 2' "flexsp --stages 8 --microbatches 2 --slices 3" \
  "flexsp --stages 8 --microbatches 2 --slices 2"
fixes 'set replicas to 4' "zou-ps-ring --stages 4 --microbatches 2 --replicas 9" \
  "zou-ps-ring --stages 4 --microbatches 2 --replicas 4"
fixes 'set chunks to 2' "dip --stages 4 --microbatches 2 --slices 3 --chunks 1" \
  "dip --stages 4 --microbatches 2 --slices 3 --chunks 2"
fixes 'set stages to 64' "tessel --stages 100 --microbatches 2" "tessel --stages 64 --microbatches 2"
fixes 'set micro-batches to 4' "pipedream-2bw --stages 4 --microbatches 2" \
  "pipedream-2bw --stages 4 --microbatches 4"
fixes 'set stages to 4' "chimera --stages 3 --microbatches 4" "chimera --stages 4 --microbatches 4"
fixes 'set micro-batches to 8' "dualpipe --stages 4 --microbatches 4" \
  "dualpipe --stages 4 --microbatches 8"
fixes 'set micro-batches to 8' "dualpipe --stages 4 --microbatches 5" \
  "dualpipe --stages 4 --microbatches 8"
fixes 'set micro-batches to 8' "bitpipe --stages 8 --microbatches 9 --chunks 2" \
  "bitpipe --stages 8 --microbatches 8 --chunks 2"
fixes 'set micro-batches to 16' "chimera-doubling --stages 4 --microbatches 13" \
  "chimera-doubling --stages 4 --microbatches 16"
fixes 'set micro-batches to 8' "chimera-doubling --stages 4 --microbatches 4" \
  "chimera-doubling --stages 4 --microbatches 8"
fixes 'set --cap to 2' "v-cap --stages 4 --microbatches 8 --chunks 2 --cap 1" \
  "v-cap --stages 4 --microbatches 8 --chunks 2 --cap 2"
fixes 'leave iterations out' "1f1b --stages 4 --microbatches 8 --iterations 3" \
  "1f1b --stages 4 --microbatches 8"
fixes 'set warm-up to 1' "1f1b --stages 4 --microbatches 8 --warm-up 2" \
  "1f1b --stages 4 --microbatches 8 --warm-up 1"
# All that has to change in one message: of an odd number of stages the neighbour that needs least.
fixes 'set stages to 4' "dualpipe --stages 5 --microbatches 8" "dualpipe --stages 4 --microbatches 8"
fixes 'set stages to 6' "chimera --stages 7 --microbatches 6" "chimera --stages 6 --microbatches 6"
fixes 'set stages to 4 and micro-batches to 4' "bitpipe --stages 3 --microbatches 3" \
  "bitpipe --stages 4 --microbatches 4"
fixes 'set stages to 2 and micro-batches to 4' "dualpipe --stages 1 --microbatches 1" \
  "dualpipe --stages 2 --microbatches 4"
fixes 'set stages to 6 and micro-batches to 12' "dualpipe --stages 7 --microbatches 3" \
  "dualpipe --stages 6 --microbatches 12"
fixes 'set stages to 6, and leave iterations out' "chimera --stages 7 --microbatches 6 --iterations 3" \
  "chimera --stages 6 --microbatches 6"
# Chunks that are left out are those that the other sizes ask for, whatever else is wrong.
rejects 2 'set replicas to 1' schedule dip --stages 2 --microbatches 1 --slices 2 --replicas 4:4
! grep -q chunks stderr || fail "chunks are not wrong: $(cat stderr)"
rejects 2 'set rollbacks to 0' schedule dip --stages 2 --microbatches 7 --warm-up 3 --rollbacks 2
! grep -q chunks stderr || fail "chunks are not wrong: $(cat stderr)"
# Numbers and quantities have the same bound, and say it the first time.
rejects 2 'is out of range (0 to 1000)' schedule 1f1b --stages 2 --microbatches 2 --forward 1e300
rejects 2 '1 h is out of range (0 to 1000 s)' schedule 1f1b --stages 2 --microbatches 2 --latency '1 h'
rejects 2 'slices must be at most' schedule terapipe --stages 4 --microbatches 1000 --slices 1000000

# Lists of one chunk a device run without --chunks, as schedules without chunks.
printf '{"schema": "orrery-schedule", "version": 1, "name": "one-chunk", "passes": [[%s, %s]]}' \
  '{"pass": "F", "stage": 0, "micro_batch": 0}' '{"pass": "BW", "stage": 0, "micro_batch": 0}' >one-chunk.json
expect 0 schedule --compare one-chunk.json zb-h1 breadth-first --stages 1 --microbatches 1 --chunks 2

# The streams of a worker have one name in pictures and tables.
expect 0 schedule nestpipe --stages 2 --microbatches 2 --svg streams.svg
[ "$(grep -c '^worker 1, prefetch' stdout)" = 2 ] && grep -q 'worker 1, prefetch' streams.svg &&
  ! grep -q '^stream *[0-9]' stdout || fail "streams: $(cat stdout)"

# Times have their unit, given or not.
printf 'stage,micro_batch,forward_s,input_grad_s,weight_grad_s\n0,,0.01,0.01,0.01\n1,,0.01,0.01,0.01\n' >costs.csv
expect 0 schedule 1f1b --stages 2 --microbatches 4 --costs costs.csv
grep -q '^makespan 0.15 s, bubble ' stdout && grep -q '^0 *0.03 s ' stdout || fail "times: $(cat stdout)"
expect 0 schedule --compare 1f1b pipedream --stages 2 --microbatches 4
grep -q '^1f1b *15 s ' stdout && grep -q '^pipedream .* 3 s$' stdout || fail "times: $(cat stdout)"

# Lists in a file are wrong where they are wrong, not in options that nobody gave.
printf '{"schema": "orrery-schedule", "version": 1, "name": "mine", "passes": [[%s, %s]]}' \
  '{"pass": "F", "stage": 20000, "micro_batch": 0}' \
  '{"pass": "BW", "stage": 20000, "micro_batch": 0}' >far.json
rejects 2 'far.json: /passes/0/0/stage: 20000 is too large for a document of 2 passes' \
  schedule far.json
sed 's/20000/0/; s/20000/0/; s/"micro_batch": 0}\]/"micro_batch": 9000000}]/' far.json >late.json
rejects 2 'late.json: /passes/0/1/micro_batch: 9000000 is too large' schedule late.json

# Every registered schedule runs with as few chunks and slices as it takes, and is drawn.
for name in $("$program" list schedules --json | sed -n 's/^ *"name": "\(.*\)",*$/\1/p'); do
  expect 0 schedule "$name" --stages 4 --microbatches 8 --svg out.svg
done
[ -n "${name:-}" ] || fail "no schedules are listed"
grep -qx 'wrote out.svg' stderr || fail "no word of the picture: $(cat stderr)"
expect 0 list schedules --json
cp stdout listed.json
expect 0 list schedules
[ "$(awk '{if (length > most) most = length} END {print most}' stdout)" -le 110 ] ||
  fail 'the list of schedules is too wide for a terminal'
[ "$(grep -c '^ *constraints: .' stdout)" -eq "$(grep -c '^ *source: .' stdout)" ] &&
  [ "$(grep -c '^ *source: .' stdout)" -ge 45 ] || fail "constraints or sources lack: $(cat stdout)"
expect 0 schedule --compare layerpipe dip tessel flexsp flexpipe zou-ps-ring pipeoffload \
  --stages 8 --microbatches 16
[ "$(grep -c '(asynchronous)' stdout)" -eq 2 ] || fail "two of them are asynchronous"
grep -q '^asynchronous: gradients are up to .staleness. updates late' stdout ||
  fail "no word of their training: $(cat stdout)"
# A parameter lacks updates of other workers, up to (D + 1) Nm + Nm - 2; one worker has only its own.
for case in '1 0 3' '1 2 3' '2 0 6' '3 0 6' '3 2 14'; do
  set -- $case
  orrery schedule hetpipe --stages 4 --microbatches 4 --replicas "$1" --warm-up "$2" --json
  grep -q "\"staleness\": $3\b" stdout || fail "hetpipe, workers, D, staleness $case: $(cat stdout)"
done
# nestpipe runs several batches, each with the parameters that the one before left.
expect 0 schedule --compare nestpipe 1f1b --stages 2 --microbatches 4
grep -q '^nestpipe  *-  *- .* 0  *1  *3.75 s$' stdout || fail "time from batch to batch: $(cat stdout)"
grep -q 'asynchronous' stdout && fail "nestpipe is synchronous: $(cat stdout)"
expect 0 schedule --compare nestpipe 1f1b --stages 2 --microbatches 4 --json
[ "$(grep -c '"iterations": 6' stdout)" -eq 1 ] || fail "batches of nestpipe alone: $(cat stdout)"
expect 0 schedule nestpipe --stages 2 --microbatches 4 --svg streams.svg
grep -q '>worker 0, prefetch<' streams.svg && grep -q '>worker 1, dense network<' streams.svg ||
  fail "streams of nestpipe without names"
expect 0 schedule --compare nestpipe 1f1b --stages 1 --microbatches 4 --svg streams.svg
grep -q '>lookups<' streams.svg && grep -q '>stage 0<' streams.svg || fail "streams beside stages"
# With too many passes to read the time from batch to batch, none is set against another's.
expect 0 schedule --compare nestpipe 1f1b --stages 64 --microbatches 192
grep -q '^nestpipe  *-  *- .* -$' stdout || fail "six batches as one: $(cat stdout)"
grep -q '^1f1b  *[0-9.]* s  *[0-9.]* %' stdout || fail "a single batch: $(cat stdout)"

[ "$(grep -c '"constraints": ".' listed.json)" -eq "$(grep -c '"source": ".' listed.json)" ] &&
  [ "$(grep -c '"source": ".' listed.json)" -ge 45 ] || fail 'list --json lacks constraints or sources'

for name in crosspipe tessel; do
  rejects 2 '1 or 2 model chunks per device are required, not 3' schedule $name --stages 4 --microbatches 8 --chunks 3
done
# What is too much to draw comes with how much is not.
rejects 2 '3200000 passes are too many for a picture or a trace, which have 200000 at most (set --microbatches to 12500 or fewer)' \
  schedule 1f1b --stages 8 --microbatches 200000 --svg large.svg
expect 0 schedule 1f1b --stages 8 --microbatches 12500 --trace large.json --quiet
# Runs of more than 104 days, of which the times are in a larger unit inside.
fixes 'set micro-batches to 260416' "1f1b --stages 64 --microbatches 1000000" \
  "1f1b --stages 64 --microbatches 260416"
rejects 2 'a trace ends within 104 days' \
  schedule 1f1b --stages 4 --microbatches 5000 --forward 1000 --trace long.json
rejects 2 '(set --microbatches to 3125 or fewer)' schedule seq1f1b --stages 8 --microbatches 4000 --slices 4 --svg large.svg

# Without --chunks they have two where with one they are as others, or no better.
expect 0 schedule --compare 1f1b interleaved --stages 4 --microbatches 8
grep -q '^interleaved *28.5 s' stdout || fail "interleaved of two chunks: $(cat stdout)"

# Chunks in a comparison are those of the schedules that have some.
expect 0 schedule --compare 1f1b interleaved --stages 4 --microbatches 8 --chunks 4
grep -q '^1f1b *33 ' stdout || fail "1f1b has no chunks: $(cat stdout)"
grep -q '^interleaved *26.25 ' stdout || fail "4 chunks: $(cat stdout)"

# So is a cap of those whose activations are not fixed.
expect 0 schedule --compare v-cap zb-h1 gpipe --stages 4 --microbatches 8 --cap 2
grep -q '^v-cap .* 2  *[0-9]*  *0  *1 ' stdout || fail "a cap of 2: $(cat stdout)"
grep -q 'cap does not bound zb-h1, gpipe' stdout || fail "which ignore it: $(cat stdout)"
rejects 2 'activations of all schedules named here are fixed' \
  schedule --compare zb-h1 gpipe --stages 4 --microbatches 8 --cap 2
rejects 2 'below the minimum' schedule --compare v-cap zb-v --stages 4 --microbatches 8 --cap 1
rejects 2 'leave --cap out' schedule gpipe --stages 4 --microbatches 8 --cap 2

# A table by device: a schedule that chooses where the chunks are plans with the times of each place.
printf '%s\n' stage,forward_s,input_grad_s,weight_grad_s 0,1,1,1 1,4,4,4 2,4,4,4 >devices.csv
expect 0 schedule flexpipe --stages 3 --microbatches 6 --chunks 2 --costs devices.csv --json
chosen=$(sed -n 's/^  "makespan": \(.*\),$/\1/p' stdout)
for other in "interleaved --chunks 2" v-half; do
  expect 0 schedule $other --stages 3 --microbatches 6 --costs devices.csv --json
  awk -v a="$chosen" -v b="$(sed -n 's/^  "makespan": \(.*\),$/\1/p' stdout)" \
    'BEGIN { exit !(a > 0 && a <= b) }' || fail "flexpipe $chosen is longer than $other"
done
printf '%s\n' stage,forward_s,input_grad_s,weight_grad_s 0,1,2,3 1,1,1,2 2,3,3,1 3,3,2,2 4,1,0.5,0.5 >devices.csv
expect 0 schedule --compare flexpipe interleaved v-half --stages 5 --microbatches 15 --chunks 2 \
  --costs devices.csv --cap 10
awk '$1 ~ /^(flexpipe|interleaved|v-half)$/ { time[$1] = $2 }
  END { exit !(time["flexpipe"] > 0 && time["flexpipe"] <= time["interleaved"] && time["flexpipe"] <= time["v-half"]) }' \
  stdout || fail "flexpipe with times by device: $(cat stdout)"

# Slices in a comparison are those of the schedules that have some, one a stage unless given.
expect 0 schedule --compare 1f1b slimpipe seq1f1b --stages 4 --microbatches 8
[ "$(sed -n 's/^slimpipe *\([0-9.]*\).*/\1/p' stdout)" = 26.25 ] || fail "4 slices: $(cat stdout)"
expect 0 schedule --compare 1f1b slimpipe seq1f1b --stages 4 --microbatches 8 --slices 8

# Iterations of zero-bubble schedules need no meeting: each takes a stage's span.
expect 0 schedule zb-h2 --stages 4 --microbatches 8 --iterations 3
grep -q '3 iterations, each 24 s after the one before' stdout || fail "iterations: $(cat stdout)"

# Sequences cut into slices, on a plan.
rejects 2 'set slices to 1024' plan corpus/tiny-network.json hgx-h100:1 --batch 16 --fix slices=2000
rejects 2 'set slices to 4,' plan corpus/tiny-network.json hgx-h100:1 --batch 16 --fix slices=3
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 4 -q -o sliced.json \
  --fix tp=1,pp=4,dp=2,zero=0,schedule=seq1f1b,slices=4
expect 0 simulate sliced.json
expect 0 schedule --compare terapipe seq1f1b slimpipe 1f1b --plan sliced.json
[ "$(grep -c ' yes ' stdout)" -eq 4 ] || fail "four schedules fit: $(cat stdout)"
rejects 2 'set slices to 4' schedule slimpipe --plan sliced.json --slices 2
rejects 2 'slices' export sliced.json --to megatron

# Zero-bubble iterations that run into each other take less, and none has a path of its own.
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 32 -q -o bubble.json \
  --set tied_embeddings=false --fix tp=1,pp=4,dp=2,zero=1,micro_batch=1,schedule=zb-h2,stages=even
sed 's/"overlap_p2p": true/&, "post_validation": true/' bubble.json >validated.json
expect 0 simulate bubble.json --json
meeting=$(sed -n 's/^  "iteration_time_s": \(.*\),$/\1/p' stdout)
grep -q '^  "critical_path_s"' stdout || fail 'no path of an iteration with a meeting'
expect 0 simulate validated.json --json
pace=$(sed -n 's/^  "iteration_time_s": \(.*\),$/\1/p' stdout)
awk -v a="$pace" -v b="$meeting" 'BEGIN { exit !(a > 0 && a < b) }' || fail "$pace, $meeting"
! grep -q '^  "critical_path_s"' stdout || fail 'a path of iterations that overlap'
grep -q 'post_validation' stdout || fail 'the plan does not say so'
rejects 2 'leave post_validation out' plan corpus/tiny-network.json hgx-h100:1 --batch 32 \
  --space per-block --fix post_validation=true
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 32 -q --set moe.experts=4 \
  --set moe.top_k=2 --set moe.ffn_hidden=512 --space per-block --schedule dualpipe -o blocks.json \
  --fix pp=2,tp=1,zero=1
grep -q '^Not proven of layouts for every block of dualpipe: ' stdout || fail "it is not said: $(tail -n 1 stdout)"
expect 0 plan gpt3-1.3b hgx-h100:1 --batch 16 -q --space per-block --schedule slimpipe --gap 0.5 \
  -o blocks.json
grep -q 'no plan with one layout for all blocks takes less than' stdout \
  || fail "a gap is left that is not said: $(tail -n 2 stdout)"
rejects 2 'no schedule named here predicts' schedule 1f1b --stages 4 --microbatches 4 --prediction 1
expect 0 schedule --compare 1f1b xpipe --stages 4 --microbatches 4 --prediction 1
finish
