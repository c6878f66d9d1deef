// SPDX-License-Identifier: Apache-2.0
#include "calibrate/gpu_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "calibrate/ceilings.hpp"

namespace orrery::calibrate {
namespace {

struct NameOf {
  std::string operator()(const GemmSample& gemm) const {
    return fmt::format("{}gemm {} {}", gemm.groups > 1 ? "grouped " : "",
                       orrery::to_text(gemm.dtype), to_text(gemm.layout));
  }
  std::string operator()(const AttentionSample& attention) const {
    return fmt::format("attention {}{}", orrery::to_text(attention.dtype),
                       attention.both_passes ? " both passes"
                       : attention.backward  ? " backward"
                                             : "");
  }
  std::string operator()(const MemorySample& memory) const {
    return memory.operation + (memory.backward ? " backward" : "");
  }
  std::string operator()(const HostCopySample& copy) const {
    return fmt::format("copy {} {}", to_text(copy.direction), copy.pinned ? "pinned" : "pageable");
  }
  std::string operator()(const LaunchSample& launch) const {
    return fmt::format("launch {}{}", launch.graph ? "graph" : "stream",
                       launch.host_only ? ", host" : "");
  }
  std::string operator()(const CollectiveSample& collective) const {
    return std::string(sim::to_text(collective.kind));
  }
};

// Seconds of one kernel: launches are timed many at once.
double seconds_each(const Sample& sample) {
  const auto* launch = std::get_if<LaunchSample>(&sample.shape);
  return sample.time.median.value() / (launch != nullptr ? static_cast<double>(launch->count) : 1);
}

std::string or_dash(double value, double scale, const char* unit) {
  return value > 0 ? fmt::format("{:.4g} {}", value / scale, unit) : "-";
}

}  // namespace

std::vector<ReportGroup> report_groups(const SampleFile& file, const topologies::Gpu* gpu) {
  const topologies::Gpu unknown;
  std::vector<ReportGroup> groups;
  for (const Sample& sample : file.samples) {
    const std::string name = std::visit(NameOf(), sample.shape);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const ReportGroup& known) {
      return known.name == name && known.implementation == sample.implementation;
    });
    if (group == groups.end()) {
      ReportGroup fresh;
      fresh.name = name;
      fresh.implementation = sample.implementation;
      fresh.fastest_seconds = seconds_each(sample);
      group = groups.insert(groups.end(), fresh);
    }
    const Achieved reached = achieved(sample, gpu == nullptr ? unknown : *gpu);
    group->samples += 1;
    group->unsettled += sample.flags.unsettled ? 1 : 0;
    group->best_rate = std::max(group->best_rate, reached.rate.value());
    group->best_bandwidth = std::max(group->best_bandwidth, reached.bandwidth.value());
    group->best_fraction = std::max(group->best_fraction, reached.fraction);
    group->fastest_seconds = std::min(group->fastest_seconds, seconds_each(sample));
  }
  return groups;
}

std::string report_text(const std::vector<ReportGroup>& groups) {
  TextTable table({{"kernel"},
                   {"by"},
                   {"samples", Align::Right},
                   {"unsettled", Align::Right},
                   {"fastest", Align::Right},
                   {"best rate", Align::Right},
                   {"of ceiling", Align::Right}});
  for (const ReportGroup& group : groups) {
    const std::string rate = group.best_rate > 0 ? or_dash(group.best_rate, 1e12, "TFLOP/s")
                                                 : or_dash(group.best_bandwidth, 1e9, "GB/s");
    table.add_row(
        {group.name, group.implementation, fmt::format("{}", group.samples),
         fmt::format("{}", group.unsettled), or_dash(group.fastest_seconds, 1e-6, "us"), rate,
         group.best_fraction > 0 ? fmt::format("{:.1f} %", 100 * group.best_fraction) : "-"});
  }
  return table.text();
}

Json report_json(const std::vector<ReportGroup>& groups) {
  Json list = Json::array();
  for (const ReportGroup& group : groups) {
    list.push(Json::Object{{"kernel", group.name},
                           {"implementation", group.implementation},
                           {"samples", group.samples},
                           {"unsettled", group.unsettled},
                           {"fastest_s", group.fastest_seconds},
                           {"best_flop_per_s", group.best_rate},
                           {"best_bytes_per_s", group.best_bandwidth},
                           {"best_ceiling_fraction", group.best_fraction}});
  }
  return list;
}

}  // namespace orrery::calibrate
