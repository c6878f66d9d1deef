// SPDX-License-Identifier: Apache-2.0
// Megatron-LM: a launch script with every argument that the plan decides. Reading it back with the
// importer of the same name gives the plan again.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/block/states.hpp"
#include "plan/block_rules.hpp"
#include "plan/exporter.hpp"
#include "plan/launch_script/megatron_conditions.hpp"
#include "plan/launch_script/megatron_network.hpp"
#include "plan/launch_script/megatron_patterns.hpp"
#include "plan/stages.hpp"
#include "sim/orders/interleaved.hpp"

namespace orrery::plan {
namespace {

void require(bool expressible, const std::string& what, const std::string& hint = {}) {
  if (!expressible) {
    bad_input("megatron", fmt::format("Megatron-LM cannot express {}", what), hint);
  }
}

std::string text_of(std::int64_t value) { return fmt::format("{}", value); }

// Number of layers that each virtual stage recomputes from its beginning on; nothing when blocks
// are recomputed in another way than all alike or so many per stage.
struct Recomputation {
  Recompute kind = Recompute::None;
  int layers_per_stage = 0;  // 0: all of them
};

Recomputation recomputation_of(const Plan& plan) {
  std::vector<std::vector<Recompute>> stages;
  int position = 0;
  bool alike = true;
  const Recompute kind = plan.layout_of(1).recompute;
  for (const int count : plan.stage_blocks) {
    stages.emplace_back();
    for (int end = position + count; position < end; ++position) {
      const auto index =
          static_cast<std::size_t>(plan.network.chain[static_cast<std::size_t>(position)]);
      if (plan.network.blocks[index].kind == models::BlockKind::Layer) {
        stages.back().push_back(plan.layout_of(position).recompute);
        alike = alike && stages.back().back() == kind;
      }
    }
  }
  if (alike) {
    return {kind, 0};
  }
  std::size_t recomputed = 0;
  for (const auto& stage : stages) {
    recomputed = std::max<std::size_t>(
        recomputed, static_cast<std::size_t>(std::ranges::count(stage, Recompute::Full)));
  }
  for (const auto& stage : stages) {
    for (std::size_t layer = 0; layer < stage.size(); ++layer) {
      require(stage[layer] == (layer < recomputed ? Recompute::Full : Recompute::None),
              "this choice of recomputed layers (the first n of every stage would do)");
    }
  }
  return {Recompute::Full, static_cast<int>(recomputed)};
}

class MegatronExport {
 public:
  explicit MegatronExport(const Plan& plan) : plan_(plan), layout_(plan.blocks.front().layout) {}

  std::string text() {
    check();
    write_megatron_network(plan_, flags_);
    degrees();
    stages();
    data_parallel();
    recompute();
    execution();
    precision();
    return script();
  }

 private:
  // Groups have p micro-batches or more (core/pipeline_parallel/schedules.py,
  // forward_backward_pipelining_with_interleaving).
  bool in_uneven_groups() const {
    return plan_.schedule == "interleaved-uneven" && plan_.chunks > 1 &&
           plan_.num_micro_batches() >= plan_.pp;
  }
  bool combined() const { return plan_.schedule == "combined-1f1b"; }
  void add(const char* flag, std::string value = {}) { flags_.emplace_back(flag, value); }
  void add_if(bool condition, const char* flag) {
    if (condition) {
      add(flag);
    }
  }

  void check() const {
    for (const BlockRun& run : plan_.blocks) {
      BlockPlan layout = run.layout;
      layout.recompute = layout_.recompute;
      require(layout == layout_, "blocks with different layouts");
    }
    const bool schedule = plan_.schedule == (plan_.chunks > 1 ? "interleaved" : "1f1b");
    require(schedule || in_uneven_groups() || combined() || plan_.pp == 1,
            fmt::format("the schedule {}", plan_.schedule),
            "search with --schedule 1f1b --schedule interleaved");
    const Execution& execution = plan_.execution;
    if (const auto conflict = megatron_conflict(plan_)) {
      require(false, fmt::format("{} {}", conflict->feature, conflict->problem),
              std::string(conflict->search));
    }
    require(execution.vocab_parallel || layout_.tp == 1, "an embedding that tp does not shard");
    require(execution.master_weights || plan_.precision == DType::Fp32,
            "mixed precision without master weights");
    require(std::none_of(plan_.blocks.begin(), plan_.blocks.end(),
                         [](const BlockRun& run) { return run.layout.offload.any(); }),
            "offloading");
    require(execution.reshard_after_forward || layout_.zero_stage < 3,
            "ZeRO-3 that keeps gathered parameters");
    require(plan_.precision != DType::Tf32, "TF32 by an argument");
    require(execution.optimizer_state_bytes == 8 || execution.optimizer_state_bytes == 4,
            "an optimizer that is neither Adam (8 bytes) nor SGD with momentum (4 bytes)");
    require(!execution.stream_tp || layout_.sequence_parallel,
            "streamed tensor parallelism without sequence parallelism");
  }

  void degrees() {
    add("--micro-batch-size", text_of(plan_.micro_batch));
    add("--global-batch-size", text_of(plan_.batch));
    add("--tensor-model-parallel-size", text_of(layout_.tp));
    add("--pipeline-model-parallel-size", text_of(plan_.pp));
    if (layout_.cp > 1) {
      add("--context-parallel-size", text_of(layout_.cp));
      add("--cp-comm-type", layout_.context == ContextParallel::Ring        ? "p2p"
                            : layout_.context == ContextParallel::AllGather ? "all_gather"
                                                                            : "a2a");
    }
    require(expert_replicas(layout_) == 1 || layout_.cp == 1 || layout_.expert_cp == 1,
            "experts that are not spread over the context ranks", "--fix expert_cp=1");
    // Both orders that its arguments choose from, tp-cp-ep-dp-pp and tp-cp-ep-pp-dp, begin so.
    require(!reorders_experts(layout_), "expert-parallel ranks inside tensor or context ranks",
            "--fix ep_inside=dp");
    if (layout_.ep > 1) {
      add("--expert-model-parallel-size", text_of(layout_.ep));
    }
    if (expert_tensor_ranks(layout_) != layout_.tp) {
      add("--expert-tensor-parallel-size", text_of(layout_.expert_tp));
    }
    add_if(layout_.sequence_parallel, "--sequence-parallel");
  }

  void stages() {
    const std::int64_t num_stages = std::int64_t{plan_.pp} * plan_.chunks;
    const std::int64_t layers = plan_.network.spec.layers;
    if (layers % num_stages != 0 ||
        plan_.stage_blocks != even_stages(plan_.network, static_cast<int>(num_stages))) {
      add("--pipeline-model-parallel-layout", pipeline_layout_text(plan_.stage_blocks));
    } else if (plan_.chunks > 1) {
      add("--num-layers-per-virtual-pipeline-stage", text_of(layers / num_stages));
    }
    if (in_uneven_groups()) {
      add("--microbatch-group-size-per-virtual-pipeline-stage",
          text_of(sim::uneven_group(plan_.pp, static_cast<int>(plan_.num_micro_batches()))));
    }
  }

  void data_parallel() {
    const Execution& execution = plan_.execution;
    if (layout_.zero_stage > 0) {
      add("--use-distributed-optimizer");
    }
    if (layout_.zero_stage > 1) {
      add("--use-megatron-fsdp");
      add("--data-parallel-sharding-strategy",
          layout_.zero_stage == 2 ? "optim_grads" : "optim_grads_params");
      add("--ckpt-format", "fsdp_dtensor");
    }
    const int ranks = plan_.dp * layout_.cp;
    if (layout_.zero_stage > 0 && layout_.shard_degree > 0 && layout_.shard_degree != ranks) {
      add("--num-distributed-optimizer-instances", text_of(ranks / layout_.shard_degree));
    }
    add_if(execution.overlap_grad_reduce, "--overlap-grad-reduce");
    // Megatron-LM gathers parameters of the distributed optimizer only.
    add_if(execution.overlap_param_gather && layout_.zero_stage > 0, "--overlap-param-gather");
    if (execution.bucket_bytes > 0) {
      const std::int64_t element = execution.fp32_gradients ? 4 : 2;
      require(execution.bucket_bytes % element == 0, "a bucket of a fraction of an element");
      add("--ddp-bucket-size", text_of(execution.bucket_bytes / element));
    }
  }

  void recompute() {
    const Recomputation recomputation = recomputation_of(plan_);
    require(recomputation.kind != Recompute::Products, "recomputation of every second product");
    require(recomputation.kind != Recompute::Operators, "recomputation of chosen operators");
    if (recomputation.kind == Recompute::None) {
      return;
    }
    add("--recompute-granularity",
        recomputation.kind == Recompute::Selective ? "selective" : "full");
    if (recomputation.kind == Recompute::Full) {
      add("--recompute-method", recomputation.layers_per_stage > 0 ? "block" : "uniform");
      add("--recompute-num-layers", text_of(std::max(recomputation.layers_per_stage, 1)));
    }
  }

  void execution() {
    const Execution& execution = plan_.execution;
    add("--attention-backend", execution.fused_attention ? "auto" : "unfused");
    add_if(!execution.fused_kernels, "--no-bias-gelu-fusion");
    add_if(!execution.fused_kernels, "--no-bias-swiglu-fusion");
    add_if(!execution.fused_kernels, "--no-bias-dropout-fusion");
    if (execution.fused_cross_entropy || execution.compiled_loss) {
      add("--cross-entropy-loss-fusion");
      add("--cross-entropy-fusion-impl", execution.fused_cross_entropy ? "te" : "native");
    }
    add_if(!execution.overlap_p2p, "--no-overlap-p2p-communication");
    add_if(!execution.overlap_tp, "--no-async-tensor-model-parallel-allreduce");
    add_if(execution.stream_tp, "--tp-comm-overlap");
    add_if(combined(), "--overlap-moe-expert-parallel-comm");
    add_if(combined(), "--delay-wgrad-compute");
    add_if(execution.overlap_shared_experts && plan_.network.spec.moe.shared_ffn_hidden > 0,
           "--moe-shared-expert-overlap");
    add_if(!execution.fused_grad_accumulation, "--no-gradient-accumulation-fusion");
    add_if(execution.fused_router && has_experts(), "--moe-router-fusion");
    graphs();
    add("--optimizer", execution.optimizer_state_bytes == 8 ? "adam" : "sgd");
  }

  bool has_experts() const { return plan_.network.spec.moe.experts > 0; }

  // Without a scope whole layers, of which those with experts are not unless tokens are dropped.
  void graphs() {
    if (!plan_.execution.cuda_graphs) {
      return;
    }
    constexpr const char* kScope = "--cuda-graph-scope";
    add("--cuda-graph-impl", "transformer_engine");
    switch (has_experts() ? plan_.execution.graph_scope : GraphScope::Dense) {
      case GraphScope::Dense:
        break;
      case GraphScope::Router:
        add(kScope, "moe_router");
        break;
      case GraphScope::Attention:
        add(kScope, "attn");
        add("moe_router");  // a second value
        break;
      case GraphScope::Layer:
        add(kScope, "attn");
        add("moe");
        break;
    }
  }

  // Blackwell's own blocks are of 32 values.
  std::string fp8_recipe() const {
    switch (plan_.execution.fp8_scaling) {
      case Fp8Scaling::Delayed:
        return "delayed";
      case Fp8Scaling::Current:
        return "tensorwise";
      case Fp8Scaling::Blocks:
        return plan_.cluster.gpu.compute_capability >= 10 ? "mxfp8" : "blockwise";
    }
    return "";
  }

  void precision() {
    const DType precision = plan_.precision;
    add_if(precision == DType::Fp16, "--fp16");
    add_if(unquantised(precision) == DType::Bf16, "--bf16");
    if (precision == DType::Nvfp4) {
      add("--fp4-format", "e2m1");
      add("--fp4-recipe", "nvfp4");
    }
    if (gathers_quantised(plan_.execution, precision) && layout_.zero_stage > 0) {
      require(is_quantised(precision), "parameters gathered in 8 bits beside training in 16",
              "set quantised_gather to false");
      add(precision == DType::Nvfp4 ? "--fp4-param-gather" : "--fp8-param-gather");
    }
    if (precision == DType::Fp8) {
      add("--fp8-format", "hybrid");
      add("--fp8-recipe", fp8_recipe());
      const Execution& execution = plan_.execution;
      require(
          execution.fp8_scaling != Fp8Scaling::Delayed || execution.amax_ranks == AmaxRanks::All,
          "largest magnitudes of some ranks alone", "set amax_ranks to \"all\"");
    }
    if (precision == DType::Fp32) {
      require(plan_.execution.fp32_gradients, "fp32 training with gradients in half precision");
    } else if (plan_.execution.fp32_gradients) {
      add("--accumulate-allreduce-grads-in-fp32");
    } else if (precision != DType::Fp16) {
      add("--grad-reduce-in-bf16");
    }
  }

  std::string script() const {
    std::string text =
        "#!/bin/bash\n# Set the address of the first node, the rank of this node, "
        "the data and the schedule of the learning rate.\n"
        "# A plan says nothing of numerics: add --rotary-base, --norm-epsilon and the like\n"
        "# where the network's differ from Megatron-LM's defaults.\n";
    // One hardware queue keeps collectives in order with the kernels they overlap; sharded
    // parameters need several.
    text += layout_.zero_stage > 1 ? "" : "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
    text += fmt::format(
        "torchrun --nproc_per_node {} --nnodes {} --node_rank \"${{NODE_RANK:-0}}\" \\\n"
        "    --master_addr \"${{MASTER_ADDR:-localhost}}\" --master_port \"${{MASTER_PORT:-6000}}\""
        " \\\n    pretrain_gpt.py",
        plan_.cluster.node.gpus, plan_.cluster.num_nodes);
    for (const auto& [flag, value] : flags_) {
      const bool plain = value.find_first_of(" \"'$`\\|*()[]<>&;#") == std::string::npos;
      text += fmt::format(" \\\n    {}", flag);
      if (!value.empty()) {
        text += plain ? " " + value : fmt::format(" '{}'", value);
      }
    }
    return text + " \\\n    --mock-data --train-iters 100 --lr 1e-4 --eval-iters 0\n";
  }

  const Plan& plan_;
  const BlockPlan& layout_;
  FlagList flags_;
};

std::string write(const Plan& plan) { return MegatronExport(plan).text(); }

// What some or all of its releases refuse of the arguments (validate_args in
// megatron/training/arguments.py, __post_init__ of TransformerConfig).
std::vector<std::string> refused(const Plan& plan) {
  const Execution& execution = plan.execution;
  const BlockPlan& layout = plan.blocks.front().layout;
  std::vector<std::string> remarks;
  const std::int64_t kv_heads = plan.network.spec.kv_heads;
  if (kv_heads > 0 && layout.tp > kv_heads) {
    remarks.emplace_back(fmt::format(
        "--tensor-model-parallel-size {} above --num-query-groups {} (ranks share heads of keys "
        "and values) asks for core_v0.16 or later: releases up to core_v0.15 refuse it",
        layout.tp, kv_heads));
  }
  if (!execution.overlap_tp) {
    remarks.emplace_back(
        "--no-async-tensor-model-parallel-allreduce is an argument of releases up to core_v0.15: "
        "later ones refuse it and always overlap");
  }
  if (layout.zero_stage > 0 && execution.overlap_param_gather && !execution.overlap_grad_reduce) {
    remarks.emplace_back(
        "--overlap-param-gather is refused without --overlap-grad-reduce: search with --fix "
        "overlap_param_gather=false, or overlap both");
  }
  if (plan.chunks > 1 && plan.pp == 2 && !execution.overlap_p2p) {
    remarks.emplace_back(
        "several chunks on each of two devices are refused with --no-overlap-p2p-communication: "
        "search with --fix overlap_p2p=true");
  }
  return remarks;
}

}  // namespace

extern const Exporter exporter_megatron = {
    .name = "megatron",
    .description = "launch script of Megatron-LM's pretrain_gpt.py",
    .write = write,
    .script = refused,
};

}  // namespace orrery::plan
