// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_scaling.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

using plan::Fp8Scaling;

// Recipes of TransformerEngine (common/recipe), by letters and digits; DeepSeek-V3's has blocks of
// 128 (arXiv 2412.19437, section 3.3.2), which NVIDIA's recipes call sub-channels.
std::optional<Fp8Scaling> scaling_in(std::string_view said) {
  constexpr auto kBlocks = std::to_array<std::string_view>(
      {"mxfp8", "blockwise", "blockscal", "perblock", "128x128", "1x128", "subchannel", "deepseek",
       "finegrained", "tilewise", "pertile"});
  constexpr auto kCurrent = std::to_array<std::string_view>({"currentscal", "fp8cs"});
  constexpr auto kDelayed = std::to_array<std::string_view>({"delayed", "fp8ds"});
  constexpr auto kShort = std::to_array<std::string_view>({"fp8 sc", "fp8sc"});  // no "fp8 scales"
  const std::string key = letters_and_digits(said);
  const bool blocks = says_any(key, kBlocks) || has_word(with_blanks(said), kShort);
  return blocks                    ? std::optional(Fp8Scaling::Blocks)
         : says_any(key, kCurrent) ? std::optional(Fp8Scaling::Current)
         : says_any(key, kDelayed) ? std::optional(Fp8Scaling::Delayed)
                                   : std::nullopt;
}

}  // namespace

std::optional<Fp8Scaling> stated_scaling(const Measurement& row) {
  return row.precision == "mxfp8" ? std::optional(Fp8Scaling::Blocks)
                                  : scaling_in(asserted(to_lower(row.precision_detail)));
}

std::vector<std::string> unread_scaling(const Measurement& row) {
  // Shapes of what shares a scale, or scales of fp8; loss has a scale, too.
  constexpr auto kShapes = std::to_array<std::string_view>(
      {"hierarchical", "granular", "per channel", "per token", "per group", "per column",
       "per vector", "channelwise", "channel wise", "groupwise", "group wise", "vectorwise",
       "vector wise", "tokenwise", "token wise", "two level"});
  constexpr auto kScales = std::to_array<std::string_view>({"scal", "recipe"});
  constexpr auto kOthers =
      std::to_array<std::string_view>({"loss", "hybrid", "amax", "bf16", "softmax"});
  // Of torchao, whose scales are those of its framework's facts, and of rows (row_execution.cpp).
  constexpr auto kKnown = std::to_array<std::string_view>({"tensorwise", "rowwise", "dynamic"});
  std::vector<std::string> lines;
  if (row.precision != "fp8") {
    return lines;
  }
  for (const std::string& clause : asserted_clauses(row.precision_detail)) {
    const std::string plain = with_blanks(clause);
    const bool of_fp8 = plain.find("fp8") != plain.npos && says_any(plain, kScales);
    if ((of_fp8 || says_any(plain, kShapes)) && !has_word(plain, kOthers) &&
        !says_any(letters_and_digits(clause), kKnown) && !scaling_in(clause)) {
      lines.push_back(
          fmt::format("\"{}\": scales of fp8 as not stated", printable(trim(clause), 60)));
    }
  }
  return lines;
}

}  // namespace orrery::studies
