# SPDX-License-Identifier: Apache-2.0
# A per-block search that is killed again and again goes on from its checkpoint to the answer of one
# that is not; so does one that a time limit ended. Checkpoints of the homogeneous space are refused.
. "$(dirname "$0")/lib.sh"

problem="llama3-8b hgx-h100:1 --batch 16 --fix pp=2,cp=1,micro_batch=1 --space per-block"
search="plan $problem --json -q"

expect 0 $search
without_time stdout >whole

killed_until_done state 0.01 1.2 $search
without_time stdout >pieces
same pieces whole "after $kills kills"
rm -f state.tmp*

expect 0 $search --resume state
without_time stdout >again
same again whole "a finished search"
expect 0 $search --time-limit 0.3 --checkpoint early
expect 0 $search --resume early
without_time stdout >late
same late whole "after a time limit"

rejects 2 'workload' plan ${problem/--batch 16/--batch 32} --json --resume state
rejects 2 '--forbid' $search --forbid zero=3 --resume state
rejects 2 '--space' plan ${problem/--space per-block/} --json --resume state
head -c 1000 state >cut
rejects 2 'damaged' $search --resume cut
rejects 2 '--project-ranks' $search --project-ranks 8
finish
