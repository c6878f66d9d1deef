// SPDX-License-Identifier: Apache-2.0
// The values of a swept field ("132.082 GB", "16", "1f1b") as labels of an axis.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::studies {

// "132.082 GB" as "132 GB", with more digits where values would look alike; whole and short numbers
// stay as they are, and names as far as they have room.
std::vector<std::string> short_labels(const std::vector<std::string>& values);

// Whether it is not a number with or without a unit.
bool is_name(std::string_view value);

// The number of a value and what stands behind it (" GB"); 0 and the whole of a name.
std::pair<double, std::string_view> number_and_unit(std::string_view value);

// By their numbers where all values are numbers of the same unit; else the order is kept.
void sort_by_number(std::vector<std::string>& values);

}  // namespace orrery::studies
