// SPDX-License-Identifier: Apache-2.0
// What the searches of nearest changes on one and on several kinds of nodes have in common.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/interrupt.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

// Seconds for one kind of change: those that are left after what it has tried.
class Patience {
 public:
  explicit Patience(Seconds most = Seconds(5)) : most_(most) {}
  // Options of a search that ends at its first plan, or when patience does.
  Options until_first_plan(Options options) const;
  bool over() const { return interrupted() || left().value() <= 0; }
  Seconds left() const;

 private:
  Seconds most_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

// Fewer nodes may do than the first doubling that fits: this many counts between it and the one
// before are tried, the fewest nodes first.
inline constexpr int kNodeCounts = 8;
inline constexpr int kMostNodeFactor = 64;  // times as many nodes

// The plan on the fewest nodes more than `now` for which `fit` has one, as far as patience goes.
// `fit` takes a number of nodes and returns an optional.
template <typename Fit>
auto on_more_nodes(int now, const Patience& patience, const Fit& fit) -> decltype(fit(now)) {
  for (int factor = 2; factor <= kMostNodeFactor && !patience.over(); factor *= 2) {
    const int most = now * factor;
    auto doubled = fit(most);
    if (!doubled) {
      continue;
    }
    const int step = std::max(1, most / 2 / kNodeCounts);
    for (int nodes = most / 2 + step; nodes < most && !patience.over(); nodes += step) {
      if (auto fewer = fit(nodes)) {
        return fewer;
      }
    }
    return doubled;
  }
  return {};
}

// "recompute=full instead of recompute=none": a plan that was found without one of --fix.
std::string instead_of(const std::string& fixed, const plan::Plan& plan);
// All known GPUs of the vendor with more memory that is no slower, the least of it first.
std::vector<topologies::Gpu> larger_gpus(const topologies::Gpu& gpu);
// "h100-sxm5-80gb (79.6 GiB)": its memory may have been set to less than the product has.
std::string with_memory(const topologies::Gpu& gpu);
}  // namespace orrery::search
