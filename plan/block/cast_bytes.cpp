// SPDX-License-Identifier: Apache-2.0
#include "plan/block/cast_bytes.hpp"

namespace orrery::plan {

namespace {

// TransformerEngine casts and transposes in one pass (read 2, write 1 and 1), once for the products
// that read the tensor. What was gathered in fp8 was cast by its ranks and is transposed as a
// whole; with sequence parallelism inputs wait for their transpose until the backward
// (pytorch/module/linear.py, base.py: grad_output_preprocess). Weights are cast once a step.
// Other libraries: as one pass at the rate of plain casts. Products that read any layout need no
// transpose (pytorch/csrc/quantizer.cpp), unless scales are of blocks, which lie along the sum.
CastBytes library_casts(double elements, double share, bool apart, bool transposes) {
  CastBytes bytes;
  if (apart || share < 1 || !transposes) {
    bytes.cast = kCast * share * elements;
    bytes.transpose = transposes ? kTranspose * elements : 0;
  } else {
    bytes.cast_and_transpose = 4 * elements;
  }
  return bytes;
}

// torchao finds the scale in a pass more and copies the cast tensor where a product needs it in
// columns (pytorch/ao torchao/float8/float8_linear.py, float8_ops.py: preprocess_addmm); one cast
// of a common input is enough, since torch.compile removes equal expressions. It casts and
// transposes a gradient in one kernel, which reads it twice (pytorch/pytorch issue 133242).
CastBytes compiled_casts(double elements, double share, bool gradient) {
  CastBytes bytes;
  if (gradient && share >= 1) {
    bytes.cast = (kCast + 3) * elements;
  } else {
    bytes.cast = kCast * share * elements;
    bytes.transpose = kTranspose * elements;
  }
  return bytes;
}

// nvfp4: one kernel reads 16 bits and writes the tensor in rows and, turned by a Hadamard
// transform, in columns, since its scales lie along the sum (pytorch/csrc/quantizer.cpp,
// NVFP4Quantizer). Ranks that gather cast their shares so; the columns that they gather for the
// backward are then put in order (pytorch/distributed.py: _post_process_nvfp4_gather).
CastBytes four_bit_casts(double elements, double share) {
  CastBytes bytes;
  bytes.cast_and_transpose = (2 + kBothInFourBits) * share * elements;
  bytes.transpose = share < 1 ? kBothInFourBits * elements : 0;
  return bytes;
}

// The scale of what is cast, found in a pass of its own; that of a tensor in nvfp4 always is.
double scale_bytes(double elements, DType precision, const Execution& execution) {
  const bool passes = precision == DType::Nvfp4 || execution.fp8_scaling == Fp8Scaling::Current;
  return passes ? kScale * elements : 0.0;
}

// What no product reads in columns.
CastBytes row_casts(double elements, DType precision) {
  CastBytes bytes;
  bytes.cast = (precision == DType::Nvfp4 ? 2 + kBothInFourBits / 2 : kCast) * elements;
  return bytes;
}

}  // namespace

bool products_need_transposes(const costmodel::DeviceModel& device, const Execution& execution) {
  return !device.gpu().any_fp8_layout || execution.fp8_scaling == Fp8Scaling::Blocks;
}

bool casts_plainly(DType precision, const Execution& execution) {
  return precision == DType::Fp8 && execution.fp8_scaling == Fp8Scaling::Current &&
         !execution.cast_transposes;
}

bool holds_columns(DType precision, const costmodel::DeviceModel& device,
                   const Execution& execution) {
  return products_need_transposes(device, execution) && !casts_plainly(precision, execution);
}

CastBytes cast_bytes(double elements, double share, bool gradient, bool apart, bool columns,
                     const KernelContext& context) {
  if (share <= 0) {
    return {};
  }
  const Execution& execution = context.execution;
  CastBytes bytes;
  if (!columns) {
    bytes = row_casts(share * elements, context.precision);
  } else if (context.precision == DType::Nvfp4) {
    bytes = four_bit_casts(elements, share);
  } else if (casts_plainly(context.precision, execution)) {
    bytes = compiled_casts(elements, share, gradient);
  } else {
    bytes =
        library_casts(elements, share, apart, products_need_transposes(context.device, execution));
  }
  bytes.scale = scale_bytes(share * elements, context.precision, execution);
  return bytes;
}

CastBytes weight_cast_bytes(double elements, bool columns, DType precision,
                            const costmodel::DeviceModel& device, const Execution& execution) {
  CastBytes bytes;
  if (!columns) {
    bytes = row_casts(elements, precision);
  } else if (precision == DType::Nvfp4) {
    bytes = four_bit_casts(elements, 1);
  } else if (casts_plainly(precision, execution)) {
    bytes.cast = kCast * elements;
  } else {
    bytes = library_casts(elements, 1, false, products_need_transposes(device, execution));
  }
  bytes.scale = scale_bytes(elements, precision, execution);
  return bytes;
}

RatedBytes rated(const CastBytes& bytes, const Execution& execution) {
  const bool own = execution.cast_transposes;
  return {bytes.scale + bytes.cast + (own ? 0 : bytes.cast_and_transpose),
          own ? bytes.cast_and_transpose : 0};
}

}  // namespace orrery::plan
