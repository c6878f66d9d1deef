# SPDX-License-Identifier: Apache-2.0
# Every configuration that the ground-truth script would measure is one that Orrery simulates, and
# its rows are what `orrery validate` reads. Needs python3, but neither PyTorch nor a GPU.
source "$(dirname "$0")/lib.sh"

command -v python3 >/dev/null || exit 0
script=$here/../../calibrate/ground_truth/ground_truth.py
export PYTHONDONTWRITEBYTECODE=1

python3 "$script" --dry-run --dummy-value 1 --output rows.csv || fail "--dry-run"
configurations=$(python3 "$script" --list | wc -l)
[ "$configurations" -ge 16 ] || fail "$configurations configurations"
[ "$(wc -l <rows.csv)" -eq $((2 * configurations + 1)) ] || fail "two rows a configuration"

expect 0 validate rows.csv --json --quiet
cp stdout rows.json
grep -q '"skipped": [1-9]' rows.json &&
  fail "rows are skipped: $(grep '"skipped_because": "' rows.json | head -n 3)"
[ "$(value_of rows.json simulated)" = "$configurations" ] ||
  fail "simulated $(value_of rows.json simulated) of $configurations"

# Rows of another GPU, and names that are unknown.
python3 "$script" --dry-run --dummy-value 1 --gpu H200-141GB-SXM5 --only llama3 --output h200.csv ||
  fail "--gpu"
expect 0 validate h200.csv --quiet
python3 "$script" --only nothing >/dev/null 2>err.txt && fail "an unknown name is accepted"
grep -q 'see --list' err.txt || fail "no hint: $(cat err.txt)"
# Without PyTorch or a device it says so.
CUDA_VISIBLE_DEVICES= python3 "$script" --output none.csv >/dev/null 2>err.txt && fail "no device"
grep -q 'PyTorch is needed\|no CUDA device' err.txt || fail "no reason: $(cat err.txt)"
[ ! -e none.csv ] || fail "rows without measurements"

finish
