// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/kernel_cells.hpp"

#include <fmt/format.h>

#include <array>
#include <span>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "calibrate/reading_builder.hpp"
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

tl::expected<DType, std::string> dtype_named(std::string_view text) {
  if (text == "fp16_storage_fp32_math") {
    return tl::unexpected(std::string("fp16 operands multiplied in fp32 are not modelled"));
  }
  if (const auto dtype = calibrate::foreign_dtype(text)) {
    return *dtype;
  }
  const std::string name = precision_name(text);
  try {
    return parse_dtype(name == "mxfp8" ? "fp8" : name, "dtype");
  } catch (const Error&) {
    return tl::unexpected(fmt::format("unknown dtype \"{}\"", printable(text, 40)));
  }
}

tl::expected<DType, std::string> dtype_of(const Cells& cells) {
  return dtype_named(cells.has("dtype") ? cells.text("dtype") : dtype_of_file(cells));
}

std::string unmeasured(const Cells& cells, std::string_view column) {
  if (cells.is_open(column)) {
    return fmt::format("{} is not stated", column);
  }
  return cells.number(column) == 0 ? fmt::format("{} is 0: not measured", column) : "";
}

Seconds microseconds(const Cells& cells, std::string_view column) {
  return Seconds(cells.positive(column) / 1e6);
}

Seconds at_rate(double flops, double teraflops) { return Seconds(flops / (teraflops * 1e12)); }

}  // namespace orrery::studies
