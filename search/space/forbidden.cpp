// SPDX-License-Identifier: Apache-2.0
// --forbid: values that a search would try are left out, a flag takes its other value, and what no
// search tries has to be fixed instead, so that no plan has what was forbidden.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/words.hpp"
#include "search/space/constraints.hpp"
#include "search/space/execution_flags.hpp"

namespace orrery::search {

namespace {

// Of which every plan has the one value that --fix says, or the usual one.
constexpr std::array kOneValue = std::to_array<std::string_view>(
    {"encoder_parts", "servers", "clock_distance", "expert_cp", "shard_degree", "activation_cap",
     "tp_rows", "tp_depth", "broadcasts", "backward_prefetch", "gathers_in_flight",
     "fetched_together", "offload_activations_tier", "offload_parameters"});

bool is_flag(const std::string& field) {
  return execution_flag(field) != nullptr || field == "keep_gathered" || field == "zigzag";
}

std::string other_value(const std::string& flag) { return flag == "true" ? "false" : "true"; }

}  // namespace

void Constraints::forbid(std::string_view text, std::string_view from) {
  for (Entry& entry : parse(text, from)) {
    if (is_among(entry.field, kOneValue)) {
      bad_input(fmt::format("{} {}", from, entry.field), "no search tries several values of it",
                fmt::format("leave it out, or --fix {}=VALUE", entry.field));
    }
    if (is_flag(entry.field) && !is_fixed(entry.field)) {
      fixed_.push_back({entry.field, other_value(entry.value), entry.from});
    }
    note("forbid", entry.field + "=" + entry.value, from);
    const bool known = std::any_of(forbidden_.begin(), forbidden_.end(), [&](const Entry& one) {
      return one.field == entry.field && one.value == entry.value;
    });
    if (!known) {
      forbidden_.push_back(std::move(entry));
    }
  }
}

std::vector<std::string> Constraints::forbidden_fields() const {
  std::vector<std::string> fields;
  for (const Entry& entry : forbidden_) {
    if (std::find(fields.begin(), fields.end(), entry.field) == fields.end()) {
      fields.push_back(entry.field);
    }
  }
  return fields;
}

std::string Constraints::forbidden_text(std::string_view field) const {
  std::vector<std::string> texts;
  for (const Entry& entry : forbidden_) {
    if (entry.field == field) {
      texts.push_back(entry.field + "=" + entry.value);
    }
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

Constraints Constraints::without_forbidden(std::string_view field) const {
  Constraints relaxed = *this;
  std::erase_if(relaxed.forbidden_, [&](const Entry& entry) { return entry.field == field; });
  return relaxed;
}

Constraints Constraints::with_forbidden_alone(std::string_view field) const {
  Constraints alone = *this;
  alone.fixed_.clear();
  alone.chosen_.clear();
  alone.chosen_from_.clear();
  std::erase_if(alone.forbidden_, [&](const Entry& entry) { return entry.field != field; });
  return alone;
}

// Names the places of both where one of them is a file.
void Constraints::refuse_both(const Entry& fixed) const {
  const std::string what =
      fmt::format("{}={} is fixed and excluded at once", fixed.field, fixed.value);
  std::string against = "--schedule";
  for (const Entry& entry : forbidden_) {
    against = entry.field == fixed.field && entry.value == fixed.value ? entry.from : against;
  }
  if (against == "--schedule" && !chosen_from_.empty()) {
    against = chosen_from_.back();
  }
  if (!fixed.from.starts_with("--") || !against.starts_with("--")) {
    bad_input(fixed.from, fmt::format("{}, by {}", what, against), "leave out one of the two");
  }
  bad_input("--fix", what,
            chosen_.empty() ? "leave out either --fix or the --forbid against it"
                            : "leave out either --fix or the --forbid or --schedule against it");
}

void Constraints::check_contradictions() const {
  for (const Entry& entry : forbidden_) {
    const bool both = is_flag(entry.field) &&
                      std::any_of(forbidden_.begin(), forbidden_.end(), [&](const Entry& other) {
                        return other.field == entry.field && other.value != entry.value;
                      });
    if (both) {
      bad_input("--forbid", fmt::format("{} can be neither true nor false", entry.field),
                "forbid one of the two at most");
    }
  }
  for (const Entry& entry : fixed_) {
    if (!admits(entry.field, entry.value)) {
      refuse_both(entry);
    }
  }
  const std::vector<std::string> named = named_schedules();
  if (!named.empty() && std::none_of(named.begin(), named.end(), [&](const std::string& name) {
        return admits("schedule", name);
      })) {
    bad_input("--schedule",
              fmt::format("{} is asked for and excluded at once", fmt::join(named, " or ")),
              "leave out either --schedule or the --forbid against it");
  }
  check_sharding();
}

// A group of ranks that shards states, where none are sharded.
void Constraints::check_sharding() const {
  const auto degree = fixed_number("shard_degree");
  if (degree && !admits("zero", 1) && !admits("zero", 2) && !admits("zero", 3)) {
    bad_input("--fix",
              fmt::format("shard_degree = {} needs ZeRO, and zero cannot be 1, 2 or 3", *degree),
              is_fixed("zero")
                  ? fmt::format("--fix zero=1,shard_degree={}, or leave shard_degree out", *degree)
                  : "allow one of these stages, or leave shard_degree out");
  }
}

}  // namespace orrery::search
