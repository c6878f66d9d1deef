// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/early_plan.hpp"

#include <fmt/format.h>

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
// A first plan is good that takes no more than twice the bound of its part; else it may be improved
// with so much work.
constexpr double kGoodGap = 0.5;
constexpr std::uint64_t kMostOfBetter = 250'000;

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

MixedFound simulated(plan::MixedPlan plan) {
  plan::MixedSimulation simulation = plan::MixedSimulator(plan).run(plan);
  return {std::move(plan), std::move(simulation)};
}

// The first plan of a part may be far from its best: bounds do not tell what ZeRO stages send in
// every pass, which takes experts ten times as long as their kernels.
MixedFound improved(MixedFound first, const plan::MixedPlan& base, Options part) {
  part.gap_fraction = kGoodGap;
  part.most_work = kMostOfBetter;
  MixedOutcome outcome = search_mixed(base, part);
  const bool better =
      outcome.best && outcome.best->simulation.iteration_time < first.simulation.iteration_time;
  return better ? *std::move(outcome.best) : std::move(first);
}

}  // namespace

std::optional<MixedFound> early_mixed_plan(const plan::MixedPlan& base, const Options& options,
                                           const std::function<void(Seconds)>& first) {
  Options part = options;
  static_cast<StateFiles&>(part) = {};
  narrow("tp", std::to_string(gpus_of_every_node(base)), part.constraints);
  narrow("cp", "1", part.constraints);
  narrow("micro_batch", "1", part.constraints);
  narrow("schedule", "1f1b", part.constraints);
  Effort effort(kMostOfAll);  // a limit on time waits for a first plan
  for (const std::int64_t stages : stage_counts(part.constraints)) {
    if (effort.over()) {
      break;
    }
    Options one = effort.until_first_plan(part, kMostOfPart);
    narrow("pp", std::to_string(stages), one.constraints);
    const auto searched = [&] { return std::optional(search_mixed(base, one)); };
    if (auto plan = first_plan<plan::MixedPlan>(searched, effort).plan) {
      MixedFound found = simulated(*std::move(plan));
      if (first) {
        first(found.simulation.iteration_time);
      }
      return improved(std::move(found), base, std::move(one));
    }
  }
  return std::nullopt;
}

}  // namespace orrery::search
