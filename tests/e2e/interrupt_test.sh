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

# Draws of the errors of times end in the same way; what they have said so far is printed.
for delay in 2 4 8 16 32; do
  "$program" plan corpus/tiny-network.json hgx-h100:1 --batch 8 --robust --draws 100000 \
    -o robust.json >stdout 2>stderr &
  pid=$!
  sleep $delay
  kill -INT $pid
  wait $pid
  status=$?
  [ $status -eq 130 ] || fail "exit $status after an interrupt of draws"
  grep -q '^[0-9]* of 100000 draws' stdout && break
done
grep -q '^[0-9]* of 100000 draws' stdout || fail "no draws before the interrupt: $(tail -n 2 stdout)"
"$program" plan corpus/tiny-network.json hgx-h100:1 --batch 8 --robust --draws 100000 --json -q \
  >stdout 2>stderr &
pid=$!
sleep $delay
kill -INT $pid
wait $pid
status=$?
[ $status -eq 130 ] || fail "exit $status after an interrupt of draws in JSON"
grep -q '^  "interrupted": true' stdout || fail 'JSON says nothing of the interrupt'

# A pipeline whose 128 draws take many times the limit.
expect 0 plan llama3-8b hgx-h100:1 --batch 300000 --fix dp=1,micro_batch=1,pp=8,schedule=hanayo \
  --time-limit 1 -q -o long.json
grep -q 'not drawn' stdout || fail "an interval in spite of the limit: $(sed -n 4p stdout)"
expect 0 plan llama3-8b hgx-h100:1 --batch 300000 --fix dp=1,micro_batch=1,pp=8,schedule=hanayo \
  --time-limit 1 -q --json
grep -q '"iteration_time_interval_s": null' stdout || fail 'an interval in JSON in spite of the limit'

# So do searches of plans that serve requests, whose runs are given up, and of packs of sequences.
cat >requests.json <<'END'
{"schema": "orrery-requests", "version": 1, "count": 3000, "arrivals": "poisson",
 "requests_per_second": 4, "seed": 1, "prompt": {"mean": 246, "std": 547, "max": 8192},
 "output": {"mean": 322, "std": 244, "max": 2048}}
END
for i in $(seq 1 1000); do echo $((i * i * 7 % 9973 + 100)); done >lengths
for search_of in "llama3-70b hgx-h100:1 --serve requests.json" \
  "llama3-70b hgx-h100:8 --lengths lengths --schedule flexsp"; do
  for delay in 2 4 8 16 32; do
    "$program" plan $search_of --jobs 1 -q -o early.json >stdout 2>stderr &
    pid=$!
    sleep $delay
    start=$SECONDS
    kill -INT $pid 2>/dev/null || true
    wait $pid
    status=$?
    [ $status -eq 130 ] || [ $status -eq 0 ] || fail "exit $status after an interrupt: $search_of"
    [ $((SECONDS - start)) -le 20 ] || fail "$((SECONDS - start)) s to end: $search_of"
    [ ! -s stdout ] || break  # else no plan had been found yet: wait longer
  done
  [ $status -eq 0 ] || grep -q 'stopped early' stdout || fail "no word of the interrupt: $search_of"
  expect 0 simulate early.json
done

# Headlines end although their planners do not look up.
"$program" reproduce dapple-over-pipedream flexsp -q >stdout 2>stderr &
pid=$!
sleep 1
start=$SECONDS
kill -INT $pid 2>/dev/null || true
wait $pid
status=$?
[ $status -eq 130 ] || [ $status -eq 0 ] || fail "exit $status after an interrupt of headlines"
[ $((SECONDS - start)) -le 5 ] || fail "headlines took $((SECONDS - start)) s to end"
grep -q 'inside' stdout || fail 'no table of what was finished'
finish
