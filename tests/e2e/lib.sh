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

# expect CODE ARGUMENT...: the exit code, and a clear message when it is not 0: of three lines at most;
# where nothing fits (3) the details are lists, indented behind them.
expect() {
  local code=$1 lines
  shift
  orrery "$@"
  [ "$status" -eq "$code" ] || fail "orrery $*: exit $status instead of $code: $(head -c 300 stderr)"
  if [ "$code" -ne 0 ]; then
    [ -s stderr ] || fail "orrery $*: no message"
    [ "$(wc -c <stderr)" -le 4010 ] || fail "orrery $*: message of $(wc -c <stderr) bytes"
    lines=$(wc -l <stderr)
    [ "$code" -ne 3 ] || lines=$(grep -vc '^  ' stderr)
    [ "$lines" -le 3 ] && [ "$(wc -l <stderr)" -le 12 ] || fail "orrery $*: message of $(wc -l <stderr) lines"
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

# Of the --json of a search all but the time it took.
without_time() { grep -v '"search_time_s"' "$1"; }

# killed_until_done STATE FIRST GROWTH COMMAND...: kills a search after longer and longer times, from
# before its first checkpoint on, and lets it go on from STATE until it ends; `kills` is how often.
killed_until_done() {
  local state="$1" first="$2" growth="$3" resume="--checkpoint $1" round pid status
  shift 3
  rm -f "$state"
  kills=0
  for round in $(seq 1 40); do
    "$program" "$@" $resume --checkpoint-every 0.01 >stdout 2>stderr &
    pid=$!
    sleep "$(awk -v n="$round" -v r="$RANDOM" -v f="$first" -v g="$growth" \
      'BEGIN { print f * g ^ n + r / 32768 * 0.1 }')"
    if kill -9 $pid 2>/dev/null; then kills=$((kills + 1)); fi
    wait $pid 2>/dev/null
    status=$?
    [ $status -eq 137 ] || break
    [ -e "$state" ] && resume="--resume $state"
  done
  [ $status -eq 0 ] || fail "exit $status after $kills kills: $(head -c 300 stderr)"
  [ $kills -ge 3 ] || fail "only $kills kills"
}
