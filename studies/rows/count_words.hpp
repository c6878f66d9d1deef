// SPDX-License-Identifier: Apache-2.0
// The words around the number of a cell that counts something.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace orrery::studies {

// "64 GPU", "80-layer", "5 virtual stages", "TP-4", "h=8192": letters before a count and words
// behind it are remarks unless they are of another column or change it. So is what it is counted
// by, of batches and of a node's GPUs alone: "4 layers per stage" are not all.
std::string_view without_count_words(std::string_view cell, std::string_view column);

// "64/8", "2 of 8" in lower case: a count and what it is a part of or stands beside.
struct TwoCounts {
  std::int64_t first = 0;
  std::int64_t second = 0;
};
std::optional<TwoCounts> two_counts(std::string_view cell);

}  // namespace orrery::studies
