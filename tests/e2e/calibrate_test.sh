# SPDX-License-Identifier: Apache-2.0
# `orrery calibrate gpu` up to the first device call: what is wrong is said before, and a missing
# device or build is exit code 5.
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
finish
