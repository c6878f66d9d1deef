// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nccl/measure_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/quantity_text.hpp"

namespace orrery::calibrate {
namespace {

using sim::CommKind;

constexpr std::array<CommKind, 6> kKinds = {CommKind::AllReduce,     CommKind::AllGather,
                                            CommKind::ReduceScatter, CommKind::AllToAll,
                                            CommKind::Broadcast,     CommKind::SendReceive};
constexpr double kBatchSeconds = 200e-6;
constexpr double kPointSeconds = 0.2;
constexpr int kMaxBatches = 20;
constexpr int kMinBatches = 3;
constexpr int kMaxIterations = 50;
// Assumptions of the expected duration.
constexpr double kInNodeRate = 100e9;
constexpr double kBetweenNodesRate = 20e9;
constexpr double kLatency = 30e-6;
constexpr double kPointOverhead = 5e-3;  // barriers and warm-up
constexpr double kCommunicatorSeconds = 1.0;
constexpr double kCommunicatorRankSeconds = 0.02;

// A send is between two ranks; what runs several groups at once asks about bandwidth alone.
bool measures(GroupKind group, int ranks, CommKind kind) {
  if (kind == CommKind::SendReceive) {
    return ranks == 2;
  }
  return kind != CommKind::Broadcast ||
         (group != GroupKind::Concurrent && group != GroupKind::Rails &&
          group != GroupKind::SharedSpine);
}

bool wanted(const MeasureOptions& options, CommKind kind) {
  return options.kinds.empty() ||
         std::find(options.kinds.begin(), options.kinds.end(), kind) != options.kinds.end();
}

// The groups whose collectives overlap compute in training: a whole node, all nodes.
std::vector<GroupPlan> overlapping_groups(const std::vector<GroupPlan>& groups) {
  std::vector<GroupPlan> chosen;
  for (const GroupKind kind : {GroupKind::InNode, GroupKind::Subset, GroupKind::WholeNodes}) {
    const auto last = std::find_if(groups.rbegin(), groups.rend(),
                                   [&](const GroupPlan& group) { return group.kind == kind; });
    if (last != groups.rend()) {
      chosen.push_back(*last);
    }
  }
  return chosen;
}

double point_seconds(const GroupPlan& group, std::int64_t bytes) {
  const double rate = group.nodes > 1 ? kBetweenNodesRate : kInNodeRate;
  return kLatency + static_cast<double>(bytes) / rate;
}

std::vector<std::string> names_of(const std::vector<CommKind>& kinds) {
  std::vector<std::string> names;
  for (const CommKind kind : kinds) {
    names.emplace_back(sim::to_text(kind));
  }
  return names;
}

}  // namespace

std::int64_t MeasurePlan::num_points() const {
  std::size_t points = 0;
  for (const MeasureSeries& one : series) {
    points += one.kinds.size() * one.sizes.size() * std::max<std::size_t>(one.beside.size(), 1);
  }
  return static_cast<std::int64_t>(points);
}

std::vector<std::int64_t> sizes_between(std::int64_t min_bytes, std::int64_t max_bytes) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1 << 10; size <= max_bytes && size <= (std::int64_t{1} << 40);
       size *= 4) {
    if (size >= min_bytes) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

MeasurePlan plan_measurements(const Placement& placement, const LinkClasses& links,
                              const MeasureOptions& options) {
  MeasurePlan plan;
  const std::vector<GroupPlan> groups = plan_groups(placement, links);
  const std::vector<std::int64_t> sizes = sizes_between(options.min_bytes, options.max_bytes);
  for (const GroupPlan& group : groups) {
    MeasureSeries series{group, {}, sizes, {}};
    for (const CommKind kind : kKinds) {
      if (wanted(options, kind) && measures(group.kind, group.ranks(), kind)) {
        series.kinds.push_back(kind);
      }
    }
    if (!series.kinds.empty()) {
      plan.series.push_back(std::move(series));
    }
  }
  if (!options.interference) {
    return plan;
  }
  // A large and a small multiplication of transformer layers.
  const std::vector<GemmSample> gemms = {GemmSample{.m = 8192, .n = 8192, .k = 8192},
                                         GemmSample{.m = 4096, .n = 4096, .k = 1024}};
  for (const GroupPlan& group : overlapping_groups(groups)) {
    MeasureSeries series{group, {}, {}, gemms};
    for (const CommKind kind :
         {CommKind::AllReduce, CommKind::AllGather, CommKind::ReduceScatter, CommKind::AllToAll}) {
      if (wanted(options, kind)) {
        series.kinds.push_back(kind);
      }
    }
    for (const std::int64_t size : sizes) {
      if (size >= (1 << 20)) {
        series.sizes.push_back(size);
      }
    }
    if (!series.kinds.empty() && !series.sizes.empty()) {
      plan.series.push_back(std::move(series));
    }
  }
  return plan;
}

Repetitions repetitions_for(Seconds estimate) {
  const double one = std::max(estimate.value(), 1e-7);
  Repetitions repetitions;
  repetitions.iterations =
      static_cast<int>(std::clamp(std::ceil(kBatchSeconds / one), 1.0, double{kMaxIterations}));
  const double batch = one * repetitions.iterations;
  repetitions.batches = static_cast<int>(
      std::clamp(std::floor(kPointSeconds / batch), double{kMinBatches}, double{kMaxBatches}));
  return repetitions;
}

Seconds expected_duration(const MeasurePlan& plan, const MeasureOptions& options) {
  double total = 0;
  for (const MeasureSeries& series : plan.series) {
    total += kCommunicatorSeconds + kCommunicatorRankSeconds * series.group.ranks();
    const double variants =
        static_cast<double>(series.kinds.size() * std::max<std::size_t>(series.beside.size(), 1));
    for (const std::int64_t size : series.sizes) {
      const double one = point_seconds(series.group, size);
      const Repetitions repetitions = repetitions_for(Seconds(one));
      const double point = one * repetitions.batches * repetitions.iterations;
      total += variants * (std::min(point, options.point_budget.value()) + kPointOverhead);
    }
  }
  return Seconds(total);
}

std::string plan_text(const MeasurePlan& plan, const MeasureOptions& options) {
  std::string text;
  for (const MeasureSeries& series : plan.series) {
    text += fmt::format("{}{}: {} ranks, {} on a node\n", series.group.name,
                        series.beside.empty() ? "" : " beside a GEMM", series.group.ranks(),
                        series.group.ranks_per_node);
    for (const std::vector<int>& ranks : series.group.communicators) {
      const std::size_t shown = std::min<std::size_t>(ranks.size(), 16);
      text += fmt::format(
          "  ranks {}{}\n",
          fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(shown), " "),
          shown < ranks.size() ? " ..." : "");
    }
    text += fmt::format("  {}\n", fmt::join(names_of(series.kinds), ", "));
    text += fmt::format("  {} sizes, {} to {}\n", series.sizes.size(),
                        format_bytes(Bytes(static_cast<double>(series.sizes.front()))),
                        format_bytes(Bytes(static_cast<double>(series.sizes.back()))));
  }
  return text + fmt::format("{} points, about {}\n", plan.num_points(),
                            format_duration(expected_duration(plan, options)));
}

Json plan_json(const MeasurePlan& plan, const MeasureOptions& options) {
  Json document = Json::object();
  Json list = Json::array();
  for (const MeasureSeries& series : plan.series) {
    Json one = Json::object();
    one.set("group", series.group.name);
    one.set("nodes", series.group.nodes);
    one.set("ranks_per_node", series.group.ranks_per_node);
    Json communicators = Json::array();
    for (const std::vector<int>& ranks : series.group.communicators) {
      Json members = Json::array();
      for (const int rank : ranks) {
        members.push(rank);
      }
      communicators.push(std::move(members));
    }
    one.set("communicators", std::move(communicators));
    Json kinds = Json::array();
    for (const std::string& name : names_of(series.kinds)) {
      kinds.push(name);
    }
    one.set("collectives", std::move(kinds));
    Json sizes = Json::array();
    for (const std::int64_t size : series.sizes) {
      sizes.push(size);
    }
    one.set("bytes", std::move(sizes));
    one.set("beside_gemm", !series.beside.empty());
    list.push(std::move(one));
  }
  document.set("series", std::move(list));
  document.set("points", plan.num_points());
  document.set("expected_duration_s", expected_duration(plan, options).value());
  return document;
}

}  // namespace orrery::calibrate
