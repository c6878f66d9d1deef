// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

// Of a mixture of 8 and 16 bits the shorter one. Microscaling formats keep their names.
std::string format_in(std::string_view text) {
  constexpr auto kFormats = std::to_array<WordMeaning>({{"mxfp8", "mxfp8"},
                                                        {"fp8mx", "mxfp8"},
                                                        {"mxfp4", "mxfp4"},
                                                        {"nvfp4", "nvfp4"},
                                                        {"fp4", "nvfp4"},
                                                        {"fp8", "fp8"},
                                                        {"float8", "fp8"},
                                                        {"e4m3", "fp8"},
                                                        {"bf16", "bf16"},
                                                        {"bfloat16", "bf16"},
                                                        {"fp16", "fp16"},
                                                        {"float16", "fp16"},
                                                        {"half", "fp16"},
                                                        {"16mixed", "fp16"},
                                                        {"tf32", "tf32"},
                                                        {"fp32", "fp32"},
                                                        {"float32", "fp32"},
                                                        {"32bit", "fp32"},
                                                        {"single", "fp32"}});
  const std::string key = letters_and_digits(text);
  const auto* const known =
      std::find_if(kFormats.begin(), kFormats.end(),
                   [&](const WordMeaning& one) { return key.find(one.first) != key.npos; });
  return known == kFormats.end() ? "" : std::string(known->second);
}

}  // namespace

// What a cell denies is not its format: "bf16, no fp8". A bracket names the format where nothing
// before it does or where it says what products are in: "mixed (bf16)", "fp32 (TF32 matmul)".
std::string precision_name(std::string_view cell) {
  constexpr auto kProducts =
      std::to_array<std::string_view>({"matmul", "gemm", "linear", "compute", "product", "tf32"});
  const std::string lower = to_lower(cell);
  const std::string said = undenied(before_comparison(lower));
  const std::string_view bracket =
      std::string_view(said).substr(std::min(said.size(), said.find('(')));
  const std::string before = format_in(before_remark(said));
  const bool whole = before.empty() || says_any(bracket, kProducts);
  if (std::string format = whole ? format_in(said) : before; !format.empty()) {
    return format;
  }
  const std::string key = letters_and_digits(cell);
  constexpr auto kHalf = std::to_array<std::string_view>({"o1", "o2", "o3"});
  constexpr auto kSingle = std::to_array<std::string_view>({"32", "32true", "fullprecision"});
  constexpr auto kMixed =
      std::to_array<std::string_view>({"automaticmixedprecision", "16bit", "16bits", "16"});
  if (key.starts_with("ampo") || key.starts_with("apexo") || is_among(key, kHalf)) {
    return "fp16";  // the levels O1 to O3 of NVIDIA's Apex
  }
  return is_among(key, kSingle) ? "fp32"
         : key.starts_with("mixed") || is_among(key, kMixed)
             ? "mixed"  // of which formats it does not say
             : to_lower(cell);
}

}  // namespace orrery::studies
