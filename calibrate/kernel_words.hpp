// SPDX-License-Identifier: Apache-2.0
// What tables of kernels call layouts, passes, products and implementations of attention, in any
// case and with any separators. Nothing where words mean none of what is modelled, so that readers
// refuse them and do not take them for something else.
#pragma once

#include <optional>
#include <string_view>

#include "calibrate/sample_shapes.hpp"

namespace orrery::calibrate {

// T or N, true or false, 1 or 0.
std::optional<bool> is_transposed(std::string_view word);
// Of two operands; nothing where both are transposed, which no training code does.
std::optional<GemmLayout> layout_of_transposes(bool a, bool b);
std::optional<GemmLayout> gemm_layout(std::string_view word);  // "TN", "nn"
// Of the pass of a linear layer: "fwd", "dgrad", "bwd_grad_w".
std::optional<GemmLayout> layout_of_pass(std::string_view pass);
// The number format that the name of a product states ("fp8_matmul"), bf16 where it states none.
std::optional<DType> operands_of_product(std::string_view operation);

struct AttentionPasses {
  bool forward = false;
  bool backward = false;
};
std::optional<AttentionPasses> attention_passes(std::string_view words);  // "fwd", "FWD + BWD"

// "FlashAttention-2", "flash_attn 2.5.8", "FA v2": the version of FlashAttention that is named.
std::optional<int> flash_version(std::string_view words);
// The kernel that an implementation is on GPUs of a vendor, as AttentionShape::flash_version counts
// them: 2, or 0 for the best one, which words that nobody knows stand for, too.
std::optional<int> attention_kernel(std::string_view implementation, std::string_view vendor);

}  // namespace orrery::calibrate
