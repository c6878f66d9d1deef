// SPDX-License-Identifier: Apache-2.0
// Products of degrees that --fix names, and what to change where one does not divide what it must.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "search/space/constraints.hpp"
#include "topologies/cluster.hpp"

namespace orrery::cli {

struct FixedProduct {
  struct Factor {
    std::string_view field;
    std::int64_t value;
  };
  std::vector<Factor> factors;  // the fixed ones alone
  std::int64_t value = 1;       // cut at 2^40

  void add(std::string_view field, std::int64_t factor);
  std::string text() const;  // "tp x pp = 8 x 5 = 40"
};

FixedProduct product_of(const search::Constraints& constraints,
                        std::initializer_list<std::string_view> fields);

// The divisor of `total` nearest to `value`, the smaller of two.
std::int64_t nearest_divisor(std::int64_t total, std::int64_t value);

// The smallest change of one factor after which the product divides `total`, "pp = 4 would"; where
// one is not enough, of several: "tp = 2, pp = 4 would".
std::string nearest_that_divides(const FixedProduct& product, std::int64_t total);

// Error where fixed degrees (tp, cp, dp and pp) are not those of this cluster's GPUs.
void check_degrees(const FixedProduct& degrees, const topologies::Cluster& cluster);

}  // namespace orrery::cli
