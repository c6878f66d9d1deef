// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/empty_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/words.hpp"
#include "search/mixed/worker.hpp"
#include "search/space/empty_space.hpp"

namespace orrery::search {
namespace {

bool has_plan(const plan::MixedPlan& base, const Constraints& constraints) {
  MixedWorker worker(base, constraints);
  const auto arrangements = static_cast<int>(worker.space().arrangements().size());
  for (int index = 0; index < arrangements; ++index) {
    if (worker.root(index, false).plans > 0) {
      return true;
    }
  }
  return false;
}

// Fixed numbers that are compared with those near them, and how far from them.
constexpr std::array<std::string_view, 5> kNumbers = {"tp", "cp", "pp", "dp", "micro_batch"};
constexpr std::int64_t kFarthest = 8;

bool has_plan_with(const plan::MixedPlan& base, Constraints constraints, const std::string& fixed) {
  try {
    constraints.fix(fixed);
    return has_plan(base, constraints);
  } catch (const Error& error) {  // it contradicts the others
    if (error.kind() != ErrorKind::BadInput) {
      throw;
    }
    return false;
  }
}

// The nearest value of one of the fixed numbers that has plans, the smaller of two; "" where none
// is near.
std::string nearest_text(const plan::MixedPlan& base, const Constraints& constraints) {
  const std::vector<std::string> fixed = constraints.fixed_texts();
  for (std::size_t index = 0; index < fixed.size(); ++index) {
    const std::string field = fixed[index].substr(0, fixed[index].find('='));
    const std::optional<std::int64_t> value =
        is_among(field, kNumbers) ? constraints.fixed_number(field) : std::nullopt;
    if (!value) {
      continue;
    }
    const Constraints others = constraints.without_fixed(index);
    for (std::int64_t distance = 1; distance <= kFarthest; ++distance) {
      for (const std::int64_t near : {*value - distance, *value + distance}) {
        if (near > 0 && has_plan_with(base, others, fmt::format("{}={}", field, near))) {
          return fmt::format("; {} = {} would do", field, near);
        }
      }
    }
  }
  return "";
}

}  // namespace

void explain_empty_mixed_space(const plan::MixedPlan& base, const Constraints& constraints) {
  check_forbidden(
      constraints, [&](const Constraints& some) { return has_plan(base, some); },
      fmt::format("{} on {} and batch {}", base.shape.network.spec.name, base.machine->cluster.name,
                  base.shape.batch));
  const std::vector<std::string> fixed = constraints.fixed_texts();
  bad_input("",
            fixed.empty()
                ? std::string("no plan of this mixed cluster meets the constraints")
                : fmt::format("no plan of this mixed cluster has {}", fmt::join(fixed, ", ")),
            "degrees are limited by GPUs, layers, heads and batch of network and cluster" +
                nearest_text(base, constraints));
}

}  // namespace orrery::search
