// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/fixed_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/plan/fixed_product.hpp"
#include "plan/execution_flags.hpp"
#include "plan/heads.hpp"
#include "plan/slices.hpp"
#include "plan/training_changes.hpp"

namespace orrery::cli {
namespace {

constexpr std::string_view kWhere = "--fix";

class FixedCheck {
 public:
  FixedCheck(const plan::Plan& base, const search::Constraints& constraints, bool packed)
      : base_(base), spec_(base.network.spec), constraints_(constraints), packed_(packed) {}

  void check() const {
    check_degrees(product_of({"tp", "cp", "dp", "pp"}), base_.cluster);
    check_network();
    check_batch();
    check_slices();
    check_tiers();
  }

 private:
  std::int64_t number(std::string_view field) const {
    return constraints_.fixed_number(field).value_or(1);
  }

  FixedProduct product_of(std::initializer_list<std::string_view> fields) const {
    return cli::product_of(constraints_, fields);
  }

  // The degree of this cluster nearest to a fixed one that `suits`, the smaller of two.
  template <typename Suits>
  std::int64_t nearest_degree(std::int64_t fixed, Suits suits) const {
    std::int64_t nearest = 1;
    const std::int64_t gpus = base_.cluster.num_gpus();
    for (std::int64_t degree = 2; degree <= gpus; ++degree) {
      if (gpus % degree == 0 && suits(degree) &&
          std::abs(degree - fixed) < std::abs(nearest - fixed)) {
        nearest = degree;
      }
    }
    return nearest;
  }

  void divides(const FixedProduct& ranks, std::int64_t value, std::string_view what) const {
    if (value % ranks.value != 0) {
      const auto suits = [&](std::int64_t degree) { return value % degree == 0; };
      bad_input(
          kWhere,
          fmt::format("{} does not divide the {} {} of {}", ranks.text(), value, what, spec_.name),
          fmt::format("remainder {}; the nearest that does is {}", value % ranks.value,
                      nearest_degree(ranks.value, suits)));
    }
  }

  // Each rank has as many key and value heads, or one that some ranks share.
  void splits_keys(const FixedProduct& ranks) const {
    if (!plan::splits_kv_heads(spec_, ranks.value)) {
      const auto suits = [&](std::int64_t degree) {
        return plan::splits_kv_heads(spec_, degree) && spec_.heads % degree == 0;
      };
      bad_input(kWhere,
                fmt::format("{} neither divides the {} key and value heads of {} nor is a multiple",
                            ranks.text(), spec_.kv_heads, spec_.name),
                fmt::format("remainder {}; the nearest that does is {}",
                            ranks.value > spec_.kv_heads ? ranks.value % spec_.kv_heads
                                                         : spec_.kv_heads % ranks.value,
                            nearest_degree(ranks.value, suits)));
    }
  }

  void check_tensor_ranks() const {
    if (!constraints_.admits("tensor_parallel", "1d")) {
      return;
    }
    const FixedProduct tp = product_of({"tp"});
    check_expert_ranks(tp);
    divides(tp, spec_.heads, "attention heads");
    splits_keys(tp);
    divides(tp, spec_.ffn_hidden, "columns of the feed-forward layers");
    divides(tp, spec_.moe.shared_ffn_hidden, "columns of the shared experts");
    if (!constraints_.admits("expert_tp", "1")) {
      divides(product_of({number("expert_tp") > 1 ? "expert_tp" : "tp"}), spec_.moe.ffn_hidden,
              "columns of an expert");
    }
    if (spec_.encoder.layers > 0) {
      divides(tp, spec_.encoder.heads, "attention heads of the encoder");
    }
    divides(tp, spec_.cascade.heads, "attention heads of the second backbone");  // 0 without one
    divides(tp, spec_.cascade.hidden, "hidden columns of the second backbone");
    divides(tp, spec_.cascade.ffn_hidden, "feed-forward columns of the second backbone");
  }

  // So many of the tensor-parallel ranks cut an expert.
  void check_expert_ranks(const FixedProduct& tp) const {
    const std::int64_t ranks = number("expert_tp");
    if (spec_.moe.experts > 0 && ranks > 1 && !tp.factors.empty() && tp.value % ranks != 0) {
      bad_input(
          kWhere, fmt::format("expert_tp = {}, but {}", ranks, tp.text()),
          fmt::format("0 or {}, as tp, cuts experts by the tensor-parallel ranks, a divisor of "
                      "it by some of them, 1 lays whole ones on them",
                      tp.value));
    }
  }

  bool is_only(std::string_view field, std::string_view value,
               std::initializer_list<std::string_view> others) const {
    return constraints_.admits(field, value) &&
           std::none_of(others.begin(), others.end(),
                        [&](std::string_view other) { return constraints_.admits(field, other); });
  }

  void check_context_ranks() const {
    divides(product_of({"cp"}), base_.sequence, "tokens of a sequence");
    divides(product_of({"cp"}), spec_.cascade.tokens, "tokens of the second backbone");
    if (is_only("context", "ulysses", {"ring", "all-gather", "mix"})) {
      const FixedProduct ranks = product_of({"tp", "cp"});
      divides(ranks, spec_.heads, "attention heads");
      divides(ranks, spec_.cascade.heads, "attention heads of the second backbone");
      if (ranks.factors.size() == 2) {  // else the other degree may make it a multiple
        splits_keys(ranks);
      }
    }
  }

  void check_network() const {
    check_tensor_ranks();
    check_context_ranks();
    check_fixed_experts(spec_, constraints_);
    if (spec_.moe.experts > 0) {
      divides(product_of({"ep"}), spec_.moe.experts, "experts");
    }
    const std::int64_t layers =
        spec_.layers + spec_.encoder_layers + spec_.encoder.layers + spec_.cascade.layers;
    const FixedProduct stages = product_of({"pp", "chunks"});
    if (stages.value > layers) {
      bad_input(kWhere,
                fmt::format("{} stages, but {} has {} layers", stages.text(), spec_.name, layers),
                fmt::format("at most {} in all", layers));
    }
  }

  static std::int64_t nearest_multiple(std::int64_t value, std::int64_t of) {
    return std::max<std::int64_t>((value + of / 2) / of, 1) * of;
  }

  // Where all other degrees are fixed, the replicas follow. check_degrees() has refused products
  // that do not divide the GPUs.
  void check_shares() const {
    const FixedProduct others = product_of({"tp", "cp", "pp"});
    const std::int64_t micro_batch = number("micro_batch");
    if (others.factors.size() < 3 || constraints_.is_fixed("dp")) {
      return;
    }
    const std::int64_t replicas = base_.cluster.num_gpus() / others.value;
    const std::string dp = fmt::format("{} on {} GPUs leaves dp = {}", others.text(),
                                       base_.cluster.num_gpus(), replicas);
    if (base_.batch % replicas != 0) {
      bad_input(kWhere, fmt::format("{}, which does not divide the batch {}", dp, base_.batch),
                fmt::format("--batch {} would do",
                            nearest_multiple(base_.batch, replicas * micro_batch)));
    }
    if (base_.batch / replicas % micro_batch != 0) {
      bad_input(
          kWhere,
          fmt::format("{} and each replica {} of the batch {}, which micro_batch = {} does "
                      "not divide",
                      dp, counted(base_.batch / replicas, "sequence"), base_.batch, micro_batch),
          fmt::format("micro_batch = {} would",
                      nearest_divisor(base_.batch / replicas, micro_batch)));
    }
  }

  void check_batch() const {
    if (!packed_) {
      check_shares();
    }
    const FixedProduct step = product_of({"dp", "micro_batch"});
    if (!packed_ && base_.batch % step.value != 0) {
      bad_input(kWhere, fmt::format("{} does not divide the batch {}", step.text(), base_.batch),
                nearest_that_divides(step, base_.batch));
    }
  }

  // By the rules of plans, on a schedule that cuts sequences.
  void check_slices() const {
    plan::Plan plan = base_;
    plan.slices = static_cast<int>(number("slices"));
    if (plan.slices == 1) {
      return;
    }
    plan.schedule = "seq1f1b";
    plan::BlockPlan layout;
    layout.tp = static_cast<int>(number("tp"));
    layout.cp = static_cast<int>(number("cp"));
    layout.sequence_parallel = !constraints_.admits("sequence_parallel", "false");
    const bool exchanges =
        constraints_.is_fixed("context") && constraints_.admits("context", "ulysses");
    layout.context = exchanges ? plan::ContextParallel::Ulysses : plan::ContextParallel::Ring;
    layout.offload = constraints_.offload();
    plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
    const std::string problem = plan::slices_problem(plan);
    if (!problem.empty()) {
      bad_input(kWhere, problem);
    }
  }

  void check_tiers() const {
    const plan::Offload offload = constraints_.offload();
    const topologies::Node& node = base_.cluster.node;
    const auto leaves_to = [&](plan::Tier tier) {
      return offload.parameters == tier || offload.gradients == tier || offload.optimizer == tier ||
             (offload.activations > 0 && offload.activations_tier == tier);
    };
    if (leaves_to(plan::Tier::Disk) && node.disk.bytes().value() <= 0) {
      bad_input(kWhere, fmt::format("offload to disk, but {} has none", node.name),
                "--set node.host.disk and node.host.disk_bandwidth");
    }
    if (leaves_to(plan::Tier::Host) && node.host_memory.bytes().value() <= 0) {
      bad_input(kWhere, fmt::format("offload to the host, but {} has no memory", node.name),
                "--set node.host.memory");
    }
  }

  const plan::Plan& base_;
  const models::NetworkSpec& spec_;
  const search::Constraints& constraints_;
  bool packed_;
};

// Fields that need a feature of the network.
struct Feature {
  bool (*has)(const models::NetworkSpec&);
  std::string_view lack;
  std::vector<std::string_view> fields;
};

const std::vector<Feature>& features() {
  using models::NetworkSpec;
  static const std::vector<Feature> kFeatures = {
      {[](const NetworkSpec& spec) { return spec.moe.experts > 0; },
       "has no experts",
       {"ep", "expert_tp", "expert_cp", "ep_inside", "deduplicated_dispatch",
        "quantised_dispatch"}},
      {[](const NetworkSpec& spec) { return spec.moe.shared_ffn_hidden > 0; },
       "has no shared experts",
       {"overlap_shared_experts"}},
      {[](const NetworkSpec& spec) { return spec.causal; }, "is not causal", {"zigzag"}},
      {[](const NetworkSpec& spec) { return spec.encoder.layers > 0; },
       "has no encoder",
       {"encoder_parts"}}};
  return kFeatures;
}

// Fields that say nothing where a degree is 1, beside the value that plans have then.
struct NeedsRanks {
  std::string_view degree;
  std::string_view field;
  std::string_view usual;
};
constexpr std::array kNeedRanks = {
    NeedsRanks{"tp", "sequence_parallel", "false"}, NeedsRanks{"tp", "tensor_parallel", "1d"},
    NeedsRanks{"tp", "expert_tp", "0"}, NeedsRanks{"cp", "context", "ring"}};

}  // namespace

std::vector<std::string> idle_constraints(const plan::Plan& base,
                                          const search::Constraints& constraints) {
  std::vector<std::string> remarks;
  const std::vector<std::string> forbidden = constraints.forbidden_fields();
  for (const Feature& feature : features()) {
    if (feature.has(base.network.spec)) {
      continue;
    }
    for (const std::string_view field : feature.fields) {
      // check_fixed_experts() has refused a fixed ep above 1.
      const bool fixed = field != "ep" && constraints.is_fixed(field);
      if (fixed || std::find(forbidden.begin(), forbidden.end(), field) != forbidden.end()) {
        remarks.push_back(fmt::format("orrery: {} has no effect: {} {}", field,
                                      base.network.spec.name, feature.lack));
      }
    }
  }
  for (const auto& [degree, field, usual] : kNeedRanks) {
    if (constraints.fixed_number(degree) == 1 && constraints.is_fixed(field) &&
        !constraints.admits(field, usual)) {
      remarks.push_back(fmt::format("orrery: {} has no effect: {} = 1", field, degree));
    }
  }
  const auto flags = plan::lossy_flags();
  if (constraints.allows_lossy() &&
      std::none_of(flags.begin(), flags.end(), [&](bool plan::Execution::*flag) {
        return constraints.is_fixed(plan::flag_name(flag));
      })) {
    remarks.emplace_back(
        "orrery: --allow lossy has no effect: it lets --fix name quantised_gather, "
        "quantised_reduce and quantised_dispatch");
  }
  if (constraints.is_fixed("tensor_parallel") && !constraints.admits("tensor_parallel", "1d") &&
      constraints.is_fixed("sequence_parallel") &&
      !constraints.admits("sequence_parallel", "false")) {
    remarks.emplace_back("orrery: sequence_parallel has no effect: meshes split the stream");
  }
  return remarks;
}

void check_fixed_experts(const models::NetworkSpec& spec, const search::Constraints& constraints) {
  const std::int64_t ranks = constraints.fixed_number("ep").value_or(1);
  if (spec.moe.experts == 0 && ranks > 1) {
    bad_input(kWhere, fmt::format("ep = {}, but {} has no experts", ranks, spec.name));
  }
}

void check_fixed(const plan::Plan& base, const search::Constraints& constraints, bool packed) {
  constraints.check_contradictions();
  FixedCheck(base, constraints, packed).check();
}

}  // namespace orrery::cli
