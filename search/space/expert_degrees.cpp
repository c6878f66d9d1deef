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

}  // namespace orrery::search
