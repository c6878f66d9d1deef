// SPDX-License-Identifier: Apache-2.0
#include "search/space/expert_degrees.hpp"

#include <algorithm>
#include <numeric>

#include "base/math.hpp"
#include "plan/block_rules.hpp"

namespace orrery::search {

std::vector<int> expert_degrees(const plan::BlockPlan& layout, std::int64_t replicas,
                                const models::NetworkSpec& spec, const Constraints& constraints) {
  const std::int64_t experts = std::max<std::int64_t>(1, spec.moe.experts);
  const int inside = plan::expert_ranks_inside(layout);
  std::vector<int> degrees;
  for (const std::int64_t degree : divisors(std::gcd(experts, replicas * inside))) {
    if (degree % inside == 0 && constraints.admits("ep", degree)) {
      degrees.push_back(static_cast<int>(degree));
    }
  }
  return degrees;
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
