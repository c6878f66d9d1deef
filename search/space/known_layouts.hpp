// SPDX-License-Identifier: Apache-2.0
// Which layouts of one space exist: that degrees divide what they cut, and that tensors that meet
// were cut in one order. A space asks of millions, which differ in little that either depends on:
// every answer is kept.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "plan/plan.hpp"

namespace orrery::search {

class KnownLayouts {
 public:
  // Of the layouts that are asked for all but the degrees, the micro-batch, the mesh and the
  // context is alike.
  explicit KnownLayouts(const plan::Plan& base) : plan_(base) {}

  bool exists(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch);
  // What it breaks, as a plan document would be told; "" when it exists.
  std::string problem(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch);
  // Sizes and orders that were looked at.
  std::size_t num_checked() const { return divides_.size() + meets_.size(); }

 private:
  void set(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch);
  bool divides(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch);
  bool meets(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch);

  plan::Plan plan_;  // only degrees, micro-batch and layout change
  std::map<std::array<std::int64_t, 9>, bool> divides_;
  std::map<std::array<int, 10>, bool> meets_;
};

// The data axes that have several ranks, of those that share out what experts leave: a bit each.
int data_axes(const plan::BlockPlan& layout, int dp);
// Of a micro-batch what matters to a mesh of so many tensor ranks, whose axes may cut its samples.
std::int64_t samples_that_matter(std::int64_t micro_batch, int tp);

}  // namespace orrery::search
