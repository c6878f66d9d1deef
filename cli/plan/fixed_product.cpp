// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/fixed_product.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"

namespace orrery::cli {
namespace {

std::int64_t saturated_product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 40;
  return a > kLargest / b ? kLargest : a * b;
}

// Of each factor in turn, of what those before it leave.
std::string all_that_divide(const FixedProduct& product, std::int64_t total) {
  std::vector<std::string> changes;
  for (const FixedProduct::Factor& factor : product.factors) {
    const std::int64_t nearest = nearest_divisor(total, factor.value);
    if (nearest != factor.value) {
      changes.push_back(fmt::format("{} = {}", factor.field, nearest));
    }
    total /= nearest;
  }
  return fmt::format("{} would", fmt::join(changes, ", "));
}

}  // namespace

void FixedProduct::add(std::string_view field, std::int64_t factor) {
  factors.push_back({field, factor});
  value = saturated_product(value, factor);
}

std::string FixedProduct::text() const {
  std::vector<std::string_view> names;
  std::vector<std::int64_t> values;
  for (const Factor& factor : factors) {
    names.push_back(factor.field);
    values.push_back(factor.value);
  }
  const std::string product =
      fmt::format("{} = {}", fmt::join(names, " x "), fmt::join(values, " x "));
  return factors.size() > 1 ? fmt::format("{} = {}", product, value) : product;
}

FixedProduct product_of(const search::Constraints& constraints,
                        std::initializer_list<std::string_view> fields) {
  FixedProduct product;
  for (const std::string_view field : fields) {
    if (const auto value = constraints.fixed_number(field)) {
      product.add(field, *value);
    }
  }
  return product;
}

std::int64_t nearest_divisor(std::int64_t total, std::int64_t value) {
  std::int64_t below = std::min(value, total);
  while (total % below != 0) {
    --below;
  }
  for (std::int64_t above = value; above < 2 * value - below && above <= total; ++above) {
    if (total % above == 0) {
      return above;
    }
  }
  return below;
}

std::string nearest_that_divides(const FixedProduct& product, std::int64_t total) {
  const FixedProduct::Factor* changed = nullptr;
  std::int64_t nearest = 0;
  for (const FixedProduct::Factor& factor : product.factors) {
    std::int64_t others = 1;
    for (const FixedProduct::Factor& other : product.factors) {
      others = &other == &factor ? others : saturated_product(others, other.value);
    }
    if (total % others != 0) {
      continue;
    }
    const std::int64_t divisor = nearest_divisor(total / others, factor.value);
    if (changed == nullptr ||
        std::abs(divisor - factor.value) < std::abs(nearest - changed->value)) {
      changed = &factor;
      nearest = divisor;
    }
  }
  return changed == nullptr ? all_that_divide(product, total)
                            : fmt::format("{} = {} would", changed->field, nearest);
}

void check_degrees(const FixedProduct& degrees, const topologies::Cluster& cluster) {
  constexpr std::size_t kAll = 4;
  const std::int64_t gpus = cluster.num_gpus();
  if (degrees.factors.size() == kAll && degrees.value != gpus) {
    bad_input("--fix", fmt::format("{}, but {} has {} GPUs", degrees.text(), cluster.name, gpus),
              "leave one degree out to let it follow");
  }
  if (gpus % degrees.value != 0) {
    bad_input(
        "--fix",
        fmt::format("{} does not divide the {} GPUs of {}", degrees.text(), gpus, cluster.name),
        nearest_that_divides(degrees, gpus));
  }
}

}  // namespace orrery::cli
