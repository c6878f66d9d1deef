# SPDX-License-Identifier: Apache-2.0
# Broken and absurd files, each where a network, a cluster, a plan or a profile is expected.
. "$(dirname "$0")/lib.sh"

plan() { rejects 2 "$1" plan "$2" hgx-h100:1 --batch 8; }
plan 'duplicate key' corpus/network-duplicate-key.json
plan 'empty document' corpus/network-empty.json
plan 'overflow' corpus/network-infinite-layers.json
plan 'missing key "hidden" (there is "hiden")' corpus/network-misspelt.json
plan '/hidden: -5 is out of range' corpus/network-negative-hidden.json
plan 'not divisible by 7 heads' corpus/network-odd-heads.json
plan 'version 7' corpus/network-other-version.json
plan '/layers: 99999999999 is out of range' corpus/network-too-many-layers.json
plan 'unexpected end' corpus/network-truncated.json
plan 'did you mean "gpt"' corpus/network-unknown-family.json
plan 'missing key "hidden"' corpus/network-without-hidden.json
plan 'expected an integer' corpus/network-wrong-type.json

# A million brackets would take the stack of a careless reader.
for depth in 100 100000 1000000; do
  head -c $depth /dev/zero | tr '\0' '[' >deep.json
  { printf '{"plan":'; head -c $depth /dev/zero | tr '\0' '['; } >deep-plan.json
  plan 'nest' deep.json
  rejects 2 'nest' plan corpus/tiny-network.json deep.json --batch 8
  rejects 2 'nest' simulate deep.json
  rejects 2 'nest' simulate deep-plan.json
  rejects 2 'nest' plan corpus/tiny-network.json hgx-h100:1 --batch 8 --profile deep.json
done
printf '{"schema":"orrery-network","version":1,"name":"\xff\xfe\x00\x1b[31m"}' >bytes.json
plan 'bytes.json' bytes.json
head -c 17000000 /dev/zero | tr '\0' ' ' >large.json
plan 'large.json' large.json
head -c 100000 /dev/urandom >random.json
plan 'random.json' random.json
printf '{"name": "%s"}' "$(head -c 70000 /dev/zero | tr '\0' 'x')" >long-string.json
plan 'long-string.json' long-string.json
printf '[]' >array.json
plan 'array.json' array.json
printf '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}' >config.json
plan 'config.json' config.json
printf '{"model_type": "no-such-family", "hidden_size": 8}' >foreign.json
plan 'foreign.json' foreign.json
# The other kinds of documents are not networks.
rejects 2 'schema' plan corpus/tiny-network.json corpus/tiny-network.json --batch 8
rejects 2 'schema' simulate corpus/tiny-network.json
name=$(head -c 100000 /dev/zero | tr '\0' 'n')
rejects 2 'network' plan "$name" hgx-h100:1 --batch 8
rejects 2 'escape' plan "$(printf 'escape\033[31m\n')" hgx-h100:1 --batch 8
grep -q "$(printf '\033')" stderr && fail 'control characters reach the terminal'
# Names are shown with control characters escaped; the colours are the program's own.
sed 's/"tiny"/"a\\u001b[31m\\u0007b"/' corpus/tiny-network.json >named.json
for shown in 'show network named.json' \
  'plan named.json hgx-h100:1 --batch 8 --fix tp=1,pp=1 -o named-plan.json' 'simulate named-plan.json'; do
  expect 0 $shown
  grep -qF 'a\x1b[31m\x07b' stdout || fail "$shown: no name in: $(head -c 200 stdout)"
  grep -q "$(printf '[\033\007]')" stdout && fail "$shown: control characters reach the terminal"
done
expect 0 schedule 1f1b --stages 2 --microbatches 2 --color always
grep -qF "$(printf '\033[30;44m')" stdout || fail 'the picture has no colours'
# What is merged into a plan is an object.
cat >headline.json <<'END'
{"schema": "orrery-headline", "version": 1, "name": "odd", "system": "s", "claim": "c", "source": "s",
 "runs": {"r": {"model": "gpt2", "cluster": "hgx-h100:1", "micro_batch": 1, "layout": "tp"}},
 "checks": [{"name": "odd-time", "published": 1, "band": [1, 2], "simulated": "r.iteration_time_s"}]}
END
rejects 2 'expected an object' reproduce headline.json
# A file that does not say what it is may be a network or a recommender, before an option is missed.
printf '{"version": 1, "batch": 16384, "tables": []}' >nameless.json
for cluster in hgx-h100:1 hgx-h100:1+dgx-a100:1; do
  rejects 2 'nameless.json: missing key "schema" ("orrery-network", or "orrery-recommender"' \
    plan nameless.json $cluster
done
rejects 2 'batch is required' plan corpus/tiny-network.json hgx-h100:1
printf '{"schema": 7}' >odd.json
rejects 2 'odd.json: /schema: expected a string, found 7' plan odd.json hgx-h100:1
printf '{"schema": "orrery-recomender", "version": 1}' >odd.json
rejects 2 'odd.json: /schema: schema "orrery-recomender" ("orrery-network", or "orrery-recommender"' \
  plan odd.json hgx-h100:1
# Settings inside of documents.
sed 's|"model": "gpt2"|"simulate": "gpt2", "set_network": ["layers"]|; s|, "layout": "tp"||' \
  headline.json >settings.json
rejects 2 'settings.json: /runs/r: --set: "layers" is not an assignment' reproduce settings.json
cat >sweep.json <<'END'
{"schema": "orrery-sweep", "version": 1, "network": "gpt2", "cluster": "hgx-h100:1",
 "set": ["layers=4", "layers=5"], "axes": [{"field": "batch", "values": [8, 16]}]}
END
rejects 2 'sweep.json: /set/1: layers is set to both 4 and 5' whatif sweep.json
sed 's/"set": .*\], "axes"/"fix": "tp=2", "forbid": ["tp=2"], "axes"/' sweep.json >contradiction.json
rejects 2 'contradiction.json: fix: tp=2 is fixed and excluded at once' whatif contradiction.json
# A sweep of which every point fails leaves nothing behind.
sed 's/"set": .*\], "axes"/"fix": "dp=3,tp=1", "axes"/' sweep.json >failing.json
rejects 2 'failing.json: every point failed, so that no results were written (' whatif failing.json
[ "$(echo failing*)" = failing.json ] || fail "a sweep without results wrote $(echo failing*)"
# One whose points fail or do not fit has results, and no plan.
sed -e 's/"set": .*\], "axes"/"set": ["gpu.memory=2 GB"], "fix": "dp=8", "axes"/' -e 's/\[8, 16\]/[8, 9]/' sweep.json >none.json
expect 3 whatif none.json -q
grep -qx 'orrery: none.json: no point has a plan that fits' stderr || fail "no plan at any point: $(cat stderr)"
grep -q 'nothing fits' stdout && grep -q 'failed (1)' stdout || fail "states of points: $(cat stdout)"
# A byte order mark is no part of the text.
printf '\xef\xbb\xbfSwitchName=leaf1 Nodes=node[1-4]\n' >topology.conf
expect 0 show cluster hgx-h100@topology.conf
finish
