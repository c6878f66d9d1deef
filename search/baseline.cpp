// SPDX-License-Identifier: Apache-2.0
#include "search/baseline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "search/tree/memory_check.hpp"

namespace orrery::search {

std::vector<const Baseline*> find_baselines(const std::vector<std::string>& names,
                                            std::string_view where) {
  std::vector<std::string> known = {"all"};
  for (const Baseline* baseline : baseline_table()) {
    known.emplace_back(baseline->name);
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      bad_input(where, fmt::format("unknown baseline \"{}\"", printable(name)),
                nearest_hint(name, known));
    }
  }
  const bool all = std::find(names.begin(), names.end(), "all") != names.end();
  std::vector<const Baseline*> found;
  for (const Baseline* baseline : baseline_table()) {
    if (all || std::find(names.begin(), names.end(), baseline->name) != names.end()) {
      found.push_back(baseline);
    }
  }
  return found;
}

namespace {

constexpr const char* kTimeWasUp = "the time limit ended its search";

}  // namespace

void note_end(const Deadline& deadline, BaselineChoice& choice) {
  if (deadline.over()) {
    choice.note += (choice.note.empty() ? "" : "; ") + std::string(kTimeWasUp);
  }
}

BaselineChoice fastest_within(const plan::Plan& base, Options options, std::string_view fix) {
  BaselineChoice choice;
  options.top = 0;
  try {
    if (!fix.empty()) {
      options.constraints.fix(fix);
    }
    Outcome outcome = search(base, options);
    choice.found = std::move(outcome.best);
    choice.plans = outcome.plans;
    choice.note = !choice.found ? outcome.closest_overflow : outcome.timed_out ? kTimeWasUp : "";
  } catch (const Error& error) {  // no plan of the space has these values
    choice.note = error.what();
  }
  return choice;
}

namespace {

// What a rule chose fits only if it also does when its allocations are replayed, as in a search.
void check_memory(BaselineChoice& choice, const plan::Plan& base, int jobs) {
  if (!choice.found || choice.found->simulation.does_not_fit) {
    return;
  }
  plan::Simulator simulator(choice.found->plan);
  plan::MemoryVerdict verdict =
      replay_verdict(choice.found->plan, simulator, base.memory_reserve, jobs);
  if (!verdict.fits) {
    choice.found->simulation.does_not_fit = std::move(verdict.text);
  }
}

}  // namespace

BaselineChoice choose(const Baseline& baseline, const plan::Plan& base, const Options& options) {
  Options restricted = options;
  restricted.top = 0;
  try {
    if (!baseline.fix.empty()) {
      restricted.constraints.fix(baseline.fix);
    }
    if (!baseline.forbid.empty()) {
      restricted.constraints.forbid(baseline.forbid);
    }
    if (baseline.choose == nullptr) {
      return fastest_within(base, restricted, "");
    }
    BaselineChoice choice = baseline.choose(base, restricted);
    check_memory(choice, base, options.jobs);
    return choice;
  } catch (const Error& error) {  // against a constraint of the user
    return {std::nullopt, 0, error.what()};
  }
}

}  // namespace orrery::search
