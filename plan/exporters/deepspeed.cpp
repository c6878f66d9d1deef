// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's JSON configuration: batch sizes, ZeRO and precision (docs/_pages/config-json.md of
// DeepSpeed). It describes neither the network nor tensor or pipeline parallelism.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/exporter.hpp"

namespace orrery::plan {
namespace {

void require(bool expressible, const std::string& what, const std::string& hint = {}) {
  if (!expressible) {
    bad_input("deepspeed", fmt::format("DeepSpeed's configuration cannot express {}", what), hint);
  }
}

// Stages 2 and 3 send gradients with the optimizer; activations leave as whole checkpoints.
void check_homes(const BlockPlan& layout) {
  const Offload& offload = layout.offload;
  const bool updates_away = offload.optimizer != Tier::Device;
  const Tier gradients = updates_away && layout.zero_stage >= 2 ? Tier::Host : Tier::Device;
  require(offload.gradients == gradients, "gradients elsewhere than DeepSpeed puts them");
  require(offload.parameters == Tier::Device || layout.zero_stage == 3,
          "parameters that leave the device below ZeRO-3");
  // DeepSpeedZeroOptimizer takes any device for the host.
  require(offload.optimizer != Tier::Disk || layout.zero_stage == 3,
          "an optimizer on disk below ZeRO-3", "--fix zero=3");
  require(offload.activations == 0 ||
              (offload.activations == 1 && offload.activations_tier == Tier::Host &&
               layout.recompute == Recompute::Full),
          "activations that leave the device other than as all checkpoints");
  require(layout.zero_stage > 0 || !offload.any(), "offloading without ZeRO");
}

// In which gradients accumulate and travel.
std::string_view gradient_type(const Plan& plan) {
  return plan.execution.fp32_gradients ? "fp32" : to_text(plan.precision);
}

// Without ZeRO the engine wraps fp16 with gradients of its own type alone, bf16 with fp32 ones
// (runtime/engine.py, _do_optimizer_sanity_check).
void check_unsharded_gradients(const Plan& plan) {
  const bool fp32 = plan.execution.fp32_gradients;
  const bool wraps = plan.precision == DType::Fp32 || fp32 == (plan.precision == DType::Bf16);
  require(plan.blocks.front().layout.zero_stage > 0 || wraps,
          fmt::format("{} with gradients accumulated in {} without ZeRO: its engine refuses both "
                      "together",
                      to_text(plan.precision), gradient_type(plan)),
          fmt::format("--fix zero=1, or --fix fp32_gradients={}", !fp32));
}

// Where the disks are no plan says; without a path the run ends at once (runtime/zero/
// partition_parameters.py, stage3.py).
constexpr std::string_view kDiskPath = "/local_nvme";

Json offload_section(Tier tier) {
  Json section = Json::Object{{"device", tier == Tier::Host ? "cpu" : "nvme"}};
  if (tier == Tier::Disk) {
    section.set("nvme_path", kDiskPath);
  }
  section.set("pin_memory", true);
  return section;
}

bool uses_disk(const Plan& plan) {
  const Offload& offload = plan.blocks.front().layout.offload;
  return offload.optimizer == Tier::Disk || offload.parameters == Tier::Disk;
}

// Whether the states are sharded over fewer ranks than there are (MiCS).
bool shards_in_groups(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  return layout.shard_degree > 0 && layout.shard_degree != plan.dp * layout.cp;
}

void check(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  for (const BlockRun& run : plan.blocks) {
    require(run.layout == layout, "blocks with different layouts");
  }
  require(layout.tp == 1, "tensor parallelism", "export to megatron");
  require(plan.pp == 1, "pipeline stages", "export to megatron");
  require(layout.ep == 1, "expert parallelism: it is set in the model");
  require(layout.cp == 1 || layout.context == ContextParallel::Ulysses,
          "context parallelism other than Ulysses");
  check_homes(layout);
  require(layout.recompute == Recompute::None || layout.recompute == Recompute::Full,
          "selective recomputation");
  require(!is_quantised(plan.precision) && plan.precision != DType::Tf32,
          fmt::format("{} training", to_text(plan.precision)));
  check_unsharded_gradients(plan);
}

// Without ZeRO, and in BF16_Optimizer, which takes ZeRO-1 with fp32 gradients of bf16, gradients
// are reduced after the backward, whatever overlap_comm says.
bool reads_overlap(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  return layout.zero_stage > 1 ||
         (layout.zero_stage == 1 &&
          !(plan.precision == DType::Bf16 && plan.execution.fp32_gradients &&
            layout.offload.optimizer != Tier::Host));
}

Json zero_section(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const Execution& execution = plan.execution;
  Json zero = Json::object();
  zero.set("stage", layout.zero_stage);
  zero.set("overlap_comm",
           reads_overlap(plan) && (layout.zero_stage == 3 ? execution.overlap_param_gather
                                                          : execution.overlap_grad_reduce));
  zero.set("contiguous_gradients", true);
  if (execution.bucket_bytes > 0) {
    const std::int64_t elements = execution.bucket_bytes / (execution.fp32_gradients ? 4 : 2);
    zero.set("reduce_bucket_size", elements);
    zero.set("allgather_bucket_size", elements);
  }
  if (shards_in_groups(plan)) {
    require(layout.zero_stage == 3, "sharding groups (MiCS) below ZeRO-3");
    zero.set("mics_shard_size", layout.shard_degree);
  }
  // Other stages read neither.
  if (execution.quantised_gather && layout.zero_stage == 3) {
    zero.set("zero_quantized_weights", true);
  }
  if (execution.quantised_reduce && layout.zero_stage == 3) {
    zero.set("zero_quantized_gradients", true);
  }
  if (execution.hierarchical_gather) {
    zero.set("zero_hpz_partition_size", plan.cluster.node.gpus);
  }
  if (layout.offload.optimizer != Tier::Device) {
    zero.set("offload_optimizer", offload_section(layout.offload.optimizer));
  }
  if (layout.offload.parameters != Tier::Device) {
    zero.set("offload_param", offload_section(layout.offload.parameters));
  }
  return zero;
}

std::string write(const Plan& plan) {
  check(plan);
  const BlockPlan& layout = plan.blocks.front().layout;
  Json document = Json::object();
  document.set("train_batch_size", plan.batch);
  document.set("train_micro_batch_size_per_gpu", plan.micro_batch);
  document.set("gradient_accumulation_steps", plan.num_micro_batches());
  if (layout.cp > 1) {
    // Both sizes make the mesh, one alone none (deepspeed/__init__.py).
    document.set("data_parallel_size", plan.dp);
    document.set("sequence_parallel_size", layout.cp);
    document.set("seq_parallel_communication_data_type", gradient_type(plan));  // else fp32
  }
  document.set("zero_optimization", zero_section(plan));
  if (has_16_bits(plan.precision)) {
    const bool bf16 = plan.precision == DType::Bf16;
    document.set(bf16 ? "bf16" : "fp16", Json::Object{{"enabled", true}});
    document.set("data_types", Json::Object{{"grad_accum_dtype", gradient_type(plan)}});
    if (plan.execution.fp32_gradients) {
      document.set("communication_data_type", "fp32");  // else that of the parameters
    }
  }
  if (layout.recompute == Recompute::Full) {
    document.set("activation_checkpointing",
                 Json::Object{{"partition_activations", false},
                              {"cpu_checkpointing", layout.offload.activations > 0}});
  }
  return document.dump() + "\n";
}

std::vector<std::string> script(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  std::vector<std::string> duties;
  if (layout.recompute == Recompute::Full) {
    duties.emplace_back(
        "activation_checkpointing only sets how deepspeed.checkpointing works: the training script "
        "must call deepspeed.checkpointing.checkpoint on every layer, else nothing is recomputed");
  }
  if (layout.cp > 1) {
    duties.emplace_back(fmt::format(
        "sequence_parallel_size only groups the ranks: the training script must wrap attention in "
        "deepspeed.sequence.layer.DistributedAttention and give each of {} ranks its part of every "
        "sequence",
        layout.cp));
  }
  if (shards_in_groups(plan)) {
    duties.emplace_back(
        "mics_shard_size asks the training script to build the model under "
        "deepspeed.zero.MiCS_Init: parameters of deepspeed.zero.Init are refused");
  }
  if (uses_disk(plan)) {
    duties.emplace_back(fmt::format(
        "nvme_path {} is a placeholder: write a directory on a disk of every node", kDiskPath));
  }
  return duties;
}

}  // namespace

extern const Exporter exporter_deepspeed = {
    .name = "deepspeed",
    .description = "DeepSpeed JSON configuration (ZeRO, batch sizes, precision)",
    .write = write,
    .script = script,
};

}  // namespace orrery::plan
