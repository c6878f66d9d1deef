# SPDX-License-Identifier: Apache-2.0
# `orrery calibrate gpu` up to the first device call: what is wrong is said before, and a missing
# device or build is exit code 5. `orrery calibrate fit` says what few samples do not tell.
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
finish
