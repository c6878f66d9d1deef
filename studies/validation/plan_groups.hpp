// SPDX-License-Identifier: Apache-2.0
// Group by group: which of the measured plans of one network on one cluster the model would choose,
// and what that choice costs against the measured best. A group are the iterations that docs/
// validation.md ranks together; full and partial rows make groups of their own.
#pragma once

#include <string>
#include <vector>

#include "studies/validation/validation.hpp"

namespace orrery::studies {

inline constexpr std::size_t kLeastPlans = 4;  // of an eligible group
inline constexpr double kGoodChoice = 0.03;    // regret

struct PlanGroup {
  std::string source;
  std::string subject;  // network and cluster
  bool full = true;     // confidence of its rows
  std::size_t plans = 0;
  double regret = 0;   // measured time of the plan predicted best over the measured best - 1
  std::string chosen;  // predicted best; of equals the one measured slowest
  std::string best;    // measured best
  bool is_good() const { return regret <= kGoodChoice; }
};

// Groups of at least `least` plans: full ones first, by source and subject. O(n log n).
std::vector<PlanGroup> plan_groups(const std::vector<RowResult>& rows,
                                   std::size_t least = kLeastPlans);

// A table of the groups and the share of full ones whose choice is good, for people.
std::string plan_groups_text(const std::vector<PlanGroup>& groups);
// {"eligible", "within_3_percent", "share", "groups": [...]}: the counts are of full groups.
Json plan_groups_json(const std::vector<PlanGroup>& groups);

}  // namespace orrery::studies
