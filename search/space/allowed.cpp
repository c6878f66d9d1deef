// SPDX-License-Identifier: Apache-2.0
// --allow: what makes training another one, or widens the space.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/training_changes.hpp"
#include "search/space/constraints.hpp"
#include "search/space/execution_flags.hpp"
#include "sim/schedule.hpp"

namespace orrery::search {

std::span<const Constraints::Choice> Constraints::choices() {
  static constexpr std::array<Choice, 5> kChoices = {{{"asynchronous", &Constraints::asynchronous_},
                                                      {"lossy", &Constraints::lossy_},
                                                      {"offload", &Constraints::offload_},
                                                      {"operators", &Constraints::operators_},
                                                      {"meshes", &Constraints::meshes_}}};
  return kChoices;
}

std::vector<std::string> Constraints::choice_names() {
  std::vector<std::string> names;
  for (const Choice& choice : choices()) {
    names.emplace_back(choice.name);
  }
  return names;
}

void Constraints::allow(std::string_view text, std::string_view from) {
  for (const std::string_view part : split(text, ',')) {
    const std::string_view name = trim(part);
    const std::span<const Choice> known = choices();
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const Choice& choice) { return choice.name == name; });
    if (found == known.end()) {
      bad_input(from, fmt::format("unknown choice \"{}\"", printable(name)),
                nearest_hint(name, choice_names()));
    }
    this->*found->allowed = true;
    note("allow", std::string(name), from);
  }
}

bool Constraints::is_asynchronous(const std::string& schedule) const {
  const auto table = sim::schedule_table();
  const auto registered = std::find_if(
      table.begin(), table.end(), [&](const sim::Schedule* one) { return one->name == schedule; });
  if (registered != table.end()) {
    return !(*registered)->traits.synchronous;
  }
  return std::any_of(documents_.begin(), documents_.end(), [&](const auto& document) {
    return document->name == schedule && !sim::traits_of(*document).synchronous;
  });
}

bool Constraints::searches_asynchronous() const {
  const std::vector<std::string> names = named_schedules();
  return asynchronous_ &&
         (asynchronous_alone_ || (!names.empty() && std::all_of(names.begin(), names.end(),
                                                                [this](const std::string& name) {
                                                                  return is_asynchronous(name);
                                                                })));
}

Constraints Constraints::asynchronous_alone() const {
  Constraints alone = *this;
  alone.asynchronous_ = alone.asynchronous_alone_ = true;
  return alone;
}

bool Constraints::leaves_out_single_stages() const {
  return asynchronous_alone_ && !is_fixed("pp");
}

void Constraints::check_allowed(DType precision) const {
  constexpr const char* kStale = "add --allow asynchronous to accept that";
  for (const std::string& name : named_schedules()) {
    if (is_asynchronous(name) && !asynchronous_) {
      bad_input("schedule",
                fmt::format("\"{}\" is asynchronous: gradients are computed with parameters that "
                            "are out of date",
                            name),
                kStale);
    }
  }
  for (const Entry& entry : fixed_) {
    bool plan::Execution::*const flag = execution_flag(entry.field);
    if (flag == nullptr || entry.value != "true") {
      continue;
    }
    const std::string where = fmt::format("{} {}", entry.from, entry.field);
    if (flag == &plan::Execution::delayed_update && !asynchronous_) {
      bad_input(where, "the optimizer is a step late: gradients are of parameters out of date",
                kStale);
    }
    if (plan::is_lossy(flag, precision) && !lossy_) {
      bad_input(where, "traffic in fewer bits loses precision that products have",
                "add --allow lossy to accept that");
    }
  }
}

}  // namespace orrery::search
