#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Replays golden cases: run.sh [--update] ORRERY CASE...
# A case is text. "$ command" runs in an empty folder where `corpus` is tests/corpus/cli; what it
# prints (both streams) and "[exit N]", unless 0, must follow. "#" lines are comments.
set -u
update=no
if [ "${1:-}" = --update ]; then
  update=yes
  shift
fi
program=$(realpath "$1")
shift
here=$(dirname "$(realpath "$0")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
ln -s "$program" "$scratch/bin/orrery"
export PATH="$scratch/bin:$PATH" LC_ALL=C TERM=dumb
unset ORRERY_DATA NO_COLOR

replay() {
  local line status
  while IFS= read -r line; do
    case $line in
      '#'*) printf '%s\n' "$line" ;;
      '$ '*)
        printf '%s\n' "$line"
        (cd "$scratch/run" && bash -c "${line#\$ }" 2>&1 </dev/null)
        status=$?
        [ $status -eq 0 ] || printf '[exit %d]\n' $status
        ;;
    esac
  done
}

failed=0
for case in "$@"; do
  rm -rf "$scratch/run"
  mkdir "$scratch/run"
  ln -s "$here/../corpus/cli" "$scratch/run/corpus"
  replay < "$case" > "$scratch/actual"
  if [ $update = yes ]; then
    diff -u "$case" "$scratch/actual" || cp "$scratch/actual" "$case"
  elif ! diff -u "$case" "$scratch/actual"; then
    failed=1
  fi
done
exit $failed
