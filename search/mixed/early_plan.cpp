// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/early_plan.hpp"

#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "search/nearest_parts.hpp"

namespace orrery::search {
namespace {

// In units of mixed/worker.hpp: some two seconds of processor time at most, of one part half of
// one.
constexpr std::uint64_t kMostOfAll = 2'000'000;
constexpr std::uint64_t kMostOfPart = 500'000;

// The first that few stages of large devices come to is often the fastest of them.
constexpr std::array<int, 6> kStages = {8, 16, 4, 2, 32, 1};

// Fixed to the value where the constraints leave it open; false where they rule it out.
bool narrow(const std::string& field, const std::string& value, Constraints& constraints) {
  if (!constraints.admits(field, value)) {
    return false;
  }
  if (!constraints.is_fixed(field)) {
    constraints.fix(field + "=" + value);
  }
  return true;
}

}  // namespace

std::int64_t gpus_of_every_node(const plan::MixedPlan& base) {
  std::int64_t gpus = 0;
  for (const topologies::Pool& pool : base.machine->cluster.pools) {
    gpus = std::gcd(gpus, std::int64_t{pool.cluster.node.gpus});
  }
  return gpus;
}

std::optional<MixedFound> early_mixed_plan(const plan::MixedPlan& base, const Options& options) {
  Options part = options;
  static_cast<StateFiles&>(part) = {};
  // What is ruled out or fixed to another value stays so.
  for (const auto& [field, value] :
       {std::pair("tp", std::to_string(gpus_of_every_node(base))),
        std::pair("cp", std::string("1")), std::pair("micro_batch", std::string("1")),
        std::pair("schedule", std::string("1f1b"))}) {
    (void)narrow(field, value, part.constraints);
  }
  Effort effort(kMostOfAll, Deadline());  // a limit on time waits for a first plan
  for (const int stages : kStages) {
    Options one = part;
    if (effort.over() || !narrow("pp", std::to_string(stages), one.constraints)) {
      continue;
    }
    one = effort.until_first_plan(std::move(one), kMostOfPart);
    const auto searched = [&] { return std::optional(search_mixed(base, one)); };
    if (auto found = first_plan<plan::MixedPlan>(searched, effort).plan) {
      plan::MixedSimulation simulation = plan::MixedSimulator(*found).run(*found);
      return MixedFound{*std::move(found), std::move(simulation)};
    }
  }
  return std::nullopt;
}

}  // namespace orrery::search
