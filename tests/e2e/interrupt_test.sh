# SPDX-License-Identifier: Apache-2.0
# Ctrl-C during a search prints the best plan so far and exits with 130; a time limit ends it too.
. "$(dirname "$0")/lib.sh"

# Half a million plans on one thread: several seconds.
search="plan llama3-70b hgx-h100:64 --batch 2048 --jobs 1"
for delay in 2 4 8 16; do
  "$program" $search >stdout 2>stderr &
  pid=$!
  sleep $delay
  kill -INT $pid 2>/dev/null || true
  wait $pid
  status=$?
  [ $status -eq 0 ] && break  # the search was faster than the signal
  [ $status -eq 130 ] || fail "exit $status after an interrupt"
  grep -q '^1 ' stdout && break  # else no plan had been found yet: wait longer
done
case $status in
  130)
    grep -q 'stopped early' stdout || fail "no word of the interruption: $(tail -n 1 stdout)"
    expect 0 simulate plan.json
    ;;
  0) grep -q 'no plan in this space is faster' stdout || fail 'neither interrupted nor proved' ;;
esac

start=$SECONDS
expect 0 $search --time-limit 20 --json --gap 0.5 -q
[ $((SECONDS - start)) -le 60 ] || fail "a limit of 20 s took $((SECONDS - start)) s"
finish
