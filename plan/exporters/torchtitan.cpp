// SPDX-License-Identifier: Apache-2.0
// TorchTitan: sections of a TOML configuration of its releases 0.2 (torchtitan/config/job_config.py
// at v0.2.2). Stages are lists of modules (torchtitan/distributed/pipeline_parallel.py).
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/block_rules.hpp"
#include "plan/exporter.hpp"

namespace orrery::plan {
namespace {

void require(bool expressible, const std::string& what, const std::string& hint = {}) {
  if (!expressible) {
    bad_input("torchtitan", fmt::format("TorchTitan's configuration cannot express {}", what),
              hint);
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
    text += fmt::format("\n    [{}],", modules);
  }
  return text + "\n]";
}

// Ranks over which FSDP shards parameters: context ranks do, too, but are counted apart.
int sharding_ranks(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  return layout.zero_stage < 2     ? 1
         : layout.shard_degree > 0 ? layout.shard_degree
                                   : plan.dp * layout.cp;
}

// To layouts that shard nothing.
std::string sharding_hint(const BlockPlan& layout) {
  return layout.zero_stage < 2 ? "--fix zero=2" : "";
}

// fsdp_enabled of ParallelDims: over a single rank there is none.
bool sharded(const Plan& plan) { return sharding_ranks(plan) > 1; }

void check_data_parallel(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  require(layout.zero_stage != 1, "ZeRO-1 (FSDP shards gradients, too)", "--fix zero=2");
  require(layout.zero_stage >= 2 || layout.cp == 1, "context parallelism without sharding",
          "--fix zero=2");
  require(sharding_ranks(plan) % layout.cp == 0, "a sharding group that cuts context parallelism");
  // parallelize_llama: "DDP has not supported > 1D parallelism".
  require(sharded(plan) || plan.dp == 1 || plan.dp == plan.num_gpus(),
          "replicas without sharding beside tensor or pipeline parallelism", sharding_hint(layout));
  // maybe_enable_amp (torchtitan/distributed/utils.py).
  require(plan.precision != DType::Bf16 || sharded(plan) || (layout.tp == 1 && plan.pp == 1),
          "mixed precision of tensor or pipeline ranks without sharding", sharding_hint(layout));
  require(plan.precision == DType::Bf16 || plan.precision == DType::Fp32,
          fmt::format("{} training here", to_text(plan.precision)));
}

void check_model_parallel(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  require(layout.cp == 1 || layout.context != ContextParallel::Ulysses, "Ulysses",
          "--fix context=all-gather");
  require(layout.cp == 1 || layout.zigzag, "context ranks with whole chunks of the sequence");
  require(layout.tp == 1 || layout.sequence_parallel, "tensor without sequence parallelism",
          "--fix sequence_parallel=true");
  require(layout.tp == 1 || plan.execution.vocab_parallel,
          "an embedding that tensor parallelism does not shard", "--fix vocab_parallel=true");
  // seq_len_divisor of ParallelDims, whatever cp is.
  const std::int64_t parts = std::int64_t{2} * layout.tp * layout.cp;
  require(plan.sequence % parts == 0,
          fmt::format("sequences of {} tokens, which 2 x tp x cp = {} does not divide",
                      plan.sequence, parts));
}

// Experts of several ranks are wrapped by FSDP, whose mesh must be there (parallelize_llama of
// llama4), and what they leave of its ranks and the tensor ranks shards them (build_mesh).
void check_experts(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  if (plan.network.spec.moe.experts == 0) {
    return;
  }
  const bool as_tensor = expert_tensor_ranks(layout) == layout.tp;
  require(as_tensor || (layout.ep > 1 && layout.expert_tp == 1),
          layout.ep > 1
              ? "experts that tensor parallelism cuts into other parts than the rest"
              : "experts that tensor parallelism does not cut without expert parallelism");
  require(layout.ep == 1 || layout.expert_cp == 1 || layout.cp == 1,
          "experts that are not spread over the context ranks");
  require(layout.ep == 1 || copies_inside(layout) == 1,
          "experts on a part of the tensor and context ranks");
  require(!reorders_experts(layout), "expert-parallel ranks inside tensor or context ranks");
  require(layout.ep == 1 || sharded(plan), "expert parallelism without sharding over several ranks",
          sharding_hint(layout));
  const int ranks = sharding_ranks(plan) * (layout.expert_tp == 1 ? layout.tp : 1);
  require(ranks % layout.ep == 0,
          fmt::format("experts of {} ranks within the {} that shard parameters", layout.ep, ranks));
}

// Batches and chunks that the schedules of torch/distributed/pipelining/schedules.py take.
void check_pipeline(const Plan& plan) {
  const std::int64_t batches = plan.num_micro_batches();
  const std::int64_t rounds = std::max<std::int64_t>(1, batches / plan.pp);
  const bool v_shaped = plan.schedule == "zb-v" || plan.schedule == "dualpipe-v";
  const std::int64_t least = plan.schedule == "1f1b"         ? plan.pp
                             : plan.schedule == "dualpipe-v" ? std::int64_t{2} * plan.pp
                                                             : 1;
  require(batches >= least,
          fmt::format("{} micro-batches under {} (at least {})", batches, plan.schedule, least));
  require(plan.schedule != "interleaved" || batches % rounds == 0,
          fmt::format("{} micro-batches in {} rounds of equal length", batches, rounds));
  require(!v_shaped || !plan.execution.stream_tp,
          fmt::format("streamed tensor parallelism, which compiles, under {}", plan.schedule));
  const BlockPlan& layout = plan.blocks.front().layout;
  // get_dual_pipe_v_flag, as experts overlap with other passes unless told otherwise.
  require(plan.schedule != "dualpipe-v" || layout.ep == 1 || layout.recompute == Recompute::None,
          "expert parallelism and recomputation under dualpipe-v");
}

void check(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  for (const BlockRun& run : plan.blocks) {
    require(run.layout == layout, "blocks with different layouts");
    require(!run.layout.offload.any(), "offloading");
  }
  require(layout.recompute != Recompute::Operators, "recomputation of chosen operators",
          "--fix recompute=full");
  require(layout.recompute != Recompute::Selective, "recomputation of the attention core alone",
          "--fix recompute=products");
  check_data_parallel(plan);
  check_model_parallel(plan);
  check_experts(plan);
  if (plan.pp > 1) {
    check_pipeline(plan);
  }
}

// "key = value" lines below a header.
class Section {
 public:
  explicit Section(std::string_view name) : text_(fmt::format("\n[{}]\n", name)) {}

  template <typename Value>
  Section& set(std::string_view key, const Value& value) {
    text_ += fmt::format("{} = {}\n", key, value);
    return *this;
  }
  Section& name(std::string_view key, std::string_view value) {
    return set(key, fmt::format("\"{}\"", value));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string training(const Plan& plan) {
  return Section("training")
      .set("local_batch_size", plan.pp > 1 ? plan.batch / plan.dp : plan.micro_batch)
      .set("global_batch_size", plan.batch)
      .set("seq_len", plan.sequence)
      .name("mixed_precision_param", plan.precision == DType::Bf16 ? "bfloat16" : "float32")
      .text();
}

std::string parallelism(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const int shard = sharding_ranks(plan) / layout.cp;
  // FSDP2 keeps gathered parameters as ZeRO-2 does when it does not reshard after the forward.
  const bool reshard = layout.zero_stage != 2 && plan.execution.reshard_after_forward;
  Section section("parallelism");
  section.set("data_parallel_replicate_degree", plan.dp / shard)
      .set("data_parallel_shard_degree", shard)
      .name("fsdp_reshard_after_forward", reshard ? "always" : "never")
      .set("tensor_parallel_degree", layout.tp)
      .set("disable_loss_parallel", !plan.execution.vocab_parallel)
      .set("enable_async_tensor_parallel", plan.execution.stream_tp)
      .set("context_parallel_degree", layout.cp);
  if (layout.cp > 1) {
    section.name("context_parallel_rotate_method",
                 layout.context == ContextParallel::AllGather ? "allgather" : "alltoall");
  }
  section.set("expert_parallel_degree", layout.ep);
  if (layout.ep > 1) {
    section.set("expert_tensor_parallel_degree", layout.expert_tp == 1 ? 1 : layout.tp);
  }
  section.set("pipeline_parallel_degree", plan.pp);
  if (plan.pp > 1) {
    section.name("pipeline_parallel_schedule", schedule_of(plan))
        .set("pipeline_parallel_microbatch_size", plan.micro_batch)
        .set("module_fqns_per_model_part", stage_modules(plan));
  }
  return section.text();
}

std::string write(const Plan& plan) {
  check(plan);
  const Recompute recompute = plan.blocks.front().layout.recompute;
  Section checkpointing("activation_checkpoint");
  checkpointing.name("mode", recompute == Recompute::Products ? "selective" : to_text(recompute));
  if (recompute == Recompute::Products) {
    checkpointing.name("selective_ac_option", "op");
  }
  std::string text = fmt::format(
      "# TorchTitan 0.2: {} on {}, {} ranks; [model], [optimizer] and "
      "what else your run has are yours\n",
      printable(plan.network.spec.name), printable(plan.cluster.name), plan.num_gpus());
  text += training(plan) + parallelism(plan) + checkpointing.text();
  if (plan.execution.stream_tp) {  // works on compiled graphs only
    text += Section("compile").set("enable", true).text();
  }
  return text;
}

}  // namespace

extern const Exporter exporter_torchtitan = {
    .name = "torchtitan",
    .description = "TorchTitan 0.2 configuration (TOML: training, parallelism, checkpointing)",
    .write = write,
};

}  // namespace orrery::plan
