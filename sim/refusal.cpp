// SPDX-License-Identifier: Apache-2.0
#include "sim/refusal.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <utility>

namespace orrery::sim {
namespace {

// "A", "A and B", "A, B and C".
std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? "" : i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

std::string to_text(const std::vector<Change>& changes, std::string_view cap_name) {
  std::vector<std::string> set;
  std::vector<std::string> leave;
  for (const Change& change : changes) {
    const std::string_view name = to_text(change.size, cap_name);
    if (change.leaves_out) {
      leave.emplace_back(name);
    } else {
      set.push_back(fmt::format("{} to {:.10g}", name, change.value));
    }
  }
  std::string text = set.empty() ? "" : "set " + listed(set);
  text += set.empty() || leave.empty() ? "" : ", and ";
  text += leave.empty() ? "" : "leave " + listed(leave) + " out";
  return text;
}

}  // namespace

std::string_view to_text(Size size, std::string_view cap_name) {
  constexpr std::array<std::string_view, 8> kNames = {"stages",     "micro-batches", "chunks",
                                                      "slices",     "replicas",      "warm-up",
                                                      "iterations", "rollbacks"};
  return size == Size::Cap ? cap_name : kNames[static_cast<std::size_t>(size)];
}

Refusal refused(std::string constraint, Size size, double value) {
  return {std::move(constraint), {{size, value}}};
}

Refusal too_many(std::string constraint, Size size, double value) {
  return {std::move(constraint), {{size, value}}, true};
}

Refusal not_taken(std::string constraint, Size size) {
  return {std::move(constraint), {{size, 0.0, true}}};
}

std::string to_text(const Refusal& refusal, std::string_view cap_name) {
  return refusal.changes.empty()
             ? refusal.constraint
             : fmt::format("{}: {}", refusal.constraint, to_text(refusal.changes, cap_name));
}

}  // namespace orrery::sim
