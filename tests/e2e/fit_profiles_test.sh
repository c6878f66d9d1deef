# SPDX-License-Identifier: Apache-2.0
# The profiles of the box are what one run of scripts/fit_profiles makes of the public tables, byte
# for byte. Skipped where the tables are not at hand.
. "$(dirname "$0")/lib.sh"

root=$(realpath "$here/../..")
tables=$root/../shared/kernels
logs=$root/../shared/nccl-logs/rows.csv
[ -d "$tables" ] && [ -f "$logs" ] || exit 77
mkdir -p box/costmodel box/calibrate
cp -r "$root/scripts" box/
cp -r "$root/calibrate/tables" box/calibrate/
cp -r "$root/costmodel/profiles" "$root/costmodel/kernels" box/costmodel/
ORRERY=$program LOGS=$logs sh box/scripts/fit_profiles "$tables" >fit.log 2>&1 ||
  fail "fit_profiles: $(tail -3 fit.log)"
for folder in profiles kernels; do
  diff -r "$root/costmodel/$folder" "box/costmodel/$folder" >difference ||
    fail "another run gives other $folder: $(head -5 difference)"
done
# A fit on its own result says the same again, of every class once.
streams="$tables/membound-stream-rrze.csv $tables/membound-liger.csv"
expect 0 calibrate fit $streams --gpu a100-sxm4-80gb -o once.json
expect 0 calibrate fit $streams --gpu a100-sxm4-80gb --base once.json -o twice.json
same once.json twice.json 'a fit on its own result'
finish
