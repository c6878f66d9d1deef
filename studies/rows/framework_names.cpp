// SPDX-License-Identifier: Apache-2.0
// Which framework a row means where the table of framework_facts.cpp does not have its name.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/named_network.hpp"

namespace orrery::studies {

namespace {

// Whether a trainer of Hugging Face's networks runs DeepSpeed, as its name or the stage's says
// ("LLaMA-Factory", "DeepSpeed ZeRO-3").
bool trains_transformers_in_deepspeed(const Measurement& row) {
  constexpr auto kTrainers = std::to_array<std::string_view>(
      {"transformers", "hugging", "hf ", "accelerate", "trl", "axolotl", "llama-factory",
       "llamafactory", "llama factory", "open-instruct", "xtuner", "unsloth", "fastchat",
       "lightning"});
  return says_any(to_lower(row.framework), kTrainers) && !mentions(row.framework, "megatron") &&
         (mentions(row.framework, "deepspeed") || mentions(row.zero_detail, "deepspeed"));
}

}  // namespace

RowFramework framework_of(const Measurement& row) {
  const RunFacts run{row.schedule, row.model_name, row.year.value_or(0)};
  const bool zero3 = row.zero_stage == 3;
  if (trains_transformers_in_deepspeed(row)) {
    return {*find_framework(
                zero3 ? "transformers with DeepSpeed ZeRO-3" : "transformers with DeepSpeed", run),
            true};
  }
  if (const FrameworkFacts* known = find_framework(row.framework, run)) {
    return {*known};
  }
  const auto says = [&](std::string_view word) { return mentions(row.framework, word); };
  const bool shards_model =
      row.tp.value_or(1) > 1 || row.pp.value_or(1) > 1 || row.ep.value_or(1) > 1;
  std::string_view relative = shards_model ? "Megatron-LM" : "PyTorch DDP";
  constexpr auto kCompiledByXla =
      std::to_array<std::string_view>({"jax", "xla", "pax", "praxis", "flax", "axlearn", "levanter",
                                       "easylm", "gspmd", "pathways", "tensorflow"});
  const bool alpa = find_word(to_lower(row.framework), "alpa") != std::string_view::npos;
  if (alpa || std::any_of(kCompiledByXla.begin(), kCompiledByXla.end(), says)) {
    relative = "MaxText";
  } else if (says("foundry") || says("mosaic")) {
    relative = "Composer";
  } else if (says("deepspeed") || says("neox") || mentions(row.zero_detail, "deepspeed")) {
    relative = zero3 ? "DeepSpeed ZeRO-3" : "Megatron-DeepSpeed";
  } else if (says("megatron") || says("flagscale") || says("mindspeed") || says("primus")) {
    relative = "Megatron-LM";  // FlagOpen/FlagScale, Ascend/MindSpeed, AMD-AGI/Primus run its code
  } else if (says("internlm") || says("interntrain")) {
    relative = "InternEvo";  // which was InternLM's before it had a name
  } else if (says("galvatron")) {
    relative = "Hetu-Galvatron";  // its successor
  } else if (says("fsdp") || says("fairscale") || shards_parameters(row)) {
    relative = "PyTorch FSDP";
  }
  return {*find_framework(relative, run), true};
}

// FSDP shards everything unless it is told otherwise (ShardingStrategy.FULL_SHARD; torchtitan:
// data_parallel_shard_degree = -1; MaxText: ici_fsdp_parallelism = -1; Levanter: fsdp_axis;
// torchtune: training.shard_model in all of recipes/*_distributed.py; llm-foundry: fsdp_config of
// scripts/train/yamls; OLMo-core: dp_config of src/scripts/official).
bool shards_parameters(const Measurement& row) {
  constexpr auto kShards =
      std::to_array<std::string_view>({"fsdp", "hsdp", "zero3", "torchtitan", "maxtext", "levanter",
                                       "torchtune", "foundry", "olmocore"});
  return row.zero_stage ? row.zero_stage == 3
                        : says_any(letters_and_digits(row.framework), kShards);
}

// The recipes of NeMo and Megatron-Bridge switch it on with tensor parallelism, those that are
// named by Megatron-Core and a release of NeMo's container (24.07), too; of Megatron-LM and
// Megatron-Core by themselves --sequence-parallel is off (megatron/training/arguments.py). Megatron
// trains experts on tensor ranks with it alone (core/transformer/moe/moe_layer.py, forward; not
// DeepSpeed's deepspeed/moe/layer.py), as torchtitan does everything
// (models/llama3/infra/parallelize.py, apply_tp: norms are SequenceParallel).
bool shards_sequences(const Measurement& row) {
  constexpr auto kRecipes =
      std::to_array<std::string_view>({"NeMo", "Megatron-Bridge", "launcher", "Megatron-Core 24."});
  const std::string_view name = framework_of(row).facts.name;
  const bool recipe =
      std::ranges::any_of(kRecipes, [&](std::string_view with) { return name.starts_with(with); });
  const auto known = row.experts ? std::nullopt : named_network(row);
  const std::int64_t experts = row.experts.value_or(known ? known->moe.experts : 0);
  const bool megatron = name.starts_with("Megatron-") && name.find("DeepSpeed") == name.npos;
  return recipe || name == "torchtitan" || (experts > 1 && megatron);
}

}  // namespace orrery::studies
