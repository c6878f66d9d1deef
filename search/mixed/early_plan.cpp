// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/early_plan.hpp"

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "search/nearest_parts.hpp"

namespace orrery::search {
namespace {

// In units of mixed/worker.hpp: some two seconds of processor time at most, of one part half of
// one.
constexpr std::uint64_t kMostOfAll = 2'000'000;
constexpr std::uint64_t kMostOfPart = 500'000;

// In the order in which they are tried until one has a plan: of llama3-70b, gpt3-175b and
// llama3-405b on 24 to 2,048 nodes that of eight stages takes less time than that of sixteen.
std::vector<std::int64_t> stage_counts(const Constraints& constraints) {
  if (const auto fixed = constraints.fixed_number("pp")) {
    return {*fixed};
  }
  std::vector<std::int64_t> counts = {8, 16, 4, 2, 32, 1};
  std::erase_if(counts, [&](std::int64_t count) { return !constraints.admits("pp", count); });
  return counts;
}

// Fixes the field to a value that the constraints leave open; what they rule out stays so.
void narrow(const std::string& field, std::string_view value, Constraints& constraints) {
  if (!constraints.is_fixed(field) && constraints.admits(field, value)) {
    constraints.fix(fmt::format("{}={}", field, value));
  }
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
  narrow("tp", std::to_string(gpus_of_every_node(base)), part.constraints);
  narrow("cp", "1", part.constraints);
  narrow("micro_batch", "1", part.constraints);
  narrow("schedule", "1f1b", part.constraints);
  Effort effort(kMostOfAll, Deadline());  // a limit on time waits for a first plan
  for (const std::int64_t stages : stage_counts(part.constraints)) {
    if (effort.over()) {
      break;
    }
    Options one = effort.until_first_plan(part, kMostOfPart);
    narrow("pp", std::to_string(stages), one.constraints);
    const auto searched = [&] { return std::optional(search_mixed(base, one)); };
    if (auto found = first_plan<plan::MixedPlan>(searched, effort).plan) {
      plan::MixedSimulation simulation = plan::MixedSimulator(*found).run(*found);
      return MixedFound{*std::move(found), std::move(simulation)};
    }
  }
  return std::nullopt;
}

}  // namespace orrery::search
