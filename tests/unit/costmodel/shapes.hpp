// SPDX-License-Identifier: Apache-2.0
// Shapes of kernels for tests.
#pragma once

#include "costmodel/device_model.hpp"

namespace orrery::costmodel {

// Causal, of every token with all before it, heads of 128.
inline AttentionShape causal_attention(std::int64_t batch, std::int64_t heads,
                                       std::int64_t kv_heads, std::int64_t tokens,
                                       DType dtype = DType::Bf16) {
  return {.batch = batch,
          .heads = heads,
          .kv_heads = kv_heads,
          .q_len = tokens,
          .kv_len = tokens,
          .head_dim = 128,
          .value_head_dim = 128,
          .dtype = dtype};
}

}  // namespace orrery::costmodel
