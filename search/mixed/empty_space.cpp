// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/empty_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.hpp"
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
            "degrees are limited by GPUs, layers, heads and batch of network and cluster");
}

}  // namespace orrery::search
