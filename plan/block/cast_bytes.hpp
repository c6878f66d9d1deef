// SPDX-License-Identifier: Apache-2.0
// Bytes that the kernels around products in fp8 and nvfp4 move for one tensor, by framework.
#pragma once

#include "plan/block/kernels.hpp"

namespace orrery::plan {

// Bytes an element: finding the largest value reads 2, casting reads 2 and writes 1, transposing
// what was cast reads and writes 1.
inline constexpr double kScale = 2;
inline constexpr double kCast = 3;
inline constexpr double kTranspose = 2;
// Both of a tensor in nvfp4, in rows and in columns.
inline constexpr double kBothInFourBits = 2 * bytes_per_element(DType::Nvfp4);

// Bytes of the kernels of one tensor. A transpose is read by the product that makes the weight
// gradient and runs before it.
struct CastBytes {
  double scale = 0;
  double cast = 0;
  double cast_and_transpose = 0;  // by one kernel of TransformerEngine's
  double transpose = 0;
};

// At the rate of plain casts, and of TransformerEngine's kernel of both.
struct RatedBytes {
  double plain = 0;
  double both = 0;
};
RatedBytes rated(const CastBytes& bytes, const Execution& execution);

// Plain kernels that find the scale first, as torchao's.
bool casts_plainly(DType precision, const Execution& execution);

// Whether products read 8-bit tensors in columns that somebody makes.
bool products_need_transposes(const costmodel::DeviceModel& device, const Execution& execution);

// Whether cast weights are there in columns, too: plain kernels make those for a product alone.
bool holds_columns(DType precision, const costmodel::DeviceModel& device,
                   const Execution& execution);

// Of an input, or the gradient of an output, of which this device casts a share, `apart` from its
// transpose, and which a product reads in columns or not.
CastBytes cast_bytes(double elements, double share, bool gradient, bool apart, bool columns,
                     const KernelContext& context);

// Of a weight. TransformerEngine makes its transpose with it; torchao copies it in the backward.
CastBytes weight_cast_bytes(double elements, bool columns, DType precision,
                            const costmodel::DeviceModel& device, const Execution& execution);

}  // namespace orrery::plan
