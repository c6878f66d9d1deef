// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/serving_check.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "plan/block_rules.hpp"
#include "plan/serving/serving.hpp"

namespace orrery::plan {
namespace {

class ServingChecker {
 public:
  ServingChecker(const Plan& plan, const std::string& where) : plan_(plan), where_(where) {}

  void check() const {
    check_generates_text(plan_.network.spec, where_);
    if (plan_.chunks != 1 || !plan_.packs.empty()) {
      fail("a serving plan has one model chunk a stage, and no packs",
           fmt::format("leave out \"{}\"", plan_.chunks != 1 ? "chunks" : "packs"));
    }
    for (const BlockRun& run : plan_.blocks) {
      check_layout(run.layout);
    }
    check_window();
    const ServingOptions& options = plan_.serving->options;
    if (options.host_cache > 0 && plan_.cluster.node.host_memory.value() <= 0) {
      fail(fmt::format("host_cache = {}, tensor \"kv_cache\" of every layer: the cluster {} has no "
                       "host memory",
                       options.host_cache, plan_.cluster.name),
           "set node.host.memory, memory_bandwidth and link_per_gpu");
    }
    const topologies::Gpu& gpu = plan_.cluster.gpu;
    if (options.fp8_cache && plan_.execution.fp8_attention &&
        gpu.peak_of(DType::Fp8).value() <= 0) {
      fail(
          fmt::format("fp8_attention with fp8_cache, tensor \"kv_cache\" of every layer: {} has no "
                      "products in fp8",
                      gpu.name),
          "leave out execution.fp8_attention: its kernels widen the cache");
    }
    if (options.prefill == Prefill::Chunked && options.max_requests > options.token_budget) {
      fail(fmt::format(
          "max_requests = {} exceeds token_budget = {}: every running request decodes a "
          "token in each iteration",
          options.max_requests, options.token_budget));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& message, const std::string& hint = {}) const {
    bad_input(where_, message, hint);
  }

  void check_layout(const BlockPlan& layout) const {
    Offload others = layout.offload;
    others.parameters = Tier::Device;
    if (layout.zero_stage != 0 || layout.shard_degree != 0 || layout.recompute != Recompute::None ||
        others.any()) {
      fail("a serving plan has zero_stage = 0, no recomputation and no offload but of parameters",
           "its replicas are independent; use tp, cp, ep and pp, and host_cache for the cache");
    }
    if (layout.tensor_parallel != TensorMesh::OneD) {
      fail(fmt::format("a serving plan has tensor_parallel 1d, not {}",
                       to_text(layout.tensor_parallel)));
    }
    // What else is wrong with experts is said by the block's check.
    const bool cuts_evenly = layout.expert_tp >= 0 && layout.tp % expert_tensor_ranks(layout) == 0;
    if (plan_.network.spec.moe.experts > 0 && cuts_evenly && tensor_experts(layout).copies > 1) {
      fail(fmt::format("ep = {} in a serving plan with tp = {} and expert_tp = {}", layout.ep,
                       layout.tp, layout.expert_tp),
           fmt::format("its experts are spread over the tp ranks of one or several replicas: a "
                       "multiple of {}",
                       layout.tp / expert_tensor_ranks(layout)));
    }
    if (layout.expert_cp == 1 && layout.cp > 1) {
      fail("a serving plan has expert_cp = 0: its context ranks split the cache alone");
    }
    if (reorders_experts(layout)) {
      fail(fmt::format("a serving plan has ep_inside = dp, not {}", to_text(layout.ep_inside)),
           "its replicas are pipelines of their own");
    }
    if (layout.cp > 1 && expert_replicas(layout) > 1) {
      fail(fmt::format("cp = {} in a serving plan whose ep = {} spreads experts over {} replicas",
                       layout.cp, layout.ep, expert_replicas(layout)),
           "cp = 1, or ep within the tp ranks");
    }
    BlockPlan first = plan_.blocks.front().layout;
    first.offload = layout.offload;
    if (layout != first) {
      fail("the blocks of a serving plan share one layout, but for where their parameters live");
    }
  }

  // Parameters that pass through the device: a window of all of them is no window.
  void check_window() const {
    const int window = plan_.execution.gathers_in_flight;
    int position = 0;
    for (std::size_t stage = 0; stage < plan_.stage_blocks.size(); ++stage) {
      int count = 0;
      const int end = position + plan_.stage_blocks[stage];
      for (; position < end; ++position) {
        count += plan_.layout_of(position).offload.parameters == Tier::Device ? 0 : 1;
      }
      if (count > 0 && (window == 0 || window > count)) {
        fail(fmt::format("gathers_in_flight = {} holds {} blocks on the device, but stage {} has "
                         "{} whose parameters live elsewhere",
                         window, window == 0 ? "all" : std::to_string(window), stage, count),
             fmt::format("1 to {}, or leave them on the device", count));
      }
    }
  }

  const Plan& plan_;
  const std::string& where_;
};

}  // namespace

void check_serving(const Plan& plan, const std::string& where) {
  ServingChecker(plan, where).check();
}

bool hides_exchanges(const Plan& plan) {
  const bool persistent = plan.cluster.gpu.persistent_products && plan.profile.collective_sms > 0;
  return plan.network.spec.moe.shared_ffn_hidden > 0 && !persistent &&
         expert_replicas(plan.blocks.front().layout) > 1;
}

}  // namespace orrery::plan
