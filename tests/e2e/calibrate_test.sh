# SPDX-License-Identifier: Apache-2.0
# `orrery calibrate gpu` up to the first device call: what is wrong is said before, and a missing
# device or build is exit code 5. `orrery calibrate fit` says what few samples do not tell, and
# pipeline stages take as long as measured messages.
source "$(dirname "$0")/lib.sh"
export CUDA_VISIBLE_DEVICES=

rejects 2 'no sub-command' calibrate
rejects 2 'unknown sub-command "calibrate gp"' calibrate gp
rejects 2 '--outptu' calibrate gpu --outptu x.json
rejects 2 'unknown precision "bf17"' calibrate gpu --dtype bf17
rejects 2 'products in nvfp4 are not measured' calibrate gpu --dtype nvfp4
rejects 2 '--budget' calibrate gpu --budget 0
rejects 2 '--budget' calibrate gpu --budget soon
rejects 2 'did you mean "llama3-8b"' calibrate gpu --network llama3-8
rejects 2 'do not divide into 3 ranks' calibrate gpu --network llama3-8b --tp 3
rejects 2 '--tp' calibrate gpu --network llama3-8b --tp 0
rejects 4 'folder' calibrate gpu --output nowhere/samples.json
rejects 5 CUDA calibrate gpu --quiet --output samples.json
rejects 5 CUDA calibrate gpu --network llama3-8b --tp 1,2,4,8 --seq 4096 --micro-batch 1,2
[ ! -e samples.json ] || fail "a sample file without samples"

# Shapes that differ in rows alone test nothing: the profile stays, and they are not denied.
echo 'gpu,dtype,m,n,k,time_us,tflops' >rows.csv
for m in 1024 2048 4096; do
  echo "L40S,bf16,$m,4096,4096,$((m / 8)),268.4" >>rows.csv
done
expect 0 calibrate fit rows.csv --gpu l40s -o few.json
for line in '3 samples of gemm bf16 tn burst: too few to test, as in l40s' \
  'no samples of gemm fp8: as in l40s' 'no samples of attention-forward: as in l40s'; do
  grep -qx "$line" stdout || fail "few samples, without '$line': $(cat stdout)"
done
grep -q 'no samples of gemm:' stdout && fail "samples that are there are denied: $(cat stdout)"
sed 's/,4096,4096,128,/,2048,4096,64,/' rows.csv >more.csv
expect 0 calibrate fit more.csv --gpu l40s -o few.json
grep -q '^3 shapes of gemm bf16 tn burst beside the [0-9]* of l40s' stdout ||
  fail "the table of the box is not kept: $(cat stdout)"

# messages BYTES...: samples of messages at 1 GB/s from node to node.
messages() {
  local bytes seconds comma=
  echo '{"schema": "orrery-samples", "version": 1, "header": {"device": "NVIDIA H100 80GB HBM3",'
  echo '"gpu": "h100-sxm5-80gb", "fabric": "8x 400Gb/s IB"}, "samples": ['
  for bytes; do
    seconds=$(awk "BEGIN { printf \"%.9f\", 3e-5 + $bytes / 1e9 }")
    echo "$comma" '{"kind": "collective", "collective": "send-receive", "ranks": 2, "nodes": 2,'
    echo "\"ranks_per_node\": 1, \"bytes\": $bytes, \"time_s\": $seconds}"
    comma=,
  done
  echo ']}'
}
iteration() {
  expect 0 plan llama3-8b hgx-h100:2 --batch 16 --seq 4096 --json -o p.json "$@"
  value_of stdout iteration_time_s
}

# They make a pipeline over two nodes slower, and nothing else; few of them are no profile.
messages 1024 65536 1048576 16777216 268435456 >peers.json
expect 0 calibrate fit peers.json --gpu h100-sxm5-80gb -o peers-profile.json
grep -q '^collectives send-receive-several-nodes  *5 ' stdout ||
  fail "messages that were measured have no error: $(cat stdout)"
slow=$(iteration --fix tp=8,pp=2 --profile peers-profile.json)
usual=$(iteration --fix tp=8,pp=2)
awk "BEGIN { exit !($slow > 1.02 * $usual) }" || fail "messages of 1 GB/s: $slow s after $usual s"
[ "$(iteration --fix tp=8,dp=2 --profile peers-profile.json)" = "$(iteration --fix tp=8,dp=2)" ] ||
  fail "messages change a plan without stages"
messages 1024 65536 16777216 >few-messages.json
rejects 2 '3 sizes, where 4 are needed: as in h100-sxm5-80gb' \
  calibrate fit few-messages.json --gpu h100-sxm5-80gb -o none.json
[ ! -e none.json ] || fail "a profile of messages that say nothing"
finish
