// SPDX-License-Identifier: Apache-2.0
// TorchTitan: the configuration objects of torchtitan/config/configs.py, ready to be pasted into a
// configuration function. Stages are lists of the modules of torchtitan/models/common/decoder.py.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/block_rules.hpp"
#include "plan/exporter.hpp"

namespace orrery::plan {
namespace {

void require(bool expressible, const std::string& what) {
  if (!expressible) {
    bad_input("torchtitan", fmt::format("TorchTitan's configuration cannot express {}", what));
  }
}

// Names of get_schedule_class in torch/distributed/pipelining/schedules.py, as ours.
struct Schedule {
  std::string_view ours;
  std::string_view theirs;
};
constexpr Schedule kSchedules[] = {{"gpipe", "GPipe"},
                                   {"1f1b", "1F1B"},
                                   {"interleaved", "Interleaved1F1B"},
                                   {"breadth-first", "LoopedBFS"},
                                   {"zb-v", "ZBVZeroBubble"},
                                   {"dualpipe-v", "DualPipeV"}};

std::string_view schedule_of(const Plan& plan) {
  const auto* const found =
      std::ranges::find(kSchedules, std::string_view(plan.schedule), &Schedule::ours);
  require(found != std::end(kSchedules), fmt::format("the schedule {}", plan.schedule));
  const bool single = plan.schedule == "gpipe" || plan.schedule == "1f1b";
  require(single || plan.chunks > 1,
          fmt::format("one model chunk per device under {}", plan.schedule));
  return found->theirs;
}

// Modules of every virtual stage: left to itself TorchTitan takes two per rank of schedules with
// several, and a layer less on the first and on the last.
std::string stage_modules(const Plan& plan) {
  std::string text = "[";
  int position = 0;
  int layer = 0;
  for (const int count : plan.stage_blocks) {
    std::string modules;
    for (const int end = position + count; position < end; ++position) {
      const auto index =
          static_cast<std::size_t>(plan.network.chain[static_cast<std::size_t>(position)]);
      const models::BlockKind kind = plan.network.blocks[index].kind;
      modules += modules.empty() ? "" : ", ";
      modules += kind == models::BlockKind::Embedding ? "\"tok_embeddings\""
                 : kind == models::BlockKind::Head    ? "\"norm\", \"output\""
                                                      : fmt::format("\"layers.{}\"", layer++);
    }
    text += fmt::format("\n        [{}],", modules);
  }
  return text + "\n    ]";
}

void check(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  for (const BlockRun& run : plan.blocks) {
    require(run.layout == layout, "blocks with different layouts");
    require(!run.layout.offload.any(), "offloading");
  }
  require(layout.zero_stage == 0 || layout.zero_stage == 3,
          "ZeRO-1 and ZeRO-2 (parameters are sharded or replicated)");
  require(layout.zero_stage == 3 || layout.cp == 1, "context parallelism without sharding");
  require(layout.cp == 1 || layout.context != ContextParallel::Ulysses, "Ulysses");
  require(plan.precision == DType::Bf16 || plan.precision == DType::Fp32,
          fmt::format("{} training here", to_text(plan.precision)));
  require(layout.ep == 1 || layout.expert_tp == 1 || layout.tp == 1,
          "experts that tensor parallelism cuts");
  require(layout.ep == 1 || layout.expert_cp == 1 || layout.cp == 1,
          "experts that are not spread over the context ranks");
  require(!reorders_experts(layout), "expert-parallel ranks inside tensor or context ranks");
}

std::string write(const Plan& plan) {
  check(plan);
  const BlockPlan& layout = plan.blocks.front().layout;
  const bool sharded = layout.zero_stage == 3;
  const int ranks = plan.dp * layout.cp;
  const int group = layout.shard_degree > 0 ? layout.shard_degree : ranks;
  // Context-parallel ranks shard parameters, too, but are counted apart.
  require(!sharded || group % layout.cp == 0, "a sharding group that cuts context parallelism");
  const int shard = sharded ? group / layout.cp : 1;
  std::string text = fmt::format(
      "# {} on {}: mesh of {} ranks\nTrainingConfig(\n    local_batch_size={},\n"
      "    global_batch_size={},\n    seq_len={},\n    mixed_precision_param=\"{}\",\n)\n",
      printable(plan.network.spec.name), printable(plan.cluster.name), plan.num_gpus(),
      plan.pp > 1 ? plan.batch / plan.dp : plan.micro_batch, plan.batch, plan.sequence,
      plan.precision == DType::Bf16 ? "bfloat16" : "float32");
  text += "ParallelismConfig(\n";
  const auto line = [&text](std::string_view name, const auto& value) {
    text += fmt::format("    {}={},\n", name, value);
  };
  line("data_parallel_replicate_degree", plan.dp / shard);
  line("data_parallel_shard_degree", shard);
  line("fsdp_reshard_after_forward",
       plan.execution.reshard_after_forward ? "\"always\"" : "\"never\"");
  line("tensor_parallel_degree", layout.tp);
  line("enable_sequence_parallel", layout.sequence_parallel ? "True" : "False");
  line("disable_loss_parallel", plan.execution.vocab_parallel ? "False" : "True");
  line("enable_async_tensor_parallel", plan.execution.stream_tp ? "True" : "False");
  line("context_parallel_degree", layout.cp);
  if (layout.cp > 1) {
    line("context_parallel_rotate_method",
         layout.context == ContextParallel::AllGather ? "\"allgather\"" : "\"alltoall\"");
  }
  line("expert_parallel_degree", layout.ep);
  line("pipeline_parallel_degree", plan.pp);
  if (plan.pp > 1) {
    line("pipeline_parallel_schedule", fmt::format("\"{}\"", schedule_of(plan)));
    line("pipeline_parallel_microbatch_size", plan.micro_batch);
    text += "    # versions whose decoder names its head lm_head need that for \"output\"\n";
    line("module_fqns_per_model_part", stage_modules(plan));
  }
  require(layout.recompute != Recompute::Operators, "recomputation of chosen operators");
  const bool per_operator = layout.recompute == Recompute::Products;
  text += fmt::format(")\nActivationCheckpointConfig(\n    mode=\"{}\",\n)\n",
                      per_operator ? "selective" : to_text(layout.recompute));
  return text;
}

}  // namespace

extern const Exporter exporter_torchtitan = {
    .name = "torchtitan",
    .description = "TorchTitan configuration objects (TrainingConfig, ParallelismConfig, ...)",
    .write = write,
};

}  // namespace orrery::plan
