# SPDX-License-Identifier: Apache-2.0
# Restrictions of a space in a file: the same plans as by options, said with where they come from.
. "$(dirname "$0")/lib.sh"

tiny=corpus/tiny-network.json
cat >ours.json <<'END'
{"fix": {"tp": 2}, "forbid": {"zero": [2, 3]}, "schedule": ["1f1b"]}
END
without_time() { grep -v '"search_time_s"' "$1"; }
counts() { for key in plans simulated iteration_time_s; do value_of "$1" $key; done; }

expect 0 plan $tiny hgx-h100:1 --batch 16 --json -q
[ "$(value_of stdout plans)" -gt 0 ] || fail 'no plans'
all=$(value_of stdout plans)
expect 0 plan $tiny hgx-h100:1 --batch 16 --json -q --fix tp=2 --forbid zero=2,zero=3 --schedule 1f1b
counts stdout >options
grep -q '"restrictions"' stdout && fail 'restrictions without a file'
expect 0 plan $tiny hgx-h100:1 --batch 16 --json -q --restrict ours.json
counts stdout >file
same file options 'a file restricts otherwise than options'
[ "$(value_of stdout plans)" -lt "$all" ] || fail 'a file that restricts nothing'
grep -q '"from": "ours.json: /fix/tp"' stdout || fail 'no place of a restriction'
expect 0 plan $tiny hgx-h100:1 --batch 16 -q -o plan.json --restrict ours.json --fix pp=2
grep -qF 'The space is restricted by ours.json (fix tp=2, schedule 1f1b, forbid zero=2, forbid zero=3) and the command line (fix pp=2).' stdout ||
  fail "no word of where restrictions come from: $(cat stdout)"
rm plan.json
echo '{"fix": {"tp": 2}, "allow": "offload"}' >theirs.json
expect 0 plan $tiny hgx-h100:1 --batch 16 -q -o plan.json --restrict ours.json --restrict ./ours.json --restrict theirs.json --fix tp=2
grep -qF 'The space is restricted by ours.json (fix tp=2, schedule 1f1b, forbid zero=2, forbid zero=3) and theirs.json (allow offload).' stdout ||
  fail "not each restriction once: $(cat stdout)"
rm plan.json

rejects 2 '--fix: tp is fixed to 4, and to 2 by ours.json: /fix/tp' plan $tiny hgx-h100:1 --batch 16 --restrict ours.json --fix tp=4
rejects 2 'zero=2 is fixed and excluded at once, by ours.json: /forbid/zero/0' plan $tiny hgx-h100:1 --batch 16 --restrict ours.json --fix zero=2
echo '{"fixed": "tp=2"}' >theirs.json
rejects 2 'theirs.json: unknown key "fixed"' plan $tiny hgx-h100:1 --batch 16 --restrict theirs.json
echo '{"fix": {"tq": 2}}' >theirs.json
rejects 2 'theirs.json: /fix/tq: unknown field "tq"' plan $tiny hgx-h100:1 --batch 16 --restrict theirs.json
rejects 4 'missing.json' plan $tiny hgx-h100:1 --batch 16 --restrict missing.json
rejects 2 'ours.json' plan $tiny hgx-h100:1 --batch 16 --restrict ours.json -o ours.json
echo '{"batch": 1}' >requests.json
rejects 2 '--restrict' plan $tiny hgx-h100:1 --serve requests.json --restrict ours.json

# Other restrictions are another search; two files hold together.
expect 0 plan $tiny hgx-h100:1 --batch 16 -q -o plan.json --restrict ours.json --checkpoint state
rm plan.json
rejects 2 'another space (--fix, --forbid, --allow, --schedule)' plan $tiny hgx-h100:1 --batch 16 --resume state
echo '{"fix": ["tp=1"]}' >theirs.json
rejects 2 'tp is fixed to 1, and to 2 by ours.json: /fix/tp' \
  plan $tiny hgx-h100:1 --batch 16 --restrict ours.json --restrict theirs.json
expect 0 plan $tiny hgx-h100:1+dgx-a100:1 --batch 16 -q -o plan.json --restrict ours.json
grep -q 'restricted by ours.json' stdout || fail 'no word of restrictions on a mixed cluster'

# What changes training is asked for.
llama() { expect "$1" plan llama3-8b hgx-h100:1 --batch 64 -q -o plan.json "${@:2}"; rm -f plan.json; }
rm -f plan.json
rejects 2 'add --allow asynchronous' plan llama3-8b hgx-h100:1 --batch 64 --fix delayed_update=true,offload_optimizer=host
rejects 2 'add --allow lossy' plan llama3-8b hgx-h100:1 --batch 64 --fix quantised_gather=true,quantised_reduce=true,zero=3
rejects 2 'add --allow lossy' plan llama3-8b hgx-h100:1+dgx-a100:1 --batch 64 --fix quantised_reduce=true
llama 0 --fix quantised_gather=true,zero=3,tp=1,cp=1,pp=1 --allow lossy
grep -q 'parameters gathered in 8 bits' stdout || fail 'the layout does not say what is lost'
expect 0 plan llama3-8b hgx-h100:1 --batch 64 -q -o late.json --allow asynchronous \
  --fix delayed_update=true,offload_optimizer=host,tp=1,cp=1,pp=1,zero=1
expect 0 simulate late.json --json
[ "$(value_of stdout synchronous)" = false ] || fail 'a delayed update is synchronous'

finish
