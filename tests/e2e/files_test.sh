# SPDX-License-Identifier: Apache-2.0
# Files that cannot be read or written: exit 4, and what was there before stays as it was.
. "$(dirname "$0")/lib.sh"

rejects 4 'missing.json' simulate missing.json
rejects 4 'missing.json' plan missing.json hgx-h100:1 --batch 8
rejects 4 'missing.json' plan corpus/tiny-network.json missing.json --batch 8
rejects 4 'missing.csv' validate missing.csv
rejects 4 'missing.sh' import missing.sh --from megatron --cluster dgx-a100:1
mkdir folder.json
rejects 4 'folder.json' simulate folder.json

tiny="plan corpus/tiny-network.json hgx-h100:1 --batch 8 --fix tp=1,pp=1 -q"
for option in --output --trace --report; do
  rejects 4 'folder does not exist' $tiny $option nowhere/file
  rejects 4 'is a folder' $tiny $option folder.json
done
expect 4 $tiny --output /dev/full
expect 4 $tiny --report /dev/full -o good.json
printf 'old' >kept.json
rejects 4 'folder does not exist' $tiny --output kept.json --trace nowhere/trace.json
[ "$(cat kept.json)" = old ] || fail 'a failed run changed kept.json'
rejects 2 'batch' plan corpus/tiny-network.json hgx-h100:1 --batch 0 --output kept.json
[ "$(cat kept.json)" = old ] || fail 'bad input changed kept.json'
rejects 3 'fit' plan llama3-405b hgx-h100:1 --batch 8 --output kept.json -q
[ "$(cat kept.json)" = old ] || fail 'an infeasible search changed kept.json'

"$program" list gpus >/dev/full 2>stderr
[ $? -eq 4 ] || fail 'a full standard output is not noticed'
"$program" list networks 2>stderr | head -n 1 >/dev/null
[ ! -s stderr ] || fail "a closed pipe: $(cat stderr)"
ORRERY_DATA=/nonexistent rejects 2 '/nonexistent' list gpus
finish
