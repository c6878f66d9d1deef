// SPDX-License-Identifier: Apache-2.0
// The description of a schedule document (sim/orders/schedule_document.hpp) from JSON. O(members).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/json_reader.hpp"
#include "sim/orders/schedule_document.hpp"

namespace orrery::sim {

// The index of a string that must be one of `names`.
template <std::size_t size>
std::size_t index_in(const JsonReader& value, const std::array<std::string_view, size>& names) {
  const std::string name = value.one_of(names);
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

// The members of a rule; Error for values outside their sets.
ScheduleDescription read_schedule_rule(ObjectReader& object);

}  // namespace orrery::sim
