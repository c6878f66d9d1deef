# SPDX-License-Identifier: Apache-2.0
# Clusters of several kinds of nodes from end to end: search, simulate, and what they do not have.
. "$(dirname "$0")/lib.sh"

mixed=hgx-h100:1+dgx-a100:1
plan() { expect "$1" plan corpus/tiny-network.json "${@:2}"; }

# A search writes a plan that simulates to the same result, and again.
plan 0 $mixed --batch 32 --json --fix schedule=1f1b
grep -q '"left_out_lower_bound_s": null' stdout || fail 'plans left out of a small space'
cp stdout searched.json
[ "$(value_of searched.json gap)" = 0 ] || [ "$(value_of searched.json gap)" = 0.0 ] || fail 'a gap is left'
expect 0 simulate searched.json --json
cp stdout once.json
[ "$(value_of once.json iteration_time_s)" = "$(value_of searched.json iteration_time_s)" ] ||
  fail 'the plan takes another time'
expect 0 simulate once.json --json
same stdout once.json 'simulating again differs'
plan 0 $mixed --batch 32 -q --fix schedule=1f1b,dp=2 -o found.json
grep -q 'replicas' stdout || fail 'no table'
expect 0 simulate found.json --report report.txt -q
same stdout report.txt 'the report differs from what is printed'

# Two equal pools are one cluster of one kind: parts of the time, memory and cost, too.
cat >equal.json <<'END'
{"schema": "orrery-mixed-cluster", "version": 1, "name": "equal",
 "pools": [{"name": "a", "cluster": "hgx-h100:1"}, {"name": "b", "cluster": "hgx-h100:1"}]}
END
alike=tp=8,pp=2,dp=1,cp=1,micro_batch=1,schedule=1f1b,zero=0,recompute=none,sequence_parallel=true
for cluster in equal.json hgx-h100:2; do
  plan 0 $cluster --batch 32 -q --fix $alike -o equal_plan.json
  sed 's/^  "stages": .*/  "stages": [6, 4],/' equal_plan.json >equal_cut.json
  expect 0 simulate equal_cut.json --json
  sed -n '/"iteration_time_s"/,/"synchronous"/p;/"cost_usd_per_trillion_tokens"/p' stdout >"said_of_$cluster"
done
same said_of_equal.json said_of_hgx-h100:2 'two equal pools are not one cluster'
for member in compute_s exposed_communication_s bubble_s fits peak_memory_bytes memory_bytes cost_usd_per_trillion_tokens; do
  grep -q "\"$member\"" said_of_equal.json || fail "no $member of a mixed cluster"
done

# The table has the blocks of each pool, all model chunks of a device counted.
plan 0 $mixed --batch 32 -q --fix tp=8,pp=2,schedule=zb-v,chunks=2 -o chunks.json
awk '/^replicas  micro-batches/ { rows = 1 } rows && $4 ~ /^(hgx-h100|dgx-a100)$/ { blocks += $5; lines++ }
  END { exit !(lines == 2 && blocks == 10) }' stdout || fail "blocks of each pool: $(cat stdout)"

# What a network lacks is said as on one kind of nodes.
plan 2 $mixed --batch 32 --fix ep=2
grep -q -- '--fix: ep = 2, but .* has no experts' stderr || fail "no experts: $(cat stderr)"
plan 0 $mixed --batch 32 --fix tp=8,pp=2,expert_tp=1 -o chunks.json
grep -q 'expert_tp has no effect: .* has no experts' stderr || fail "an idle field: $(cat stderr)"

# The cost is that of the GPUs used, each at its price.
plan 0 $mixed --batch 32 -q --fix tp=8,pp=2 -o both.json
expect 0 simulate both.json
grep -q '^trillion tokens .* 2.69 USD per h100-sxm5-80gb, 1.39 USD per a100-sxm4-80gb and hour' stdout ||
  fail "no cost of both kinds: $(grep '^trillion' stdout)"
grep -q '^compute  ' stdout || fail 'not said where the time goes'

# The network between the pools as a document; each pool has its memory.
cat >two.json <<'END'
{"schema": "orrery-mixed-cluster", "version": 1, "name": "two",
 "pools": [{"name": "fast", "cluster": "hgx-h100:1"}, {"name": "slow", "cluster": "dgx-a100:1"}],
 "between": {"bandwidth_per_node": "1 GB/s", "latency": "50 us"}}
END
expect 0 show cluster two.json
grep -q 'between pools: 1 GB/s' stdout || fail "the network between pools: $(tail -n 1 stdout)"
plan 0 two.json --batch 32 -q --fix schedule=1f1b --set slow.gpu.memory='40 GiB' --memory-reserve '1 GiB' -o slow.json
head -n 1 stdout | grep -q ', slow.gpu.memory=40 GiB, 1 GiB of a GPU kept free$' ||
  fail "plan does not say what --set changed: $(head -n 1 stdout)"
plan 3 two.json --batch 32 --set slow.gpu.memory='1100 MiB' --set fast.gpu.memory='1100 MiB' -q
grep -q 'of pool' stderr || fail "no pool named: $(cat stderr)"

# Unlike GPUs in one machine: a group over both with shares by their speed, and what each rank holds.
cat >box.json <<'END'
{"schema": "orrery-mixed-cluster", "version": 1, "name": "box",
 "pools": [{"name": "fast", "cluster": "h100-pcie-8:1"}, {"name": "slow", "cluster": "l40s-8:1"}],
 "same_nodes": [["fast", "slow"]]}
END
expect 0 show cluster box.json
grep -q 'fast and slow are in the same nodes: 16 GPUs' stdout || fail "not one machine: $(tail -n 1 stdout)"
plan 0 box.json --batch 32 -q --fix tensor_shares=by-speed,schedule=1f1b,tp=4 -o team.json
grep -q '(2 fast + 2 slow)' stdout || fail 'no group over both kinds'
grep -q '"tensor_shares"' team.json || fail 'no shares in the plan'
expect 0 simulate team.json -q
grep -q 'and 1 more' stdout || fail 'the table knows one pool of a stage'
expect 0 show layout team.json
grep -q 'fast, fast, slow, slow' stdout || fail 'no pools of the ranks'
grep -q 'tensor shares' stdout || fail 'no share of the ranks'
sed 's/"same_nodes"/"note"/;s/\[\[ *"fast", *"slow" *\]\]/""/' box.json >apart.json
rejects 2 'no plan of this mixed cluster' plan corpus/tiny-network.json apart.json --batch 32 \
  --fix tensor_shares=by-speed
rejects 2 'GPUs of this cluster are all alike' plan corpus/tiny-network.json l40s-8:1 --batch 32 \
  --fix tensor_shares=by-speed

# What mixed clusters do not have.
rejects 2 'several kinds of nodes' plan corpus/tiny-network.json $mixed --batch 32 --pareto gpus
rejects 2 'several kinds of nodes' export found.json --to megatron
rejects 2 'several kinds of nodes' compare found.json found.json
rejects 2 'dgx-a100.nodes is set to both 1 and 2' plan corpus/tiny-network.json $mixed --batch 32 --set dgx-a100.nodes=1 --set dgx-a100.nodes=2
rejects 2 '--fix: tp=2 is fixed and excluded at once' plan corpus/tiny-network.json $mixed --batch 32 --fix tp=2 --forbid tp=2
rejects 2 'no plan of this mixed cluster has tp=2, pp=64 (' plan corpus/tiny-network.json $mixed --batch 32 --fix tp=2,pp=64
rejects 2 '--forbid: zero=0, zero=1, zero=2, zero=3 leaves no value of zero' plan corpus/tiny-network.json $mixed --batch 32 --forbid zero=0,zero=1,zero=2,zero=3
rejects 2 'is called "a100" (its pools are hgx-h100, dgx-a100)' plan corpus/tiny-network.json $mixed --batch 32 --set a100.nodes=2
rejects 2 'did you mean "dgx-a100.gpu.memory"?' plan corpus/tiny-network.json $mixed --batch 32 --set dgx_a100.gpu.memory='40 GiB'
rejects 2 'which pool?' plan corpus/tiny-network.json $mixed --batch 32 --set gpu.memory='40 GiB'
# Plans that are too many to list are named, with a bound.
large="plan llama3-70b hgx-h100:16+dgx-a100:16+l40s-8:8 --batch 1024 --time-limit 1 -q -o large.json
  --fix tp=1,cp=1,micro_batch=1,schedule=1f1b,recompute=full,chunks=1,zero=1"
expect 0 $large --json
grep -Eq '"left_out_lower_bound_s": [1-9]' stdout || fail "nothing left out: $(grep -A8 '"space"' stdout)"
grep -q '"whole": false' stdout || fail 'a whole space in spite of what is left out'
expect 0 $large
grep -q 'too many to list' stdout || fail 'no word of what is left out'
plan 0 $mixed --batch 32 -q --fix cp=2 -o cp.json
grep -q '"cp": 2' cp.json || fail "no plan of two context ranks in cp.json"
rejects 2 'two pools are called' plan corpus/tiny-network.json hgx-h100:1+hgx-h100:2 --batch 32
rejects 2 'dgx-a100' plan corpus/tiny-network.json hgx-h100:1+dgx-a10:2 --batch 32
sed 's/dgx-a100:1/dgx-a10:1/' two.json >misspelt.json
rejects 2 'misspelt.json: /pools/1/cluster: cluster "dgx-a10:1"' show cluster misspelt.json
sed 's/"micro_batches": [0-9]*/"micro_batches": 77/' found.json >wrong.json
rejects 2 'but batch = 32' simulate wrong.json
sed 's/orrery-mixed-plan/orrery-plan/' found.json >wrong.json
expect 2 simulate wrong.json
finish
