// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/empty_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "search/mixed/worker.hpp"

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

void check_forbidden(const plan::MixedPlan& base, const Constraints& constraints) {
  const std::vector<std::string> fields = constraints.forbidden_fields();
  if (fields.empty() || !has_plan(base, constraints.with_forbidden_alone(""))) {
    return;  // what is forbidden is not to blame
  }
  for (const std::string& field : fields) {
    if (!has_plan(base, constraints.with_forbidden_alone(field))) {
      bad_input("--forbid",
                fmt::format("{} leaves no value of {} for {} on {} and batch {}",
                            constraints.forbidden_text(field), field, base.shape.network.spec.name,
                            base.machine->cluster.name, base.shape.batch),
                "leave out one of these values");
    }
  }
}

}  // namespace

void explain_empty_mixed_space(const plan::MixedPlan& base, const Constraints& constraints) {
  check_forbidden(base, constraints);
  const std::vector<std::string> fixed = constraints.fixed_texts();
  bad_input("",
            fixed.empty()
                ? std::string("no plan of this mixed cluster meets the constraints")
                : fmt::format("no plan of this mixed cluster has {}", fmt::join(fixed, ", ")),
            "degrees are limited by GPUs, layers, heads and batch of network and cluster");
}

}  // namespace orrery::search
