// SPDX-License-Identifier: Apache-2.0
#include "search/serving_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/math.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "plan/serving/messages.hpp"
#include "plan/serving/option_limits.hpp"
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

std::vector<std::int64_t> values_of(const ServingFixes& fixed, const std::string& field,
                                    std::vector<std::int64_t> usual) {
  const auto entry = fixed.find(field);
  if (entry == fixed.end()) {
    return usual;
  }
  std::vector<std::int64_t> values;
  for (const std::string& value : entry->second) {
    values.push_back(parse_integer(value, "--fix " + field, 0, limits::kMaxSequence));
  }
  return values;
}

// Shares between 0 and 1.
std::vector<double> shares_of(const ServingFixes& fixed, const std::string& field,
                              std::vector<double> usual) {
  const auto entry = fixed.find(field);
  std::vector<double> shares;
  if (entry != fixed.end()) {
    for (const std::string& value : entry->second) {
      shares.push_back(parse_number(value, "--fix " + field, 0, 1));
    }
  }
  return shares.empty() ? usual : shares;
}

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

// Experts in every rank of a replica, or spread over its ranks, those of a node, or all of a stage.
std::vector<std::int64_t> expert_degrees(const Plan& base, const ServingFixes& fixed,
                                         std::int64_t tp, std::int64_t dp) {
  const std::int64_t experts = base.network.spec.moe.experts;
  std::vector<std::int64_t> usual = {1};
  for (const std::int64_t ep : {tp, std::int64_t{base.cluster.node.gpus}, tp * dp}) {
    if (experts > 0 && ep > usual.back() && ep <= tp * dp && experts % ep == 0 && ep % tp == 0 &&
        tp * dp % ep == 0) {
      usual.push_back(ep);
    }
  }
  return values_of(fixed, "ep", usual);
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
  std::int64_t ep;
  std::int64_t pp;
  std::int64_t dp;
};

void add_layout(const Plan& base, const Degrees& degrees, std::vector<Plan>& plans,
                std::string& reason) {
  Plan plan = base;
  plan.pp = static_cast<int>(degrees.pp);
  plan.dp = static_cast<int>(degrees.dp);
  plan.batch = degrees.dp;
  plan.stage_blocks = plan::even_stages(base.network, plan.pp);
  plan.blocks = {{static_cast<int>(base.network.chain.size()), {}}};
  plan::BlockPlan& layout = plan.blocks.front().layout;
  layout.tp = static_cast<int>(degrees.tp);
  layout.cp = static_cast<int>(degrees.cp);
  layout.ep = static_cast<int>(degrees.ep);
  layout.expert_tp = degrees.ep > 1 && degrees.tp > 1 ? 1 : 0;
  add_if_possible(std::move(plan), plans, reason);
}

}  // namespace

const std::vector<std::string>& serving_fields() {
  static const std::vector<std::string> fields = {"tp",
                                                  "pp",
                                                  "dp",
                                                  "token_budget",
                                                  "max_requests",
                                                  "prefill",
                                                  "chunk",
                                                  "nano_batches",
                                                  "cp",
                                                  "ep",
                                                  "cache_block",
                                                  "prefix_hits",
                                                  "host_cache",
                                                  "routing",
                                                  "all_reduce",
                                                  "offload_parameters",
                                                  "offload_share",
                                                  "gathers_in_flight",
                                                  "fetched_together"};
  return fields;
}

void fix_serving(std::string_view text, ServingFixes& fixed) {
  for (const std::string_view entry : split(text, ',')) {
    const std::size_t equals = entry.find('=');
    const std::string field(trim(entry.substr(0, equals)));
    const auto& fields = serving_fields();
    if (std::find(fields.begin(), fields.end(), field) == fields.end()) {
      bad_input("--fix", fmt::format("unknown field \"{}\" of a serving plan", printable(field)),
                nearest_hint(field, fields));
    }
    if (equals == std::string_view::npos) {
      bad_input("--fix", fmt::format("\"{}\" has no value", field), "write field=value");
    }
    const std::string value(trim(entry.substr(equals + 1)));
    if (field == "prefill") {
      if (value != "chunked" && value != "separate") {
        bad_input("--fix", fmt::format("unknown prefill \"{}\"", printable(value)),
                  "chunked or separate");
      }
    } else if (field == "routing") {
      plan::routing_of(value);
    } else if (field == "all_reduce") {
      plan::all_reduce_of(value);
    } else if (field == "offload_parameters") {
      plan::parse_tier(value, "--fix " + field);
    } else if (field == "prefix_hits" || field == "host_cache" || field == "offload_share") {
      parse_number(value, "--fix " + field, 0, field == "host_cache" ? plan::kMostOnHost : 1.0);
    } else {
      parse_integer(value, "--fix " + field, field == "chunk" ? 0 : 1, plan::most_of_option(field));
    }
    fixed[field].push_back(value);
  }
}

std::vector<Plan> serving_layouts(const Plan& stated, const ServingFixes& fixed,
                                  std::string& reason) {
  const int gpus = stated.cluster.num_gpus();
  const std::vector<std::int64_t> degrees = divisors(gpus);
  Plan base = stated;  // with what no layout can have
  plan::ServingOptions options = stated.serving->options;
  options.host_cache = shares_of(fixed, "host_cache", {0}).front();
  base.serving =
      std::make_shared<const plan::Serving>(plan::Serving{stated.serving->requests, options});
  std::vector<Plan> plans;
  for (const std::int64_t tp : values_of(fixed, "tp", degrees)) {
    for (const std::int64_t pp : values_of(fixed, "pp", degrees)) {
      for (const std::int64_t cp : values_of(fixed, "cp", {1})) {
        const std::int64_t model = tp * pp * cp;
        if (tp < 1 || pp < 1 || cp < 1 || tp > gpus || pp > gpus || cp > gpus ||
            gpus % model != 0 || pp > base.network.spec.layers) {
          continue;
        }
        const std::vector<std::int64_t> replicas = values_of(fixed, "dp", {gpus / model});
        if (std::find(replicas.begin(), replicas.end(), gpus / model) == replicas.end()) {
          continue;
        }
        for (const std::int64_t ep : expert_degrees(base, fixed, tp, gpus / model)) {
          add_layout(base, {tp, cp, ep, pp, gpus / model}, plans, reason);
        }
      }
    }
  }
  return plans;
}

std::vector<Plan> with_weights_elsewhere(const std::vector<Plan>& layouts,
                                         const ServingFixes& fixed, std::string& reason) {
  const std::vector<double> shares =
      shares_of(fixed, "offload_share", {kAwayShares.begin(), kAwayShares.end()});
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
        for (const std::int64_t window : values_of(fixed, "gathers_in_flight", {kDoubleBuffer})) {
          for (const std::int64_t together : values_of(fixed, "fetched_together", {1})) {
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
  for (const std::int64_t block : values_of(fixed, "cache_block", {1})) {
    for (const double hits : shares_of(fixed, "prefix_hits", {0})) {
      for (const double host : shares_of(fixed, "host_cache", {0})) {
        all.push_back(base);
        all.back().cache_block = block;
        all.back().prefix_hits = hits;
        all.back().host_cache = host;
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
    for (const std::int64_t budget : values_of(fixed, "token_budget", longs(kBudgets))) {
      const bool few = prefill == Prefill::Chunked && budget < kRequests.front();
      for (const std::int64_t most : values_of(
               fixed, "max_requests", few ? std::vector<std::int64_t>{budget} : longs(kRequests))) {
        for (const std::int64_t chunk : values_of(fixed, "chunk", {0})) {
          for (const std::int64_t nano : values_of(fixed, "nano_batches", longs(kNanoBatches))) {
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
  if (fixed.contains("routing") && found.dp == 1) {
    idle.emplace_back("routing has no effect: dp = 1");
  }
  return idle;
}

}  // namespace orrery::search
