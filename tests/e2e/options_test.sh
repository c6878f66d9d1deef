# SPDX-License-Identifier: Apache-2.0
# Options that no other test names: each changes what it says it changes.
. "$(dirname "$0")/lib.sh"

# longest: the last of the sorted lengths; shortest, cut and packed as asked.
expect 0 generate lengths --count 500 --median 600 --spread 0.5 --longest 900 --json
[ "$(value_of stdout longest)" -le 900 ] || fail '--longest does not cut'
[ "$(value_of stdout median)" -gt 400 ] || fail '--median is not the median'
expect 0 generate lengths --count 3 --json
[ "$(value_of stdout p99)" = "$(value_of stdout longest)" ] || fail 'p99 of three is not the longest'
expect 0 generate lengths --count 500 --shortest 700 --longest 900 --json
[ "$(value_of stdout median)" -ge 700 ] || fail '--shortest does not cut'
expect 0 generate lengths --count 500 --json
plain=$(value_of stdout longest)
expect 0 generate lengths --count 500 --tail 0.1 --tail-from 500000 --tail-index 2 --json
[ "$(value_of stdout longest)" -ge 500000 ] && [ "$plain" -lt 500000 ] || fail '--tail has no tail'
for packing in in-order best-fit-decreasing; do
  expect 0 generate lengths --count 500 --longest 4096 --pack 4096 --packing $packing --json
  cp stdout $packing.json
done
cmp -s in-order.json best-fit-decreasing.json && fail '--packing changes nothing'
rejects 2 'packing' generate lengths --pack 4096 --packing none

expect 0 generate routing --experts 4 --top-k 1 --ranks 2 --tokens 100 --steps 3 --json
[ "$(value_of stdout experts)" = 4 ] && [ "$(value_of stdout steps)" = 3 ] || fail 'sizes of routing'
expect 0 generate routing --popularity 0.01 --fluctuation 0.01 --json
even=$(value_of stdout max_over_mean)
expect 0 generate routing --popularity 2 --popularity-persistence 0.5 --persistence 0.9 --domain 4 --json
awk "BEGIN {exit !($even < 1.1 && $(value_of stdout max_over_mean) > 2)}" || fail '--popularity'

expect 0 generate indices --rows 50 --slope 0 --count 5000 --json
flat=$(value_of stdout share_of_top_10_percent)
expect 0 generate indices --rows 50 --slope 2 --count 5000 --json
awk "BEGIN {exit !($flat < 0.2 && $(value_of stdout share_of_top_10_percent) > 0.7)}" || fail '--slope'

# A picture of so many columns; asynchronous schedules run on; a longer warm-up holds more.
expect 0 schedule 1f1b --stages 2 --microbatches 8 --width 40
[ "$(awk '{if (length > most) most = length} END {print most}' stdout)" -le 80 ] || fail '--width'
expect 0 schedule pipedream --stages 3 --microbatches 4 --iterations 2 --json
two=$(value_of stdout makespan)
expect 0 schedule pipedream --stages 3 --microbatches 4 --iterations 4 --json
awk "BEGIN {exit !($(value_of stdout makespan) > $two)}" || fail '--iterations'
rejects 2 'warm-up' schedule 1f1b --stages 2 --microbatches 4 --warm-up x

runs="$here/../data/measurements/training_runs.csv"
head -n 1 "$runs" >header.csv
rejects 2 'header.csv: there are no rows' validate header.csv
# Rows without a figure are skipped; with others beside them there is a score.
columns=id,config_id,source,model_family,model_name,layers,hidden,heads,vocab,seq_len,precision,gpu
columns=$columns,gpus,framework,tp,pp,micro_batch,confidence,measured_metric,measured_value
cells=s,llama,llama3-8b,32,4096,32,128256,8192,bf16,A100,8,Megatron-LM,1,1,1,full,iteration_s
printf '%s\n' $columns 1,1,$cells, 2,2,$cells, >blank.csv
expect 2 validate blank.csv
grep -q 'blank.csv: no row was simulated, 2 rows skipped (the first: measured_value' stderr ||
  fail "no row simulated: $(cat stderr)"
grep -q 'skipped because' stdout || fail 'no reasons of skipped rows'
# A folder is made for pictures alone, and one that cannot be is found before the rows are read.
rejects 4 'missing.csv' validate missing.csv --plot unused
expect 2 validate blank.csv --plot unused
[ ! -e unused ] || fail 'validate without pictures makes their folder'
rejects 4 'blank.csv: is a file, not a folder' validate missing.csv --plot blank.csv/pictures
expect 0 validate blank.csv "$runs"
expect 0 validate "$runs" --groups --assumed --worst 2 --markdown table.md --html page.html --plot plots
sed -n '/^worst rows/,$p' stdout | grep '_bytes ' | grep -qv ' [KMGT]iB ' && fail 'bytes without a unit'
grep -q '|' table.md || fail '--markdown writes no table'
grep -q '<svg' page.html || fail '--html has no scatter'
ls plots/*.svg >/dev/null || fail '--plot writes no picture'

expect 0 calibrate nccl --dry-run --node dgx-1v --collectives all-reduce --min-bytes '1 MiB' \
  --max-bytes '4 MiB' --no-interference --json
grep -q 'all-reduce' stdout || fail '--collectives leaves nothing'
grep -q 'all-gather' stdout && fail '--collectives does not choose'
expect 0 calibrate nccl --dry-run --node hgx-h100 --nodes 2 --gpus 4
rejects 2 '--gpus: 9 is out of range (1 to 8)' calibrate nccl --dry-run --node hgx-h100 --gpus 9

# A frontier's members have one name each.
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 16 --pareto memory --schedule 1f1b --json
[ "$(grep -c '"gpu_memory_bytes"' stdout)" -gt 1 ] &&
  [ "$(grep -c '"gpu_memory_bytes"' stdout)" = "$(grep -c '"memory_bytes"' stdout)" ] || fail 'memory of points'

# What points are proven against is what the frontier is over: more GPUs may be cheaper.
for frontier in 'gpus:on no more GPUs than a point' 'cost:that costs no more than a point'; do
  expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 16 --pareto "${frontier%:*}" --schedule 1f1b -q -o /dev/null
  grep -q "; no plan ${frontier#*:} is faster\\.$" stdout || fail "--pareto ${frontier%:*}: $(tail -n 1 stdout)"
done

# Its table tells points apart and says where it ends; the capacity of a search is no GPU's.
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 16 --pareto memory -q -o /dev/null
awk '/^ *[0-9]+ / { text = $4 " " $5; if (text == last) exit 1; last = text }' stdout ||
  fail "two points read alike: $(cat stdout)"
tail -n 1 stdout | grep -q '^Below [0-9.]* [MG]iB a GPU nothing fits; the largest part of the last plan is ' ||
  fail "the end of a frontier: $(tail -n 1 stdout)"

# Asynchronous schedules of a single stage are late by nothing, so that they are asked for by it.
late="plan corpus/tiny-network.json hgx-h100:1 --batch 16 --allow asynchronous --fix cp=1 --top 40 -q -o /dev/null"
expect 0 $late
grep -q 'pp [2-8].*staleness' stdout || fail "no asynchronous plans: $(cat stdout)"
grep -v 'zou-ps-ring' stdout | grep -q 'pp 1,.*asynchronous: ' && fail "a single stage: $(cat stdout)"
expect 0 $late --fix pp=1
grep -q 'pp 1,.*staleness 0, 1 weight version$' stdout || fail "no single stage: $(cat stdout)"

# What a rule chose and the allocator has no room for is not said to beat the best plan.
echo '{"schema": "orrery-network", "version": 1, "name": "narrow", "family": "llama", "layers": 32, "hidden": 384,
  "heads": 12, "kv_heads": 2, "ffn_hidden": 768, "vocab": 50257, "sequence": 4096}' >narrow.json
expect 0 plan narrow.json dgx-a100:2 --batch 16 --set gpu.memory='4 GB' --set node.gpus=4 --like alpa -q -o narrow-plan.json
grep -q '^alpa .* exceeds ' stdout || fail "a plan that does not fit: $(grep '^alpa ' stdout)"
grep -q 'replayed through' stdout || fail 'no reason'

# What is left out of a damaged file, each named by file and line once.
printf 'm,n,k,cublas_us\n4096,4096,4096,150\n1024,1024,1024,abc\n8192,8192' >damaged.csv
rejects 2 'damaged.csv:4: 2 cells (the header has 4)' calibrate fit damaged.csv --gpu h100-sxm5-80gb
expect 0 calibrate fit damaged.csv --gpu h100-sxm5-80gb --partial -o partial.json
grep -qx 'damaged.csv:4: 2 cells (the header has 4)' stderr || fail "remarks: $(cat stderr)"
grep -qx 'damaged.csv:3: cublas_us: "abc" is not a number' stderr || fail "remarks: $(cat stderr)"
expect 0 calibrate fit damaged.csv --gpu h100-sxm5-80gb --partial -o partial.json -q
[ ! -s stderr ] || fail "not quiet: $(cat stderr)"
# A blank GPU is that of --gpu, and columns between other signs are no other format.
printf 'gpu,dtype,m,n,k,time_us\n,bf16,4096,4096,4096,200\n' >blank_gpu.csv
expect 0 calibrate fit blank_gpu.csv --gpu h100-sxm5-80gb -o partial.json -q
printf 'gpu;dtype;m;n;k;time_us\nB200;bf16;1;1;1;1\n' >semicolons.csv
rejects 2 "semicolons.csv:1: columns are separated by ';'" calibrate fit semicolons.csv --gpu h100-sxm5-80gb -q
# One of many files that holds nothing of use stops a fit only without --partial.
printf 'a,b\n1,2\n' >other_table.csv
rejects 2 'other_table.csv: the format is not recognised' calibrate fit other_table.csv damaged.csv --gpu h100-sxm5-80gb -q
expect 0 calibrate fit damaged.csv other_table.csv --gpu h100-sxm5-80gb --partial -o partial.json
grep -q '^other_table.csv: the format is not recognised' stderr || fail "remarks: $(cat stderr)"
rejects 2 'other_table.csv: nothing in it can be used' calibrate fit other_table.csv --gpu h100-sxm5-80gb --partial -q
rejects 4 nowhere.csv calibrate fit damaged.csv nowhere.csv --gpu h100-sxm5-80gb --partial -q

# What a profile is not fitted to is said, and nothing else makes none.
cat >mixed_samples.json <<'END'
{"schema": "orrery-samples", "version": 1, "header": {"device": "A100", "gpu": "a100-sxm4-80gb"}, "samples": [
  {"kind": "gemm", "m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "layout": "tn", "output": "bf16", "time_s": 6e-4},
  {"kind": "collective", "collective": "broadcast", "bytes": 1048576, "ranks": 8, "ranks_per_node": 8, "nodes": 1, "beside": {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "layout": "tn", "output": "bf16"}, "time_s": 3e-4},
  {"kind": "collective", "collective": "all-reduce", "bytes": 1048576, "ranks": 8, "ranks_per_node": 8, "nodes": 1, "time_s": 5e-5}]}
END
expect 0 calibrate fit mixed_samples.json --gpu a100-sxm4-80gb -o mixed.json
cp mixed.json mixed_of_one.json
grep -qx 'samples of kinds that are not fitted left out: 1 of broadcast beside a GEMM' stdout ||
  fail "left out: $(cat stdout)"
grep -q 'mixed_samples.json (2 samples)' mixed.json || fail 'the source counts what was not fitted'
grep -q '^collectives one-node  *1 .* 1 log$' stdout || fail "collectives: $(cat stdout)"
grep -q '^attention-forward .*(as in a100-sxm4-80gb)$' stdout || fail "kept rows: $(cat stdout)"
expect 0 calibrate fit mixed_samples.json damaged.csv --gpu h100-sxm5-80gb --partial -o mixed.json
grep -qx 'samples of other GPUs left out (--also counts them): 3 of a100-sxm4-80gb' stdout ||
  fail "other GPUs: $(cat stdout)"
sed -e '/"gemm"/d' -e '/"all-reduce"/d' -e 's/"time_s": 3e-4},/"time_s": 3e-4}]}/' mixed_samples.json >neither.json
rejects 2 'of a100-sxm4-80gb in the files (samples of kinds that are not fitted left out: 1 of broadcast beside a GEMM)' calibrate fit neither.json --gpu a100-sxm4-80gb -o none.json
[ ! -e none.json ] || fail 'a profile of nothing'

sed 's/"time_s": 6e-4/"time_s": -6e-4/' mixed_samples.json >negative.json
rejects 2 'negative.json: /samples/0/time_s: -0.0006 is out of range' calibrate fit negative.json --gpu a100-sxm4-80gb -o none.json
expect 0 calibrate fit negative.json --gpu a100-sxm4-80gb --partial -o negative_profile.json
grep -q '^negative.json: /samples/0/time_s: -0.0006 is out of range' stderr || fail "remarks: $(cat stderr)"
sed 's/"gpu": "a100-sxm4-80gb"/"gpu": "a100-sxm4-80g"/' mixed_samples.json >misspelt.json
rejects 2 'did you mean "a100-sxm4-80gb"?' calibrate fit misspelt.json --gpu a100-sxm4-80gb -o none.json
sed 's/"orrery-samples"/"orrery-sample"/' mixed_samples.json >schema.json
rejects 2 'schema.json: a document of schema "orrery-sample" (samples are of schema "orrery-samples")' calibrate fit schema.json --gpu a100-sxm4-80gb -o none.json
rejects 2 'a document of schema "orrery-profile"' calibrate fit mixed.json --gpu a100-sxm4-80gb -o none.json

# Nothing to fit makes no profile; what comes twice counts once, which is said.
rejects 2 'nothing to fit: no FILE and no --kernels-from' calibrate fit --gpu a100-sxm4-80gb -o none.json
sed '/"gemm"\|"broadcast"/d; s/"nodes": 1/"nodes": 1, "in_place": true/' mixed_samples.json >in_place.json
rejects 2 'out-of-place collectives of 1 KiB and above are fitted' calibrate fit in_place.json --gpu a100-sxm4-80gb -o none.json
[ ! -e none.json ] || fail 'a profile of nothing'
sed '/"gemm"\|"all-reduce"/d; s/"collective".*/"memory", "class": "norm", "operation": "x", "bytes_read": 1000, "bytes_written": 1000, "dtype": "bf16", "time_s": 1e-5}]}/' mixed_samples.json >small.json
rejects 2 'memory-bound kernels not fitted: 1 below four times the L2 cache' calibrate fit small.json --gpu a100-sxm4-80gb -o none.json
[ ! -e none.json ] || fail 'a profile of nothing'
sed '/"gemm"\|"launch"/d; s/5e-5/5e-2/' mixed_samples.json >milliseconds.json
rejects 2 'all-reduce of 1 MiB in 0.05 s, where some' calibrate fit milliseconds.json --gpu a100-sxm4-80gb -o none.json
rejects 2 'all-reduce of 1 MiB in 0.05 s, where some' calibrate fit milliseconds.json --gpu a100-sxm4-80gb --partial -o none.json
cp mixed_samples.json copied_samples.json
expect 0 calibrate fit mixed_samples.json copied_samples.json mixed_samples.json --gpu a100-sxm4-80gb -o copied.json
grep -qx 'copied_samples.json: 3 of its 3 samples are those of mixed_samples.json, too: counted once' stderr ||
  fail "copies: $(cat stderr)"
cmp mixed_of_one.json copied.json || fail 'a copy changes the profile'

# Times of collectives alone make a profile that plans take: 50 us measured, half as much predicted.
sed '/"gemm"/d' mixed_samples.json >collectives.json
expect 0 calibrate fit collectives.json --gpu a100-sxm4-80gb -o collectives_profile.json --plot collectives.svg
grep -q 'collectives one-node' collectives.svg || fail 'the picture has no collectives'
grep -q '"collectives": "fitted by orrery calibrate fit to collectives.json (1 sample)"' collectives_profile.json ||
  fail 'the source of the collectives'
expect 0 plan corpus/tiny-network.json hgx-a100:1 --batch 8 --fix tp=8 --profile collectives_profile.json -o plan.json
grep -q 'the profile is of' stderr && fail "no other GPU: $(cat stderr)"
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 8 --fix tp=8 --profile collectives_profile.json -o plan.json
grep -q 'orrery: the profile is of a100-sxm4-80gb: its shares of peak rates count for h100-sxm5-80gb' stderr ||
  fail "a profile of another GPU: $(cat stderr)"
rm -f plan.json

# Profiles of other GPUs than the logs' are no profiles to write.
printf 'file,gpu,nodes,gpus_per_node,ranks,collective,bytes,time_us,time_inplace_us\n' >rows.csv
for bytes in 1048576 4194304 16777216; do
  printf 'a,NVIDIA A100-SXM4-80GB,1,8,8,all_reduce,%s,%s,%s\n' $bytes $((bytes / 10000)) $((bytes / 10000))
done >>rows.csv
mkdir profiles
printf '{}' >profiles/other.json
expect 2 calibrate collectives rows.csv --profiles profiles
grep -qF 'profiles: no profile of a GPU of the logs' stderr || fail "profiles: $(cat stderr)"

# A value stands apart from what it is of, however long that is.
expect 0 show profile h100-sxm5-80gb
grep -q '^schema \{50,\}orrery-profile' stdout || fail 'show profile'

# Pictures of a network and of a cluster; other things have none.
for kind in network/gpt2 cluster/hgx-h100:2 cluster/hgx-h100:1+dgx-a100:1; do
  expect 0 show "${kind%/*}" "${kind#*/}" --svg shown.svg
  grep -q '^<svg' shown.svg || fail "no picture of $kind"
  grep -q 'wrote shown.svg' stderr || fail "no word of the picture of $kind"
  rm -f shown.svg
done
rejects 2 '--svg: a gpu has no picture' show gpu h100-sxm5-80gb --svg shown.svg
rejects 4 'folder does not exist' show network gpt2 --svg nowhere/shown.svg

expect 0 calibrate fit --gpu h200-sxm5-141gb --kernels-from h100-sxm5-80gb -o h200.json
grep -q 'transferred from h100-sxm5-80gb' h200.json || fail '--kernels-from transfers nothing'
for kernel in gemm grouped-gemm attention-forward attention-backward; do
  grep -qx "no samples of $kernel: as in h100-sxm5-80gb (--kernels-from), spreads 1.5 times wider" stdout ||
    fail "$kernel of another GPU: $(cat stdout)"
done
grep -qx 'no samples of memory: as in h200-sxm5-141gb' stdout || fail "own kernels: $(cat stdout)"

tiny="plan corpus/tiny-network.json hgx-h100:1 --batch 8 -q"
expect 0 $tiny --fix pp=1 --robust --draws 8 --candidates 3 --sensitivity --json
grep -q '"sensitivity"' stdout || fail '--sensitivity says nothing'
expect 0 $tiny --robust --draws 8 --candidates 3 -o /dev/null
tail -n 2 stdout | head -n 1 | grep -q '^8 draws (seed 1) compared the fastest 3 plans, up to .* (raise --candidates).$' ||
  fail "--robust on what it compared: $(tail -n 2 stdout)"
tail -n 1 stdout | grep -q '^The slowest plan that wins a draw is .* slower than the best.$' ||
  fail "--robust on what wins: $(tail -n 1 stdout)"
# Layouts by block are asked the same, by the same code; of those the plans that were met are drawn.
expect 0 $tiny --space per-block --fix cp=1,pp=2 --robust --draws 8 --sensitivity -o /dev/null
grep -q '^8 draws (seed 1) compared the fastest [0-9]* plans that the search met, ' stdout ||
  fail "--robust per block: $(cat stdout)"
grep -q '^What better hardware would save' stdout || fail "--sensitivity per block: $(cat stdout)"
expect 0 $tiny --space per-block --fix cp=1,pp=2 --pareto memory -o /dev/null
grep -q 'no plan that needs no more memory than a point is .*faster' stdout || fail "--pareto per block: $(cat stdout)"
grep -q 'a sixteenth of a GPU apart: there may be points between' stdout || fail "budgets per block: $(cat stdout)"
expect 0 $tiny --fix pp=1 -o plan.json
for detail in passes kernels; do
  expect 0 simulate plan.json --trace $detail.json --trace-detail $detail
done
[ "$(wc -c <kernels.json)" -gt "$(wc -c <passes.json)" ] || fail '--trace-detail adds nothing'
grep -q 'the trace shows' stderr && fail '--trace-detail says what was asked for'
expect 0 simulate plan.json --trace auto.json
same auto.json kernels.json 'the trace of a short iteration'
grep -Eq 'the trace shows [0-9]+ kernels' stderr || fail "auto says: $(cat stderr)"
expect 0 simulate plan.json --trace auto.json --quiet
[ ! -s stderr ] || fail "--quiet says: $(cat stderr)"
rm -f plan.json

# Numbers are decimal and in range, and an empty value is a variable that a script did not set.
for bad in 'lengths --longest 9223372036854775808' 'lengths --pack -1' 'lengths --tail-from nan' \
  'lengths --seed 99999999999999999999' 'lengths --count 0x10' 'routing --popularity-persistence inf' \
  'indices --slope 1e999' 'routing --experts 3000000000'; do
  option=${bad#* }
  rejects 2 "${option% *}" generate $bad
done
rejects 2 '--seed' calibrate fit damaged.csv --gpu h100-sxm5-80gb --seed -1
rejects 2 '--timeout' calibrate nccl --dry-run --node dgx-1v --timeout soon
for option in --seq --precision --time-limit --memory-reserve; do
  rejects 2 "$option: empty value" plan corpus/tiny-network.json hgx-h100:1 --batch 8 "$option" ''
done
rejects 2 '--spread: empty value' generate lengths --spread ''

# Tables as spreadsheets save them.
printf '\357\273\277m,n,k,cublas_us\r\n4096,4096,4096,150\r\n' >spreadsheet.csv
expect 0 calibrate fit spreadsheet.csv --gpu h100-sxm5-80gb -o spreadsheet.json

# Where every plan was simulated nothing lies between those that are shown.
expect 0 $tiny --fix tp=1,pp=1,cp=1,micro_batch=1 -o all.json
grep -q ' 0 pruned by bound' stdout || fail "some plans were pruned: $(cat stdout)"
grep -q 'may lie between' stdout && fail 'plans pruned by bound may lie between others, but none were'
expect 0 $tiny --prove-top --json -o top.json
grep -q '"top_is_proven": true' stdout || fail '--prove-top proves nothing'
rejects 2 '--gap does not go with it' $tiny --prove-top --gap 0.1

# The lengths of a batch: a list is JSON, and a part of one is not a shorter list.
packed="plan corpus/tiny-network.json hgx-h100:1 --schedule flexsp --fix tp=1,zero=1,recompute=none -q"
printf '[1024, 512, 256]' >lengths.json
printf '1024 512\n256\n' >lengths.txt
expect 0 $packed --lengths lengths.json -o packed.json
mv stdout from-list
expect 0 $packed --lengths lengths.txt -o packed.json
same from-list stdout 'lengths as a list and as numbers'
grep -q 'no bound is known on other plans' stdout || fail "no word on other packs: $(cat stdout)"
printf '[1024, 512, 2' >lengths.json
rejects 2 'lengths.json:1' $packed --lengths lengths.json
printf '[1024, [512], 256]' >lengths.json
rejects 2 'lengths.json: /1: expected an integer' $packed --lengths lengths.json
printf '1024\n512 0\n' >lengths.txt
rejects 2 'lengths.txt:2: 0 is out of range' $packed --lengths lengths.txt

# What a network or a node lacks is said once.
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 8 --fix ep_inside=cp --forbid ep=2 -o idle.json
[ "$(grep -c 'has no effect: .* has no experts' stderr)" -eq 2 ] || fail "experts: $(cat stderr)"
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 8 --fix tp=1,sequence_parallel=true,keep_gathered=true -o idle.json
grep -q 'sequence_parallel has no effect: tp = 1' stderr || fail "degrees: $(cat stderr)"
grep -q 'without effect in this plan: blocks.keep_gathered' stderr || fail "idle: $(cat stderr)"
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 8 --fix tp=4,tensor_parallel=2d,sp=true -o idle.json
grep -q 'sequence_parallel has no effect: meshes split the stream' stderr || fail "mesh: $(cat stderr)"
rejects 2 'has tp=8, tensor_parallel=2d: a 2d mesh does not cover tp = 8 ranks, which are no square (state tp_rows, or take tp = 4 or 9)' \
  plan corpus/tiny-network.json hgx-h100:1 --batch 8 --fix tp=8,tensor_parallel=2d
rejects 2 'expert_tp = 3, but tp = 4 (0 or 4, as tp, cuts experts' \
  plan mixtral-8x7b hgx-h100:1 --batch 8 --fix tp=4,expert_tp=3
rejects 2 'offload to disk, but hgx-h100 has none' plan corpus/tiny-network.json hgx-h100:1 --batch 8 \
  --allow offload --fix offload_optimizer=disk

# Chunks that divide the layers of no pipeline are cut in balance once they are fixed.
expect 0 plan gpt3-125m hgx-h100:1 --batch 64 --fix pp=4,chunks=2,schedule=interleaved --json -o uneven.json
grep -q '"chunks": 2' uneven.json || fail "uneven chunks: $(head -c 300 stdout)"

# What --set changes and no time depends on is named, and no gain of it is claimed.
expect 0 plan corpus/tiny-network.json dgx-a100:1 --batch 8 --gap 0.5 --set gpu.power_watts=200 --sensitivity -o limit.json
grep -q 'without effect in this plan: gpu.power_watts' stderr || fail "a silent power limit: $(cat stderr)"
grep -q '^power limit  *not modelled' stdout || fail "a power limit is modelled: $(cat stdout)"
expect 0 plan corpus/tiny-network.json hgx-h100:1 --batch 8 --gap 0.5 --set gpu.power_watts=200 -o limit.json
grep -q 'without effect' stderr && fail "a power limit in use: $(cat stderr)"

# One result for standard output.
rejects 2 '--svg writes -, too' schedule 1f1b --stages 2 --microbatches 4 --json --svg -
rejects 2 '--output writes -, too' $tiny --json -o -
expect 0 planner tpi-llm --example
cp stdout edge.json
expect 0 planner tpi-llm edge.json
sed -n '/"memory_bytes"/,/"peak_memory_bytes"/p' stdout | grep -q '[.e][0-9+]' && fail "parts of bytes: $(cat stdout)"
rejects 2 'p.json would not be read' planner pipedream p.json --example
finish
