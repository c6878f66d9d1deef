# SPDX-License-Identifier: Apache-2.0
# Every registered schedule has a plan of its own on a network and a cluster: it is searched,
# simulated, drawn three ways and compared, and without what it needs one message says so.
. "$(dirname "$0")/lib.sh"

tiny=corpus/tiny-network.json
layout=micro_batch=1,tp=1,cp=1
encoder='"layers": 8, "hidden": 512, "heads": 8, "image_patch": 14, "tokens": 256, "items": 2'
sed "s/\"vocab\": 32000/&, \"tied_embeddings\": false, \"encoder\": {$encoder, \"frozen\": false}/" \
  $tiny >trained.json
sed 's/"frozen": false/"frozen": true/' trained.json >frozen.json
cascade='"layers": 6, "hidden": 512, "heads": 8, "tokens": 512'
sed "s/\"encoder\"/\"cascade\": {$cascade}, &/" frozen.json >cascade.json
printf '[1024, 512, 768, 256, 256, 128]\n' >lengths.json
cat >tables.json <<'END'
{"schema": "orrery-recommender", "version": 1, "name": "dlrm", "cluster": "hgx-h100:1",
 "batch": 16384, "precision": "fp32", "schedule": "nestpipe", "micro_batches": 4,
 "dense": {"features": 13, "bottom": [512, 128], "top": [1024, 1], "interaction": "dot"},
 "tables": [{"name": "items", "count": 16, "rows": 500000, "dim": 128, "pooling": 20,
             "slope": 1.05, "sharding": "table"}]}
END

sed 's/"schedule": "nestpipe", "micro_batches": 4,//' tables.json >in-turn.json

# plan_of NAME: how docs/schedules.md says to make one.
plan_of() {
  local search="plan $tiny hgx-h100:1 --batch 32 -q -o own.json"
  case $1 in
    nestpipe) expect 0 plan in-turn.json hgx-h100:1 -q -o own.json ;; # which is faster than in turn
    flexsp) expect 0 plan $tiny hgx-h100:1 -q -o own.json --schedule flexsp --lengths lengths.json \
      --fix tp=1,zero=1,recompute=none ;;
    dip) expect 0 plan trained.json hgx-h100:1 --batch 32 -q -o own.json \
      --fix schedule=dip,pp=4,encoder_parts=2,$layout ;;
    diffusionpipe) expect 0 plan frozen.json hgx-h100:1 --batch 32 -q -o own.json \
      --fix schedule=diffusionpipe,pp=4,$layout ;;
    diffusionpipe-cascaded) expect 0 plan cascade.json hgx-h100:1 --batch 32 -q -o own.json \
      --fix schedule="$1",pp=4,$layout ;;
    zou-ps-ring) expect 0 $search --allow asynchronous --fix schedule="$1",pp=1,$layout ;;
    pipeoffload) expect 0 $search --fix schedule="$1",pp=8,$layout ;; # at 4 stages nothing leaves
    *) expect 0 $search --allow asynchronous --fix schedule="$1",pp=4,$layout ;;
  esac
}

# trace_ends NAME: the trace of own.json ends with the iteration, where iterations do not overlap.
trace_ends() {
  expect 0 simulate own.json --json --trace own.trace.json --trace-detail passes
  awk -v synchronous="$(value_of stdout synchronous)" -v t="$(value_of stdout iteration_time_s)" '
    /"ph":"X"/ && match($0, /"ts":[0-9.]+/) {
      at = substr($0, RSTART + 5, RLENGTH - 5)
      match($0, /"dur":[0-9.]+/)
      end = at + substr($0, RSTART + 6, RLENGTH - 6)
      if (end > last) last = end
    }
    END {
      off = last / (t * 1e6) - 1
      printf "the trace ends at %.9f s, the iteration at %.9f s\n", last / 1e6, t
      exit !(last > 0 && (synchronous != "true" || (off < 1e-9 && off > -1e-9)))
    }' own.trace.json >ends || fail "$1: $(cat ends)"
}

for name in $("$program" list schedules --json | sed -n 's/^ *"name": "\(.*\)",*$/\1/p'); do
  rm -f own.json
  plan_of "$name"
  expect 0 simulate own.json
  expect 0 schedule "$name" --plan own.json --svg own.svg --trace own.trace.json --width 60
  grep -q '|.*[0-9a-j].*|' stdout || fail "$name: no picture: $(cat stdout)"
  [ "$(grep -c '</svg>' own.svg)" -eq 1 ] || fail "$name: no SVG"
  grep -q traceEvents own.trace.json || fail "$name: no trace"
  expect 0 schedule "$name" --plan own.json --json
  grep -q '"fits": true' stdout || fail "$name: does not fit"
  awk -v t="$(value_of stdout iteration_time_s)" 'BEGIN { exit !(t > 0) }' || fail "$name: no time"
  expect 0 schedule --compare "$name" --plan own.json
  grep -q "^$name " stdout || fail "$name: not in the comparison: $(cat stdout)"
  [ "$name" = nestpipe ] || trace_ends "$name"
done
[ -n "${name:-}" ] || fail "no schedules are listed"

# Passes of slices are counted before they are drawn.
expect 0 plan $tiny hgx-h100:1 --batch 32 -q -o sliced.json \
  --fix schedule=seq1f1b,pp=4,slices=8,$layout
sed 's/"batch": 32,/"batch": 65536,/' sliced.json >long.json
rejects 2 'an iteration of 2097152 passes is too long to draw' \
  simulate long.json --trace long.trace.json --trace-detail passes

# Sizes in JSON are whole bytes, whatever the mean rank holds.
expect 0 simulate tables.json --json
sed -n '/^  "peak_memory_bytes"/,/^  "layout"/p' stdout | grep -q '[0-9][.e][0-9+]' &&
  fail "parts of bytes: $(cat stdout)"

# Sequences of different length in a pipeline, under every schedule that runs them.
expect 0 plan $tiny hgx-h100:1 -q -o packed.json --schedule dynapipe --lengths lengths.json \
  --fix tp=1,pp=4,zero=0,recompute=none
grep -q '"packs"' packed.json || fail "no packs: $(cat packed.json)"
expect 0 simulate packed.json --trace packed.trace.json --json
grep -q '"replayed_memory": \[$' stdout || fail "no replay: $(cat stdout)"
grep -q traceEvents packed.trace.json || fail "no trace of packs"
expect 0 schedule --compare 1f1b gpipe dynapipe infinipipe --plan packed.json
rejects 2 'set the schedule to "dynapipe"' schedule zb-h1 --plan packed.json
rejects 2 'cannot express packs' export packed.json --to megatron
sed 's/"batch": 6/"batch": 7/' packed.json >mismatch.json
rejects 2 'set batch to 6' simulate mismatch.json
rejects 2 'add --schedule flexsp or --schedule dynapipe' plan $tiny hgx-h100:1 --schedule zb-h1 \
  --lengths lengths.json

# A plan of another schedule lacks what these need.
expect 0 plan $tiny hgx-h100:1 --batch 32 -q -o plain.json --fix schedule=1f1b,pp=4,zero=1,$layout
rejects 2 'give the network an "encoder"' schedule dip --plan plain.json
rejects 2 'with "frozen": true' schedule diffusionpipe --plan plain.json
rejects 2 'with "frozen": true' schedule diffusionpipe-cascaded --plan plain.json
expect 0 plan frozen.json hgx-h100:1 --batch 32 -q -o encoder.json \
  --fix schedule=diffusionpipe,pp=4,$layout
rejects 2 'give the network a "cascade"' schedule diffusionpipe-cascaded --plan encoder.json
rejects 2 'set pp to 1' schedule flexsp --plan plain.json
rejects 2 'set zero_stage to 0' schedule hetpipe --plan plain.json
rejects 2 'set pp to 1' schedule zou-ps-ring --plan plain.json
rejects 2 'it needs embedding tables' schedule nestpipe --plan plain.json
rejects 2 '28 virtual stages (stages x chunks) (at most 8' schedule interleaved --plan plain.json --chunks 7
rejects 2 'does not run the schedule "1f1b"' schedule 1f1b --plan tables.json
rejects 2 'does not run the schedule "1f1b"' schedule --compare nestpipe 1f1b --plan tables.json
rejects 2 'leave --slices, --chunks and --cap out' schedule nestpipe --plan tables.json --cap 2
rejects 2 'no schedule is stated' schedule nestpipe --plan in-turn.json
orrery plan trained.json hgx-h100:1 --batch 32 -q --set encoder.items=1 \
  --fix schedule=dip,pp=4,encoder_parts=2,$layout
[ "$status" -eq 3 ] && grep -q 'set encoder_parts to 1' stderr || fail "items are cut: $(cat stderr)"
# The documented way from a network without a schedule; counts are rounded as elsewhere.
expect 0 plan in-turn.json hgx-h100:1 -q -o own.json
grep -Eq ' [0-9.]+ M +[0-9.]+ GiB ' stdout || fail "samples a second: $(cat stdout)"
grep -Eq '^lookups take [0-9.]+ us on a rank; [0-9.]+ M of [0-9.]+ M rows' stdout ||
  fail "lookups: $(grep lookups stdout)"
expect 0 schedule nestpipe --plan own.json
expect 0 schedule --compare nestpipe --plan own.json
# The search chooses shardings and micro-batches of it.
expect 0 plan in-turn.json hgx-h100:1 --json -o nested.json --fix schedule=nestpipe,micro_batches=4
grep -q '"micro_batches": 4' stdout || fail "no micro-batches: $(head -n 20 stdout)"
expect 0 plan in-turn.json hgx-h100:1 -o nested.json --schedule nestpipe
grep -q 'micro-batches' stdout || fail "no micro-batches: $(cat stdout)"
rejects 2 'does not run the schedule "nestpip" (did you mean "nestpipe"' \
  plan in-turn.json hgx-h100:1 --fix schedule=nestpip
rejects 2 'has no field "tp"' plan in-turn.json hgx-h100:1 --fix tp=2
expect 0 schedule --compare nestpipe --plan tables.json --json
[ "$(grep -c iteration_time_s stdout)" -eq 3 ] || fail "without a schedule, too: $(cat stdout)"

# Any two are compared on one plan, whichever it was made for.
expect 0 plan trained.json hgx-h100:1 --batch 32 -q -o chain.json --fix schedule=1f1b,pp=4,$layout
expect 0 schedule --compare 1f1b dip interleaved --plan chain.json
expect 0 schedule --compare diffusionpipe 1f1b zb-v --plan encoder.json
# What does not run with an encoder says so before it is searched for.
behind_encoder="plan trained.json hgx-h100:1 --batch 32 --fix pp=4 -q"
rejects 2 'this network has an encoder' $behind_encoder --schedule seq1f1b
rejects 2 'gradients run through one chain' $behind_encoder --schedule layerpipe --allow asynchronous
rejects 2 'below the minimum: set --cap to 4' schedule zb-v --plan chain.json --cap 1
rejects 2 'leave --cap out' schedule gpipe --plan chain.json --cap 2

# Without --chunks flexpipe takes the faster of one chunk and two, no slower than lists at its cap.
time_of() { # SCHEDULE OPTION...
  expect 0 schedule "$1" --plan plain.json --json "${@:2}"
  value_of stdout iteration_time_s
}
for case in v-half:3:2 1f1b:4:1; do
  IFS=: read -r name cap chunks <<<"$case"
  lists=$(time_of "$name")
  one=$(time_of flexpipe --cap "$cap" --chunks 1)
  two=$(time_of flexpipe --cap "$cap" --chunks 2)
  own=$(time_of flexpipe --cap "$cap")
  grep -q "\"chunks\": $chunks," stdout || fail "flexpipe at cap $cap: $(grep chunks stdout)"
  awk -v own="$own" -v one="$one" -v two="$two" -v lists="$lists" \
    'BEGIN { exit !(own > 0 && own <= one && own <= two && own <= lists && one != two) }' ||
    fail "flexpipe at cap $cap takes $own s, with chunks $one and $two s, $name $lists s"
done

# A cascade is no chain of stages; the best plan of all is no slower than that of both directions.
expect 0 plan cascade.json hgx-h100:1 --batch 32 -q --json
best=$(value_of stdout iteration_time_s)
expect 0 plan cascade.json hgx-h100:1 --batch 32 -q --json --schedule diffusionpipe-cascaded
awk -v a="$best" -v b="$(value_of stdout iteration_time_s)" 'BEGIN { exit !(a > 0 && a <= b) }' ||
  fail "the best plan takes $best s"
rejects 2 'set the schedule to "diffusionpipe-cascaded"' \
  plan cascade.json hgx-h100:1 --batch 32 --fix schedule=1f1b,pp=4
rejects 2 'two trained backbones, which are not one chain' \
  plan cascade.json hgx-h100:1 --batch 32 --fix schedule=dip
rejects 2 'has 22 layers' plan cascade.json hgx-h100:4 --batch 32 --fix pp=16,chunks=2
rejects 2 'does not divide the 513 tokens of the second backbone' \
  plan cascade.json hgx-h100:1 --batch 32 --fix cp=2 --set cascade.tokens=513
rejects 2 'does not divide the 1 attention heads of the second backbone' \
  plan cascade.json hgx-h100:1 --batch 32 --fix tp=2 --set cascade.heads=1
rejects 2 'does not divide the 1 attention heads of the second backbone' \
  plan cascade.json hgx-h100:1 --batch 32 --fix cp=2,context=ulysses --set cascade.heads=1
rejects 2 'does not divide the 513 feed-forward columns of the second backbone' \
  plan cascade.json hgx-h100:1 --batch 32 --fix tp=2 --set cascade.ffn_hidden=513
rejects 2 'plans of mixed clusters have one trained backbone' \
  plan cascade.json hgx-h100:1+dgx-a100:1 --batch 32
rejects 2 'both backbones of a cascade read the features of a frozen encoder' \
  plan cascade.json hgx-h100:1 --batch 32 --set encoder.frozen=false
expect 0 plan cascade.json hgx-h100:1 --batch 32 -q -o loop.json --fix schedule=1f1b,pp=1,$layout
rejects 2 'stages must be even' schedule diffusionpipe-cascaded --plan loop.json
rejects 2 'two trained backbones' schedule v-half --plan loop.json

# The output layer over all devices, on one chunk and on two.
for name in vocab-1 vocab-2 interlaced; do
  expect 0 plan $tiny hgx-h100:1 --batch 32 -q -o own.json \
    --fix schedule=$name,pp=4,chunks=2,$layout
  expect 0 schedule "$name" --plan own.json
  grep -q 'chunks 2' stdout || fail "$name: not on two chunks: $(cat stdout)"
done
finish
