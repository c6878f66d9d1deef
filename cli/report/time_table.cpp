// SPDX-License-Identifier: Apache-2.0
#include "cli/report/time_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/common.hpp"
#include "plan/block_rules.hpp"
#include "plan/packs.hpp"

namespace orrery::cli {
namespace {

std::string communication_name(const std::string& key) {
  if (key.starts_with("tp")) {  // rows and depth of a mesh, too
    return "tensor-parallel communication";
  }
  if (key.starts_with("cp")) {
    return "context-parallel communication";
  }
  if (key == "ep") {
    return "expert-parallel communication";
  }
  if (key == "pp") {
    return "pipeline transfers";
  }
  if (key == "vp") {  // sums and broadcasts between shards of embedding and head
    return "vocabulary-parallel communication";
  }
  if (key == "amax") {
    return "reductions of largest magnitudes";
  }
  if (key == "offload") {
    return "copies to and from the host";
  }
  return "data-parallel communication";
}

std::string nodes_text(const plan::Plan& plan, std::int64_t span) {
  const topologies::Cluster& cluster = plan.cluster;
  const bool aligned = cluster.node.gpus % span == 0 || cluster.num_nodes == 1;
  constexpr std::string_view kSome = "in one node, but of some groups across two";
  return std::string(span > cluster.node.gpus ? "across nodes" : aligned ? "in one node" : kSome);
}

// How many ranks a group has, so far from one another, and how many nodes it spans.
std::string ranks_text(const plan::Plan& plan, std::int64_t degree, std::string_view ranks,
                       std::int64_t stride) {
  return fmt::format("{} {} {}", degree, ranks, nodes_text(plan, stride * degree));
}

// Context ranks hold the same parameters as data ranks. Replicas of groups that shard the states
// add up the gradients of their shards. Where nothing is replicated, tensor ranks still add up the
// gradients of parameters that each of them has whole.
std::string data_group_text(const plan::Plan& plan, const plan::BlockPlan& layout) {
  const std::int64_t copies = std::int64_t{layout.cp} * plan.data_ranks(layout);
  if (copies == 1 && layout.tp > 1) {
    return ranks_text(plan, layout.tp, "tensor-parallel ranks", 1);
  }
  const bool sharded = layout.shard_degree > 0 && layout.shard_degree < copies;
  const std::int64_t shards = sharded ? layout.shard_degree : copies;
  std::string text = ranks_text(plan, shards, "ranks", layout.tp);
  if (sharded) {
    text += ", " + ranks_text(plan, copies / shards, "replicas of them", layout.tp * shards);
  }
  return text;
}

// Axes of tensor and context ranks, of which each has a key of its own.
constexpr std::ptrdiff_t kBlockAxes = 5;

std::vector<TimeShare> known_shares(const plan::Simulation& simulation) {
  const plan::TimeBreakdown& breakdown = simulation.breakdown;
  std::vector<TimeShare> shares = {{"compute", "compute", breakdown.compute}};
  for (const auto& [key, time] : breakdown.exposed_communication) {
    shares.push_back({key, communication_name(key) + ", exposed", time});
  }
  shares.push_back({"bubble", "bubble", breakdown.bubble});
  shares.push_back({"optimizer", "optimizer", breakdown.optimizer});
  return shares;
}

struct RankGroup {
  std::int64_t degree = 0;
  std::string text;
};

RankGroup rank_group(const plan::Plan& plan, const plan::BlockPlan& layout,
                     const std::string& key) {
  if (key == "dp") {
    return {std::int64_t{layout.tp} * layout.cp * plan.data_ranks(layout),
            data_group_text(plan, layout)};
  }
  if (key.starts_with("cp") && !plan.packs.empty() && !plan::runs_packed_pipeline(plan)) {
    const std::int64_t span = std::int64_t{layout.tp} * plan::pack_shapes(plan).front().group;
    return {span,
            fmt::format("{} ranks, {}", plan::group_sizes_text(plan), nodes_text(plan, span))};
  }
  const plan::Mesh mesh = plan::mesh_of(layout, plan::expert_replicas(layout));
  std::int64_t degree = layout.tp;
  std::int64_t stride = mesh.stride(plan::Axis::Tensor);
  const auto axis = std::find_if(plan::kAxes.begin(), plan::kAxes.begin() + kBlockAxes,
                                 [&](plan::Axis each) { return plan::to_text(each) == key; });
  const bool all_of_tp = key == "tp" && plan::splits_tensor_ranks(layout);
  const bool all_of_cp = key == "cp" && plan::splits_context_ranks(layout);
  if (all_of_cp) {
    degree = layout.cp;
    stride = mesh.stride(plan::Axis::ContextHeads);
  } else if (axis != plan::kAxes.begin() + kBlockAxes && !all_of_tp) {
    degree = mesh.of(*axis);
    stride = mesh.stride(*axis);
  } else if (key == "ep") {
    degree = layout.ep;
    stride = plan::expert_span(layout) / degree;
  } else if (key == "amax") {
    degree = std::int64_t{layout.tp} * layout.cp *
             (plan.execution.amax_ranks == plan::AmaxRanks::All ? plan.data_ranks(layout) : 1);
  } else if (key == "pp" || key == "vp") {
    stride = std::int64_t{layout.tp} * layout.cp * plan.data_ranks(layout);
    degree = plan.pp;
  }
  return {degree, ranks_text(plan, degree, "ranks", stride)};
}

}  // namespace

// Of blocks with layouts of their own those that communicate so, each kind of group once.
std::string group_text(const plan::Plan& plan, const std::string& key) {
  if (key == "offload") {
    return "";
  }
  std::vector<std::string> texts;
  for (const plan::BlockRun& run : plan.blocks) {
    const RankGroup group = rank_group(plan, run.layout, key);
    const bool alone = group.degree == 1 && plan.blocks.size() > 1;
    if (!alone && std::find(texts.begin(), texts.end(), group.text) == texts.end()) {
      texts.push_back(group.text);
    }
  }
  return fmt::format("{}", fmt::join(texts, " or "));
}

std::string time_table(const plan::Simulation& simulation, const std::string& stage,
                       const GroupText& group_of) {
  TextTable table({{fmt::format("where the time goes ({})", stage)},
                   {"time", Align::Right},
                   {"share", Align::Right},
                   {"group"}});
  const plan::TimeBreakdown& breakdown = simulation.breakdown;
  for (const TimeShare& share : time_shares(simulation)) {
    const bool communicates = breakdown.exposed_communication.contains(share.key);
    table.add_row({share.name, format_duration(share.time),
                   percent(share.time / simulation.iteration_time),
                   communicates ? group_of(share.key) : ""});
    if (share.key == "compute" && breakdown.recompute.value() > 0) {
      table.add_row({"  of it recomputation", format_duration(breakdown.recompute),
                     percent(breakdown.recompute / simulation.iteration_time), ""});
    }
  }
  table.add_rule();
  table.add_row({"iteration", format_duration(simulation.iteration_time), "100.0 %", ""});
  return table.text();
}

bool is_rounding(Seconds difference) { return std::abs(difference.value()) < 1e-12; }

Seconds other_time(const plan::Simulation& simulation) {
  Seconds rest = simulation.iteration_time;
  for (const TimeShare& share : known_shares(simulation)) {
    rest -= share.time;
  }
  return is_rounding(rest) ? Seconds() : rest;
}

std::vector<TimeShare> time_shares(const plan::Simulation& simulation) {
  std::vector<TimeShare> shares = known_shares(simulation);
  const Seconds rest = other_time(simulation);
  if (std::abs(rest / simulation.iteration_time) > 5e-4) {
    shares.push_back({"other", "slowdown by overlap and waiting", rest});
  }
  return shares;
}

}  // namespace orrery::cli
