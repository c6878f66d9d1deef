# SPDX-License-Identifier: Apache-2.0
# What one answer says of a thing twice agrees, and docs/ name every member of --json.
. "$(dirname "$0")/lib.sh"
docs=$here/../../docs

# named PAGE...: the members in ./stdout, but for those of documents in it, are words of docs/cli.md or a PAGE.
named() {
  local member
  for member in $(awk '
    end != "" { if ($0 == end || $0 == end ",") end = ""; next }
    /^ *"(plan|document|network)": \{$/ { end = $0; sub(/".*/, "}", end); next }
    { print }' stdout | sed -n 's/^ *"\([a-z][a-z_]*\)": .*/\1/p' | sort -u); do
    (cd "$docs" && grep -qw -- "$member" cli.md "$@") || fail "\"$member\" is in neither cli.md nor $*"
  done
}

tiny='plan corpus/tiny-network.json hgx-h100:1 --batch 16'
expect 0 $tiny --robust --draws 4 --sensitivity --like all --project-ranks 2 --json -o mine.json
named search.md
expect 0 $tiny --pareto memory --json
named search.md
orrery $tiny --set gpu.memory='1100 MiB' --json
[ "$status" -eq 3 ] || fail "a plan in 1100 MiB: exit $status"
named search.md
expect 0 simulate mine.json --json
named plan.md memory.md layouts.md
expect 0 compare mine.json mine.json --json
named plan.md memory.md layouts.md
expect 0 show layout mine.json --json
named plan.md memory.md layouts.md
expect 0 show network gpt2 --json
named models.md
expect 0 schedule --compare 1f1b zb-h1 --plan mine.json --json
named schedules.md

# The parts of the iteration and of the memory sum up, whatever the plan.
sums() {
  awk -F'[:,]' -v file="$1" '
    /^  "iteration_time_s"/ { all = $2 }
    /^  "(compute|bubble|optimizer|other)_s"/ { parts += $2 }
    /^  "exposed_communication_s"/ { inside = 1; next }
    inside && /\}/ { inside = 0 }
    inside { parts += $2 }
    END { d = all - parts; exit !(all > 0 && d * d < 1e-18) }' "$1" || fail "the parts of $1 do not sum up"
}
for fixed in tp=8 pp=4 cp=4 zero=3 pp=2,recompute=full dp=8,micro_batch=2; do
  expect 0 $tiny --fix $fixed --json
  sums stdout
done

# Blocks with layouts of their own communicate in groups of their own, each of which is told.
expect 0 $tiny --fix tp=2,cp=1,pp=1,zero=1,micro_batch=4 -q -o alike.json
sed -e 's/"count": 10,/"count": 9,/' -e 's/^      "recompute": "none"$/&}, {"count": 1, "tp": 1, "zero_stage": 1/' alike.json >unlike.json
expect 0 simulate unlike.json
grep -q '^data-parallel communication, exposed .* 4 ranks in one node or 8 ranks in one node$' stdout ||
  fail "two kinds of data-parallel groups: $(grep '^data-parallel' stdout)"
grep -q '^tensor-parallel communication, exposed .*  2 ranks in one node$' stdout ||
  fail "one kind of tensor-parallel groups: $(grep '^tensor-parallel' stdout)"

# A plan that fits by its categories and not when it is replayed fits in no command.
one=tp=1,cp=1,pp=1,micro_batch=1,schedule=1f1b,zero=2,recompute=none,stages=even
expect 0 plan llama3-8b hgx-h100:1 --batch 64 --fix $one --json -o roomy.json
peak=$(sed -n 's/^  "peak_memory_bytes": \[\([0-9]*\)\],$/\1/p' stdout)
card=$((81559 * 1048576))
sed "s/\"memory_reserve\": .*/\"memory_reserve\": \"$((card - peak - 1048576)) B\",/" roomy.json >tight.json
for asked in 'simulate tight.json' 'schedule --plan tight.json'; do
  expect 3 $asked
  grep -q "this plan does not fit: replayed through PyTorch's caching allocator" stderr ||
    fail "$asked: no reason: $(cat stderr)"
done
expect 0 compare tight.json roomy.json
grep -q '^fits  *no  *yes$' stdout || fail "compare: $(grep '^fits' stdout)"
grep -q '^plan 1 does not fit: replayed' stdout || fail 'compare does not say why a plan does not fit'
# What was changed of the named cluster and network stands behind their names.
grep -q '^  llama3-8b on hgx-h100:1 .*, bf16, .* of a GPU kept free$' stdout ||
  fail "compare does not say what is kept free: $(head -n 2 stdout)"
expect 0 plan llama3-8b hgx-h100:1 --batch 64 --fix $one --set gpu.hbm_bandwidth='6 TB/s' --set layers=30 -o changed.json
head -n 1 stdout | grep -q ', bf16, layers=30, gpu.hbm_bandwidth=6 TB/s$' ||
  fail "plan does not say what --set changed: $(head -n 1 stdout)"
expect 0 schedule --compare 1f1b --plan tight.json --json
grep -q '"fits": false' stdout || fail 'schedule --compare takes a plan for one that fits'

# Standard input is one plan.
rejects 2 '- stands for it more than once' compare - -

# A search that ended early has no proof that could have been complete.
expect 0 plan llama3-70b hgx-h100:8 --batch 512 --time-limit 0.01 -o /dev/null
grep -q '^The others are the best of those simulated so far; any plan may lie between them.$' stdout ||
  fail "an early end: $(tail -n 2 stdout)"
grep -q 'proof was complete' stdout && fail 'an early end with a complete proof'

# Every plan of tables is counted once, whatever became of it.
cat >dlrm.json <<'END'
{"schema": "orrery-recommender", "version": 1, "name": "dlrm",
 "dense": {"features": 13, "bottom": [512, 128], "top": [1024, 1], "interaction": "dot"},
 "tables": [{"name": "items", "count": 16, "rows": 5000000, "dim": 128, "pooling": 20, "slope": 1.05},
            {"name": "users", "rows": 200000000, "dim": 128}]}
END
counts='^\([0-9]*\) plans: \([0-9]*\) pruned by bound or memory, \([0-9]*\) simulated, of which \([0-9]*\) do not fit'
for limit in '' '--time-limit 0.01'; do
  expect 0 plan dlrm.json dgx-a100:2 --batch 16384 -q -o /dev/null $limit
  sed -n -e "s/$counts, \([0-9]*\) not reached;.*/\1 \2 \3 \4 \5/p" -e "s/$counts;.*/\1 \2 \3 \4 0/p" stdout |
    awk '{ found = 1; exit !($1 == $2 + $3 + $5 && $4 <= $3) } END { exit !found }' ||
    fail "plans of tables are not counted once: $(grep ' plans: ' stdout)"
done
expect 0 plan dlrm.json dgx-a100:2 --batch 16384 --json
named recommendation.md
grep -q '"plans": [0-9]*,$' stdout || fail "plans are no whole number: $(grep '"plans"' stdout)"
finish
