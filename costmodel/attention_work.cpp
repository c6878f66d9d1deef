// SPDX-License-Identifier: Apache-2.0
#include "costmodel/attention_work.hpp"

#include <algorithm>
#include <cmath>

#include "base/math.hpp"

namespace orrery::costmodel {

namespace {

constexpr double kAttentionTile = 128;
constexpr double kBackwardFlops = 2.5;  // five matrix products against two

// Sum over the query rows of the keys each of them sees.
double visible_pairs(const AttentionShape& shape) {
  const double rows = as_double(shape.q_len);
  const double keys = as_double(shape.kv_len);
  const double window = shape.window > 0 ? std::min(keys, as_double(shape.window)) : keys;
  if (!shape.causal) {
    return rows * window;
  }
  // Row i (from the end) sees keys - i keys, at most `window` and at least 0.
  const double seeing = std::min(rows, keys);
  const double first = keys - seeing;  // the first seeing row sees first + 1 keys
  const double limited = std::clamp(keys - window, 0.0, seeing);
  const double growing = seeing - limited;  // rows that see fewer than `window` keys or equal
  return growing * (first + (growing + 1) / 2) + limited * window;
}

}  // namespace

AttentionShape completed(AttentionShape shape) {
  shape.kv_heads = shape.kv_heads > 0 ? shape.kv_heads : shape.heads;
  shape.value_head_dim = shape.value_head_dim > 0 ? shape.value_head_dim : shape.head_dim;
  shape.window = shape.window > 0 ? std::min(shape.window, shape.kv_len) : shape.kv_len;
  return shape;
}

double head_widths(const AttentionShape& shape) {
  return as_double(shape.head_dim) + as_double(shape.value_head_dim);
}

AttentionWork work_of(const AttentionShape& shape, bool backward, double row_overhead,
                      double idle_waves) {
  const double dims = head_widths(shape);
  const double lanes = as_double(shape.batch) * as_double(shape.heads);
  const double rows = as_double(shape.q_len);
  const double visible = visible_pairs(shape);
  const double flop_factor = backward ? kBackwardFlops : 1;
  // Whole tiles are computed along the diagonal, and a row of tiles has a start and an end.
  const double extra = (shape.causal ? (kAttentionTile - 1) / 2 : 0) + row_overhead;
  const double keys = as_double(shape.window);
  const double mean_keys = shape.causal ? std::min(keys, as_double(shape.kv_len) / 2) : keys;
  // The waves lost count once, not for each of the products of the backward pass.
  const double pairs = flop_factor * lanes * (visible + rows * extra) +
                       idle_waves * kAttentionTile * (mean_keys + extra);
  // Backward reads what forward read and wrote plus the output gradient, writes three gradients.
  const double bytes =
      (backward ? 2.5 : 1) * bytes_per_element(shape.dtype) * as_double(shape.batch) * dims *
      (as_double(shape.heads) * rows + as_double(shape.kv_heads) * as_double(shape.kv_len));
  return {flop_factor * 2 * dims * lanes * visible, 2 * dims * pairs, bytes};
}

double attention_share(const AttentionParameters& parameters, double dims, bool backward) {
  const double by_head = std::pow(dims / 256, parameters.head_dim_exponent);
  // Larger heads than 128 do not speed up the backward pass, which runs out of registers.
  return parameters.forward_fraction *
         (backward ? parameters.backward_rate_fraction * std::min(1.0, by_head) : by_head);
}

double fp8_attention_rate(const AttentionParameters& parameters, double dims) {
  return parameters.fp8_forward_rate <= 0
             ? 1.0
             : parameters.fp8_forward_rate * std::pow(dims / 256, parameters.fp8_head_dim_exponent);
}

}  // namespace orrery::costmodel
