# SPDX-License-Identifier: Apache-2.0
# Unknown names of every kind: exit 2 and the nearest name.
. "$(dirname "$0")/lib.sh"

rejects 2 'did you mean "plan"' pln
rejects 2 'did you mean "simulate"' simulat plan.json
rejects 2 'did you mean "--batch"' plan gpt3-175b dgx-a100:8 --bathc 8
rejects 2 'did you mean "--memory-reserve"' plan gpt3-175b dgx-a100:8 --batch 8 --memory-reserv "1 GiB"
rejects 2 'did you mean "llama3-70b"' plan llama3-70 hgx-h100:8 --batch 8
rejects 2 'did you mean "megatron-530b"' plan megatron-530 dgx-a100:8 --batch 8
expect 0 show network 'Llama 3 70B'
grep -q 'llama3-70b' stdout || fail "an alias prints $(head -c 200 stdout)"
# Two networks of one name, of which one stands in another folder.
mkdir -p data/models/zoo
sed 's/"name": "llama3-8b",/"name": "mine", "aliases": ["MT-NLG"],/' \
  "$here/../../models/zoo/llama3-8b.json" >data/models/zoo/mine.json
export ORRERY_DATA=data
rejects 2 '"MT-NLG" is a name of megatron-turing-530b already' show network nobodys
expect 0 show network mine
unset ORRERY_DATA
rejects 2 'did you mean "dgx-a100"' plan gpt3-175b dgx-a10:8 --batch 8
rejects 2 'did you mean "selene"' plan gpt3-175b selen --batch 8
rejects 2 'did you mean "tp"' plan gpt3-175b dgx-a100:8 --batch 8 --fix tpp=8
rejects 2 'did you mean "1f1b"' plan gpt3-175b dgx-a100:8 --batch 8 --fix schedule=1f1
rejects 2 'did you mean "selective"' plan gpt3-175b dgx-a100:8 --batch 8 --fix recompute=selectiv
rejects 2 'asynchronous' plan gpt3-175b dgx-a100:8 --batch 8 --allow async
rejects 2 'did you mean "bf16"' plan gpt3-175b dgx-a100:8 --batch 8 --precision bf15
rejects 2 'homogeneous' plan gpt3-175b dgx-a100:8 --batch 8 --space heterogeneous
rejects 2 'hbm_bandwidth' plan gpt3-175b dgx-a100:8 --batch 8 --set gpu.hbm_bandwith="6 TB/s"
rejects 2 'hidden' plan gpt3-175b dgx-a100:8 --batch 8 --set hiden=12
rejects 2 'did you mean' plan gpt3-175b dgx-a100:8 --batch 8 --profile a100-sxm4-80g
rejects 2 'did you mean "galvatron"' plan gpt3-175b dgx-a100:8 --batch 8 --like galvatro
rejects 2 'did you mean "memory"' plan gpt3-175b dgx-a100:8 --batch 8 --pareto memry
rejects 2 '--robust does not go with it' plan gpt3-175b dgx-a100:8 --batch 8 --pareto gpus --robust
rejects 2 'zero=3 is fixed and excluded' plan gpt3-175b dgx-a100:8 --batch 8 --fix zero=3 --forbid zero=3
rejects 2 'did you mean "gpipe"' schedule gpip --stages 2 --microbatches 2
rejects 2 'did you mean "networks"' list network
rejects 2 'did you mean "cluster"' show clusters selene
rejects 2 'did you mean "h100-sxm5-80gb"' show gpu h100-sxm5-80g
rejects 2 'did you mean "megatron"' export plan.json --to megatro
rejects 2 'did you mean "megatron"' import script.sh --from megatro --cluster dgx-a100:1
rejects 2 'did you mean one of llama3-405b, llama3-70b' plan llama3 hgx-h100:8 --batch 8
rejects 2 'did you mean "--batch"' plan gpt3-175b dgx-a100:8 -b 8
for size in --batch-size --global-batch-size; do
  rejects 2 "unknown option \"$size\" (did you mean \"--batch\"?" plan gpt3-175b dgx-a100:8 $size 8
done
for tokens in --sequence --seq-len --sequence-length; do
  rejects 2 'did you mean "--seq"' plan gpt3-175b dgx-a100:8 --batch 8 $tokens 2048
done
for field in tp pp micro-batch mbs recompute zero_stage; do
  rejects 2 "did you mean \"--fix $field=...\"" plan gpt3-175b dgx-a100:8 --batch 8 --$field 1
done
rejects 2 'did you mean one of --checkpoint' plan gpt3-175b dgx-a100:8 --batch 8 --check state
rejects 2 'unknown option "--dtype" (see orrery plan --help)' plan gpt3-175b dgx-a100:8 --batch 8 --dtype bf16
rejects 2 'did you mean "--help"' help
rejects 2 'did you mean "per-block"' plan gpt3-175b dgx-a100:8 --batch 8 --space perblock
rejects 2 'no effect without --robust' plan gpt3-175b dgx-a100:8 --batch 8 --draws 4
rejects 2 'no effect without --serve' plan gpt3-175b dgx-a100:8 --batch 8 --max-first-token '1 s'
rejects 2 'no effect without --pareto' plan gpt3-175b dgx-a100:8 --batch 8 --pareto-picture x.svg
rejects 2 'does not go with it' schedule 1f1b --compare 1f1b gpipe --stages 2 --microbatches 4
rejects 2 'says this already' schedule 1f1b --plan corpus/plan.json --forward 2
rejects 2 'says this already' schedule 1f1b --stages 2 --microbatches 4 --costs times.csv --latency 1
rejects 2 'belong to training' plan gpt3-175b dgx-a100:8 --serve requests.json --schedule 1f1b
rejects 2 'named twice' validate runs.csv runs.csv
rejects 2 'did you mean "zero-bubble"?' reproduce zero-buble
# Before any of the others has run.
expect 2 reproduce chimera-bubbles bitpipe-bubbles zero-buble
[ "$(wc -l <stderr)" -eq 1 ] && [ ! -s stdout ] || fail "others ran: $(cat stderr stdout)"
rejects 2 'NODE@topology.conf' show cluster hgx-h100@
rejects 4 'mine.topo: cannot read' show cluster hgx-h100@mine.topo
rejects 2 'has no name' plan gpt3-175b dgx-a100:8+ --batch 8
rejects 4 'no such file' plan ./nowhere/config.json dgx-a100:8 --batch 8
finish
