// SPDX-License-Identifier: Apache-2.0
// Variants of the passes of one rank, each an added time for less memory: one for each pair of a
// stage and a micro-batch, so that the added time is least and no peak exceeds the memory.
#pragma once

#include <optional>
#include <vector>

namespace orrery::search {

struct MemoryVariant {
  double seconds = 0;  // added
  double bytes = 0;
};

// Alive during [start, end] of the rank's pass list.
struct VariantPair {
  int start = 0;
  int end = 0;
  std::vector<MemoryVariant> variants;
};

struct VariantChoice {
  std::vector<int> chosen;  // by pair
  double seconds = 0;
  bool proven = false;  // no choice adds less
};

// None where the smallest variants do not fit. Greedy: from the smallest ones the steps that save
// most time for their memory while it lasts; then integer programming, as far as the program is
// small and its limit on work reaches. The better of the two; it takes a few seconds at most.
std::optional<VariantChoice> choose_variants(const std::vector<VariantPair>& pairs, double memory);

}  // namespace orrery::search
