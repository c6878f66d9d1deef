// SPDX-License-Identifier: Apache-2.0
// What the searches of nearest changes on one and on several kinds of nodes have in common.
#pragma once

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
  explicit Patience(Seconds most) : most_(most) {}
  // Options of a search that ends at its first plan, or when patience does.
  Options until_first_plan(Options options) const;
  bool over() const { return interrupted() || left().value() <= 0; }
  Seconds left() const;

 private:
  Seconds most_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

// Numbers of nodes to try in place of `now`, which rise: doublings up to 64 times as many.
std::vector<int> node_doublings(int now);
// Fewer nodes may do than the first doubling that fits: up to seven numbers between it and the one
// before.
std::vector<int> node_counts_below(int doubled);

// "recompute=full instead of recompute=none": a plan that was found without one of --fix.
std::string instead_of(const std::string& fixed, const plan::Plan& plan);
// All known GPUs of the vendor with more memory that is no slower, the least of it first.
std::vector<topologies::Gpu> larger_gpus(const topologies::Gpu& gpu);
// Parameters and optimizer of the whole network, which no plan has less of over all GPUs together
// unless they live elsewhere.
ByteCount states_once(plan::Plan base);
// "h100-sxm5-80gb (79.6 GiB)": its memory may have been set to less than the product has.
std::string with_memory(const topologies::Gpu& gpu);
}  // namespace orrery::search
