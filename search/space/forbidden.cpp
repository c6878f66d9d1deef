// SPDX-License-Identifier: Apache-2.0
// --forbid: values that a search would try are left out, a flag takes its other value, and what no
// search tries has to be fixed instead, so that no plan has what was forbidden.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
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

}  // namespace

void Constraints::forbid(std::string_view text) {
  for (Entry& entry : parse(text, "--forbid")) {
    if (std::find(kOneValue.begin(), kOneValue.end(), entry.field) != kOneValue.end()) {
      bad_input(fmt::format("--forbid {}", entry.field), "no search tries several values of it",
                fmt::format("leave it out, or --fix {}=VALUE", entry.field));
    }
    if (is_flag(entry.field) && !is_fixed(entry.field)) {
      fixed_.push_back({entry.field, entry.value == "true" ? "false" : "true"});
    }
    forbidden_.push_back(std::move(entry));
  }
}

}  // namespace orrery::search
