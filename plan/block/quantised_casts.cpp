// SPDX-License-Identifier: Apache-2.0
#include "plan/block/quantised_casts.hpp"

#include <algorithm>

#include "plan/block/operator_replay.hpp"
#include "plan/block/states.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {

namespace {

using costmodel::MemoryKernel;
using models::Block;
using models::Operator;
using models::OpKind;
using models::Tensor;

// Bytes an element: finding the largest value reads 2, casting reads 2 and writes 1, transposing
// what was cast reads and writes 1.
constexpr double kScale = 2;
constexpr double kCast = 3;
constexpr double kTranspose = 2;
// Both of a tensor in nvfp4, in rows and in columns.
constexpr double kBothInFourBits = 2 * bytes_per_element(DType::Nvfp4);

// Bytes of the kernels of one tensor. A transpose is read by the product that makes the weight
// gradient and runs before it.
struct CastBytes {
  double scale = 0;
  double cast = 0;
  double cast_and_transpose = 0;  // by one kernel of TransformerEngine's
  double transpose = 0;
};

struct Readers {
  bool products = false;  // in fp8
  bool others = false;
};

Readers readers_of(const Block& block, int index, DType precision) {
  Readers readers;
  for (const Operator& op : block.operators) {
    if (contains(op.inputs, index)) {
      (is_quantised_product(op, precision) ? readers.products : readers.others) = true;
    }
  }
  return readers;
}

int index_of(const Block& block, const Tensor& tensor) {
  return static_cast<int>(&tensor - block.tensors.data());
}

bool products_need_transposes(const costmodel::DeviceModel& device, const Execution& execution) {
  return !device.gpu().any_fp8_layout || execution.fp8_scaling == Fp8Scaling::Blocks;
}

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

// Plain kernels that find the scale first, as torchao's.
bool casts_plainly(DType precision, const Execution& execution) {
  return precision == DType::Fp8 && execution.fp8_scaling == Fp8Scaling::Current &&
         !execution.cast_transposes;
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

// TransformerEngine makes a weight's transpose with it; torchao copies it in the backward.
CastBytes weight_casts(double elements, bool columns, DType precision,
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

// Bytes beside them in torchao's backward: weights are copied for the input gradient, and inputs
// of products that per-operator checkpointing kept are cast again with the scales that it kept.
double weight_copy(const CastOperands& product, const KernelContext& context) {
  return casts_plainly(context.precision, context.execution) ? kTranspose * product.weights : 0.0;
}
double cast_again(const CastOperands& product, const KernelContext& context) {
  return casts_plainly(context.precision, context.execution) && context.recasts
             ? kCast * product.input_share * product.rows * product.input
             : 0.0;
}

void add(KernelCost& pass, double bytes, MemoryKernel kernel, const KernelContext& context) {
  if (bytes > 0) {
    pass.time += context.device.memory_bound(Bytes(bytes), kernel);
    pass.launches += 1;
  }
}

// At the rate of plain casts, and of TransformerEngine's kernel of both.
struct RatedBytes {
  double plain = 0;
  double both = 0;
};
RatedBytes rated(const CastBytes& bytes, const Execution& execution) {
  const bool own = execution.cast_transposes;
  return {bytes.scale + bytes.cast + (own ? 0 : bytes.cast_and_transpose),
          own ? bytes.cast_and_transpose : 0};
}

void add(KernelCost& pass, const CastBytes& bytes, double others, const KernelContext& context) {
  const RatedBytes by_rate = rated(bytes, context.execution);
  add(pass, by_rate.plain + others, MemoryKernel::Cast, context);
  add(pass, by_rate.both, MemoryKernel::CastTranspose, context);
}

}  // namespace

DType gemm_dtype(const Operator& op, DType precision) {
  const bool router = op.role == models::OpRole::Routing;
  return op.logits_in_fp32 || op.adapter || router ? unquantised(precision) : precision;
}

bool is_quantised_product(const Operator& op, DType precision) {
  return is_gemm(op) && is_quantised(gemm_dtype(op, precision));
}

bool gathered_quantised(const Block& block, const Tensor& tensor, const Execution& execution,
                        DType precision) {
  if (!execution.fp8_gathers || !is_quantised(precision)) {
    return false;
  }
  const int index = index_of(block, tensor);
  const bool made =
      std::any_of(block.operators.begin(), block.operators.end(), [&](const Operator& op) {
        return is_quantised_product(op, precision) && contains(op.outputs, index);
      });
  const Readers readers = readers_of(block, index, precision);
  return made || (readers.products && !readers.others);
}

bool norm_writes_fp8(const Block& block, const Tensor& tensor, const KernelContext& context) {
  const Execution& execution = context.execution;
  const bool gathered = context.sequence_parallel && context.mesh.of(Axis::Tensor) > 1;
  if (!execution.norms_cast || execution.fp8_scaling != Fp8Scaling::Delayed ||
      context.precision != DType::Fp8 || (gathered && !execution.fp8_gathers)) {
    return false;
  }
  const int index = index_of(block, tensor);
  const bool made = std::any_of(
      block.operators.begin(), block.operators.end(),
      [&](const Operator& op) { return op.kind == OpKind::Norm && contains(op.outputs, index); });
  const Readers readers = readers_of(block, index, context.precision);
  return made && readers.products && !readers.others;
}

bool is_quantised_weight(const Operator& op, const Tensor& weight, DType precision) {
  return is_quantised_product(op, precision) &&
         std::any_of(weight.dims.begin(), weight.dims.end(), [&](const models::Dim& dim) {
           return std::find(op.reduced.begin(), op.reduced.end(), dim.var) != op.reduced.end();
         });
}

QuantisedProducts quantised_products(const BlockContext& context, const BlockRules& rules) {
  QuantisedProducts products;
  const std::vector<bool> runs = runs_again(context);
  for (std::size_t at = 0; at < runs.size(); ++at) {
    const Operator& op = context.block.operators[at];
    if (!is_quantised_product(op, context.precision)) {
      continue;
    }
    const Assignment assignment = assign(context.block, op, rules.of(op));
    std::int64_t matrices = 0;
    std::int64_t experts = 1;
    for (const int index : op.weights) {
      const Tensor& weight = tensor_at(context.block, index);
      const Layout layout = required_input(op, weight, 0, assignment);
      if (!is_quantised_weight(op, weight, context.precision)) {
        continue;
      }
      ++matrices;
      const std::int64_t elements = local_elements(weight, layout, context.mesh, {});
      const bool columns = models::gives_input_gradient(context.block, op);
      products.weights += elements;
      products.transposed += columns ? elements : 0;
      products.again += columns || runs[at] ? elements : 0;
      for (const models::Dim& dim : weight.dims) {
        experts = dim.var == Var::Expert ? local_extent(dim, layout, context.mesh, context.extents)
                                         : experts;
      }
    }
    const std::int64_t layers =
        context.execution.fused_projections ? std::min<std::int64_t>(matrices, 1) : matrices;
    products.count += static_cast<int>(layers * experts);
  }
  if (!context.execution.casts_weights) {
    const bool columns = context.precision == DType::Nvfp4 ||
                         products_need_transposes(context.device, context.execution);
    products.row_bytes = bytes_per_element(context.precision);
    products.column_bytes = columns ? products.row_bytes : 0;
  }
  return products;
}

namespace {

// Of the weights of quantised products: the share that is gathered in 8 bits or fewer.
double gathered_share(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                      const Execution& execution, DType precision) {
  double all = 0;
  double gathered = 0;
  for (const StateGroup& group : block.states) {
    all += static_cast<double>(group.quantised);
    gathered +=
        static_cast<double>(quantised_gather_elements(group, layout, mesh, execution, precision));
  }
  return all > 0 ? gathered / all : 0;
}

}  // namespace

namespace {

// Of parameters of which so large a share is there in 8 bits or fewer already.
Seconds cast_weights(const QuantisedProducts& products, double gathered, DType precision,
                     const costmodel::DeviceModel& device, const Execution& execution) {
  const auto transposed = static_cast<double>(products.transposed);
  const double rows = static_cast<double>(products.weights) - transposed;
  const auto cast = [&](double elements, bool columns) {
    return rated(weight_casts((1 - gathered) * elements, columns, precision, device, execution),
                 execution);
  };
  RatedBytes by_rate = cast(transposed, true);
  by_rate.plain += cast(rows, false).plain;
  if (precision == DType::Nvfp4) {
    by_rate.plain += kBothInFourBits * gathered * transposed;
  } else if (products_need_transposes(device, execution)) {
    by_rate.plain += kTranspose * gathered * transposed;
  }
  const auto time = [&](double moved, MemoryKernel kernel) {
    return moved > 0 ? device.memory_bound(Bytes(moved), kernel) : Seconds();
  };
  return time(by_rate.plain, MemoryKernel::Cast) + time(by_rate.both, MemoryKernel::CastTranspose);
}

}  // namespace

Seconds weight_casts_of_step(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                             DType precision, const costmodel::DeviceModel& device,
                             const Execution& execution) {
  const bool every_pass = layout.zero_stage == 3 || layout.offload.parameters != Tier::Device;
  if (block.quantised.weights == 0 || execution.casts_weights || every_pass) {
    return {};
  }
  return cast_weights(block.quantised, gathered_share(block, layout, mesh, execution, precision),
                      precision, device, execution);
}

PassCasts casts_of_fetched(const BlockCost& block, const BlockPlan& layout, DType precision,
                           const costmodel::DeviceModel& device, const Execution& execution) {
  if (block.quantised.weights == 0 || execution.casts_weights || layout.zero_stage == 3 ||
      layout.offload.parameters == Tier::Device) {
    return {};
  }
  QuantisedProducts of_backward = block.quantised;
  of_backward.weights = of_backward.again;
  return {cast_weights(block.quantised, 0, precision, device, execution),
          cast_weights(of_backward, 0, precision, device, execution)};
}

void add_casts(const CastOperands& product, const KernelContext& context, OperatorCost& cost) {
  const bool apart = context.sequence_parallel && context.execution.fp8_gathers &&
                     context.mesh.of(Axis::Tensor) > 1;
  const double inputs = product.rows * product.input;
  CastBytes input = cast_bytes(inputs, product.input_share, false,
                               apart || product.from_norm || product.quantised_input,
                               product.gives_weight_gradient, context);
  if (product.from_norm) {
    input.cast = 0;
  }
  CastBytes gradient =
      cast_bytes(product.rows * product.output, product.gradient_share, true,
                 product.quantised_gradient, product.gives_weight_gradient, context);
  if (product.quantised_input) {
    input.cast = input.scale = 0;
  }
  if (product.quantised_gradient) {
    gradient.cast = gradient.scale = 0;
  }
  add(cost.forward, input, 0, context);
  add(cost.input_grad, gradient, weight_copy(product, context), context);
  add(cost.weight_grad, input.transpose + gradient.transpose + cast_again(product, context),
      MemoryKernel::Cast, context);
  if (context.execution.casts_weights) {
    add(cost.forward,
        weight_casts(product.weights, product.gives_input_gradient, context.precision,
                     context.device, context.execution),
        0, context);
  }
}

}  // namespace orrery::plan
