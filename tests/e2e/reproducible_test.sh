# SPDX-License-Identifier: Apache-2.0
# Same input, same bytes: at any number of threads, from one run to the next, and when the plan is
# simulated from its own document.
. "$(dirname "$0")/lib.sh"

search="plan llama2-13b dgx-a100:2 --batch 128 --top 4"
for jobs in 1 2 3 1; do
  expect 0 $search --jobs $jobs -q -o plan-$jobs.json --trace trace-$jobs.json --report report-$jobs.txt
  cp stdout text-$jobs
  expect 0 $search --jobs $jobs --json
  grep -v '"search_time_s"' stdout >json-$jobs
  for kind in plan:.json trace:.json report:.txt text: json:; do
    same "${kind%:*}-1${kind#*:}" "${kind%:*}-$jobs${kind#*:}" "${kind%:*} at --jobs $jobs"
  done
done
expect 0 simulate plan-1.json --json
for key in iteration_time_s mfu hfu tokens_per_s_per_gpu bubble_fraction; do
  [ "$(value_of json-1 $key)" = "$(value_of stdout $key)" ] ||
    fail "$key: searched $(value_of json-1 $key), simulated $(value_of stdout $key)"
done
[ "$(value_of json-1 gap)" = 0.0 ] || fail "a closed gap is $(value_of json-1 gap)"
sed 's/.*/&/' plan-1.json >copy.json
cd "$scratch/corpus/.." && expect 0 simulate copy.json && cp stdout first
expect 0 simulate copy.json
same first stdout 'simulated twice'
finish
