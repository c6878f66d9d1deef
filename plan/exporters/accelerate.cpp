// SPDX-License-Identifier: Apache-2.0
// Hugging Face Accelerate: the YAML file of `accelerate launch --config_file` with FSDP2 and its
// parallelism section (src/accelerate/commands/config/cluster.py of huggingface/accelerate). Batch
// and gradient accumulation are arguments of the training script and stand in a comment.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/block_rules.hpp"
#include "plan/exporter.hpp"

namespace orrery::plan {
namespace {

void require(bool expressible, const std::string& what, const std::string& hint = {}) {
  if (!expressible) {
    bad_input("accelerate", fmt::format("Accelerate's FSDP configuration cannot express {}", what),
              hint);
  }
}

// The ranks of data and context parallelism as FSDP2 has them.
struct Shards {
  int group = 1;  // ranks that share the states, context ranks with them
  int replicas = 1;
};

Shards shards_of(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const int ranks = plan.dp * layout.cp;
  const int group = layout.shard_degree > 0 ? layout.shard_degree : ranks;
  return {group, ranks / group};
}

// FSDP2 takes the mesh "dp_shard_cp", which a single rank does not make (fsdp2_prepare_model in
// utils/fsdp_utils.py); ParallelismConfig wants replicas to shard over data ranks, too.
void check_shards(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const Shards shards = shards_of(plan);
  require(shards.group % layout.cp == 0, "a sharding group that cuts context parallelism");
  require(shards.group > 1 || plan.num_gpus() == 1,
          "parallel ranks of which none share the states: FSDP2 has no mesh then",
          layout.tp > 1 ? "fewer tensor-parallel ranks, or a larger shard_degree"
                        : "a larger shard_degree");
  require(shards.replicas == 1 || shards.group > layout.cp,
          "replicas that shard over context ranks alone", "a larger shard_degree");
}

void check(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  for (const BlockRun& run : plan.blocks) {
    require(run.layout == layout, "blocks with different layouts");
    require(!run.layout.offload.any(), "offloading");
  }
  require(plan.pp == 1, "pipeline stages", "--fix pp=1");
  require(layout.ep == 1, "expert parallelism", "--fix ep=1");
  require(plan.network.spec.moe.experts == 0 || expert_tensor_ranks(layout) == layout.tp,
          "experts that not all tensor ranks cut", "--fix expert_tp=0");
  require(layout.zero_stage >= 2 || plan.dp * layout.cp == 1,
          fmt::format("ZeRO-{} (FSDP shards gradients, too)", layout.zero_stage), "--fix zero=3");
  require(layout.cp == 1 || layout.context != ContextParallel::Ulysses, "Ulysses with FSDP2");
  require(layout.recompute == Recompute::None || layout.recompute == Recompute::Full,
          fmt::format("{} recomputation", to_text(layout.recompute)), "--fix recompute=full");
  require(has_16_bits(plan.precision) || plan.precision == DType::Fp32,
          fmt::format("{} training here", to_text(plan.precision)));
  check_shards(plan);
}

std::string_view yes_no(bool value) { return value ? "true" : "false"; }

std::string precision_text(DType precision) {
  return precision == DType::Fp32 ? "'no'" : std::string(to_text(precision));
}

// Without, FSDP keeps whole gradients until the last micro-batch; plans shard those of each.
bool syncs_each_batch(const Plan& plan) {
  return plan.num_micro_batches() > 1 && plan.dp * plan.blocks.front().layout.cp > 1;
}

// mixed_precision alone gives reductions the type of the parameters (set_mixed_precision in
// utils/dataclasses.py).
bool widens_reductions(const Plan& plan) {
  return plan.precision != DType::Fp32 && plan.execution.fp32_gradients;
}

// Rank 0 alone reads the checkpoint and broadcasts what it holds: a shard of a tensor-parallel
// model, which others would take for theirs. Accelerate's own context-parallel files do without,
// too (examples/torch_native_parallelism/configs).
bool loads_on_one_rank(const BlockPlan& layout) { return layout.tp == 1 && layout.cp == 1; }

Execution usual(const Plan& plan) {
  Execution execution;
  execution.fp32_gradients = plan.precision == DType::Fp32;
  return execution;
}

std::string write(const Plan& plan) {
  check(plan);
  const BlockPlan& layout = plan.blocks.front().layout;
  const Shards shards = shards_of(plan);
  // FSDP2 keeps gathered parameters as ZeRO-2 does when it does not reshard after the forward.
  const bool reshard = layout.zero_stage == 3 && plan.execution.reshard_after_forward;
  std::string text = fmt::format(
      "# {} on {}: {} sequences of {} tokens a step,\n"
      "# per_device_train_batch_size {}, gradient_accumulation_steps {}\n",
      printable(plan.network.spec.name), printable(plan.cluster.name), plan.batch, plan.sequence,
      plan.micro_batch, plan.num_micro_batches());
  if (syncs_each_batch(plan)) {
    text += "# sync_each_batch True\n";
  }
  if (widens_reductions(plan)) {
    text += "# mixed_precision_policy: reduce_dtype float32\n";
  }
  const auto line = [&text](std::string_view name, const auto& value) {
    text += fmt::format("{}: {}\n", name, value);
  };
  line("compute_environment", "LOCAL_MACHINE");
  line("distributed_type", "FSDP");
  line("mixed_precision", precision_text(plan.precision));
  line("num_machines", plan.cluster.num_nodes);
  line("num_processes", plan.num_gpus());
  line("fsdp_config", "");
  line("  fsdp_version", 2);
  line("  fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
  line("  fsdp_reshard_after_forward", yes_no(reshard));
  line("  fsdp_offload_params", "false");
  line("  fsdp_state_dict_type", "SHARDED_STATE_DICT");
  line("  fsdp_cpu_ram_efficient_loading", yes_no(loads_on_one_rank(layout)));
  line("  fsdp_activation_checkpointing", yes_no(layout.recompute == Recompute::Full));
  line("parallelism_config", "");
  line("  parallelism_config_dp_replicate_size", shards.replicas);
  line("  parallelism_config_dp_shard_size", shards.group / layout.cp);
  line("  parallelism_config_tp_size", layout.tp);
  line("  parallelism_config_cp_size", layout.cp);
  if (layout.cp > 1) {
    line("  parallelism_config_cp_comm_strategy",
         layout.context == ContextParallel::AllGather ? "allgather" : "alltoall");
  }
  return text;
}

std::vector<std::string> script(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  std::vector<std::string> duties;
  if (syncs_each_batch(plan)) {
    duties.emplace_back(
        fmt::format("the plan shards the gradients of each of {} micro-batches: give "
                    "GradientAccumulationPlugin sync_each_batch=True in the training script, else "
                    "every GPU keeps whole gradients until the last one",
                    plan.num_micro_batches()));
  }
  if (widens_reductions(plan)) {
    duties.emplace_back(fmt::format(
        "the plan reduces gradients in fp32: give FullyShardedDataParallelPlugin a "
        "mixed_precision_policy with param_dtype {} and reduce_dtype float32 in the training "
        "script, else they travel in {}",
        plan.precision == DType::Bf16 ? "bfloat16" : "float16", to_text(plan.precision)));
  }
  if (layout.tp > 1) {
    duties.emplace_back(
        "the training script must load the model with tp_plan=\"auto\" and the device mesh of the "
        "Accelerator, else tensor-parallel ranks hold whole layers");
  }
  if (layout.cp > 1) {
    duties.emplace_back(
        "the training script must run every step within accelerator.maybe_context_parallel, else "
        "context-parallel ranks have whole sequences");
  }
  return duties;
}

}  // namespace

extern const Exporter exporter_accelerate = {
    .name = "accelerate",
    .description = "Hugging Face Accelerate configuration file (FSDP2)",
    .write = write,
    .script = script,
    .usual = usual,
};

}  // namespace orrery::plan
