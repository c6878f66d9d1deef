// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/attention_rows.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "calibrate/kernel_words.hpp"
#include "studies/validation/kernel_cells.hpp"

namespace orrery::studies {
namespace {

using AttentionPoint = tl::expected<KernelPoint, std::string>;
using costmodel::AttentionShape;
using costmodel::DeviceModel;

AttentionShape attention_shape(const Cells& cells, std::string_view heads,
                               std::string_view kv_heads, std::string_view sequence,
                               std::string_view head_dim) {
  AttentionShape shape;
  shape.batch = cells.required_count("batch", limits::kMaxBatch);
  shape.heads = cells.required_count(heads, limits::kMaxHeads);
  shape.kv_heads =
      kv_heads.empty() ? shape.heads : cells.required_count(kv_heads, limits::kMaxHeads);
  shape.q_len = cells.required_count(sequence, limits::kMaxSequence);
  shape.kv_len = shape.q_len;
  shape.head_dim = cells.required_count(head_dim, limits::kMaxHidden);
  shape.value_head_dim = shape.head_dim;
  return shape;
}

// Of the forward pass, every query with every key.
double full_flops(const AttentionShape& shape) {
  const auto value = [](std::int64_t count) { return static_cast<double>(count); };
  return 2.0 * value(shape.batch) * value(shape.heads) * value(shape.q_len) * value(shape.kv_len) *
         value(shape.head_dim + shape.value_head_dim);
}

KernelPoint attention_point(std::string kind, const AttentionShape& shape,
                            std::function<Seconds()> predict, Seconds measured) {
  return {std::move(kind),
          fmt::format("batch {}, {} heads of {}, {} tokens{}", shape.batch, shape.heads,
                      shape.head_dim, shape.q_len, shape.causal ? ", causal" : ""),
          shape.dtype,
          std::move(predict),
          measured,
          false,
          calibrate::AttentionSample{.batch = shape.batch,
                                     .heads = shape.heads,
                                     .kv_heads = shape.kv_heads,
                                     .q_len = shape.q_len,
                                     .kv_len = shape.kv_len,
                                     .head_dim = shape.head_dim,
                                     .value_head_dim = shape.value_head_dim,
                                     .causal = shape.causal,
                                     .window = shape.window,
                                     .dtype = shape.dtype},
          plan::CostClass::Attention};
}

tl::unexpected<std::string> not_modelled(std::string_view impl) {
  return tl::unexpected(fmt::format("attention by {} is not modelled", printable(impl, 40)));
}

// The shape with the kernel, the mask and the number format that a row names. Where the version is
// not known, `impl` is not modelled.
tl::expected<AttentionShape, std::string> with_kernel(AttentionShape shape, const Cells& cells,
                                                      std::optional<int> version,
                                                      std::string_view impl) {
  if (!version) {
    return not_modelled(impl);
  }
  shape.flash_version = *version;
  shape.causal = cells.flag("causal").value_or(true);
  const auto dtype = dtype_of(cells);
  if (!dtype) {
    return tl::unexpected(dtype.error());
  }
  shape.dtype = *dtype;
  return shape;
}

}  // namespace

AttentionPoint timed_attention(const Cells& cells, const DeviceModel& device) {
  const std::string impl = cells.has("impl") ? cells.text("impl") : std::string();
  const auto shape =
      with_kernel(attention_shape(cells, "heads", "kv_heads", "seqlen", "head_dim"), cells,
                  calibrate::attention_kernel(impl, device.gpu().vendor), impl);
  if (!shape) {
    return tl::unexpected(shape.error());
  }
  return attention_point(
      "attention", *shape, [shape = *shape, &device] { return device.attention_forward(shape); },
      microseconds(cells, "time_us"));
}

AttentionPoint figure_of_attention(const Cells& cells, const DeviceModel& device) {
  constexpr double kBackward = 2.5;
  const std::string impl = cells.text("impl");
  const bool known = calibrate::flash_version(impl).has_value();
  const auto stated = with_kernel(
      attention_shape(cells, "heads", "", "seqlen", "head_dim"), cells,
      known ? calibrate::attention_kernel(impl, device.gpu().vendor) : std::nullopt, impl);
  if (!stated) {
    return tl::unexpected(stated.error());
  }
  const AttentionShape& shape = *stated;
  const std::string pass = cells.text("pass_");
  const std::optional<calibrate::AttentionPasses> passes = calibrate::attention_passes(pass);
  if (!passes) {
    return tl::unexpected(fmt::format("pass_ \"{}\": fwd, bwd or fwd+bwd", printable(pass, 40)));
  }
  const auto [forward, backward] = *passes;
  const auto predict = [shape = shape, forward = forward, backward = backward, &device] {
    return (forward ? device.attention_forward(shape) : Seconds()) +
           (backward ? device.attention_backward(shape) : Seconds());
  };
  const double counted = (forward ? 1.0 : 0.0) + (backward ? kBackward : 0.0);
  const double flops = full_flops(shape) * (shape.causal ? 0.5 : 1.0) * counted;
  const char* const kind = !backward ? "attention"
                           : forward ? "attention-both-passes"
                                     : "attention-backward";
  return attention_point(kind, shape, predict, at_rate(flops, cells.positive("tflops")));
}

AttentionPoint training_attention(const Cells& cells, const DeviceModel& device) {
  AttentionShape shape =
      attention_shape(cells, "head_num", "kv_head_num", "seq_len", "qk_head_dim");
  shape.value_head_dim = cells.required_count("v_head_dim", limits::kMaxHidden);
  const bool backward = cells.text("op") == "sdp_bwd";
  const double flops = full_flops(shape) * (backward ? 2.5 : 1.0);
  return attention_point(
      backward ? "attention-backward" : "attention", shape,
      [shape, backward, &device] {
        return backward ? device.attention_backward(shape) : device.attention_forward(shape);
      },
      at_rate(flops, cells.positive("tflops")));
}

}  // namespace orrery::studies
