// SPDX-License-Identifier: Apache-2.0
// Largest values of a serving plan's options, in documents and in what a search may fix.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/limits.hpp"

namespace orrery::plan {

inline constexpr std::int64_t kMostNanoBatches = 8;
inline constexpr std::int64_t kLargestCacheBlock = 4096;  // tokens
inline constexpr double kMostOnHost = 0.99;               // share of the cached tokens

// Of the option of this name, or degree.
constexpr std::int64_t most_of_option(std::string_view name) {
  return name == "nano_batches"  ? kMostNanoBatches
         : name == "cache_block" ? kLargestCacheBlock
                                 : limits::kMaxSequence;
}

}  // namespace orrery::plan
