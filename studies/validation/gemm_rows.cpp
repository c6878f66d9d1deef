// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/gemm_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "calibrate/fit/kernel_points.hpp"
#include "calibrate/kernel_words.hpp"
#include "studies/validation/kernel_cells.hpp"

namespace orrery::studies {
namespace {

using costmodel::DeviceModel;
using costmodel::GemmLayout;
using costmodel::GemmShape;
using Layout = tl::expected<GemmLayout, std::string>;

constexpr std::int64_t kLargeGemm = 1024;

GemmShape gemm_shape(const Cells& cells, std::string_view m, std::string_view n,
                     std::string_view k) {
  GemmShape shape;
  shape.m = cells.required_count(m, limits::kMaxVocab);
  shape.n = cells.required_count(n, limits::kMaxVocab);
  shape.k = cells.required_count(k, limits::kMaxVocab);
  return shape;
}

KernelPoint gemm_point(std::string kind, const GemmShape& shape, Seconds measured,
                       const DeviceModel& device) {
  KernelPoint point;
  point.kind = std::move(kind);
  point.subject = fmt::format("{} x {} x {}", shape.m, shape.n, shape.k);
  if (shape.groups > 1) {
    point.subject += fmt::format(", {} groups", shape.groups);
  }
  point.dtype = shape.dtype;
  point.shape = calibrate::GemmSample{.m = shape.m,
                                      .n = shape.n,
                                      .k = shape.k,
                                      .groups = shape.groups,
                                      .dtype = shape.dtype,
                                      .output = unquantised(shape.dtype)};
  point.cost_class =
      shape.groups > 1 && !shape.batched ? plan::CostClass::GroupedGemm : plan::CostClass::Gemm;
  point.predict = [shape, &device] { return device.gemm(shape); };
  point.measured = measured;
  point.large = std::min({shape.m, shape.n, shape.k}) >= kLargeGemm;
  return point;
}

tl::unexpected<std::string> unknown_word(const Cells& cells, std::string_view column,
                                         std::string_view known) {
  return tl::unexpected(
      fmt::format("{} \"{}\": {}", column, printable(cells.text(column), 40), known));
}

Layout layout_of(const Cells& cells) {
  const auto layout = calibrate::gemm_layout(cells.text("layout"));
  return layout ? Layout(calibrate::modelled_layout(*layout))
                : Layout(unknown_word(cells, "layout", "TN, NN or NT"));
}

// Where a table need not have the column: forward where it does not say.
Layout optional_layout(const Cells& cells) {
  return cells.optional_text("layout").empty() ? Layout(GemmLayout::TN) : layout_of(cells);
}

Layout layout_of_stage(const Cells& cells) {
  if (cells.optional_text("stage").empty()) {
    return GemmLayout::TN;
  }
  const auto layout = calibrate::layout_of_pass(cells.text("stage"));
  return layout ? Layout(calibrate::modelled_layout(*layout))
                : Layout(unknown_word(cells, "stage", "fwd, bwd_grad_act or bwd_grad_w"));
}

Layout layout_of_transposes(const Cells& cells) {
  const auto a = calibrate::is_transposed(cells.text("trans_a"));
  const auto b = calibrate::is_transposed(cells.text("trans_b"));
  if (!a || !b) {
    return unknown_word(cells, a ? "trans_b" : "trans_a", "T or N");
  }
  const auto layout = calibrate::layout_of_transposes(*a, *b);
  return layout ? Layout(calibrate::modelled_layout(*layout))
                : Layout(tl::unexpected(std::string("both operands transposed")));
}

// Per element; gradients are summed in fp32, all else is written in 16 bits.
tl::expected<int, std::string> output_bytes(const Cells& cells, std::string_view column) {
  if (cells.optional_text(column).empty()) {
    return 2;
  }
  return dtype_named(cells.text(column)).map([](DType dtype) {
    return bytes_per_element(dtype) >= 4 ? 4 : 2;
  });
}

// Of columns m, n, k, dtype and, where a table has it, layout.
tl::expected<GemmShape, std::string> plain_gemm(const Cells& cells) {
  GemmShape shape = gemm_shape(cells, "m", "n", "k");
  const auto dtype = dtype_of(cells);
  const Layout layout = optional_layout(cells);
  if (!dtype || !layout) {
    return tl::unexpected(dtype ? layout.error() : dtype.error());
  }
  shape.dtype = *dtype;
  shape.layout = *layout;
  return shape;
}

tl::expected<GemmShape, std::string> inference_gemm(const Cells& cells) {
  return plain_gemm(cells).map([](GemmShape shape) {
    shape.casts_activations = is_quantised(shape.dtype);
    return shape;
  });
}

}  // namespace

GemmPoint timed_gemm(const Cells& cells, const DeviceModel& device) {
  return inference_gemm(cells).map([&](const GemmShape& shape) {
    return gemm_point("gemm", shape, microseconds(cells, "time_us"), device);
  });
}

GemmPoint repeated_gemm(const Cells& cells, const DeviceModel& device) {
  const auto shape = inference_gemm(cells);
  if (!shape) {
    return tl::unexpected(shape.error());
  }
  std::vector<double> times;
  for (const std::string& column : cells.table().header()) {
    if (column.ends_with("_us") && unmeasured(cells, column).empty()) {
      times.push_back(cells.positive(column));
    }
  }
  if (times.empty()) {
    return tl::unexpected(std::string("no library timed it"));
  }
  std::sort(times.begin(), times.end());
  const double median = (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
  return gemm_point("gemm", *shape, Seconds(median / 1e6), device);
}

GemmPoint deepbench_gemm(const Cells& cells, const DeviceModel& device) {
  GemmShape shape = gemm_shape(cells, "n", "m", "k");
  const auto dtype = dtype_of(cells);
  const Layout layout = layout_of_transposes(cells);
  if (!dtype || !layout) {
    return tl::unexpected(dtype ? layout.error() : dtype.error());
  }
  shape.dtype = *dtype;
  shape.layout = *layout;
  return gemm_point("gemm", shape, microseconds(cells, "time_us"), device);
}

GemmPoint best_gemm(const Cells& cells, const DeviceModel& device) {
  return plain_gemm(cells).map([&](const GemmShape& shape) {
    return gemm_point("gemm-best-shape", shape,
                      at_rate(flops_of(shape).value(), cells.positive("tflops")), device);
  });
}

GemmPoint training_gemm(const Cells& cells, const DeviceModel& device) {
  GemmShape shape = gemm_shape(cells, "m", "n", "k");
  shape.groups = cells.required_count("b", limits::kMaxBatch);
  shape.batched = shape.groups > 1;
  const auto dtype = calibrate::operands_of_product(cells.text("op"));
  if (!dtype) {
    return unknown_word(cells, "op", "matmul of a known number format");
  }
  const Layout layout = layout_of(cells);
  const auto output = output_bytes(cells, "out_dtype");
  if (!layout || !output) {
    return tl::unexpected(layout ? output.error() : layout.error());
  }
  shape.dtype = *dtype;
  shape.layout = *layout;
  shape.output_bytes = *output;
  return gemm_point(fmt::format("gemm-{}", costmodel::to_text(*layout)), shape,
                    at_rate(flops_of(shape).value(), cells.positive("tflops")), device);
}

GemmPoint grouped_gemm(const Cells& cells, const DeviceModel& device) {
  GemmShape shape = gemm_shape(cells, "M", "N", "K");
  const auto dtype = dtype_of(cells);
  const Layout layout = layout_of_stage(cells);
  const auto gradients = output_bytes(cells, "main_grad_dtype");
  if (!dtype || !layout || !gradients) {
    return tl::unexpected(!dtype ? dtype.error() : !layout ? layout.error() : gradients.error());
  }
  if (*layout == GemmLayout::NN) {
    std::swap(shape.n, shape.k);
  } else if (*layout == GemmLayout::NT) {
    shape = {.m = shape.n, .n = shape.k, .k = shape.m};
    shape.output_bytes = *gradients;
  }
  shape.groups = cells.required_count("ng", limits::kMaxExperts);
  shape.dtype = *dtype;
  shape.layout = *layout;
  const double rate = cells.positive("efficiency") * cells.positive("peak_tflops");
  return gemm_point("grouped-gemm", shape, at_rate(flops_of(shape).value(), rate), device);
}

GemmPoint deep_gemm(const Cells& cells, const DeviceModel& device) {
  GemmShape shape = gemm_shape(cells, "m", "n", "k");
  shape.groups = cells.required_count("groups", limits::kMaxExperts);
  shape.dtype = DType::Fp8;
  return gemm_point(shape.groups > 1 ? "grouped-gemm" : "gemm", shape,
                    at_rate(flops_of(shape).value(), cells.positive("tflops")), device);
}

}  // namespace orrery::studies
