// SPDX-License-Identifier: Apache-2.0
// Progressive filling as the textbook has it (Bertsekas and Gallager, Data Networks, 6.5.2): all
// levels rise together; whoever meets a full resource or its bound stops. In long double, from
// nothing, O(steps * uses): the oracle of the incremental solver.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "sim/engine/fair_share.hpp"

namespace orrery::sim::testing {

// Code in this namespace and around it says testing:: for Googletest's, too.
using namespace ::testing;

struct ReferenceVariable {
  std::vector<Demand> demands;
  double bound;
  double weight;
  std::uint32_t multiplicity;
};

inline std::vector<long double> reference_rates(const std::vector<double>& capacities,
                                                const std::vector<ReferenceVariable>& variables) {
  constexpr long double kNever = std::numeric_limits<long double>::infinity();
  std::vector<long double> level(variables.size(), -1.0L);
  for (std::size_t stopped = 0; stopped < variables.size();) {
    std::vector<long double> left(capacities.begin(), capacities.end());
    std::vector<long double> rising(capacities.size(), 0.0L);
    for (std::size_t v = 0; v < variables.size(); ++v) {
      for (const Demand& demand : variables[v].demands) {
        const long double load = static_cast<long double>(demand.amount) * variables[v].weight *
                                 variables[v].multiplicity;
        if (level[v] >= 0.0L) {
          left[demand.resource] -= load * level[v];
        } else {
          rising[demand.resource] += load;
        }
      }
    }
    std::vector<long double> stop(variables.size(), kNever);
    long double least = kNever;
    for (std::size_t v = 0; v < variables.size(); ++v) {
      if (level[v] >= 0.0L) {
        continue;
      }
      stop[v] = static_cast<long double>(variables[v].bound) / variables[v].weight;
      for (const Demand& demand : variables[v].demands) {
        if (demand.amount > 0.0) {
          const std::size_t r = demand.resource;
          stop[v] = std::min(stop[v], std::max(0.0L, left[r]) / rising[r]);
        }
      }
      least = std::min(least, stop[v]);
    }
    for (std::size_t v = 0; v < variables.size(); ++v) {
      if (level[v] < 0.0L && stop[v] <= least * (1.0L + 1e-15L)) {
        level[v] = least;
        ++stopped;
      }
    }
  }
  std::vector<long double> rates(variables.size());
  for (std::size_t v = 0; v < variables.size(); ++v) {
    rates[v] = level[v] * variables[v].weight;
  }
  return rates;
}

}  // namespace orrery::sim::testing
