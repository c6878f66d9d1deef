// SPDX-License-Identifier: Apache-2.0
// What causal attention of a slice of a sequence takes.
#pragma once

namespace orrery::search {

// Pairs of tokens that a slice's tokens form with the `context` before it and, causally, with each
// other: the slices of a sequence together have as many as the whole.
inline double attention_pairs(double tokens, double context) {
  return tokens * (context + tokens / 2);
}

}  // namespace orrery::search
