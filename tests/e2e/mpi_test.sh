# SPDX-License-Identifier: Apache-2.0
# Several processes under an MPI launcher give the answer of one; only rank 0 prints. Skipped where
# there is no MPI.
. "$(dirname "$0")/lib.sh"
command -v mpirun >/dev/null && [ -e "$(dirname "$program")/orrery_mpi.so" ] || exit 77
export OMPI_MCA_btl_vader_single_copy_mechanism=none PMIX_MCA_gds=hash
mpi() {
  local ranks=$1
  shift
  mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$ranks" "$program" "$@" \
    >stdout 2>stderr </dev/null
  status=$?
}
without_time() { grep -v '"search_time_s"' "$1"; }

search="plan llama3-8b hgx-h100:4 --batch 256 --json -q --jobs 1"
expect 0 $search
without_time stdout >alone
for ranks in 1 2 4; do
  mpi $ranks $search
  [ $status -eq 0 ] || fail "$ranks ranks: exit $status: $(head -c 500 stderr)"
  without_time stdout >several
  same several alone "$ranks ranks"
done
# Two searches, the second one of asynchronous schedules.
expect 0 $search --allow asynchronous --fix tp=1
without_time stdout >alone
mpi 2 $search --allow asynchronous --fix tp=1
without_time stdout >several
same several alone 'asynchronous schedules on 2 ranks'
# Checkpoints do not depend on ranks.
expect 0 plan llama3-8b hgx-h100:4 --batch 256 --json -q --jobs 1 --time-limit 0.02 --checkpoint state
mpi 2 $search --resume state
expect 0 $search
without_time stdout >alone
mpi 2 $search --resume state
without_time stdout >several
same several alone 'a checkpoint of one rank on two'

# A layout for every block: bounds and drafts of pipelines are handed out, too.
problem="llama3-8b hgx-h100:1 --fix pp=2,cp=1,tp=2,micro_batch=1,schedule=interleaved,chunks=2"
search="plan $problem --batch 16 --space per-block --json -q --jobs 1"
expect 0 $search
without_time stdout >alone
mpi 2 $search
[ $status -eq 0 ] || fail "per block on 2 ranks: exit $status: $(head -c 500 stderr)"
without_time stdout >several
same several alone 'per block on 2 ranks'
mpi 2 $search --time-limit 0.05 --checkpoint per-block-state
[ $status -eq 0 ] || fail "a time limit on 2 ranks: exit $status: $(head -c 500 stderr)"
[ "$(value_of stdout timed_out)" = true ] || fail "a time limit that ended nothing"
mpi 4 $search --resume per-block-state
without_time stdout >several
same several alone 'per block on 4 ranks after a time limit on 2'
mpi 1 $search : -n 1 "$program" ${search/--batch 16/--batch 32}
[ $status -eq 2 ] || fail "other inputs: exit $status"
grep -q 'rank 1: has other inputs than rank 0: workload' stderr || fail "no word of them: $(cat stderr)"

# A sweep is that of one process, which rank 0 says; the others neither search nor write.
cat >sweep.json <<'END'
{"schema": "orrery-sweep", "version": 1, "network": "gpt3-125m", "cluster": "hgx-h100:1",
 "fix": {"pp": 1, "cp": 1}, "axes": [{"field": "batch", "values": [8, 16, 32]}]}
END
expect 0 whatif sweep.json -q -o alone
mpi 3 whatif sweep.json -o several
[ $status -eq 0 ] || fail "a sweep on 3 ranks: exit $status: $(head -c 500 stderr)"
same several.csv alone.csv 'a sweep on 3 ranks'
grep -q 'runs on rank 0 alone' stderr || fail "no word of rank 0: $(cat stderr)"
[ "$(grep -c 'gpt3-125m\|wrote several.json' stderr)" -eq 1 ] || fail "several ranks wrote: $(cat stderr)"

mpi 2 plan llama3-8b nowhere:4 --batch 256
[ $status -eq 2 ] || fail "bad input on 2 ranks: exit $status"
[ "$(grep -c '^orrery: ' stderr)" -eq 1 ] || fail "not one message: $(grep '^orrery: ' stderr)"
mpi 2 plan gpt3-175b dgx-a100:1 --batch 8 --quiet
[ $status -eq 3 ] || fail "nothing fits on 2 ranks: exit $status"
rm -f plan.json
# A module that is not there is said, once and in words.
cp "$program" lonely
OMPI_COMM_WORLD_SIZE=2 ./lonely $search >stdout 2>stderr
[ $? -eq 2 ] || fail 'a missing module is no error'
grep -q 'MPI is not there' stderr || fail "no word of the missing module: $(cat stderr)"
# Asked for without a launcher: the answer of one process, and a word.
search="plan llama3-8b hgx-h100:1 --batch 64 --fix tp=2,pp=1,cp=1 --json --jobs 1"
expect 0 $search -q
without_time stdout >alone
expect 0 $search --mpi
without_time stdout >several
same several alone '--mpi alone'
grep -q -- '--mpi: this process is the only rank' stderr || fail "--mpi alone says: $(cat stderr)"
expect 0 $search --mpi -q
[ ! -s stderr ] || fail "--mpi -q says: $(cat stderr)"
finish
