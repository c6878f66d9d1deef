// SPDX-License-Identifier: Apache-2.0
#include "plan/document/plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "plan/block_rules.hpp"
#include "plan/offload_text.hpp"
#include "plan/packs.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/training_changes.hpp"

namespace orrery::plan {

namespace {

// ", mesh 2d", ", sp, ring context, zero 1, recompute full"
std::string choices_text(const Plan& plan, const BlockPlan& layout) {
  std::string text;
  if (layout.tp > 1 && layout.tensor_parallel != TensorMesh::OneD) {
    text += fmt::format(", mesh {}", tensor_mesh_text(layout));
  }
  text += layout.sequence_parallel ? ", sp" : "";
  if (layout.cp > 1) {
    text += fmt::format(", {} context", to_text(layout.context));
  }
  if (layout.cp > 1 && layout.context == ContextParallel::Mix) {
    text += fmt::format(" (ulysses {})", layout.ulysses_degree);
  }
  if (splits_tensor_ranks(layout) && layout.expert_tp > 1) {
    text += fmt::format(", experts cut by {}", layout.expert_tp);
  }
  if (plan.network.spec.moe.experts > 0 && copies_inside(layout) > 1) {
    text += fmt::format(", experts over {} of {} ranks", layout.ep, expert_ranks_inside(layout));
  }
  if (reorders_experts(layout)) {
    text += fmt::format(", experts inside {}", to_text(layout.ep_inside));
  }
  if (!layout.tensor_shares.empty()) {
    text += fmt::format(", shares {}", fmt::join(layout.tensor_shares.list(), ":"));
  }
  if (layout.zero_stage > 0) {
    text += fmt::format(", zero {}", layout.zero_stage);
  }
  if (layout.shard_degree > 0) {
    text += fmt::format(" over {}", layout.shard_degree);
  }
  if (layout.recompute != Recompute::None) {
    text += fmt::format(", recompute {}", recompute_text(layout));
  }
  text += offload_text(layout.offload);
  return text;
}

}  // namespace

std::string layout_text(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  std::string text;
  const auto degree = [&](std::string_view name, std::int64_t value, bool always) {
    if (always || value != 1) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
    }
  };
  degree("tp", layout.tp, true);
  degree("cp", layout.cp, false);
  degree("ep", layout.ep, false);
  degree("pp", plan.pp, true);
  degree("dp", plan.dp, true);
  degree("micro-batch", plan.micro_batch, true);
  if (plan.pp > 1 || schedule_traits(plan).uses_servers || !plan.packs.empty()) {
    text += fmt::format(", {}", plan.schedule);
  }
  if (!plan.packs.empty()) {
    const bool pipeline = runs_packed_pipeline(plan);
    text += fmt::format(
        " with {} in {} micro-batch{}",
        pipeline ? fmt::format("{} sequences", plan.batch) : "groups of " + group_sizes_text(plan),
        plan.packs.size(), plan.packs.size() == 1 ? "" : "es");
  }
  if (plan.execution.ships_weights && schedule_traits(plan).spreads_attention) {
    text += ", ships weights";
  }
  degree("chunks", plan.chunks, false);
  degree("slices", plan.slices, false);
  degree("encoder parts", plan.encoder_parts, false);
  if (plan.servers > 0) {  // else one on each node
    degree("servers", plan.servers, true);
  }
  if (plan.clock_distance > 0) {
    degree("clock distance", plan.clock_distance, true);
  }
  text += choices_text(plan, layout) + training_changes_text(plan);
  if (plan.blocks.size() > 1) {
    text += ", differs per block";
  }
  return text;
}

std::vector<std::string> layout_texts(const std::vector<const Plan*>& plans) {
  std::vector<std::string> texts;
  std::map<std::string, std::set<std::vector<int>>> cuts;
  for (const Plan* plan : plans) {
    texts.push_back(layout_text(*plan));
    cuts[texts.back()].insert(plan->stage_blocks);
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (cuts.at(texts[i]).size() > 1) {
      texts[i] += fmt::format(", stages {}", stages_text(*plans[i]));
    }
  }
  return texts;
}

namespace {

struct Positions {
  int first = 0;
  int last = 0;
};

// How many of them from `begin` on are single and as far apart as the first two.
std::size_t evenly_spaced(const std::vector<Positions>& runs, std::size_t begin) {
  const auto is_next = [&](std::size_t at) {
    return runs[at].first == runs[at].last &&
           (at == begin || at == begin + 1 ||
            runs[at].first - runs[at - 1].first == runs[begin + 1].first - runs[begin].first);
  };
  std::size_t end = begin;
  while (end < runs.size() && is_next(end)) {
    ++end;
  }
  return end - begin;
}

// "0-1, 3, 5, ..., 47".
std::string positions_text(const std::vector<Positions>& runs) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < runs.size();) {
    const std::size_t even = evenly_spaced(runs, at);
    if (even > 3) {
      parts.push_back(fmt::format("{}, {}, ..., {}", runs[at].first, runs[at + 1].first,
                                  runs[at + even - 1].first));
      at += even;
      continue;
    }
    const auto& [first, last] = runs[at++];
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string block_layout_text(const Plan& plan, const BlockPlan& layout) {
  return fmt::format("tp {}", layout.tp) +
         (layout.cp > 1 ? fmt::format(", cp {}", layout.cp) : "") +
         (layout.ep > 1 ? fmt::format(", ep {}", layout.ep) : "") +
         fmt::format(", dp {}", plan.data_ranks(layout)) + choices_text(plan, layout);
}

}  // namespace

std::vector<std::string> block_texts(const Plan& plan) {
  std::vector<std::pair<std::string, std::vector<Positions>>> layouts;
  int first = 0;
  for (const BlockRun& run : plan.blocks) {
    const std::string text = block_layout_text(plan, run.layout);
    auto known = std::find_if(layouts.begin(), layouts.end(),
                              [&](const auto& one) { return one.first == text; });
    if (known == layouts.end()) {
      known = layouts.insert(layouts.end(), {text, {}});
    }
    std::vector<Positions>& runs = known->second;
    if (!runs.empty() && runs.back().last + 1 == first) {
      runs.back().last += run.count;
    } else {
      runs.push_back({first, first + run.count - 1});
    }
    first += run.count;
  }
  std::vector<std::string> texts;
  for (const auto& [text, runs] : layouts) {
    texts.push_back(positions_text(runs) + ": " + text);
  }
  return texts;
}

std::string stages_text(const Plan& plan) {
  std::string text;
  const std::vector<int>& stages = plan.stage_blocks;
  for (std::size_t begin = 0; begin < stages.size();) {
    std::size_t end = begin;
    while (end < stages.size() && stages[end] == stages[begin]) {
      ++end;
    }
    const std::size_t count = end - begin;
    text += text.empty() ? "" : " ";
    if (count > 3) {
      text += fmt::format("{} x {}", count, stages[begin]);
    } else {
      for (std::size_t one = 0; one < count; ++one) {
        text += fmt::format("{}{}", one > 0 ? " " : "", stages[begin]);
      }
    }
    begin = end;
  }
  return text;
}

}  // namespace orrery::plan
