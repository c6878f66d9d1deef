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
finish
