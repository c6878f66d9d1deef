// SPDX-License-Identifier: Apache-2.0
// What makes a Plan consistent. A vocabulary that tp does not divide is allowed: embedding and head
// are padded to the next multiple when they are sharded.
#include <fmt/format.h>

#include <numeric>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "models/positions.hpp"
#include "plan/block/cascade_layout.hpp"
#include "plan/block/layout_check.hpp"
#include "plan/block_rules.hpp"
#include "plan/heads.hpp"
#include "plan/packs.hpp"
#include "plan/plan.hpp"
#include "plan/plan_parts.hpp"
#include "plan/serving/serving.hpp"
#include "plan/serving/serving_check.hpp"
#include "plan/slices.hpp"
#include "plan/stage/plan_schedule.hpp"

namespace orrery::plan {
namespace {

class Checker {
 public:
  Checker(const Plan& plan, const std::string& where) : plan_(plan), where_(where) {}

  void check(bool all_gpus) const {
    if (plan_.blocks.empty()) {
      fail("`blocks` is empty");
    }
    check_ranges();
    check_counts();
    if (all_gpus) {
      check_degrees();
    }
    if (plan_.serving) {
      check_serving(plan_, where_);
    } else {
      check_batch();
      check_schedule();
    }
    models::check_positions(plan_.network.spec, plan_.sequence, where_);
    check_precision();
    check_offload(plan_, where_);
    bool unusual = false;
    for (std::size_t run = 0; run < plan_.blocks.size(); ++run) {
      const std::string where = where_of(run);
      Checker(plan_, where).check_layout(run);
      const BlockPlan& layout = plan_.blocks[run].layout;
      unusual = unusual || layout.tensor_parallel != TensorMesh::OneD ||
                layout.context == ContextParallel::Mix || !layout.tensor_shares.empty() ||
                layout.variables != BlockPlan().variables || splits_ranks(layout);
    }
    if (unusual) {
      check_layouts(plan_, where_);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& message, const std::string& hint = {}) const {
    bad_input(where_, message, hint);
  }

  // Of several runs of blocks the one that is meant.
  std::string where_of(std::size_t run) const {
    if (plan_.blocks.size() == 1) {
      return where_;
    }
    return fmt::format("{}{}/blocks/{}", where_, where_.empty() ? "" : ": ", run);
  }

  void at_least_one(std::string_view name, std::int64_t value, std::int64_t max) const {
    if (value < 1 || value > max) {
      fail(fmt::format("{} is {}; it must be between 1 and {}", name, value, max));
    }
  }

  void divides(std::string_view divisor_name, std::int64_t divisor, std::string_view name,
               std::int64_t value, const std::string& hint = {}) const {
    if (value % divisor != 0) {
      fail(fmt::format("{} = {} is not divisible by {} = {}", name, value, divisor_name, divisor),
           hint);
    }
  }

  void check_ranges() const {
    at_least_one("batch", plan_.batch, limits::kMaxBatch);
    at_least_one("sequence", plan_.sequence, limits::kMaxSequence);
    at_least_one("micro_batch", plan_.micro_batch, limits::kMaxBatch);
    at_least_one("dp", plan_.dp, limits::kMaxDevices);
    at_least_one("pp", plan_.pp, limits::kMaxDevices);
    at_least_one("chunks", plan_.chunks, limits::kMaxLayers);
    for (const BlockRun& run : plan_.blocks) {
      at_least_one("count of a block run", run.count, 4 * limits::kMaxLayers);
      at_least_one("tp", run.layout.tp, limits::kMaxDevices);
      at_least_one("cp", run.layout.cp, limits::kMaxDevices);
      at_least_one("ep", run.layout.ep, limits::kMaxDevices);
    }
    if (plan_.memory_reserve < ByteCount() || plan_.memory_reserve >= plan_.cluster.gpu.memory) {
      fail(fmt::format("memory_reserve is {}, but a {} has {}",
                       format_bytes(plan_.memory_reserve.bytes()), plan_.cluster.gpu.name,
                       format_bytes(plan_.cluster.gpu.memory.bytes())));
    }
    const Execution& execution = plan_.execution;
    if (execution.bucket_bytes < 0 || execution.first_bucket_bytes < 0 ||
        execution.optimizer_state_bytes < 0 || execution.gathers_in_flight < 0) {
      fail(
          "bucket, first_bucket, optimizer_state_per_parameter and gathers_in_flight must not be "
          "negative");
    }
  }

  void check_counts() const {
    const auto length = static_cast<std::int64_t>(plan_.network.chain.size());
    std::int64_t planned = 0;
    for (const BlockRun& run : plan_.blocks) {
      planned += run.count;
    }
    if (planned != length) {
      fail(fmt::format("the counts of `blocks` sum to {}, but {} has {} blocks", planned,
                       plan_.network.spec.name, length),
           "layers, embedding and head are one block each");
    }
    const std::int64_t num_stages = std::int64_t{plan_.pp} * plan_.chunks;
    if (static_cast<std::int64_t>(plan_.stage_blocks.size()) != num_stages) {
      fail(fmt::format("`stages` has {} entries, but pp x chunks = {} x {} = {}",
                       plan_.stage_blocks.size(), plan_.pp, plan_.chunks, num_stages));
    }
    std::int64_t staged = 0;
    for (const int count : plan_.stage_blocks) {
      at_least_one("an entry of `stages`", count, 4 * limits::kMaxLayers);
      staged += count;
    }
    if (staged != length) {
      fail(fmt::format("`stages` sums to {}, but {} has {} blocks", staged, plan_.network.spec.name,
                       length),
           "layers, embedding and head are one block each");
    }
  }

  void check_degrees() const {
    const BlockPlan& first = plan_.blocks.front().layout;
    const int product = plan_.num_gpus();
    const int gpus = plan_.cluster.num_gpus();
    if (product != gpus) {
      const std::int64_t others = std::int64_t{first.tp} * first.cp * plan_.pp;
      fail(fmt::format("tp x cp x dp x pp = {} x {} x {} x {} = {}, but the cluster {} has {} GPUs",
                       first.tp, first.cp, plan_.dp, plan_.pp, product, plan_.cluster.name, gpus),
           others <= gpus && gpus % others == 0 ? fmt::format("dp = {} would fit", gpus / others)
                                                : std::string());
    }
  }

  void check_batch() const {
    if (!plan_.packs.empty()) {
      return;  // its packs say which ranks take which sequences
    }
    const std::int64_t step = plan_.micro_batch * plan_.dp;
    if (plan_.batch % step != 0) {
      fail(fmt::format("batch = {} is not divisible by micro_batch x dp = {} x {} = {}",
                       plan_.batch, plan_.micro_batch, plan_.dp, step));
    }
  }

  void check_schedule() const {
    const std::int64_t micro_batches = plan_.num_micro_batches();
    at_least_one("slices", plan_.slices, limits::kMaxSequence);
    const std::string uncut = slices_problem(plan_);
    if (!uncut.empty()) {
      fail(uncut);
    }
    const std::int64_t units = units_of(plan_);
    if (units * plan_.pp > limits::kMaxPasses / (3 * std::int64_t{plan_.chunks})) {
      fail(fmt::format(
          "pp x chunks x micro-batches x slices = {} x {} x {} x {}: more than {} passes", plan_.pp,
          plan_.chunks, micro_batches, units / micro_batches, limits::kMaxPasses));
    }
    const std::string broken = schedule_problem(plan_, where_);
    if (!broken.empty()) {
      fail(broken);
    }
  }

  void check_precision() const {
    const topologies::Gpu& gpu = plan_.cluster.gpu;
    if (gpu.peak_of(plan_.precision).value() > 0) {
      return;
    }
    const DType other = gpu.peak_of(DType::Fp16).value() > 0 ? DType::Fp16 : DType::Fp32;
    fail(fmt::format("{} has no {} arithmetic", gpu.name, to_text(plan_.precision)),
         fmt::format("it computes in {}: set the precision to that", to_text(other)));
  }

  void check_layout(std::size_t run) const;
  void check_tensor_parallel(const BlockPlan& layout) const;
  void check_context_parallel(const BlockPlan& layout) const;

  const Plan& plan_;
  const std::string& where_;
};

// Blocks may trade tp and cp for data parallelism as long as they use the same devices and the
// samples of one micro-batch still divide.
void Checker::check_layout(std::size_t run) const {
  const BlockPlan& layout = plan_.blocks[run].layout;
  const BlockPlan& first = plan_.blocks.front().layout;
  const std::int64_t ranks = std::int64_t{first.tp} * first.cp * plan_.dp;
  const std::int64_t model_ranks = std::int64_t{layout.tp} * layout.cp;
  divides("tp x cp of a block", model_ranks, "GPUs of a stage", ranks);
  const std::int64_t dp = ranks / model_ranks;
  divides("data-parallel ranks of a block", dp, "micro_batch x dp", plan_.micro_batch * plan_.dp);
  check_tensor_mesh(layout, where_);
  check_variables(plan_, layout, where_);
  check_tensor_parallel(layout);
  check_context_parallel(layout);
  check_cascade_layout(plan_.network.spec, layout, where_);
  check_experts(plan_, layout, where_);
  if (layout.zero_stage < 0 || layout.zero_stage > 3) {
    fail(fmt::format("zero_stage is {}; it must be between 0 and 3", layout.zero_stage));
  }
  if (layout.shard_degree < 0) {
    fail("shard_degree must not be negative");
  }
  if (layout.shard_degree > 0) {
    divides("shard_degree", layout.shard_degree, "dp x cp", dp * layout.cp);
    const std::int64_t inner =
        mesh_of(layout, static_cast<int>(dp)).of(Axis::Expert) * std::int64_t{layout.cp};
    divides("cp x ep", inner, "shard_degree", layout.shard_degree);
    divides("shard_degree / (cp x ep)", layout.shard_degree / inner, "dp / ep",
            dp * layout.cp / inner);
  }
}

constexpr std::string_view kStream = "the tokens of tensor \"hidden\"";

// Shards are even; the vocabulary alone is padded to the next multiple.
std::string uneven_text(std::string_view axis, std::string_view tensors, std::int64_t extent,
                        std::int64_t parts) {
  return fmt::format(
      "{} cuts {} of every layer evenly, here with remainder {}; only the "
      "vocabulary may be uneven, padded to the next multiple{}",
      axis, tensors, extent % parts,
      axis == "axis tp" && parts < extent ? "; tensor_shares divides it unevenly" : "");
}

void Checker::check_tensor_parallel(const BlockPlan& layout) const {
  const bool checked = !plan_.serving && plan_.packs.empty();  // packs are padded
  if (layout.sequence_parallel && layout.tp > 1 && checked) {
    const std::int64_t parts = std::int64_t{layout.tp} * layout.cp;
    divides("tp x cp (sequence_parallel)", parts, "sequence", plan_.sequence,
            uneven_text("axis tp with cp", kStream, plan_.sequence, parts));
  }
  if (!layout.tensor_shares.empty()) {
    check_tensor_shares(plan_, layout, where_);
    return;  // check_layouts says which rank holds nothing of which tensor
  }
  const models::NetworkSpec& spec = plan_.network.spec;
  divides("tp", layout.tp, "encoder.heads", spec.encoder.heads);  // 0 without one
  divides("tp", layout.tp, "encoder.hidden", spec.encoder.hidden);
  if (layout.tp == 1 || layout.tensor_parallel != TensorMesh::OneD ||
      !layout.variables[static_cast<std::size_t>(Axis::Tensor)].empty()) {
    return;  // check_layouts says which tensor does not divide
  }
  const auto uneven = [&](std::string_view tensors, std::int64_t extent) {
    return uneven_text("axis tp", tensors, extent, layout.tp);
  };
  divides("tp", layout.tp, "heads", spec.heads, uneven("the heads of tensor \"q\"", spec.heads));
  if (!splits_kv_heads(spec, layout.tp)) {
    divides("tp", layout.tp, "kv_heads", spec.kv_heads,
            uneven("the heads of tensors \"k\" and \"v\"", spec.kv_heads) +
                "; tp may be a multiple of kv_heads, too");
  }
  divides("tp", layout.tp, "ffn_hidden", spec.ffn_hidden,
          uneven("the width of tensor \"up\"", spec.ffn_hidden));
  divides("tp", layout.tp, "moe.shared_ffn_hidden", spec.moe.shared_ffn_hidden,
          uneven("the width of tensor \"shared_up\"", spec.moe.shared_ffn_hidden));
  divides("tp", layout.tp, "adapters.rank", spec.adapters.rank,
          "axis tp cuts adapters evenly by their rank; expected a rank that is a multiple of tp");
}

void Checker::check_context_parallel(const BlockPlan& layout) const {
  if (layout.context == ContextParallel::Mix) {
    at_least_one("ulysses_degree", layout.ulysses_degree, limits::kMaxDevices);
    divides("ulysses_degree", layout.ulysses_degree, "cp", layout.cp);
  }
  if (layout.cp == 1 || plan_.serving) {
    return;  // context ranks of serving split the cache, whatever its length
  }
  const models::NetworkSpec& spec = plan_.network.spec;
  const bool checked = plan_.packs.empty();  // packs are padded
  if (checked && spec.causal && balances_causal(layout)) {
    divides("2 x cp (zigzag)", std::int64_t{2} * layout.cp, "sequence", plan_.sequence,
            uneven_text("axis cp, two chunks a rank,", kStream, plan_.sequence, 2 * layout.cp));
  } else if (checked) {
    divides("cp", layout.cp, "sequence", plan_.sequence,
            uneven_text("axis cp", kStream, plan_.sequence, layout.cp));
  }
  if (layout.context == ContextParallel::Ulysses && spec.heads > 0 &&
      layout.tensor_shares.empty()) {
    // Columns alone of a mesh cut heads.
    const std::int64_t parts = std::int64_t{tensor_factors(layout).columns} * layout.cp;
    divides("tp x cp (Ulysses)", parts, "heads", spec.heads,
            uneven_text("axis cp with tp", "the heads of tensor \"q\"", spec.heads, parts));
    if (!splits_kv_heads(spec, parts)) {
      divides("tp x cp (Ulysses)", parts, "kv_heads", spec.kv_heads,
              uneven_text("axis cp with tp", "the heads of tensors \"k\" and \"v\"", spec.kv_heads,
                          parts) +
                  "; tp x cp may be a multiple of kv_heads, too");
    }
    if (!exchanges_heads(spec, parts)) {
      divides("tp x cp (Ulysses)", parts, "encoder.heads", spec.encoder.heads);
    }
  }
}

}  // namespace

void check_plan(const Plan& plan, const std::string& where) {
  Checker(plan, where).check(/*all_gpus=*/true);
}

void check_plan_parts(const Plan& plan, const std::string& where) {
  Checker(plan, where).check(/*all_gpus=*/false);
}

}  // namespace orrery::plan
