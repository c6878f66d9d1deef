// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_optimizer.hpp"

#include <array>
#include <span>
#include <string_view>

#include "base/text.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {

std::optional<StatedOptimizer> stated_optimizer(const Measurement& row) {
  // Adafactor keeps a row and a column of a matrix (Shazeer and Stern 2018), Lion, Muon and Adagrad
  // one moment; two of 8 bits: Dettmers et al. 2021.
  constexpr auto kOneMoment = std::to_array<std::string_view>({"lion", "muon", "adagrad"});
  constexpr auto kSgd = std::to_array<std::string_view>({"sgd"});
  constexpr auto kMomentum = std::to_array<std::string_view>({"momentum"});
  constexpr auto kFactored = std::to_array<std::string_view>({"adafactor"});
  constexpr int kFloat = 4;
  const std::string said = asserted(to_lower(row.variant + "; " + row.notes));
  const auto names = [&](std::span<const std::string_view> words) { return has_word(said, words); };
  if (said.find("adam") != said.npos &&
      (said.find("8-bit") != said.npos || said.find("8bit") != said.npos)) {
    return StatedOptimizer{"Adam of 8 bits", 2};
  }
  if (names(kFactored)) {
    return StatedOptimizer{"Adafactor", 0};
  }
  if (names(kSgd)) {
    const bool momentum = names(kMomentum);
    return StatedOptimizer{momentum ? "SGD with momentum" : "SGD", momentum ? kFloat : 0};
  }
  return names(kOneMoment) ? std::optional(StatedOptimizer{"an optimizer of one moment", kFloat})
                           : std::nullopt;
}

}  // namespace orrery::studies
