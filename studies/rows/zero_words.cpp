// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/zero_words.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

using Stage = std::optional<std::int64_t>;

// ZeRO-Offload is of stage 2 (arXiv 2101.06840), _HYBRID_SHARD_ZERO2 keeps parameters whole between
// the passes (torch/distributed/fsdp/api.py), Gemini's chunks are those of stage 3 (Colossal-AI
// colossalai/zero/gemini), Paddle has levels of group_sharded_parallel, the paper on ZeRO names
// what it partitions, Megatron-Core's FSDP, too (data_parallel_sharding_strategy), and InternEvo's
// ZeRO-1.5 is stage 1 within groups (doc/code-docs/source/parallel.rst).
Stage stage_of_name(std::string_view key) {
  constexpr auto kNames =
      std::to_array<std::pair<std::string_view, std::int64_t>>({{"fsdp", 3},
                                                                {"fsdp1", 3},
                                                                {"fsdpv1", 3},
                                                                {"fsdpv2", 3},
                                                                {"fullyshard", 3},
                                                                {"fsdp2", 3},
                                                                {"hsdp", 3},
                                                                {"mics", 3},
                                                                {"fullshard", 3},
                                                                {"fullsharding", 3},
                                                                {"fullysharded", 3},
                                                                {"zeroinfinity", 3},
                                                                {"hybridshard", 3},
                                                                {"hybridshardzero2", 2},
                                                                {"hybrid", 3},
                                                                {"gemini", 3},
                                                                {"sdp", 3},  // of Galvatron
                                                                {"os", 1},
                                                                {"osg", 2},
                                                                {"pgos", 3},
                                                                {"pos", 1},
                                                                {"posg", 2},
                                                                {"posgp", 3},
                                                                {"ddp", 0},
                                                                {"noshard", 0},
                                                                {"nosharding", 0},
                                                                {"no", 0},
                                                                {"off", 0},
                                                                {"zerooffload", 2},
                                                                {"shardgradop", 2},
                                                                {"distopt", 1},
                                                                {"distoptimizer", 1},
                                                                {"distributedoptimizer", 1},
                                                                {"usedistributedoptimizer", 1},
                                                                {"optimizerstatesharding", 1},
                                                                {"optimizerstatessharding", 1},
                                                                {"optimizersharding", 1},
                                                                {"zero15", 1},
                                                                {"optim", 1},
                                                                {"optimgrads", 2},
                                                                {"optimgradsparams", 3}});
  const auto* const known =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& one) { return one.first == key; });
  return known == kNames.end() ? std::nullopt : Stage(known->second);
}

// "ZeRO-3", "sharding stage2".
Stage numbered_in(std::string_view key) {
  for (const std::string_view prefix : {"shardingstage", "zerostage", "zero", "stage", "z"}) {
    const char stage =
        key.starts_with(prefix) && key.size() > prefix.size() ? key[prefix.size()] : ' ';
    const std::string_view rest = key.substr(std::min(key.size(), prefix.size() + 1));
    const bool remark = rest.empty() || is_letter(rest.front());  // "ZeRO-3 offload"
    if (stage >= '0' && stage <= '3' && remark) {
      return stage - '0';
    }
  }
  return std::nullopt;
}

constexpr auto kJoints = std::to_array<std::string_view>({"+", " with "});

// "FSDP + CPU offload", "full_shard auto_wrap": without what goes with the stage.
std::string_view before_aside(std::string_view cell) {
  constexpr auto kAsides = std::to_array<std::string_view>(
      {"+", "cpu offload", "offload", "cpu_offload", "auto_wrap", "auto wrap", " with "});
  const std::string lower = to_lower(cell);
  std::size_t end = cell.size();
  for (const std::string_view aside : kAsides) {
    const std::size_t at = lower.find(aside);
    end = at == 0 ? end : std::min(end, at);
  }
  return cell.substr(0, end);
}

// The column's own number with what leaves the device: "3 + CPU offload", "2, optimizer offload".
Stage number_beside_offload(std::string_view words) {
  const std::string key = letters_and_digits(before_aside(words.substr(0, words.find(','))));
  const bool stage = key.size() == 1 && key[0] >= '0' && key[0] <= '3';
  return stage && mentions(words, "offload") ? Stage(key[0] - '0') : std::nullopt;
}

std::string key_of(std::string_view words) {
  std::string key = letters_and_digits(words);
  for (const std::string_view maker :
       {"deepspeed", "megatron", "mcore", "custom", "dszero", "pytorch", "groupsharded", "with"}) {
    const std::size_t length = maker == "dszero" ? 2 : maker.size();
    key.erase(0, key.starts_with(maker) ? length : 0);
  }
  if (const std::size_t at = key.find("optimiser"); at != key.npos) {
    key.replace(at, 9, "optimizer");
  }
  for (const std::string_view on : {"true", "on", "enabled"}) {  // "dist_opt=True"
    if (key.size() > on.size() && key.ends_with(on)) {
      key.erase(key.size() - on.size());
    }
  }
  return key;
}

// Goes with any stage: offload, wrapping, other kinds of parallelism, formats.
bool is_aside(std::string_view part) {
  constexpr auto kAsides = std::to_array<std::string_view>({"offload", "wrap", "prefetch"});
  constexpr auto kBeside = std::to_array<std::string_view>(
      {"tp", "pp", "cp", "ep", "sp", "tensor parallel", "tensor parallelism", "pipeline parallel",
       "pipeline parallelism", "ac", "activation checkpointing", "bf16", "mixed precision"});
  const std::string words = with_blanks(trim(part));
  return words.empty() || says_any(words, kAsides) || is_among(words, kBeside);
}

// "DDP + distributed optimizer", "FSDP with SHARD_GRAD_OP": of parts that each name a stage the
// last that shards; no value where one of them is not known.
Stage stage_of_parts(std::string_view words) {
  Stage stage = stage_of_name(key_of(before_aside(words)));
  std::string lower = to_lower(words);
  for (const std::string_view joint : kJoints) {
    for (std::size_t at = lower.find(joint); at != lower.npos; at = lower.find(joint)) {
      lower.replace(at, joint.size(), ";");
    }
  }
  const std::vector<std::string_view> parts = split(lower, ';');
  for (std::size_t at = 1; at < parts.size() && stage; ++at) {
    if (is_aside(parts[at])) {
      continue;
    }
    const std::string key = key_of(parts[at]);
    const Stage numbered = numbered_in(key);
    const Stage named = numbered ? numbered : stage_of_name(key);
    stage = named && *named == 0 ? stage : named;
  }
  return stage;
}

// "distributed optimizer off".
bool switches_off(std::string_view key) {
  constexpr auto kOff = std::to_array<std::string_view>({"false", "off", "disabled"});
  return std::ranges::any_of(kOff, [&](std::string_view off) {
    return key.ends_with(off) && stage_of_name(key.substr(0, key.size() - off.size()));
  });
}

}  // namespace

Stage stage_of_zero(std::string_view cell) {
  const std::string_view words = before_remark(cell);
  std::string key = key_of(words);
  if (const std::string_view bracket = cell.substr(std::min(cell.size(), cell.find('(')));
      (key == "none" || truth_of(key) == true) &&
      !letters_and_digits(bracket).empty()) {  // "None (DDP)", "yes (dist. opt.)"
    key = letters_and_digits(bracket);
  }
  for (const Stage stage : {numbered_in(key), number_beside_offload(words)}) {
    if (stage) {
      return stage;
    }
  }
  // "FSDP full shard" and "FSDP (SHARD_GRAD_OP)" are what their strategy is.
  constexpr std::string_view kFsdp = "fsdp";
  const std::string whole = letters_and_digits(before_aside(cell));
  const bool names_strategy = whole.starts_with(kFsdp) && whole.find("shard") != whole.npos;
  const std::string strategy = names_strategy ? whole.substr(kFsdp.size()) : key;
  for (const std::string& name : {strategy, key}) {
    if (const Stage stage = stage_of_name(name)) {
      return stage;
    }
  }
  if (const Stage stage = stage_of_parts(words)) {
    return stage;
  }
  const std::string denied = with_blanks(words);
  if (denied.starts_with("no ") || denied.starts_with("without ") ||
      switches_off(key)) {  // "no ZeRO", "dist_opt=False"
    return 0;
  }
  return key == "zero" && cell.find("++") != cell.npos ? Stage(3) : std::nullopt;
}

}  // namespace orrery::studies
