# SPDX-License-Identifier: Apache-2.0
# Where the system has no more memory: a message, exit 4, and what was written before stays.
. "$(dirname "$0")/lib.sh"

kilobytes=300000
limited() { (ulimit -v $kilobytes && exec "$program" "$@") >stdout 2>stderr </dev/null; }
limited --version || exit 77  # sanitizers take more by themselves

echo before >trace.json
limited schedule 1f1b --stages 64 --microbatches 200000 --forward 1us --input-grad 1us \
  --weight-grad 1us --trace trace.json
status=$?
[ $status -eq 4 ] || fail "exit $status instead of 4: $(head -c 300 stderr)"
grep -qx 'orrery: out of memory' stderr || fail "says: $(head -c 300 stderr)"
[ ! -s stdout ] || fail "printed a result: $(head -c 100 stdout)"
[ "$(cat trace.json)" = before ] || fail 'wrote half of a trace'
finish
