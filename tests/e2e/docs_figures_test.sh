# SPDX-License-Identifier: Apache-2.0
# Numbers of plans, searches and points that the pages of docs/ state are those that are printed.
. "$(dirname "$0")/lib.sh"
docs=$here/../../docs

# "3335814" as "3,335,814".
grouped() { sed -E ':a; s/^([0-9]+)([0-9]{3})/\1,\2/; ta' <<<"$1"; }
# states PAGE TEXT
states() { grep -qF -- "$2" "$docs/$1" || fail "docs/$1 does not state \"$2\""; }

expect 0 plan llama3-70b hgx-h100:1 --batch 64 --seq 4096 --set adapters.rank=16 -q -o /dev/null
plans=$(sed -n 's/^\([0-9]*\) plans: .*/\1/p' stdout)
states models.md "| 8 H100, best of $(grouped "$plans") | all | none fits |"

expect 0 plan llama3-8b hgx-h100:1+dgx-a100:1 --batch 64 -q --json -o /dev/null
states mixed-clusters.md "| llama3-8b, 8 H100 + 8 A100, batch 64 \
| $(grouped "$(value_of stdout plans)") | $(grouped "$(value_of stdout simulated)") |"

expect 0 plan llama3-8b hgx-h100:1 --batch 64 --pareto memory -q -o /dev/null
points=$(grep -cE '^ *[0-9]+ +[0-9.]+ s ' stdout)
searches=$(sed -n 's/^\([0-9]*\) searches over .*/\1/p' stdout)
states search.md "($points points of"
states search.md ", $searches searches, "
# decided ROW ARGUMENT...: what the table of large searches says of this one.
decided() {
  local row=$1
  shift
  expect 0 plan "$@" -q --json -o /dev/null
  simulated=$(grouped "$(value_of stdout simulated)")
  states search.md "| $row | $(grouped "$(value_of stdout plans)") | $simulated |"
}
decided 'gpt3-175b, dgx-a100:128, batch 1536' gpt3-175b dgx-a100:128 --batch 1536
states search.md "4,246,398 plans $simulated were simulated"
decided 'llama3-405b, hgx-h100:2048, batch 2048, sequence 8192' \
  llama3-405b hgx-h100:2048 --batch 2048 --seq 8192

# second OPTION...: how many plans are simulated, and how far behind the first the second one is.
second() {
  expect 0 plan llama3-70b hgx-h100:8 --batch 512 --seq 8192 -q --json -o /dev/null "$@"
  simulated=$(value_of stdout simulated)
  sed -n '/"alternatives"/,$p' stdout >others
  behind=$(awk -v first="$(value_of stdout iteration_time_s)" \
    -v second="$(value_of others iteration_time_s)" 'BEGIN {print (second / first - 1) * 100}')
}
second
instead="$(printf '%.0f' "$behind") %, for"
few=$simulated
second --prove-top
states search.md "$(printf '%.1f' "$behind") % behind the first instead of $instead $simulated plans"
states search.md "simulated instead of $few."

for length in 1024 16384; do
  yes $length | head -n $((length == 1024 ? 240 : 16))
done >lengths
expect 0 plan llama3-8b hgx-h100:2 --schedule dynapipe --lengths lengths -q --top 1 -o /dev/null
states plan-schedules.md "takes $(sed -n 's/^1 *\([0-9.]* s\) .*/\1/p' stdout); padded to the longest"
finish
