# SPDX-License-Identifier: Apache-2.0
# Options that are missing, doubled or out of range, and help that exists.
. "$(dirname "$0")/lib.sh"

rejects 2 'sub-command' # nothing at all
rejects 2 '--batch' plan gpt3-175b dgx-a100:8
rejects 2 'CLUSTER' plan gpt3-175b --batch 8
rejects 2 'unexpected argument "extra"' plan gpt3-175b dgx-a100:8 extra --batch 8
rejects 2 'several schedules stand behind --compare' schedule 1f1b gpipe --stages 4 --microbatches 8
for batch in 0 -5 1.5 eight 99999999999999999999 '' 1e3; do
  rejects 2 '--batch' plan gpt3-175b dgx-a100:8 --batch "$batch"
done
rejects 2 '--seq' plan gpt3-175b dgx-a100:8 --batch 8 --seq 0
rejects 2 'and batch 7 as asked (there are plans for batch 8)' plan corpus/tiny-network.json hgx-h100:1 --batch 7 --seq 1 --set layers=1 --set heads=1
tiny='plan corpus/tiny-network.json hgx-h100:1 --batch 8'
rejects 2 '--forbid: tp=1, tp=2, tp=4, tp=8 leaves no value of tp for ' $tiny --forbid tp=1,tp=2,tp=4,tp=8
rejects 2 '--forbid: zero=0, zero=1, zero=2, zero=3 leaves no value of zero' $tiny --fix pp=2 --forbid zero=0,zero=1,zero=2,zero=3
rejects 2 'there are plans without --forbid tp=2, tp=4, tp=8, or without --forbid dp=2' $tiny --forbid tp=2,tp=4,tp=8,dp=2,dp=4,dp=8 --forbid cp=2,cp=4,cp=8,pp=2,pp=4,pp=8
rejects 2 'there are plans with pp=1 instead of pp=2, or with cp=1 instead of cp=2, or with dp=1 instead of dp=2, or without --forbid tp=1)' $tiny --fix pp=2,cp=2,dp=2 --forbid tp=1
rejects 2 '--forbid: overlap_p2p can be neither true nor false' $tiny --forbid overlap_p2p=true,overlap_p2p=false
for zero in '--fix zero=0' '--forbid zero=1,zero=2,zero=3'; do
  rejects 2 '--fix: shard_degree = 4 needs ZeRO, and zero cannot be 1, 2 or 3' $tiny --fix shard_degree=4 $zero
done
rejects 2 '--jobs' plan gpt3-175b dgx-a100:8 --batch 8 --jobs 100000
served='plan corpus/tiny-network.json hgx-h100:1 --serve corpus/requests.json'
rejects 2 '--jobs' $served --jobs -1
rejects 2 '--serve: --lengths does not go with it' $served --lengths lengths.txt
rejects 2 '--lengths: not on a cluster of several kinds' \
  plan corpus/tiny-network.json hgx-h100:1+dgx-a100:1 --lengths lengths.txt
rejects 2 '--gap' plan gpt3-175b dgx-a100:8 --batch 8 --gap 2
rejects 2 '--gap' plan gpt3-175b dgx-a100:8 --batch 8 --gap nan
rejects 2 '--top' plan gpt3-175b dgx-a100:8 --batch 8 --top 0
rejects 2 '--time-limit' plan gpt3-175b dgx-a100:8 --batch 8 --time-limit soon
rejects 2 'leave the option out for no limit' plan gpt3-175b dgx-a100:8 --batch 8 --time-limit 0
rejects 2 'leave the option out for no limit' plan gpt3-175b dgx-a100:8 --batch 8 --time-limit '0 s'
rejects 2 '--memory-reserve' plan gpt3-175b dgx-a100:8 --batch 8 --memory-reserve 4
rejects 2 '--memory-reserve' plan gpt3-175b dgx-a100:8 --batch 8 --memory-reserve '900 GiB'
rejects 2 '--set' plan gpt3-175b dgx-a100:8 --batch 8 --set gpu.hbm_bandwidth
rejects 2 'no value' plan gpt3-175b dgx-a100:8 --batch 8 --fix tp
rejects 2 'nothing between the commas of "tp=8,,pp=4"' plan gpt3-175b dgx-a100:8 --batch 8 --fix tp=8,,pp=4
rejects 2 'layers is set to both 3 and 4' plan gpt3-175b dgx-a100:8 --batch 8 --set layers=3 --set layers=4
rejects 2 '--draws: 1 is out of range' plan no-network dgx-a100:8 --batch 8 --robust --draws 1
rejects 2 'fixed to both' plan gpt3-175b dgx-a100:8 --batch 8 --fix tp=8,tp=4
rejects 2 'dgx-a100' plan gpt3-175b dgx-a100:0 --batch 8
rejects 2 'dgx-a100' plan gpt3-175b dgx-a100:99999999999999 --batch 8
rejects 2 '--stages' schedule 1f1b --stages 0 --microbatches 4
rejects 2 '--forward' schedule 1f1b --stages 2 --microbatches 4 --forward -1
rejects 2 'multiple' schedule interleaved --stages 4 --microbatches 6 --chunks 2
rejects 2 'chunk' schedule 1f1b --stages 4 --microbatches 8 --chunks 2
rejects 2 'schedule' schedule 1f1b --stages 16384 --microbatches 16777216
rejects 2 'one plan' compare one.json
rejects 2 'color' list gpus --color sometimes

# Another option where a value belongs is no value: neither of a list, nor of a file, nor of a number.
rejects 2 '--compare needs a value' schedule --compare --stages 4 --microbatches 8
rejects 2 '--svg needs a value' schedule 1f1b --stages 4 --microbatches 8 --svg --json
[ ! -e --json ] || fail 'a picture is called --json'
rejects 2 '--microbatches needs a value' schedule 1f1b --microbatches --stages 4
rejects 2 '--fix needs a value' plan gpt3-175b dgx-a100:8 --batch 8 --fix --seq 2048
rejects 2 '--output needs a value' plan gpt3-175b dgx-a100:8 --batch 8 -o -j 2
rejects 2 '--schedule needs a value' plan gpt3-175b dgx-a100:8 --batch 8 --schedule --json
rejects 2 '--output needs a value' plan gpt3-175b dgx-a100:8 --batch 8 -o -j2
[ ! -e -j2 ] || fail 'a plan is called -j2'
rejects 4 '--worst: cannot read' validate -- --worst
# Options of a sub-command stand behind it.
rejects 2 '--json goes behind the sub-command (orrery list --json ...)' --json list networks
rejects 2 '-q goes behind the sub-command (orrery plan -q ...)' -q plan gpt2
rejects 2 '--color goes behind the sub-command (orrery simulate --color ...)' --color never simulate x.json
rejects 2 '--color goes behind the sub-command' --color=never list gpus
rejects 2 '(orrery calibrate fit --json ...)' calibrate --json fit x.csv
rejects 2 'unknown option "--jsn" (did you mean "--json"? see orrery list --help)' --jsn list gpus
# Chunks and slices of a comparison are read, and are for somebody.
rejects 2 'no schedule named here has chunks' schedule --compare 1f1b gpipe --stages 4 --microbatches 8 --chunks 4
rejects 2 'not an integer' schedule --compare 1f1b interleaved --stages 4 --microbatches 8 --chunks abc
rejects 2 'no schedule named here has slices' schedule --compare 1f1b gpipe --stages 4 --microbatches 8 --slices 4
# Options in any order, also behind one with several values.
expect 0 schedule --compare 1f1b gpipe --stages 4 --microbatches 8
cp stdout last.txt
for arguments in '--stages 4 --compare 1f1b gpipe --microbatches 8' \
  '--microbatches 8 --stages 4 --compare 1f1b gpipe' '--compare=1f1b gpipe --stages=4 --microbatches=8' \
  '--compare 1f1b --stages 4 --compare gpipe --microbatches 8'; do
  expect 0 schedule $arguments
  same stdout last.txt "schedule $arguments"
done

expect 0 --help
grep -q 'orrery plan llama3-70b' stdout || fail 'no example in --help'
expect 0 --version
grep -q '^orrery [0-9]' stdout || fail "--version prints $(cat stdout)"
for command in plan simulate compare validate export import schedule show list; do
  expect 0 $command --help
  grep -q "  orrery $command" stdout || fail "no example in $command --help"
  awk 'length > 102 {exit 1}' stdout || fail "$command --help is wider than a page"
done
expect 0 plan --help
tr -s ' \n' ' ' <stdout | grep -q 'of --pareto that of each of its searches' || fail '--time-limit does not say of what'
# Examples that need no file of somebody else run as they are shown.
for command in generate list show schedule; do
  expect 0 $command --help
  sed -n 's/^  orrery //p' stdout | grep -v 'json\b.*\.json\|plan\.json\|mine\.json\|times\.csv' >examples
  [ -s examples ] || fail "no example of $command"
  while read -r line; do
    eval "expect 0 $line"
  done <examples
done
rm -f examples ./*.svg
# With --json every command prints one object, and nothing that its tables do not have is missing.
for line in 'planner pipedream' 'list gpus' 'show gpu h100-sxm5-80gb' 'show network gpt2' \
  'show cluster dgx-a100:2' 'schedule 1f1b --stages 2 --microbatches 4' 'generate indices'; do
  expect 0 $line --json
  head -n 1 stdout | grep -qx '{' || fail "$line --json begins with $(head -n 1 stdout)"
  tail -n 1 stdout | grep -qx '}' || fail "$line --json ends with $(tail -n 1 stdout)"
done
expect 0 show gpu h100-sxm5-80gb --json
grep -q '"pcie_bandwidth_bytes_per_s": 6.3e+10' stdout || fail 'no PCIe in the JSON of a GPU'
expect 0 show network gpt2 --json
grep -q '"forward_flops"' stdout || fail 'no FLOPs in the JSON of a network'
expect 0 show cluster dgx-a100:2 --json
grep -q '"all_to_all_share": 1' stdout || fail 'no fabric in the JSON of a cluster'
expect 0 show cluster hgx-h100:1
grep -q '^hgx-h100:1: 1 node, 8 GPUs' stdout || fail "$(head -n 1 stdout)"
expect 0 list gpus
grep ' 0 FLOP/s' stdout && fail 'a GPU without a peak'
for what in networks clusters nodes gpus profiles schedules collectives topologies exporters importers; do
  expect 0 list $what
  [ "$(wc -l <stdout)" -ge 4 ] || fail "list $what is short"
  expect 0 list $what --json
  grep -q "\"$what\"" stdout || fail "list $what --json has no \"$what\""
done
finish
