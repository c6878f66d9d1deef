// SPDX-License-Identifier: Apache-2.0
#include "search/serving_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"
#include "base/quantity_text.hpp"
#include "plan/serving/messages.hpp"
#include "plan/serving/serving_check.hpp"
#include "plan/stages.hpp"

namespace orrery::search {
namespace {

using plan::Plan;
using plan::Prefill;
using plan::ServingOptions;

constexpr std::array<std::int64_t, 5> kBudgets = {512, 1024, 2048, 4096, 8192};
constexpr std::array<std::int64_t, 2> kRequests = {256, 1024};
constexpr std::array<int, 2> kNanoBatches = {1, 2};
constexpr std::array<double, 3> kAwayShares = {1, 0.5, 0.25};  // of the layers
constexpr int kDoubleBuffer = 2;                               // blocks: layers are alike

std::vector<Prefill> prefills_of(const ServingFixes& fixed) {
  const auto entry = fixed.find("prefill");
  if (entry == fixed.end()) {
    return {Prefill::Chunked, Prefill::Separate};
  }
  std::vector<Prefill> prefills;
  for (const std::string& value : entry->second) {
    prefills.push_back(value == "chunked" ? Prefill::Chunked : Prefill::Separate);
  }
  return prefills;
}

// Why a plan is not possible at all is the `reason`.
void add_if_possible(Plan plan, std::vector<Plan>& plans, std::string& reason) {
  try {
    plan::check_plan(plan, "serving plan");
    plans.push_back(std::move(plan));
  } catch (const Error& error) {
    reason = error.what();
  }
}

// Where experts are: on so many ranks, each cut by so many of the tensor-parallel ones (0: by all).
struct ExpertPlace {
  std::int64_t ep = 1;
  std::int64_t expert_tp = 0;
};

// Those of a replica's ranks that do not cut an expert hold others, and so do other replicas.
bool is_possible(const ExpertPlace& place, std::int64_t tp, std::int64_t dp) {
  const std::int64_t inside = place.expert_tp == 0 ? 1 : tp / place.expert_tp;
  return place.ep % inside == 0 && dp % (place.ep / inside) == 0;
}

// Of the ranks that may cut each expert, 0 for all of them.
std::vector<std::int64_t> expert_cuts(const ServingFixes& fixed, std::int64_t tp) {
  std::vector<std::int64_t> cuts;
  for (const std::int64_t value : serving_values(fixed, "expert_tp", divisors(tp))) {
    const std::int64_t cut = value == tp ? 0 : value;
    const bool is_new = std::find(cuts.begin(), cuts.end(), cut) == cuts.end();
    if (is_new && (cut == 0 || tp % cut == 0)) {
      cuts.push_back(cut);
    }
  }
  return cuts;
}

// Those of fixed degrees; where none of the ways to cut experts goes with one, the check of plans
// says why.
std::vector<ExpertPlace> fixed_experts(const ServingFixes& fixed, std::int64_t tp, std::int64_t dp,
                                       const std::vector<std::int64_t>& cuts) {
  std::vector<ExpertPlace> places;
  for (const std::int64_t ep : serving_values(fixed, "ep", {})) {
    const std::size_t before = places.size();
    for (const std::int64_t cut : cuts) {
      if (is_possible({ep, cut}, tp, dp)) {
        places.push_back({ep, cut});
      }
    }
    if (places.size() == before) {
      places.push_back({ep, cuts.back()});
    }
  }
  return places;
}

// Experts cut by all ranks of a replica, or spread with their cuts over its ranks, those of a node,
// or all of a stage.
std::vector<ExpertPlace> expert_places(const Plan& base, const ServingFixes& fixed, std::int64_t tp,
                                       std::int64_t dp) {
  const std::int64_t experts = base.network.spec.moe.experts;
  const std::vector<std::int64_t> cuts =
      experts > 0 ? expert_cuts(fixed, tp) : std::vector<std::int64_t>{0};
  if (cuts.empty()) {
    return {};
  }
  if (fixed.contains("ep")) {
    return fixed_experts(fixed, tp, dp, cuts);
  }
  std::vector<ExpertPlace> places;
  if (std::find(cuts.begin(), cuts.end(), 0) != cuts.end()) {
    places.push_back({});
  }
  std::int64_t widest = 1;
  for (const std::int64_t ranks : {tp, std::int64_t{base.cluster.node.gpus}, tp * dp}) {
    if (ranks <= widest || ranks % tp != 0 || (tp * dp) % ranks != 0) {
      continue;
    }
    widest = ranks;
    for (const std::int64_t cut : cuts) {
      const ExpertPlace place{ranks / (cut == 0 ? tp : cut), cut};
      if (experts > 0 && place.ep > 1 && experts % place.ep == 0 && is_possible(place, tp, dp)) {
        places.push_back(place);
      }
    }
  }
  if (places.empty()) {  // of so many experts; the check of plans says why
    places.push_back({tp / cuts.front(), cuts.front()});
  }
  return places;
}

std::vector<plan::Tier> tiers_of(const topologies::Node& node, const ServingFixes& fixed) {
  std::vector<plan::Tier> tiers;
  const auto entry = fixed.find("offload_parameters");
  if (entry != fixed.end()) {
    for (const std::string& value : entry->second) {
      tiers.push_back(plan::parse_tier(value, "--fix offload_parameters"));
    }
    return tiers;
  }
  if (node.host_memory.value() > 0) {
    tiers.push_back(plan::Tier::Host);
    if (node.disk.value() > 0 && node.disk_bandwidth.value() > 0) {
      tiers.push_back(plan::Tier::Disk);
    }
  }
  return tiers;
}

// Layers that leave lie evenly between those that stay, whose time hides their copies.
std::vector<plan::BlockRun> spread(const Plan& plan, plan::Tier tier, double share) {
  const plan::BlockPlan here = plan.blocks.front().layout;
  plan::BlockPlan away = here;
  away.offload.parameters = tier;
  std::vector<plan::BlockRun> runs;
  double due = 0;
  for (const int block : plan.network.chain) {
    const auto kind = plan.network.blocks[static_cast<std::size_t>(block)].kind;
    due += kind == models::BlockKind::Layer ? share : 0;
    const bool leaves = due > 1 - 1e-9;
    due -= leaves ? 1 : 0;
    if (runs.empty() || runs.back().layout != (leaves ? away : here)) {
      runs.push_back({0, leaves ? away : here});
    }
    ++runs.back().count;
  }
  return runs;
}

struct Degrees {
  std::int64_t tp;
  std::int64_t cp;
  ExpertPlace experts;
  std::int64_t pp;
  std::int64_t dp;
};

// Shared experts run while tokens travel, as in vLLM, unless fixed.
void add_layout(const Plan& base, const ServingFixes& fixed, const Degrees& degrees,
                std::vector<Plan>& plans, std::string& reason) {
  Plan plan = base;
  plan.pp = static_cast<int>(degrees.pp);
  plan.dp = static_cast<int>(degrees.dp);
  plan.batch = degrees.dp;
  plan.stage_blocks = plan::even_stages(base.network, plan.pp);
  plan.blocks = {{static_cast<int>(base.network.chain.size()), {}}};
  plan::BlockPlan& layout = plan.blocks.front().layout;
  layout.tp = static_cast<int>(degrees.tp);
  layout.cp = static_cast<int>(degrees.cp);
  layout.ep = static_cast<int>(degrees.experts.ep);
  layout.expert_tp = static_cast<int>(degrees.experts.expert_tp);
  for (const bool overlap : hides_exchanges(plan)
                                ? serving_flags(fixed, "overlap_shared_experts", true)
                                : std::vector<bool>{false}) {
    plan.execution.overlap_shared_experts = overlap;
    add_if_possible(plan, plans, reason);
  }
}

}  // namespace

std::vector<Plan> serving_layouts(const Plan& stated, const ServingFixes& fixed,
                                  std::string& reason) {
  const int gpus = stated.cluster.num_gpus();
  const std::vector<std::int64_t> degrees = divisors(gpus);
  Plan base = stated;  // with what no layout can have
  plan::ServingOptions options = stated.serving->options;
  options.host_cache = serving_shares(fixed, "host_cache", {0}).front();
  base.serving =
      std::make_shared<const plan::Serving>(plan::Serving{stated.serving->requests, options});
  std::vector<Plan> plans;
  for (const std::int64_t tp : serving_values(fixed, "tp", degrees)) {
    for (const std::int64_t pp : serving_values(fixed, "pp", degrees)) {
      for (const std::int64_t cp : serving_values(fixed, "cp", {1})) {
        const std::int64_t model = tp * pp * cp;
        if (tp < 1 || pp < 1 || cp < 1 || tp > gpus || pp > gpus || cp > gpus ||
            gpus % model != 0 || pp > base.network.spec.layers) {
          continue;
        }
        const std::vector<std::int64_t> replicas = serving_values(fixed, "dp", {gpus / model});
        if (std::find(replicas.begin(), replicas.end(), gpus / model) == replicas.end()) {
          continue;
        }
        const std::vector<ExpertPlace> places = expert_places(base, fixed, tp, gpus / model);
        if (places.empty()) {
          reason = fmt::format("--fix: expert_tp = {} does not divide tp = {} (0: all of them)",
                               fmt::join(fixed.at("expert_tp"), " or "), tp);
        }
        for (const ExpertPlace& experts : places) {
          add_layout(base, fixed, {tp, cp, experts, pp, gpus / model}, plans, reason);
        }
      }
    }
  }
  return plans;
}

std::vector<Plan> with_weights_elsewhere(const std::vector<Plan>& layouts,
                                         const ServingFixes& fixed, std::string& reason) {
  const std::vector<double> shares =
      serving_shares(fixed, "offload_share", {kAwayShares.begin(), kAwayShares.end()});
  std::vector<Plan> plans;
  for (const Plan& layout : layouts) {
    for (const plan::Tier tier : tiers_of(layout.cluster.node, fixed)) {
      if (tier == plan::Tier::Device) {
        plans.push_back(layout);
        continue;
      }
      for (const double share : shares) {
        Plan away = layout;
        away.blocks = spread(layout, tier, share);
        for (const std::int64_t window :
             serving_values(fixed, "gathers_in_flight", {kDoubleBuffer})) {
          for (const std::int64_t together : serving_values(fixed, "fetched_together", {1})) {
            away.execution.gathers_in_flight = static_cast<int>(window);
            away.execution.fetched_together = static_cast<int>(together);
            add_if_possible(away, plans, reason);
          }
        }
      }
    }
  }
  return plans;
}

std::vector<ServingOptions> serving_caches(const ServingOptions& base, const ServingFixes& fixed) {
  std::vector<ServingOptions> all;
  for (const std::int64_t block : serving_values(fixed, "cache_block", {1})) {
    for (const double hits : serving_shares(fixed, "prefix_hits", {0})) {
      for (const double host : serving_shares(fixed, "host_cache", {0})) {
        for (const bool narrow : serving_flags(fixed, "fp8_cache", false)) {
          all.push_back(base);
          all.back().cache_block = block;
          all.back().prefix_hits = hits;
          all.back().host_cache = host;
          all.back().fp8_cache = narrow;
        }
      }
    }
  }
  return all;
}

std::vector<ServingOptions> serving_options(const ServingOptions& base, const ServingFixes& fixed,
                                            std::string& reason) {
  std::vector<ServingOptions> space;
  const auto longs = [](auto values) {
    return std::vector<std::int64_t>(values.begin(), values.end());
  };
  for (const Prefill prefill : prefills_of(fixed)) {
    for (const std::int64_t budget : serving_values(fixed, "token_budget", longs(kBudgets))) {
      const bool few = prefill == Prefill::Chunked && budget < kRequests.front();
      for (const std::int64_t most : serving_values(
               fixed, "max_requests", few ? std::vector<std::int64_t>{budget} : longs(kRequests))) {
        for (const std::int64_t chunk : serving_values(fixed, "chunk", {0})) {
          for (const std::int64_t nano :
               serving_values(fixed, "nano_batches", longs(kNanoBatches))) {
            ServingOptions options = base;
            options.prefill = prefill;
            options.token_budget = budget;
            options.max_requests = most;
            options.chunk = chunk;
            options.nano_batches = static_cast<int>(nano);
            if (prefill == Prefill::Chunked && most > budget) {
              reason = fmt::format(
                  "max_requests = {} is more than token_budget = {}, which chunked prefill shares "
                  "with a token of every request",
                  most, budget);
            } else if (prefill == Prefill::Separate && chunk > 0) {
              reason = fmt::format("chunk = {} belongs to prefill = chunked", chunk);
            } else {
              space.push_back(options);
            }
          }
        }
      }
    }
  }
  return space;
}

std::vector<plan::Routing> serving_routings(int replicas, const ServingFixes& fixed,
                                            bool has_prefixes) {
  const auto entry = fixed.find("routing");
  if (entry == fixed.end()) {
    return has_prefixes && replicas > 1 ? std::vector{plan::Routing::InTurn, plan::Routing::Prefix}
                                        : std::vector{plan::Routing::InTurn};
  }
  if (replicas == 1) {  // all are the same
    return {plan::routing_of(entry->second.front())};
  }
  std::vector<plan::Routing> routings;
  for (const std::string& value : entry->second) {
    routings.push_back(plan::routing_of(value));
  }
  return routings;
}

std::vector<plan::AllReduce> serving_all_reduces(const Plan& layout, const ServingFixes& fixed) {
  const auto entry = fixed.find("all_reduce");
  std::vector<plan::AllReduce> all;
  if (entry != fixed.end()) {
    for (const std::string& value : entry->second) {
      all.push_back(plan::all_reduce_of(value));
    }
    return all;
  }
  return {plan::has_slow_links(layout.cluster) ? plan::AllReduce::Fastest : plan::AllReduce::Nccl};
}

std::vector<bool> serving_overlaps(const Plan& layout, Prefill prefill, const ServingFixes& fixed) {
  const bool can = layout.pp > 1 && prefill == Prefill::Chunked;
  return can ? serving_flags(fixed, "overlap_chunks", true) : std::vector<bool>{false};
}

std::vector<std::string> idle_serving_fixes(const Plan& found, const ServingFixes& fixed) {
  std::vector<std::string> idle;
  const bool stay =
      std::all_of(found.blocks.begin(), found.blocks.end(), [](const plan::BlockRun& run) {
        return run.layout.offload.parameters == plan::Tier::Device;
      });
  for (const char* field : {"offload_share", "gathers_in_flight", "fetched_together"}) {
    if (stay && fixed.contains(field)) {
      idle.push_back(fmt::format("{} has no effect: all parameters stay on the device", field));
    }
  }
  const bool has_experts = found.network.spec.moe.experts > 0;
  if (fixed.contains("expert_tp") && (!has_experts || found.blocks.front().layout.tp == 1)) {
    idle.emplace_back(has_experts ? "expert_tp has no effect: tp = 1"
                                  : "expert_tp has no effect: the network has no experts");
  }
  if (fixed.contains("overlap_chunks") &&
      (found.pp == 1 || found.serving->options.prefill == Prefill::Separate)) {
    idle.emplace_back(found.pp == 1 ? "overlap_chunks has no effect: pp = 1"
                                    : "overlap_chunks has no effect: prefill = separate");
  }
  if (fixed.contains("overlap_shared_experts") && !hides_exchanges(found)) {
    idle.emplace_back(
        "overlap_shared_experts has no effect: no shared experts beside those of several replicas, "
        "or products that leave exchanges no room");
  }
  if (fixed.contains("routing") && found.dp == 1) {
    idle.emplace_back("routing has no effect: dp = 1");
  }
  return idle;
}

}  // namespace orrery::search
