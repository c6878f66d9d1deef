# SPDX-License-Identifier: Apache-2.0
# For e2e tests: an empty folder to run in with `corpus` = tests/corpus/cli, and checks. Each check
# says what it expected; the test fails at its end when any did.
set -u
program=$(realpath "$1")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ln -s "$here/../corpus/cli" "$scratch/corpus"
cd "$scratch" || exit 1
export LC_ALL=C TERM=dumb
unset ORRERY_DATA NO_COLOR
failures=0

fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}

# Runs orrery with the arguments; output in ./stdout and ./stderr, exit code in $status.
orrery() {
  "$program" "$@" >stdout 2>stderr </dev/null
  status=$?
}

# expect CODE ARGUMENT...: the exit code, and a clear message when it is not 0.
expect() {
  local code=$1
  shift
  orrery "$@"
  [ "$status" -eq "$code" ] || fail "orrery $*: exit $status instead of $code: $(head -c 300 stderr)"
  if [ "$code" -ne 0 ]; then
    [ -s stderr ] || fail "orrery $*: no message"
    [ "$(wc -c <stderr)" -le 4010 ] || fail "orrery $*: message of $(wc -c <stderr) bytes"
    [ "$(wc -l <stderr)" -le 3 ] || fail "orrery $*: message of $(wc -l <stderr) lines"
  fi
}

# rejects CODE TEXT ARGUMENT...: as expect, the message holds TEXT, nothing is printed or written.
rejects() {
  local code=$1 text=$2
  shift 2
  expect "$code" "$@"
  grep -qF -- "$text" stderr || fail "orrery $*: no \"$text\" in: $(head -c 300 stderr)"
  [ ! -s stdout ] || fail "orrery $*: printed a result: $(head -c 100 stdout)"
  [ ! -e plan.json ] || fail "orrery $*: wrote plan.json"
  rm -f plan.json
}

# The first value of a key in a JSON document as `orrery` prints it.
value_of() { sed -n "s/^ *\"$2\": \(.*[^,]\),\{0,1\}\$/\1/p" "$1" | head -n 1; }

same() {
  cmp -s "$1" "$2" || fail "$3: $(diff "$1" "$2" | head -n 5)"
}

finish() {
  [ -z "$(find . -name '*.tmp*' -print -quit)" ] || fail "temporary files are left: $(ls -A)"
  [ $failures -eq 0 ] || exit 1
}
