# SPDX-License-Identifier: Apache-2.0
# A schedule written as a document is run, drawn and compared like a registered one; bad ones are
# refused in one line.
. "$(dirname "$0")/lib.sh"

head='"schema": "orrery-schedule", "version": 1, "name": "mine"'
echo "{$head, \"placement\": \"loop\", \"warm_up\": {\"per_later_device\": 1}}" > mine.json
sizes="--stages 4 --microbatches 8"

expect 0 schedule mine.json $sizes --json --svg mine.svg
mv stdout mine.out
expect 0 schedule 1f1b $sizes --json --svg known.svg
same mine.out stdout "a description of 1f1b"
sed 's/1f1b, 4/mine, 4/' known.svg > expected.svg
same mine.svg expected.svg "its picture"
echo "{$head, \"placement\": \"v\"}" > turning.json
expect 0 schedule --compare mine.json turning.json 1f1b $sizes
[ "$(grep -c '^mine ' stdout)" -eq 2 ] || fail "no rows of the documents: $(head -n 4 stdout)"

refuses() { # refuses TEXT MEMBERS [ARGUMENT...]
  local text=$1
  echo "{$head, $2}" > bad.json
  shift 2
  rejects 2 "$text" schedule bad.json "$@"
}
forward='{"pass": "F", "stage": 0, "micro_batch": 0}'
backward='{"pass": "BW", "stage": 0, "micro_batch": 0}'
one="--stages 1 --microbatches 1"
refuses 'did you mean "warm_up"' '"placement": "loop", "warmup": 1' $sizes
refuses 'set chunks to 2' '"placement": "v"' $sizes --chunks 1
refuses 'deadlock: device 0 waits' '"placement": "loop", "traversal": "depth", "warm_up": 1' \
  $sizes --chunks 2
refuses 'missing pass: BW of stage 0, micro-batch 0' "\"passes\": [[$forward]]" $one
refuses 'doubled pass: F of stage 0, micro-batch 0' "\"passes\": [[$forward, $forward]]" $one
refuses 'leave it out' '"placement": "loop", "overrides": [{"device": 1}]' $sizes
refuses 'listed before what it needs' "\"passes\": [[$backward, $forward]]" $one

# Lists say for how many devices and micro-batches they are.
echo "{$head, \"passes\": [[$forward, $backward]]}" > lists.json
expect 0 schedule lists.json --json
mv stdout lists.out
expect 0 schedule lists.json $one --json
same lists.out stdout "lists without their sizes"
expect 0 schedule --compare 1f1b lists.json --json
mv stdout lists.out
expect 0 schedule --compare 1f1b lists.json $one --json
same lists.out stdout "lists compared without their sizes"
rejects 2 'set micro-batches to 1' schedule lists.json --microbatches 2
refuses 'no list has a pass' '"passes": [[]]'
rejects 2 'lists of 1 stage on 1 device have 1 model chunk per device, not 2: set chunks to 1' schedule lists.json --chunks 2
rejects 2 'must be at most' schedule v-cap --stages 500 --microbatches 20000

# Two slices of one sequence, two directions on two devices, and an update.
f() { echo "{\"pass\": \"F\", \"stage\": $1, \"micro_batch\": $2${3:-}}"; }
b() { f "$@" | sed 's/"F"/"BW"/'; }
first=', "slice": 0'
second=', "slice": 1'
echo "{$head, \"slices\": 2, \"passes\": [[$(f 0 0 "$first"), $(f 0 0 "$second"),
  $(b 0 0 "$second"), $(b 0 0 "$first")], [$(f 1 0 "$first"), $(f 1 0 "$second"),
  $(b 1 0 "$second"), $(b 1 0 "$first")]]}" > sliced.json
expect 0 schedule sliced.json --json
mv stdout sliced.out
expect 0 schedule terapipe --stages 2 --microbatches 1 --slices 2 --json
same sliced.out stdout "slices in lists"
rejects 2 'set slices to 2' schedule sliced.json --slices 4
back=', "direction": 1'
echo "{$head, \"passes\": [[$(f 0 0), $(f 1 1 "$back"), $(b 1 1 "$back"), $(b 0 0)],
  [$(f 0 1 "$back"), $(f 1 0), $(b 1 0), $(b 0 1 "$back")]]}" > directions.json
expect 0 schedule directions.json --json
mv stdout directions.out
expect 0 schedule chimera --stages 2 --microbatches 2 --json
same directions.out stdout "directions in lists"
refuses 'did you mean "direction"' "\"passes\": [[$(f 0 0 ', "directon": 1')]]"
refuses 'missing pass: BW of stage 0, micro-batch 0' "\"passes\": [[$(f 0 0),
  {\"pass\": \"U\", \"stage\": 0, \"update\": 0}]]"
echo "{$head, \"passes\": [[$(f 0 0), $(b 0 0), {\"pass\": \"U\", \"stage\": 0, \"update\": 0}]]}" > updated.json
expect 0 schedule updated.json
echo "{$head, \"placement\": \"loop\", \"warm_up\": {\"micro_batches\": 1, \"per_later_device\": 1}}" > rule.json
expect 0 schedule rule.json $sizes --slices 4 --json
mv stdout rule.out
expect 0 schedule seq1f1b $sizes --slices 4 --json
same rule.out stdout "a description of seq1f1b"

# The same documents in plans and in the search.
search="plan gpt3-1.3b dgx-a100:1 --batch 32 --fix pp=4,tp=2 -q"
expect 0 $search --schedule mine.json --json -o plan.json
grep -q '"name": "mine"' plan.json || fail "the plan does not hold the document"
mv stdout found.json
rm -f mine.json
expect 0 simulate plan.json --json
[ "$(value_of stdout iteration_time_s)" = "$(value_of found.json iteration_time_s)" ] ||
  fail "simulate differs from the search"
expect 0 schedule --plan plan.json --svg real.svg --trace real.trace.json --json
grep -q '</svg>' real.svg || fail "no picture"
grep -q traceEvents real.trace.json || fail "no trace"
expect 0 schedule --compare 1f1b zb-h1 pipedream --plan plan.json --svg all.svg --trace all.json
grep -q '>zb-h1: iteration' all.svg || fail "no rows of zb-h1"
grep -q '"pipedream: stage 3"' all.json || fail "no process of pipedream"
grep -q 'pipedream (asynchronous)  *1  *1  as planned  *-' stdout || fail "a time of pipedream beside the others"
expect 0 $search --schedule turning.json --fix chunks=2 -o turning-plan.json
rm -f plan.json
rejects 2 'set chunks to 2' $search --schedule zb-v --fix chunks=1
# Of a plan with chunks, what a schedule without any lacks besides.
expect 0 $search --schedule interleaved --fix chunks=2 -o interleaved.json
rejects 2 'set pp to 1' schedule zou-ps-ring --plan interleaved.json
rejects 2 'is asynchronous' $search --schedule pipedream
several="--schedule lists.json --schedule 1f1b -o several.json"
expect 0 ${search% -q} $several
[ "$(grep -c 'no plan of this search has schedule mine: schedule "mine": lists of 1 device' stderr)" -eq 1 ] ||
  fail "no note of a schedule without plans: $(cat stderr)"
expect 0 $search $several
[ ! -s stderr ] || fail "-q has notes: $(cat stderr)"
rejects 2 'the 2 slices of its lists do not divide the 1023 tokens of a sequence' \
  plan gpt3-1.3b dgx-a100:1 --batch 32 --seq 1023 --fix pp=2 --schedule sliced.json
rejects 2 'it needs' $search --fix schedule=nestpipe
rejects 2 'state them with --lengths' $search --fix schedule=flexsp
# Passes R and U in plans, and lists that never flush apart from those that do.
echo "{$head, \"placement\": \"loop\", \"warm_up\": 1, \"recompute\": true}" > again.json
expect 0 $search --schedule again.json -o again-plan.json
expect 0 schedule --plan again-plan.json
grep -q ' recompute ' stdout || fail "no times of passes R"
expect 0 schedule mine --plan again-plan.json
expect 0 schedule --compare mine 1f1b --plan again-plan.json
[ "$(grep -c '^mine ' stdout)" -eq 1 ] || fail "no row of the plan's document: $(cat stdout)"
rejects 2 'unknown pipeline schedule "mime"' schedule --compare mime --plan again-plan.json
u() { echo "{\"pass\": \"U\", \"stage\": $1, \"update\": $2}"; }
two="$(f 0 0), $(b 0 0), $(f 0 1), $(b 0 1)"
echo "{$head, \"passes\": [[$two, $(u 0 0)]]}" > updates.json
untied="plan llama3-8b dgx-a100:1 --batch 2 --seq 1024 --fix pp=1,tp=8 -q"
expect 0 $untied --schedule updates.json -o updates-plan.json
expect 0 schedule --plan updates-plan.json
grep -q ' update ' stdout || fail "no times of passes U"
# Printed without recorded lists: a plan with updates has no critical path then.
for how in "" "--pareto memory" "--like megatron"; do
  expect 0 $untied --schedule updates.json $how --json
done
expect 0 compare updates-plan.json updates-plan.json --json
# Slices have whole backwards and one direction; the search leaves other documents without them.
echo "{$head, \"placement\": \"loop\", \"split_backward\": true, \"warm_up\": {\"micro_batches\": 3,
  \"per_later_device\": 4}, \"weight_grads\": {\"late\": 1}}" > cut.json
expect 0 $search --schedule cut.json --fix chunks=1 -o cut-plan.json
rejects 2 'leave "split_backward" out' schedule cut.json --plan cut-plan.json --chunks 1 --slices 2
# A run too short to be steady: no pace is faster than the busiest device.
echo "{$head, \"versions\": \"stashed\", \"passes\": [[$(f 0 0), $(b 0 0), $(u 0 0), $(f 0 1),
  $(b 0 1), $(u 0 1)]]}" > stale.json
rejects 2 '"mine" is asynchronous' $untied --schedule stale.json
expect 0 $untied --schedule stale.json --allow asynchronous -o stale-plan.json
grep -q 'asynchronous: staleness 0' stdout || fail "no staleness of lists that never flush"
expect 0 schedule --plan stale-plan.json --json
awk -v a="$(value_of stdout steady_period)" -v b="$(value_of stdout iteration_time_s)" \
  'BEGIN { exit !(a > 0 && (2 * a - b) ^ 2 < 1e-18) }' || fail "two paces: $(head -n 20 stdout)"
echo "{$head, \"passes\": [[$(f 0 0), $(b 0 0), $(u 0 0), $(f 0 1), $(b 0 1), $(u 0 1)]]}" > often.json
rejects 2 'updates each stage once' $untied --schedule often.json
echo "{$head, \"placement\": \"v\", \"cap\": 0.1}" > bad.json
rejects 2 'bad.json: /cap' $search --schedule bad.json
finish
