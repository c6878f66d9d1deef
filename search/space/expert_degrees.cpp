// SPDX-License-Identifier: Apache-2.0
#include "search/space/expert_degrees.hpp"

#include <algorithm>
#include <numeric>

#include "base/math.hpp"
#include "plan/block_rules.hpp"

namespace orrery::search {

namespace {

// Whether experts on so few ranks are on a part of tp, or on all of it and a part of cp. On one
// rank they are not spread over context ranks.
bool copies_nest(plan::BlockPlan layout, int degree) {
  layout.ep = degree;
  return (layout.expert_cp == 0 || degree > 1) && plan::nests_experts(layout);
}

}  // namespace

std::vector<int> expert_degrees(const plan::BlockPlan& layout, std::int64_t replicas,
                                const models::NetworkSpec& spec, const Constraints& constraints) {
  const std::int64_t experts = spec.moe.experts;
  if (experts == 0) {
    return constraints.admits("ep", 1) ? std::vector<int>{1} : std::vector<int>{};
  }
  const int inside = plan::expert_ranks_inside(layout);
  std::vector<int> degrees;
  for (const std::int64_t degree : divisors(std::gcd(experts, replicas * inside))) {
    const bool whole = degree % inside == 0;
    if ((whole || may_copy_experts(constraints)) && constraints.admits("ep", degree) &&
        (whole || copies_nest(layout, static_cast<int>(degree)))) {
      degrees.push_back(static_cast<int>(degree));
    }
  }
  return degrees;
}

bool may_copy_experts(const Constraints& constraints) {
  const bool placed = constraints.is_fixed("expert_tp") || constraints.is_fixed("expert_cp");
  return constraints.allows_meshes() || (placed && constraints.is_fixed("ep"));
}

std::vector<int> expert_tensor_degrees(int tp, const models::NetworkSpec& spec,
                                       const Constraints& constraints) {
  const bool fixed = constraints.is_fixed("expert_tp");
  const bool as_zero = constraints.admits("expert_tp", 0);
  const bool as_tp = constraints.admits("expert_tp", tp);
  if (spec.moe.experts == 0 || (tp == 1 && !fixed)) {
    return {0};
  }
  std::vector<int> degrees;
  if (fixed ? as_zero || as_tp : as_zero && as_tp) {
    degrees.push_back(0);
  }
  const bool some = fixed || constraints.allows_meshes();
  for (const std::int64_t cut : divisors(tp)) {
    if (cut < tp && (cut == 1 || some) && constraints.admits("expert_tp", cut)) {
      degrees.push_back(static_cast<int>(cut));
    }
  }
  return degrees;
}

}  // namespace orrery::search
