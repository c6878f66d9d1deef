# SPDX-License-Identifier: Apache-2.0
# Installs the build folder of the program: the installed program finds its data, a moved prefix
# still works, ORRERY_DATA comes first, and another project finds the package and builds with it.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$program")
nodes=share/orrery/topologies/nodes

quietly() {
  "$@" >log 2>&1 || fail "$*: $(tail -n 20 log)"
}

quietly cmake --install "$build" --prefix "$scratch/first"
for kind in topologies/gpus topologies/nodes topologies/clusters models/zoo costmodel/profiles; do
  for file in "$here/../../$kind"/*.json; do
    same "$file" "first/share/orrery/$kind/$(basename "$file")" "$kind"
  done
done

# A name that only the prefix has shows where the program looks.
mv first second
mv second/$nodes/dgx-a100.json second/$nodes/moved-node.json
program=$scratch/second/bin/orrery
expect 0 show cluster moved-node:2
expect 0 plan llama3-8b hgx-h100:1 --batch 64 --output run.json
expect 0 simulate run.json --json
time=$(value_of stdout iteration_time_s)

mkdir -p own/topologies/nodes
cp second/$nodes/moved-node.json own/topologies/nodes/own-node.json
rejects 2 'own-node' show cluster own-node:2
export ORRERY_DATA=$scratch/own
expect 0 show cluster own-node:2
unset ORRERY_DATA

# As Orrery itself was built: libraries with sanitizers link only into programs with them.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
sanitize=$(cached ORRERY_SANITIZE)
quietly cmake -S "$here/install" -B consumer -G Ninja -DCMAKE_PREFIX_PATH="$scratch/second" \
  -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)" \
  -DCMAKE_CXX_FLAGS="${sanitize:+-fsanitize=$sanitize}"
quietly cmake --build consumer
quietly consumer/consumer run.json "$time"
finish
