// SPDX-License-Identifier: Apache-2.0
// What the searches of nearest changes on one and on several kinds of nodes have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "search/search.hpp"

namespace orrery::search {

inline constexpr int kMostNodeFactor = 64;  // times as many nodes

// Options of a search that ends at its first plan, after a few seconds at most.
Options until_first_plan(Options options);
// "recompute=full instead of recompute=none": a plan that was found without one of --fix.
std::string instead_of(const std::string& fixed, const plan::Plan& plan);
// All known GPUs of the vendor with more memory, the least of it first.
std::vector<topologies::Gpu> larger_gpus(const topologies::Gpu& gpu);

}  // namespace orrery::search
