// SPDX-License-Identifier: Apache-2.0
// Hugging Face Accelerate: the YAML file of `accelerate launch --config_file` with FSDP2 and its
// parallelism section (src/accelerate/commands/config/cluster.py of huggingface/accelerate). Batch
// and gradient accumulation are arguments of the training script and stand in a comment.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/exporter.hpp"

namespace orrery::plan {
namespace {

void require(bool expressible, const std::string& what, const std::string& hint = {}) {
  if (!expressible) {
    bad_input("accelerate", fmt::format("Accelerate's FSDP configuration cannot express {}", what),
              hint);
  }
}

void check(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  for (const BlockRun& run : plan.blocks) {
    require(run.layout == layout, "blocks with different layouts");
    require(!run.layout.offload.any(), "offloading");
  }
  require(plan.pp == 1, "pipeline stages", "--fix pp=1");
  require(layout.ep == 1, "expert parallelism", "--fix ep=1");
  require(layout.zero_stage >= 2 || plan.dp * layout.cp == 1,
          fmt::format("ZeRO-{} (FSDP shards gradients, too)", layout.zero_stage), "--fix zero=3");
  require(layout.cp == 1 || layout.context != ContextParallel::Ulysses, "Ulysses with FSDP2");
  require(layout.recompute == Recompute::None || layout.recompute == Recompute::Full,
          fmt::format("{} recomputation", to_text(layout.recompute)), "--fix recompute=full");
  require(plan.precision == DType::Bf16 || plan.precision == DType::Fp16 ||
              plan.precision == DType::Fp32,
          fmt::format("{} training here", to_text(plan.precision)));
}

std::string_view yes_no(bool value) { return value ? "true" : "false"; }

std::string precision_text(DType precision) {
  return precision == DType::Fp32 ? "'no'" : std::string(to_text(precision));
}

// Without, FSDP keeps whole gradients until the last micro-batch; plans shard those of each.
bool syncs_each_batch(const Plan& plan) {
  return plan.num_micro_batches() > 1 && plan.dp * plan.blocks.front().layout.cp > 1;
}

std::string write(const Plan& plan) {
  check(plan);
  const BlockPlan& layout = plan.blocks.front().layout;
  const int ranks = plan.dp * layout.cp;
  const int group = layout.shard_degree > 0 ? layout.shard_degree : ranks;
  require(group % layout.cp == 0, "a sharding group that cuts context parallelism");
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
  line("  fsdp_cpu_ram_efficient_loading", "true");
  line("  fsdp_activation_checkpointing", yes_no(layout.recompute == Recompute::Full));
  line("use_parallelism_config", "true");
  line("parallelism_config", "");
  line("  parallelism_config_dp_replicate_size", ranks / group);
  line("  parallelism_config_dp_shard_size", group / layout.cp);
  line("  parallelism_config_tp_size", layout.tp);
  line("  parallelism_config_cp_size", layout.cp);
  if (layout.cp > 1) {
    line("  parallelism_config_cp_comm_strategy",
         layout.context == ContextParallel::AllGather ? "allgather" : "alltoall");
  }
  return text;
}

std::vector<std::string> script(const Plan& plan) {
  if (!syncs_each_batch(plan)) {
    return {};
  }
  return {
      fmt::format("the plan shards the gradients of each of {} micro-batches: give "
                  "GradientAccumulationPlugin sync_each_batch=True in the training script, else "
                  "every GPU keeps whole gradients until the last one",
                  plan.num_micro_batches())};
}

}  // namespace

extern const Exporter exporter_accelerate = {
    .name = "accelerate",
    .description = "Hugging Face Accelerate configuration file (FSDP2)",
    .write = write,
    .script = script,
};

}  // namespace orrery::plan
