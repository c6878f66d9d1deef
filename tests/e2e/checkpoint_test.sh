# SPDX-License-Identifier: Apache-2.0
# A search that is killed again and again goes on from its checkpoint to the answer of one that is
# not; checkpoints of other inputs and damaged ones are refused.
. "$(dirname "$0")/lib.sh"

problem="llama3-70b hgx-h100:4 --batch 256 --seq 4096"
search="plan $problem --json -q"

# goes_on_to_its_answer STATE FIRST GROWTH COMMAND...: a search that is killed again and again, and
# one that goes on from the state of a finished one, answer as one that is not.
goes_on_to_its_answer() {
  local state="$1" first="$2" growth="$3"
  shift 3
  expect 0 "$@"
  without_time stdout >whole
  killed_until_done "$state" "$first" "$growth" "$@"
  without_time stdout >pieces
  same pieces whole "$* after $kills kills"
  rm -f "$state".tmp*  # what a kill in the middle of writing leaves
  expect 0 "$@" --resume "$state"
  without_time stdout >again
  same again whole "finished: $*"
}

goes_on_to_its_answer state 0.04 1.4 $search
cp whole whole-search

# An interrupted search leaves its state.
expect 0 $search --time-limit 0.05 --checkpoint early --gap 0
expect 0 $search --resume early
without_time stdout >late
same late whole-search "after a time limit"

rejects 2 'cluster' plan ${problem/:4/:8} --json --resume state
rejects 2 'network' plan ${problem/llama3/llama2} --json --resume state
rejects 2 'workload' plan ${problem/256/512} --json --resume state
rejects 2 '--fix' $search --fix pp=4 --resume state
rejects 2 '--top' $search --top 9 --resume state
head -c 1000 state >cut
rejects 2 'damaged' $search --resume cut
echo '{"plan": 1}' >other.json
rejects 2 'not a checkpoint' $search --resume other.json
rejects 2 'no checkpoint' $search --checkpoint-every 5
rejects 2 'file' $search --checkpoint -
rejects 4 'nowhere' $search --resume nowhere/state
rejects 4 'missing' $search --resume missing
rejects 2 '--space' $search --space per-block --resume state

# Every source of a search is in the hash of its build (builds of another one are refused in
# checkpoint_test.cpp), and nothing else.
hash_of_sources() { cmake "-DROOT=$PWD/tree" "-DOUT=$PWD/build.cpp" "-DBUILD=$1" \
  -P "$here/../../cmake/source_hash.cmake" && grep -o 'build [0-9a-f]\{16\}' build.cpp; }
for room in base models topologies sim costmodel plan search; do
  mkdir -p tree/$room/deep
  echo 'int one();' >tree/$room/deep/one.hpp
done
first="$(hash_of_sources -O3)"
[ -n "$first" ] || fail 'no hash of the sources'
echo '# data' >tree/plan/one.md
[ "$(hash_of_sources -O3)" = "$first" ] || fail 'the hash is not of the sources alone'
[ "$(hash_of_sources -O2)" != "$first" ] || fail 'the hash does not know how they are compiled'
for room in base models topologies sim costmodel plan search; do
  echo 'int two();' >tree/$room/deep/one.hpp
  [ "$(hash_of_sources -O3)" != "$first" ] || fail "the hash does not know $room"
  echo 'int one();' >tree/$room/deep/one.hpp
done
[ "$(hash_of_sources -O3)" = "$first" ] || fail 'the same sources have another hash'
mkdir tree/cmake
echo '# options' >tree/cmake/Compiler.cmake
[ "$(hash_of_sources -O3)" != "$first" ] || fail 'the hash does not know the options of the compiler'

# A frontier keeps the searches that it has made.
frontier="plan gpt3-125m dgx-a100:1 --batch 16 --schedule 1f1b --pareto memory --json -q"
goes_on_to_its_answer frontier-state 0.03 1.25 $frontier
rejects 2 '--pareto' $search --resume frontier-state
rejects 2 '--pareto' ${frontier/memory/gpus} --resume frontier-state
rejects 2 'one search' $frontier --project-ranks 4

# So does a search over several kinds of nodes.
mixed="plan llama2-13b hgx-h100:1+dgx-a100:1 --batch 64 --seq 4096 --schedule 1f1b --json -q"
goes_on_to_its_answer mixed-state 0.05 1.25 $mixed
rejects 2 '--fix' $mixed --fix tp=2 --resume mixed-state
rejects 2 '--space' $search --resume mixed-state
rejects 2 '--space' $mixed --resume state
rejects 2 'several kinds of nodes' $mixed --project-ranks 4

# So do searches of plans that serve requests and of packs of sequences.
cat >requests.json <<'END'
{"schema": "orrery-requests", "version": 1, "count": 100, "arrivals": "poisson",
 "requests_per_second": 4, "seed": 1, "prompt": {"mean": 246, "std": 547, "max": 8192},
 "output": {"mean": 322, "std": 244, "max": 2048}}
END
serving="plan llama2-70b dgx-a100:1 --serve requests.json --precision fp16 --json -q"
packs="plan llama3-8b hgx-h100:1 --lengths lengths --json -q --schedule"
for i in $(seq 1 40); do echo $((i * i * 7 % 9973 + 100)); done >lengths
for search_of in "$serving" "$packs flexsp" "$packs dynapipe"; do
  goes_on_to_its_answer other-state 0.04 1.5 $search_of
  rejects 2 '--top' $search_of --top 9 --resume other-state
  rejects 2 'one search' $search_of --project-ranks 4
  rejects 2 '--space' $search --resume other-state
done
rejects 2 '--lengths' $serving --resume other-state

# The search of a recommendation network ends by itself, and keeps none.
cat >dlrm.json <<'END'
{"schema": "orrery-recommender", "version": 1, "name": "dlrm",
 "dense": {"features": 13, "bottom": [512, 128], "top": [1024, 1], "interaction": "dot"},
 "tables": [{"name": "items", "count": 16, "rows": 5000000, "dim": 128, "pooling": 20}]}
END
for option in '--checkpoint none' '--resume none' '--checkpoint-every 5' '--project-ranks 2'; do
  rejects 2 "${option% *}: not for a recommendation network" \
    plan dlrm.json dgx-a100:1 --batch 16384 $option
done
[ ! -e none ] || fail 'a checkpoint of a recommendation network'

# What the search would take on more ranks; the answer is the same.
expect 0 $search --project-ranks 8
grep -q '"ranks": 8' stdout || fail 'no projection on 8 ranks'
[ "$(value_of stdout simulated)" = "$(value_of whole-search simulated)" ] || fail 'another search'
rejects 2 '--project-ranks' $search --project-ranks 0
finish
