// SPDX-License-Identifier: Apache-2.0
// What a search is asked, by name as on the command line: network, cluster, batch and the like.
// Commands and sweeps read it in one place, so that both refuse the same things.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::search {

// --set values by what they change: gpu.*, node.*, fabric.* and nodes belong to the cluster,
// everything else to the network. Error when one is not path=value.
struct Overrides {
  std::vector<std::string> network;
  std::vector<std::string> cluster;
};
Overrides split_overrides(const std::vector<std::string>& settings);

// bf16, or what the GPU has instead.
DType default_precision(const topologies::Gpu& gpu);

struct Problem {
  std::string network;  // zoo name or file
  std::string cluster;  // NODE:COUNT, cluster name or file
  std::int64_t batch = 0;
  std::int64_t sequence = 0;          // tokens; 0: the network's
  std::string sequence_from;          // what states them, for errors; empty: --seq
  std::string precision;              // empty: default_precision
  std::string profile;                // empty: the GPU's
  std::string memory_reserve;         // "4 GiB"; empty: none
  std::vector<std::string> settings;  // path=value
};

// The problem with these settings in place of those of the same paths.
Problem with_settings(Problem problem, const std::vector<std::string>& settings);

// A plan of which the search keeps everything but the layout. Errors cite the option at fault.
plan::Plan base_plan(const Problem& problem);

}  // namespace orrery::search
