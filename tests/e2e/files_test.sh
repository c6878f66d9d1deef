# SPDX-License-Identifier: Apache-2.0
# Files that cannot be read or written: exit 4, and what was there before stays as it was.
. "$(dirname "$0")/lib.sh"

rejects 4 'missing.json' simulate missing.json
rejects 4 'missing.json' plan missing.json hgx-h100:1 --batch 8
rejects 4 'missing.json' plan corpus/tiny-network.json missing.json --batch 8
rejects 4 'missing.csv' validate missing.csv
rejects 4 'missing.csv: cannot read: No such file' calibrate fit missing.csv --gpu l40s
rejects 4 'missing.sh' import missing.sh --from megatron --cluster dgx-a100:1
mkdir folder.json
rejects 4 'folder.json' simulate folder.json
# A folder of Hugging Face holds the file that is meant; a zoo name stays one beside a folder.
mkdir checkpoint gpt2
rejects 2 'checkpoint is a folder (a native document' plan checkpoint hgx-h100:1 --batch 8
echo '{}' >checkpoint/config.json
rejects 2 'checkpoint is a folder (give checkpoint/config.json)' plan checkpoint hgx-h100:1 --batch 8
rejects 2 'checkpoint is a folder (give checkpoint/config.json)' show network checkpoint
rejects 2 './checkpoint is a folder (give ./checkpoint/config.json)' \
  import missing.sh --from megatron --cluster dgx-a100:1 --network ./checkpoint
expect 0 plan gpt2 hgx-h100:1 --batch 8 --fix tp=1,pp=1 -q -o /dev/null

tiny="plan corpus/tiny-network.json hgx-h100:1 --batch 8 --fix tp=1,pp=1 -q"
for option in --output --trace --report; do
  rejects 4 'folder does not exist' $tiny $option nowhere/file
  rejects 4 'is a folder' $tiny $option folder.json
done
expect 4 $tiny --output /dev/full
expect 4 $tiny --report /dev/full -o good.json
# Nobody who reads the table, or no room for it: the plan is written all the same.
"$program" $tiny -o piped.json | true
[ -s piped.json ] || fail 'a closed pipe took the plan with it'
"$program" $tiny -o full.json >/dev/full 2>stderr
[ $? -eq 4 ] && [ -s full.json ] || fail "no room for the table: $(cat stderr)"
# A pipe that nobody reads, or writes, is waited for until Ctrl-C.
mkfifo pipe
for waits in "$tiny -o pipe" "$tiny --resume pipe"; do
  "$program" $waits >stdout 2>stderr &
  pid=$!
  sleep 1
  kill -INT $pid
  wait $pid
  status=$?
  [ $status -eq 4 ] || fail "$waits: exit $status after an interrupt"
  grep -q 'Interrupted' stderr || fail "$waits: $(cat stderr)"
done
cat pipe >read.json &
expect 0 $tiny -o pipe
wait $!
cmp -s read.json full.json || fail 'a plan through a pipe is another one'
cat full.json >pipe &
expect 0 simulate pipe
# Sweeps write three files; names may be nearly as long as file systems take.
printf '{"schema": "orrery-sweep", "version": 1, "network": "gpt2", "cluster": "hgx-h100:1", "batch": 8, "axes": [{"field": "batch", "values": [8, 16]}]}' >sweep.json
for device in - /dev/null pipe; do
  rejects 2 'takes one file, and a sweep writes three' whatif sweep.json -o $device
done
expect 0 $tiny -o "$(printf 'n%.0s' $(seq 240)).json"
printf 'old' >kept.json
rejects 4 'folder does not exist' $tiny --output kept.json --trace nowhere/trace.json
[ "$(cat kept.json)" = old ] || fail 'a failed run changed kept.json'
rejects 2 'batch' plan corpus/tiny-network.json hgx-h100:1 --batch 0 --output kept.json
[ "$(cat kept.json)" = old ] || fail 'bad input changed kept.json'
rejects 3 'fit' plan llama3-405b hgx-h100:1 --batch 8 --output kept.json -q
[ "$(cat kept.json)" = old ] || fail 'an infeasible search changed kept.json'

# Two results in one file, or a result in the place of what is read.
cp corpus/tiny-network.json mine.json
expect 0 $tiny -o made.json
for clash in "$tiny -o both.json --trace both.json" "$tiny -o both.json --report ./both.json" \
  'schedule 1f1b --stages 2 --microbatches 2 --svg both.json --trace both.json' \
  "validate $here/../data/measurements/training_runs.csv --html both.json --markdown both.json"; do
  rejects 2 'both.json, too (give each a file of its own)' $clash
  [ ! -e both.json ] || fail "$clash: wrote both.json"
done
for clash in 'plan mine.json hgx-h100:1 --batch 8 -o mine.json' \
  'plan mine.json hgx-h100:1+dgx-a100:1 --batch 8 -o ./mine.json' \
  'import mine.json --from megatron --cluster dgx-a100:1 -o mine.json' \
  'schedule mine.json --stages 2 --microbatches 2 --svg mine.json' \
  'validate mine.json --html mine.json' \
  'calibrate fit mine.json --gpu l40s -o mine.json'; do
  rejects 2 'mine.json is read by this command' $clash
done
printf '{"gpus": 8, "pools": [{"cluster": "mine.json"}]}' >names-mine.json
cp "$here"/../../costmodel/profiles/l40s.json base.json
for clash in 'plan gpt3-1.3b hgx-h100:1 --batch 8 --fix tp=1,schedule=mine.json -o mine.json' \
  'plan gpt3-1.3b hgx-h100:1 --batch 8 --schedule gpipe,mine.json -o mine.json' \
  'plan gpt3-1.3b hgx-h100:1 --batch 8 --resume mine.json -o mine.json' \
  'plan gpt3-1.3b names-mine.json --batch 8 -o mine.json'; do
  rejects 2 'mine.json is read by this command' $clash
done
rejects 2 'base.json is read by this command' calibrate fit corpus/tiny-network.json --gpu l40s --base base.json -o base.json
rejects 2 'made.json is read by this command' simulate made.json --trace made.json
rejects 2 'made.json is read by this command' export made.json --to megatron -o made.json
rejects 2 '--trace-detail: it has no effect without --trace' simulate made.json --trace-detail kernels
rejects 2 '--packing: it has no effect without --pack' generate lengths --packing in-order
cmp -s mine.json corpus/tiny-network.json || fail 'an input was replaced'
expect 0 $tiny -o /dev/null --report /dev/null

"$program" list gpus >/dev/full 2>stderr
[ $? -eq 4 ] || fail 'a full standard output is not noticed'
"$program" list networks 2>stderr | head -n 1 >/dev/null
[ ! -s stderr ] || fail "a closed pipe: $(cat stderr)"
ORRERY_DATA=/nonexistent rejects 2 '/nonexistent' list gpus

# A document on standard output is alone there: text stands beside it, on standard error or nowhere.
expect 0 $tiny -o -
[ ! -s stderr ] || fail "-q says: $(cat stderr)"
cp stdout streamed.json
same streamed.json made.json 'a plan on standard output'
expect 0 ${tiny% -q} -o - --trace streamed-trace.json
same stdout made.json 'a plan on standard output beside text'
grep -q '^The best plan\|tokens/s/GPU' stderr || fail "no table beside the plan: $(cat stderr)"
"$program" $tiny -o - | "$program" simulate - -q >piped.txt || fail 'a piped plan is not simulated'
expect 0 simulate made.json -q
same stdout piped.txt 'a piped plan'
expect 0 simulate made.json --trace -
[ "$(head -c 1 stdout)" = '{' ] || fail "text in a trace: $(head -n 1 stdout)"
grep -q '^iteration time' stderr || fail "no text beside the trace: $(cat stderr)"
expect 0 schedule 1f1b --stages 2 --microbatches 2 --svg -
[ "$(head -c 4 stdout)" = '<svg' ] && [ "$(tail -n 1 stdout)" = '</svg>' ] ||
  fail "text in a picture: $(tail -n 1 stdout)"
grep -q '^makespan' stderr || fail "no text beside the picture: $(cat stderr)"
for result in --html --markdown --report; do
  runs="$here/../data/measurements/training_runs.csv"
  expect 0 validate "$runs" $result streamed
  expect 0 validate "$runs" $result -
  same stdout streamed "validate $result -"
done
expect 0 calibrate fit --gpu h200-sxm5-141gb --kernels-from h100-sxm5-80gb -o streamed -q
expect 0 calibrate fit --gpu h200-sxm5-141gb --kernels-from h100-sxm5-80gb -o - -q
same stdout streamed 'a profile on standard output'
rejects 2 '--json: --output writes -, too' calibrate fit --gpu h200-sxm5-141gb --kernels-from h100-sxm5-80gb -o - --json

# The results of a sweep are three files; a suffix that one of them has may be stated.
cat >sweep.json <<'END'
{"schema": "orrery-sweep", "version": 1, "network": "corpus/tiny-network.json", "cluster": "hgx-h100:1",
 "fix": ["tp=8", "cp=1"], "axes": [{"field": "batch", "values": [8, 16]}]}
END
expect 0 whatif sweep.json -o study.json
[ -s study.json ] && [ -s study.csv ] && [ -s study.svg ] || fail "whatif -o study.json wrote $(ls study*)"
mkdir studies
head -n 1 stdout | grep -q 'MFU .*memory .*USD per trillion tokens' || fail "whatif's table: $(head -n 1 stdout)"
expect 0 whatif sweep.json -o studies
expect 0 whatif sweep.json -o studies/
[ "$(ls -A studies | tr '\n' ' ')" = 'sweep-result.csv sweep-result.json sweep-result.svg ' ] ||
  fail "whatif -o of a folder wrote $(ls -A studies)"
rejects 4 'its folder does not exist' whatif sweep.json -o nowhere/
rejects 2 'sweep.json is read by this command' whatif sweep.json -o sweep.json
sed 's#corpus/tiny-network.json#mine.json#' sweep.json >of-mine.json
rejects 2 'mine.json is read by this command' whatif of-mine.json -o mine

# Nobody listens to the notes.
"$program" list gpus --nonsense 2>&-
[ $? -eq 2 ] || fail 'another exit code where standard error is closed'
if [ -e /dev/full ]; then
  "$program" list gpus --nonsense 2>/dev/full
  [ $? -eq 2 ] || fail 'another exit code where standard error is full'
fi
finish
