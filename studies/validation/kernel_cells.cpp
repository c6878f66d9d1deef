// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/kernel_cells.hpp"

#include <fmt/format.h>

#include <array>
#include <span>

#include "base/error.hpp"
#include "base/text.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

// "gemm-h100-sxm-bf16-repeat" names the type that the table does not.
std::string dtype_of_file(const Cells& cells) {
  constexpr auto kTypes = std::to_array<std::string_view>({"bf16", "fp16", "fp8", "tf32", "fp32"});
  const std::string name = to_lower(stem(cells.table().name()));
  for (const std::string_view type : kTypes) {
    if (has_word(name, std::span(&type, 1))) {
      return std::string(type);
    }
  }
  return {};
}

}  // namespace

tl::expected<DType, std::string> dtype_of(const Cells& cells) {
  const std::string text = cells.has("dtype") ? cells.text("dtype") : dtype_of_file(cells);
  if (text == "fp16_storage_fp32_math") {
    return tl::unexpected(std::string("fp16 operands multiplied in fp32 are not modelled"));
  }
  try {
    return parse_dtype(precision_name(text), "dtype");
  } catch (const Error&) {
    return tl::unexpected(fmt::format("unknown dtype \"{}\"", printable(text, 40)));
  }
}

Seconds microseconds(const Cells& cells, std::string_view column) {
  return Seconds(cells.positive(column) / 1e6);
}

Seconds at_rate(double flops, double teraflops) { return Seconds(flops / (teraflops * 1e12)); }

}  // namespace orrery::studies
