// SPDX-License-Identifier: Apache-2.0
// Costs of blocks by the lengths of a micro-batch, kept between packs (plan/packs.hpp) and between
// plans of one network, cluster, profile, precision and execution. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/block/cost.hpp"

namespace orrery::plan {

class PackCosts {
 public:
  // Lengths apart, as `same`, which stays alive.
  explicit PackCosts(const BlockCosts& same) : same_(same) {}

  // Of a plan of one pack; stays where it is.
  BlockCosts& of(const Plan& alone) {
    return known_
        .try_emplace({alone.sequence, alone.joined_sequences}, same_, alone.sequence,
                     alone.joined_sequences)
        .first->second;
  }
  const BlockCosts& models() const { return same_; }

  // All times are those of a draw from now on (BlockCosts::set_factors).
  void set_factors(const CostFactors& factors) {
    for (auto& [lengths, costs] : known_) {
      costs.set_factors(factors);
    }
  }

 private:
  const BlockCosts& same_;
  std::map<std::pair<std::int64_t, std::vector<std::int64_t>>, BlockCosts> known_;
};

}  // namespace orrery::plan
