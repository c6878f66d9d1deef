// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/options_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "search/mixed/space.hpp"

namespace orrery::search {
namespace {

void check_schedules(const Constraints& constraints) {
  std::vector<std::string_view> usable;
  for (const sim::Schedule* schedule : sim::schedule_table()) {
    if (runs_on_mixed(*schedule)) {
      usable.push_back(schedule->name);
    }
  }
  for (const std::string& name : constraints.named_schedules()) {
    if (std::find(usable.begin(), usable.end(), name) == usable.end()) {
      bad_input("schedule", fmt::format("\"{}\" is no schedule of mixed clusters", name),
                fmt::format("take one of {}", fmt::join(usable, ", ")));
    }
  }
}

}  // namespace

void check_mixed_options(const plan::MixedPlan& base, const Options& options) {
  const Constraints& constraints = options.constraints;
  constexpr const char* kNone = "a plan document may have it: `orrery simulate`";
  const std::pair<const char*, const char*> usual[] = {{"slices", "1"}, {"tensor_parallel", "1d"}};
  for (const auto& [field, value] : usual) {
    if (!constraints.admits(field, value)) {
      bad_input("--fix", fmt::format("the search of mixed clusters has {} = {}", field, value),
                std::string(field) == "slices" ? std::string() : std::string(kNone));
    }
  }
  for (const char* field :
       {"shard_degree", "stages", "tp_inner", "ep_inside", "ulysses_degree", "activation_cap"}) {
    if (constraints.is_fixed(field)) {
      bad_input("--fix", fmt::format("the search of mixed clusters has no {}", field),
                std::string(field) == "stages" ? std::string() : std::string(kNone));
    }
  }
  if (constraints.is_fixed("context") && constraints.admits("context", "mix")) {
    bad_input("--fix", "the search of mixed clusters has no context = mix", kNone);
  }
  if (constraints.offload().any() || constraints.delays_update()) {
    bad_input("--fix", "plans of mixed clusters offload nothing");
  }
  if (constraints.allows_offload() || constraints.allows_operators() ||
      constraints.allows_meshes() || constraints.asynchronous()) {
    bad_input("--allow", "the search of mixed clusters has no such choices");
  }
  if (!constraints.documents().empty()) {
    bad_input("--schedule", "the search of mixed clusters takes registered schedules",
              "a plan document may have its own: `orrery simulate`");
  }
  check_schedules(constraints);
  constraints.check_allowed(base.shape.precision);
  const models::NetworkSpec& spec = base.shape.network.spec;
  if (spec.cascade.layers > 0) {
    bad_input(spec.name, "plans of mixed clusters have one trained backbone",
              "leave out \"cascade\", or take nodes of one kind");
  }
}

}  // namespace orrery::search
