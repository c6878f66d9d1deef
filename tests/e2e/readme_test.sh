#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The worked example of README.md is what its commands print, but for what the page says is cut.
. "$(dirname "$0")/lib.sh"

# The first block of code behind a command of the page.
printed_behind() {
  awk -v command="    $1" '$0 == command {found = 1; next}
    found && $0 == "```" {if (inside) exit; inside = 1; next}
    inside' "$here/../../README.md"
}
# Rules to one length, the critical path to its first parts, and no lines about this run.
cut_to_the_page() {
  sed -E -e 's/^-{20,}$/----/' -e 's/^(critical path: [^,]*, [^,]*),.*/\1/' \
    -e '/^(searched for|wrote) /d'
}

for command in 'plan llama3-70b hgx-h100:8 --batch 512 --seq 8192' \
  'simulate plan.json --trace trace.json'; do
  expect 0 $command
  printed_behind "orrery $command" | cut_to_the_page >page
  [ -s page ] || fail "README.md shows nothing behind 'orrery $command'"
  cut_to_the_page <stdout | diff page - || fail "README.md shows something else than '$command'"
done
finish
