// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/collective_sections.hpp"

#include <cmath>

#include "calibrate/statistics.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CollectiveParameters;
using costmodel::FabricClass;
using costmodel::Profile;
using sim::CommKind;

CollectiveParameters& own_parameters(Profile& profile, FabricClass fabric) {
  for (costmodel::FabricParameters& own : profile.collectives.fabrics) {
    if (own.fabric == fabric) {
      return own.parameters;
    }
  }
  profile.collectives.fabrics.push_back({fabric, profile.inter_node});
  return profile.collectives.fabrics.back().parameters;
}

}  // namespace

Section section_of(FabricClass fabric) {
  switch (fabric) {
    case FabricClass::Node:
    case FabricClass::Pcie:
      return Section::Node;
    case FabricClass::Efa:
      return Section::Efa;
    case FabricClass::Tcp:
      return Section::Tcp;
    case FabricClass::Slingshot:
      return Section::Slingshot;
    case FabricClass::Sharp:
      return Section::Sharp;
    case FabricClass::InfiniBand:
    case FabricClass::Roce:
      break;
  }
  return Section::Verbs;
}

std::string_view to_text(Section section) {
  switch (section) {
    case Section::Node:
      return "intra_node";
    case Section::Verbs:
      return "inter_node";
    case Section::Efa:
      return "inter_node_plugin";
    case Section::Sharp:
    case Section::Tcp:
    case Section::Slingshot:
      break;
  }
  return "";
}

CollectiveParameters& parameters_of(Profile& profile, Section section) {
  switch (section) {
    case Section::Node:
      return profile.intra_node;
    case Section::Efa:
      return profile.inter_node_plugin;
    case Section::Sharp:
      return own_parameters(profile, FabricClass::Sharp);
    case Section::Tcp:
      return own_parameters(profile, FabricClass::Tcp);
    case Section::Slingshot:
      return own_parameters(profile, FabricClass::Slingshot);
    case Section::Verbs:
      break;
  }
  return profile.inter_node;
}

CollectiveParameters rounded(const CollectiveParameters& exact) {
  constexpr double kMebi = 1024.0 * 1024.0;
  CollectiveParameters result;
  result.base = Seconds(rounded(exact.base.value() * 1e6, 100) / 1e6);
  result.low_latency_factor = rounded(exact.low_latency_factor, 1e3);
  result.simple_factor = rounded(exact.simple_factor, 1e3);
  result.bandwidth_factor = rounded(exact.bandwidth_factor, 1e3);
  result.in_switch_factor = rounded(exact.in_switch_factor, 1e3);
  result.half_size = Bytes(rounded(exact.half_size.value() / kMebi, 64) * kMebi);
  return result;
}

std::vector<const CollectiveLog*> logs_of_factors(const std::vector<const CollectiveLog*>& logs,
                                                  Section section) {
  std::vector<const CollectiveLog*> wide;
  std::vector<const CollectiveLog*> all;
  for (const CollectiveLog* log : logs) {
    if (section_of(log->fabric) != section || stands_alone(log->kind)) {
      continue;
    }
    all.push_back(log);
    if (log->system.group.nodes == 1 || log->system.group.ranks_per_node > 1) {
      wide.push_back(log);
    }
  }
  return wide.empty() ? all : wide;
}

std::size_t fewest_logs(Section section) { return to_text(section).empty() ? 2 : 1; }

ResidualPoint point_of(const CollectiveLog& log) {
  ResidualPoint point;
  point.fabric = log.fabric;
  point.kind = log.kind;
  point.version = inside_node(log.fabric) ? log.nccl : 0;
  point.log2_ranks = std::log2(log.system.group.ranks_per_node);
  point.log2_nodes = std::log2(log.system.group.nodes);
  return point;
}

}  // namespace orrery::calibrate
