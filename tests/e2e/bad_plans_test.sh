# SPDX-License-Identifier: Apache-2.0
# Plans that cannot be: degrees, stages, batches and routes (exit 2), and memory (exit 3).
. "$(dirname "$0")/lib.sh"

llama() { rejects "$1" "$2" plan llama3-70b hgx-h100:8 --batch 512 --fix "$3"; }
llama 2 'tp x pp = 8 x 5 = 40 does not divide the 64 GPUs of hgx-h100:8 (pp = 4 would)' tp=8,pp=5
llama 2 'tp x cp x dp x pp = 8 x 1 x 2 x 2 = 32, but hgx-h100:8 has 64 GPUs' tp=8,pp=2,dp=2,cp=1
llama 2 'tp = 3 does not divide the 64 GPUs of hgx-h100:8 (tp = 2 would)' tp=3
expect 0 plan gpt3-125m hgx-h100:1 --batch 8 --fix pp=4,chunks=2,stages=even,schedule=interleaved -q -o uneven.json
grep -q '"chunks": 2' uneven.json || fail 'chunks that do not divide the layers cannot be fixed'
llama 2 'has no experts' ep=2
llama 2 'does not divide the batch 512 (micro_batch = 8 would)' micro_batch=7
llama 2 '(tp = 2, pp = 4 would)' tp=3,pp=5
llama 2 'dp x micro_batch = 8 x 96 = 768 does not divide the batch 512 (micro_batch = 64 would)' dp=8,micro_batch=96
llama 2 'pp x chunks = 16 x 6 = 96 stages, but llama3-70b has 80 layers (at most 80 in all)' pp=16,chunks=6
rejects 2 'but gpt3-125m has 12 layers' plan gpt3-125m hgx-h100:8 --batch 64 --fix pp=16
# Degrees that follow from others are worked out.
rejects 2 'tp x cp x pp = 1 x 1 x 1 = 1 on 8 GPUs leaves dp = 8 and each replica 1 sequence of the batch 8, which micro_batch = 8 does not divide (micro_batch = 1 would)' \
  plan llama3-8b hgx-h100:1 --batch 8 --fix recompute=none,micro_batch=8,zero=1,tp=1,pp=1,cp=1
rejects 2 'leaves dp = 4, which does not divide the batch 6 (--batch 8 would' plan llama3-8b hgx-h100:1 --batch 6 --fix tp=2,pp=1,cp=1
rejects 2 'leaves dp = 4, which does not divide the batch 6 (--batch 16 would' \
  plan llama3-8b hgx-h100:1 --batch 6 --fix tp=2,pp=1,cp=1,micro_batch=4
rejects 2 'one stage has one chunk, and interleaved has several on a device' \
  plan llama3-8b hgx-h100:1 --batch 64 --fix schedule=interleaved,pp=1
# With the remainder and the nearest degree of the cluster.
rejects 2 'tp = 8 does not divide the 12 attention heads of gpt3-125m (remainder 4; the nearest that does is 4)' \
  plan gpt3-125m hgx-h100:1 --batch 64 --fix tp=8
rejects 2 'tp x cp = 2 x 4 = 8 does not divide the 12 attention heads of gpt3-125m (remainder 4;' \
  plan gpt3-125m hgx-h100:1 --batch 64 --fix tp=2,cp=4,context=ulysses
rejects 2 'tp = 8 neither divides the 3 key and value heads of llama3-8b nor is a multiple (remainder 2; the nearest that does is 1)' \
  plan llama3-8b hgx-h100:1 --batch 64 --set heads=24 --set kv_heads=3 --set head_dim=128 --fix tp=8
rejects 2 'cp = 8 does not divide the 4100 tokens' plan llama3-8b hgx-h100:1 --batch 64 --seq 4100 --fix cp=8
# What a mesh breaks is named where one is asked for, and where it is to blame.
rejects 2 'dimension head = 25 is not divisible' plan gpt2-xl hgx-h100:1 --batch 8 --fix tp=4,tensor_parallel=2d
rejects 2 'chunks=2 (there are plans with dp=4 instead of dp=8, or without chunks=2)' plan gpt3-125m hgx-h100:1 --batch 8 --allow meshes --fix dp=8,chunks=2
rejects 2 '--forbid: zero=0, zero=1, zero=2, zero=3 leaves no value of zero' plan gpt3-125m hgx-h100:1 --batch 8 \
  --fix tensor_parallel=2d,tp=4 --forbid zero=0 --forbid zero=1 --forbid zero=2 --forbid zero=3
rejects 2 'dp x cp = 8 is not divisible by shard_degree = 3' \
  plan corpus/tiny-network.json hgx-h100:1 --batch 16 --fix shard_degree=3
rejects 2 'no route' plan corpus/tiny-network.json corpus/cluster-without-route.json --batch 16
rejects 2 'no route' show cluster corpus/cluster-without-route.json
# A schedule is blamed for what it asks of chunks that the search tries, not of one.
rejects 2 'search: no plan for batch 8 on hgx-h100:1 has pp=8, schedule zb-v (there are plans with pp=4 instead of pp=8, or without schedule zb-v)' \
  plan gpt3-125m hgx-h100:1 --batch 8 --schedule zb-v --fix pp=8
rejects 2 'micro-batches must be a multiple of stages, but 2 is not one of 8' \
  plan gpt3-125m hgx-h100:2 --batch 16 --schedule interleaved --fix pp=8,dp=2,micro_batch=4
# Longer than the table of learned positions, wherever the length comes from.
rejects 2 '--seq: sequences have 1025 tokens, but gpt2 has learned positions for 1024' plan gpt2 hgx-h100:1 --batch 8 --seq 1025
rejects 2 'learned positions for 512' plan bert-large hgx-h100:1+dgx-a100:1 --batch 8 --seq 1024
rejects 2 'learned positions for 1024' plan corpus/tiny-network.json hgx-h100:1 --batch 8 --seq 2048 --space per-block
rejects 3 'plans fits' plan llama3-405b hgx-h100:1 --batch 8 --seq 1048576 --fix micro_batch=1,zero=3,cp=8
echo '[512, 4096]' >lengths.json
rejects 2 'lengths.json: sequences have 4096 tokens' plan corpus/tiny-network.json hgx-h100:1 --schedule flexsp --lengths lengths.json
# A time that cannot be simulated is one of the question.
rejects 3 'gpt3-125m on hgx-h100:2: ' plan gpt3-125m hgx-h100:2 --batch 8 --set node.scale_out.nic_bandwidth='1 B/s'
# What no search tries is not forbidden; experts are cut by as many ranks as are asked for.
rejects 2 '--forbid expert_cp: no search tries several values' plan mixtral-8x7b hgx-h100:4 --batch 32 --forbid expert_cp=0
expect 0 plan mixtral-8x7b hgx-h100:4 --batch 32 --seq 1024 --fix expert_tp=4,pp=1,cp=1 -q -o experts.json
expect 0 simulate experts.json -q
rejects 2 'has expert_tp=64' plan mixtral-8x7b hgx-h100:4 --batch 32 --seq 1024 --fix expert_tp=64
# Asked for and excluded at once.
rejects 2 '--fix: tp=2 is fixed and excluded at once' plan gpt3-125m hgx-h100:1 --batch 8 --fix tp=2 --forbid tp=2
rejects 2 '--schedule: 1f1b is asked for and excluded at once' plan gpt3-125m hgx-h100:1 --batch 8 --schedule 1f1b --forbid schedule=1f1b
expect 0 plan gpt3-125m hgx-h100:1 --batch 8 --schedule 1f1b --schedule zb-h1 --forbid schedule=1f1b --fix pp=2 -q -o named.json
rejects 2 'fp8' plan gpt3-125m dgx-a100:1 --batch 8 --precision fp8
rejects 2 'cluster' show cluster dgx-a100:8 --set hidden=4

# Everything fixed, too large: the stage and what fills it.
fixed=tp=8,pp=1,dp=8,micro_batch=8,recompute=none,zero=0,sequence_parallel=true
llama 3 'stage 0 needs' $fixed
grep -q 'the largest part is activations' stderr || fail "no category: $(cat stderr)"
rejects 3 'none of' plan llama3-405b hgx-h100:1 --batch 8
for line in 'orrery: .* none of [0-9]* plans fits' 'the closest:' '  stage 0 needs [^;]*' \
  '  the largest part is [^;]*' 'a plan fits with any one of:'; do
  grep -qx -- "$line" stderr || fail "no line \"$line\": $(cat stderr)"
done
orrery plan gpt3-1.3b hgx-h100-4:1 --batch 16 --set 'gpu.memory=5 GiB' --space per-block --json
[ "$status" -eq 3 ] || fail "exit $status where nothing fits"
grep -qF 'none of 3.2e+59 plans fits' stderr || fail "blocks that do not fit: $(cat stderr)"
grep -q '"plans": "3.2e+59"' stdout || fail "blocks that do not fit: $(cat stdout)"
# Any plan will do, but one there is.
expect 0 plan gpt3-175b hgx-a100:5 --batch 16 --seq 2048 --gap 1 -q -o any.json
expect 3 plan llama3-405b hgx-h100:1 --batch 8 --json
grep -q '"plan": null' stdout || fail 'no "plan": null without a plan'

# Documents that were edited by hand.
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 16 --fix schedule=1f1b,tp=2,pp=2,dp=2,zero=0 -o good.json -q
edited() {
  sed "$2" good.json >edited.json
  cmp -s good.json edited.json && fail "$2 changes nothing"
  rejects 2 "$1" simulate edited.json
}
edited 'tp x cp x dp x pp' 's/"dp": 2/"dp": 4/'
edited 'stages' 's/"pp": 2/"pp": 1/;s/"dp": 2/"dp": 4/'
edited 'not divisible' 's/"batch": 16/"batch": 15/'
edited 'tensor_shares has 3 entries, but tp = 2' 's/"tp": 2,/"tp": 2, "tensor_shares": [1, 1, 1],/'
edited 'a share of 1 in 10000 leaves none to rank 1' 's/"tp": 2,/"tp": 2, "tensor_shares": [9999, 1],/'
sed 's/"tp": 2,/"tp": 2, "tensor_shares": [3, 1],/' good.json >uneven.json
expect 0 simulate uneven.json -q
grep -q 'shares 3:1' stdout || fail 'the shares of a plan are not told'
expect 0 show layout uneven.json
grep -q 'tensor shares' stdout || fail 'no table of shares'
rejects 2 'cannot express tensor_shares' export uneven.json --to megatron
edited 'did you mean "1f1b"' 's/"schedule": "[a-z0-9-]*"/"schedule": "1f2b"/'
edited 'cp = 1 is not divisible by ulysses_degree = 2' 's/"context": "ring"/"context": "mix", "ulysses_degree": 2/'
edited 'tpp' 's/"tp": 2/"tpp": 2/'
edited 'out of range' 's/"sequence": 1024/"sequence": 99999999999/'
edited 'edited.json: sequences have 1024 tokens, but tiny has learned positions for 512' 's/"layers": 8,/"layers": 8, "max_positions": 512,/'
edited 'edited.json' 's/"memory_reserve": "0 B"/"memory_reserve": "80"/'
head -c 2000 good.json >truncated.json
rejects 2 'truncated.json' simulate truncated.json
# A batch whose activations no longer fit is explained, and exits with 3.
expect 0 plan gpt3-6.7b dgx-a100:1 --batch 64 --fix tp=1,pp=1,dp=8,zero=3,micro_batch=1,recompute=full -o fits.json -q
sed 's/"micro_batch": 1$/"micro_batch": 8/;s/"recompute": "full"/"recompute": "none"/' fits.json >too-large.json
expect 3 simulate too-large.json
grep -q 'DOES NOT FIT' stdout || fail 'simulate does not say that the plan does not fit'
finish
