# SPDX-License-Identifier: Apache-2.0
# A per-block search that is killed again and again goes on from its checkpoint to the answer of one
# that is not; so does one that a time limit ended. Checkpoints of the homogeneous space are refused.
. "$(dirname "$0")/lib.sh"

problem="llama3-8b hgx-h100:1 --batch 16 --fix pp=2,cp=1,tp=2,micro_batch=1 --space per-block"
search="plan $problem --json -q"
without_time() { grep -v '"search_time_s"' "$1"; }

expect 0 $search
without_time stdout >whole

rm -f state
resume="--checkpoint state"
kills=0
for round in $(seq 1 40); do
  "$program" $search $resume --checkpoint-every 0.01 >stdout 2>stderr &
  pid=$!
  sleep "$(awk -v n="$round" -v r="$RANDOM" 'BEGIN { print 0.05 * 1.2 ^ n + r / 32768 * 0.1 }')"
  if kill -9 $pid 2>/dev/null; then kills=$((kills + 1)); fi
  wait $pid 2>/dev/null
  status=$?
  [ $status -eq 137 ] || break
  [ -e state ] && resume="--resume state"
done
[ $status -eq 0 ] || fail "exit $status after $kills kills: $(head -c 300 stderr)"
[ $kills -ge 3 ] || fail "only $kills kills"
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
