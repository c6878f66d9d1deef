// SPDX-License-Identifier: Apache-2.0
// Megatron-LM: launch scripts or plain lists of arguments, as text. What the arguments leave open
// takes Megatron-LM's default; data parallelism is what the cluster leaves.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "plan/block_rules.hpp"
#include "plan/dispatchers.hpp"
#include "plan/importer.hpp"
#include "plan/launch_script/launched_ranks.hpp"
#include "plan/launch_script/megatron_conditions.hpp"
#include "plan/launch_script/megatron_kernels.hpp"
#include "plan/launch_script/megatron_network.hpp"
#include "plan/launch_script/megatron_patterns.hpp"
#include "sim/orders/interleaved.hpp"

namespace orrery::plan {
namespace {

class MegatronImport {
 public:
  MegatronImport(std::string_view text, const std::string& where,
                 const topologies::Cluster& cluster, const models::Network* network)
      : arguments_(text, where), given_(network) {
    plan_.cluster = cluster;
    plan_.profile = costmodel::load_profile("", cluster.gpu);
  }

  Plan read() {
    const BlockPlan first = read_degrees();
    plan_.network = read_megatron_network(arguments_, first.tp, given_);
    plan_.sequence =
        arguments_.integer_or("--seq-length", plan_.network.spec.sequence, 1, limits::kMaxSequence);
    BlockPlan layout = first;
    read_data_parallel(layout);
    read_stages();
    read_precision();
    read_execution();
    read_dispatch();
    read_megatron_experts(arguments_, plan_);
    read_megatron_graphs(arguments_, plan_);
    read_recompute(layout);
    if (const auto conflict = megatron_conflict(plan_)) {
      fail(conflict->flag,
           fmt::format("Megatron-LM has no {} {}", conflict->feature, conflict->problem));
    }
    arguments_.finish();
    check_plan(plan_, arguments_.file());
    return std::move(plan_);
  }

 private:
  [[noreturn]] void fail(std::string_view flag, std::string_view message,
                         std::string_view hint = {}) const {
    bad_input(arguments_.where(flag), message, hint);
  }

  int degree(const char* flag, int fallback = 1) {
    return static_cast<int>(arguments_.integer_or(flag, fallback, 1, limits::kMaxDevices));
  }

  BlockPlan read_degrees() {
    BlockPlan layout;
    layout.tp = degree("--tensor-model-parallel-size");
    layout.cp = degree("--context-parallel-size");
    layout.ep = degree("--expert-model-parallel-size");
    const int expert_tp = degree("--expert-tensor-parallel-size", layout.tp);
    layout.expert_tp = expert_tp == layout.tp ? 0 : expert_tp;
    // megatron/core/parallel_state.py: experts are spread over consecutive ranks, whatever their
    // place in context parallelism.
    layout.expert_cp = expert_replicas(layout) > 1 && layout.cp > 1 ? 1 : 0;
    layout.sequence_parallel = arguments_.has("--sequence-parallel");
    const std::size_t context = arguments_.choice("--cp-comm-type", {"p2p", "all_gather", "a2a"});
    layout.context = context == 0   ? ContextParallel::Ring
                     : context == 1 ? ContextParallel::AllGather
                                    : ContextParallel::Ulysses;
    plan_.pp = degree("--pipeline-model-parallel-size");
    const std::int64_t gpus = plan_.cluster.num_gpus();
    const std::int64_t model = std::int64_t{layout.tp} * layout.cp;
    if (gpus % model != 0 || gpus / model % plan_.pp != 0) {
      bad_input(arguments_.file(),
                fmt::format("tp x cp x pp = {} x {} x {} does not divide the {} GPUs of {}",
                            layout.tp, layout.cp, plan_.pp, gpus, plan_.cluster.name),
                "give the cluster the script was written for");
    }
    plan_.dp = static_cast<int>(gpus / model / plan_.pp);
    const auto micro_batch = arguments_.integer("--micro-batch-size", 1, limits::kMaxBatch);
    if (!micro_batch.has_value()) {
      bad_input(arguments_.file(), "--micro-batch-size is missing");
    }
    plan_.micro_batch = *micro_batch;
    plan_.batch = arguments_.integer_or("--global-batch-size",
                                        std::min(plan_.micro_batch * plan_.dp, limits::kMaxBatch),
                                        1, limits::kMaxBatch);
    return layout;
  }

  void read_data_parallel(BlockPlan& layout) {
    const bool optimizer = arguments_.has("--use-distributed-optimizer");
    const bool torch = arguments_.has("--use-torch-fsdp2");
    const bool own = arguments_.has("--use-megatron-fsdp");
    const bool older = arguments_.has("--use-custom-fsdp");
    const std::size_t strategy =
        arguments_.choice("--data-parallel-sharding-strategy",
                          {"no_shard", "optim", "optim_grads", "optim_grads_params"});
    layout.zero_stage = torch ? 3 : own || older ? static_cast<int>(strategy) : optimizer ? 1 : 0;
    const int instances = degree("--num-distributed-optimizer-instances");
    const int ranks = plan_.dp * layout.cp;
    if (instances > 1 && layout.zero_stage > 0) {
      if (ranks % instances != 0) {
        fail("--num-distributed-optimizer-instances",
             fmt::format("{} data-parallel ranks cannot be cut into {}", ranks, instances));
      }
      layout.shard_degree = ranks / instances;
    }
    plan_.execution.overlap_grad_reduce = arguments_.has("--overlap-grad-reduce");
    // Without a distributed optimizer there is nothing to gather: the default stays.
    const bool gathers = arguments_.has("--overlap-param-gather");
    plan_.execution.overlap_param_gather = gathers || layout.zero_stage == 0;
  }

  void read_stages() {
    const std::int64_t layers = plan_.network.spec.layers;
    const auto layout = arguments_.text("--pipeline-model-parallel-layout");
    const auto per_stage = arguments_.integer("--num-layers-per-virtual-pipeline-stage", 1, layers);
    const auto chunks =
        arguments_.integer("--num-virtual-stages-per-pipeline-rank", 1, limits::kMaxLayers);
    const auto group = arguments_.integer("--microbatch-group-size-per-virtual-pipeline-stage", 1,
                                          limits::kMaxBatch);
    const auto micro_batches = static_cast<int>(plan_.num_micro_batches());
    const bool in_uneven_groups = group.has_value() && micro_batches > plan_.pp &&
                                  micro_batches % plan_.pp != 0 &&
                                  *group == sim::uneven_group(plan_.pp, micro_batches);
    if (group.value_or(plan_.pp) != plan_.pp && !in_uneven_groups) {
      fail("--microbatch-group-size-per-virtual-pipeline-stage",
           "groups of another size than the pipeline are modelled only where the pipeline does not "
           "divide the micro-batches, and then only the smallest ones that Megatron-LM takes");
    }
    if (layout.has_value()) {
      plan_.stage_blocks =
          parse_pipeline_layout(*layout, arguments_.where("--pipeline-model-parallel-layout"));
      const auto count = static_cast<int>(plan_.stage_blocks.size());
      if (count % plan_.pp != 0) {
        fail("--pipeline-model-parallel-layout",
             fmt::format("{} stages for {} pipeline ranks", count, plan_.pp));
      }
      plan_.chunks = count / plan_.pp;
    } else {
      plan_.chunks = static_cast<int>(chunks.value_or(1));
      if (per_stage.has_value()) {
        plan_.chunks = static_cast<int>(std::max<std::int64_t>(layers / plan_.pp / *per_stage, 1));
      }
      cut_evenly(layers);
      if (per_stage.has_value() && *per_stage * plan_.pp * plan_.chunks != layers) {
        fail("--num-layers-per-virtual-pipeline-stage",
             fmt::format("{} layers are no multiple of {} per stage on {} pipeline ranks", layers,
                         *per_stage, plan_.pp));
      }
    }
    constexpr const char* kCombined = "--overlap-moe-expert-parallel-comm";
    const bool delays = arguments_.has("--delay-wgrad-compute");
    if (!arguments_.has(kCombined)) {
      if (delays) {
        fail("--delay-wgrad-compute", "a postponed weight gradient is not modelled",
             fmt::format("remove it, or add {}", kCombined));
      }
      plan_.schedule = plan_.chunks == 1  ? "1f1b"
                       : in_uneven_groups ? "interleaved-uneven"
                                          : "interleaved";
      return;
    }
    plan_.schedule = "combined-1f1b";
  }

  // Embedding and loss may count as a layer each; the first and last rank may hold other numbers.
  void cut_evenly(std::int64_t layers) {
    const std::int64_t count = std::int64_t{plan_.pp} * plan_.chunks;
    const auto first = arguments_.integer("--decoder-first-pipeline-num-layers", 1, layers);
    const auto last = arguments_.integer("--decoder-last-pipeline-num-layers", 1, layers);
    const int embedding = arguments_.has("--account-for-embedding-in-pipeline-split") ? 1 : 0;
    const int loss = arguments_.has("--account-for-loss-in-pipeline-split") ? 1 : 0;
    const bool ends = first.has_value() || last.has_value();
    if (ends && plan_.chunks > 1) {
      bad_input(arguments_.file(), "uneven first or last stages with model chunks are not modelled",
                "use --pipeline-model-parallel-layout");
    }
    const std::int64_t others = layers + embedding + loss - first.value_or(0) - last.value_or(0);
    const std::int64_t stages = count - (first.has_value() ? 1 : 0) - (last.has_value() ? 1 : 0);
    if (stages < 0 || others < stages || (stages == 0 ? others != 0 : others % stages != 0)) {
      bad_input(arguments_.file(),
                fmt::format("{} layers do not divide among {} pipeline stages", layers, count),
                "use --pipeline-model-parallel-layout");
    }
    const auto share = static_cast<int>(stages == 0 ? 0 : others / stages);
    plan_.stage_blocks.assign(static_cast<std::size_t>(count), share);
    plan_.stage_blocks.front() =
        static_cast<int>(first.value_or(plan_.stage_blocks.front())) - embedding + 1;
    const int last_layers = static_cast<int>(last.value_or(plan_.stage_blocks.back()));
    plan_.stage_blocks.back() = last_layers - loss + 1;
  }

  void read_precision() {
    const bool fp16 = arguments_.has("--fp16");
    const bool bf16 = arguments_.has("--bf16");
    if (fp16 && bf16) {
      fail("--bf16", "--fp16 is given, too");
    }
    plan_.precision = fp16 ? DType::Fp16 : bf16 ? DType::Bf16 : DType::Fp32;
    if (arguments_.text("--fp8-format").has_value()) {
      plan_.precision = DType::Fp8;
    }
    if (arguments_.text("--fp4-format").has_value()) {
      if (plan_.precision == DType::Fp8 || fp16) {
        fail("--fp4-format", fp16 ? "--fp16 is given, too" : "--fp8-format is given, too");
      }
      plan_.precision = DType::Nvfp4;
    }
    (void)arguments_.choice("--fp4-recipe", {"nvfp4"});
    constexpr std::array kScalings = {Fp8Scaling::Delayed, Fp8Scaling::Current, Fp8Scaling::Blocks,
                                      Fp8Scaling::Blocks};
    plan_.execution.fp8_scaling = kScalings[arguments_.choice(
        "--fp8-recipe", {"delayed", "tensorwise", "mxfp8", "blockwise"})];
    // Each is read, so that none is left over as unknown.
    const bool fp8_gather = arguments_.has("--fp8-param-gather");
    const bool fp4_gather = arguments_.has("--fp4-param-gather");
    plan_.execution.quantised_gather = (fp8_gather && plan_.precision == DType::Fp8) ||
                                       (fp4_gather && plan_.precision == DType::Nvfp4);
    const bool asked = arguments_.has("--accumulate-allreduce-grads-in-fp32");
    const bool half = arguments_.has("--grad-reduce-in-bf16");
    // Megatron-LM turns it on by itself for bf16, not for fp16.
    plan_.execution.fp32_gradients = asked || (!half && plan_.precision != DType::Fp16);
  }

  void read_execution() {
    Execution& execution = plan_.execution;
    // All switches are read, so that none is left over as unknown.
    const auto any = [this](std::initializer_list<const char*> flags) {
      return std::count_if(flags.begin(), flags.end(),
                           [this](const char* flag) { return arguments_.has(flag); }) > 0;
    };
    const std::size_t backend = arguments_.choice(
        "--attention-backend", {"auto", "flash", "fused", "unfused", "local", "AttnBackend.auto",
                                "AttnBackend.flash", "AttnBackend.fused"});
    const bool flash = arguments_.has("--use-flash-attn");
    const bool local = !has_transformer_engine(arguments_);
    execution.fused_attention = backend != 3 && backend != 4 && (flash || !local);
    execution.fused_kernels =
        !any({"--no-bias-gelu-fusion", "--no-bias-swiglu-fusion", "--no-bias-dropout-fusion"});
    const bool fuses_loss = arguments_.has("--cross-entropy-loss-fusion");
    const bool one_kernel = arguments_.choice("--cross-entropy-fusion-impl", {"native", "te"}) == 1;
    execution.fused_cross_entropy = fuses_loss && one_kernel;
    execution.compiled_loss = fuses_loss && !one_kernel;
    // Without model chunks it is turned off (megatron/training/arguments.py).
    execution.overlap_p2p =
        !arguments_.has("--no-overlap-p2p-communication") && (plan_.chunks > 1 || plan_.pp == 1);
    execution.overlap_tp = !arguments_.has("--no-async-tensor-model-parallel-allreduce");
    execution.stream_tp = arguments_.has("--tp-comm-overlap");
    execution.fused_grad_accumulation = !arguments_.has("--no-gradient-accumulation-fusion");
    execution.optimizer_state_bytes =
        arguments_.choice("--optimizer", {"adam", "sgd"}) == 0 ? 8 : 4;
    const std::int64_t element = execution.fp32_gradients ? 4 : 2;
    execution.bucket_bytes =
        element * arguments_.integer_or("--ddp-bucket-size", 0, 1, std::int64_t{1} << 40);
  }

  void read_dispatch() {
    const bool flex = arguments_.text("--moe-token-dispatcher-type") == "flex";
    // DeepEP's older name, and the choice among the flex dispatcher's backends that followed it.
    constexpr const char* kDeepEp = "--moe-enable-deepep";
    constexpr const char* kBackend = "--moe-flex-dispatcher-backend";
    if (arguments_.has(kDeepEp) && !flex) {
      fail(kDeepEp, "DeepEP needs the flex dispatcher", "add --moe-token-dispatcher-type flex");
    }
    const std::string backend = arguments_.text(kBackend).value_or("deepep");
    const std::optional<Dispatcher> library = dispatcher_of_backend(backend);
    if (!library) {
      fail(kBackend, fmt::format("not modelled: how \"{}\" sends tokens", printable(backend, 80)),
           "deepep and hybridep are modelled");
    }
    set_dispatcher(flex ? *library : Dispatcher::AllToAll, plan_.execution);
    plan_.execution.overlap_shared_experts = arguments_.has("--moe-shared-expert-overlap");
  }

  void read_recompute(BlockPlan layout) {
    const auto granularity = arguments_.text("--recompute-granularity");
    const bool selective = arguments_.has("--recompute-activations");
    const bool checkpoint = arguments_.has("--checkpoint-activations");
    const auto method = arguments_.text("--recompute-method");
    const std::int64_t layers =
        arguments_.integer_or("--recompute-num-layers", 1, 1, limits::kMaxLayers);
    for (const std::string& module : arguments_.texts("--recompute-modules")) {
      if (module != "core_attn") {
        fail("--recompute-modules", "only core_attn is modelled");
      }
    }
    if (granularity.has_value() && *granularity != "full" && *granularity != "selective") {
      fail("--recompute-granularity", "expected full or selective");
    }
    const bool full = checkpoint || granularity == "full";
    layout.recompute = full                                      ? Recompute::Full
                       : selective || granularity == "selective" ? Recompute::Selective
                                                                 : Recompute::None;
    if (full && method == "block") {
      recompute_first_layers(layout, layers);
      return;
    }
    if (full && method.has_value() && *method != "uniform") {
      fail("--recompute-method", "expected uniform or block");
    }
    if (full && layers != 1) {
      fail("--recompute-num-layers", "uniform recomputation is modelled for single layers",
           "1 would do");
    }
    plan_.blocks = {{static_cast<int>(plan_.network.chain.size()), layout}};
  }

  void recompute_first_layers(BlockPlan layout, std::int64_t layers) {
    int position = 0;
    for (const int count : plan_.stage_blocks) {
      std::int64_t left = layers;
      for (int end = position + count;
           position < end && position < static_cast<int>(plan_.network.chain.size()); ++position) {
        const auto index =
            static_cast<std::size_t>(plan_.network.chain[static_cast<std::size_t>(position)]);
        const bool layer = plan_.network.blocks[index].kind == models::BlockKind::Layer;
        layout.recompute = layer && left > 0 ? Recompute::Full : Recompute::None;
        left -= layer ? 1 : 0;
        if (plan_.blocks.empty() || !(plan_.blocks.back().layout == layout)) {
          plan_.blocks.push_back({0, layout});
        }
        ++plan_.blocks.back().count;
      }
    }
  }

  MegatronArguments arguments_;
  const models::Network* given_;
  Plan plan_;
};

Plan parse(std::string_view text, const std::string& where, const topologies::Cluster& cluster,
           const models::Network* network) {
  return MegatronImport(text, where, cluster, network).read();
}

}  // namespace

extern const Importer importer_megatron = {
    .name = "megatron",
    .description = "launch script or argument list of Megatron-LM (read, never executed)",
    .parse = parse,
    .launched_ranks = launched_ranks,
};

}  // namespace orrery::plan
