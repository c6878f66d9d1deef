// SPDX-License-Identifier: Apache-2.0
#include "plan/block/quantised_casts.hpp"

#include <algorithm>

#include "plan/block/cast_bytes.hpp"
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

// TransformerEngine casts the rows of every expert by themselves but for delayed scaling, which one
// kernel does for all (pytorch/csrc/extensions/cast.cpp, multi_tensor_quantize_impl). Current
// scaling clears the largest magnitude, finds it and makes a scale of it first, a kernel each
// (pytorch/csrc/quantizer.cpp, Float8CurrentScalingQuantizer).
constexpr int kScaleKernels = 3;
int cast_kernels(int tensors, const KernelContext& context) {
  const bool together =
      context.precision == DType::Fp8 && context.execution.fp8_scaling == Fp8Scaling::Delayed;
  return together ? 1 : tensors;
}

// In so many kernels of equal size.
void add(KernelCost& pass, double bytes, MemoryKernel kernel, int kernels,
         const KernelContext& context) {
  if (bytes > 0) {
    pass.time +=
        context.device.memory_bound(Bytes(bytes / kernels), kernel) * static_cast<double>(kernels);
    pass.launches += kernels;
  }
}

void add(KernelCost& pass, const CastBytes& bytes, double others, int tensors,
         const KernelContext& context) {
  const RatedBytes by_rate = rated(bytes, context.execution);
  const int casts = cast_kernels(tensors, context);
  const bool scales = casts > 1 && context.execution.fp8_scaling == Fp8Scaling::Current &&
                      context.precision == DType::Fp8;
  const int apart = by_rate.both > 0 ? 0 : casts;
  add(pass, by_rate.plain + others, MemoryKernel::Cast,
      scales ? kScaleKernels * casts + apart : casts, context);
  add(pass, by_rate.both, MemoryKernel::CastTranspose, casts, context);
}

}  // namespace

DType gemm_dtype(const Operator& op, DType precision) {
  const bool router = op.role == models::OpRole::Routing;
  return op.logits_in_fp32 || op.adapter || router ? unquantised(precision) : precision;
}

bool is_quantised_product(const Operator& op, DType precision) {
  return models::is_gemm(op) && is_quantised(gemm_dtype(op, precision));
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

std::int64_t weights_cast_together(const BlockContext& context, const Operator& op,
                                   const Assignment& assignment) {
  if (!is_quantised_product(op, context.precision)) {
    return 0;
  }
  std::int64_t sum = 0;
  std::int64_t largest = 0;
  for (const int index : op.weights) {
    const Tensor& weight = tensor_at(context.block, index);
    if (is_quantised_weight(op, weight, context.precision)) {
      const Layout layout = required_input(op, weight, 0, assignment);
      const std::int64_t elements = local_elements(weight, layout, context.mesh, {});
      sum += elements;
      largest = std::max(largest, elements);
    }
  }
  return context.execution.fused_projections ? sum : largest;
}

double pass_cast_bytes(const BlockContext& context, bool backward) {
  const bool columns = backward && (context.precision == DType::Nvfp4 ||
                                    products_need_transposes(context.device, context.execution));
  return bytes_per_element(context.precision) * (columns ? 2 : 1);
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
    const bool backward = models::gives_input_gradient(context.block, op);
    const auto together = static_cast<double>(weights_cast_together(context, op, assignment));
    products.largest_cast = std::max(
        products.largest_cast,
        ByteCount(static_cast<std::int64_t>(together * pass_cast_bytes(context, backward))));
    const std::int64_t layers =
        context.execution.fused_projections ? std::min<std::int64_t>(matrices, 1) : matrices;
    products.count += static_cast<int>(layers * experts);
  }
  if (!context.execution.casts_weights) {
    const bool columns = context.precision == DType::Nvfp4 ||
                         holds_columns(context.precision, context.device, context.execution);
    products.row_bytes = bytes_per_element(context.precision);
    products.column_bytes = columns ? products.row_bytes : 0;
  }
  return products;
}

namespace {

// How the weights of quantised products come to a pass, in shares of them.
struct WeightSources {
  double kept = 0;    // whole on the device from step to step
  double packed = 0;  // gathered in 8 bits or fewer
  double own = 0;     // of what is gathered so, what this rank casts before
};

WeightSources sources_of(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                         DType precision, const Execution& execution) {
  double all = 0;
  WeightSources sources;
  for (const StateGroup& group : block.states) {
    const auto weights = static_cast<double>(group.quantised);
    const auto shards = static_cast<double>(num_shards(group, mesh));
    const auto packed =
        static_cast<double>(quantised_gather_elements(group, layout, mesh, execution, precision));
    all += weights;
    sources.packed += packed;
    sources.own += packed / shards;
    sources.kept += layout.zero_stage == 3 && shards > 1 ? 0 : weights;
  }
  if (all > 0) {
    sources.packed /= all;
    sources.own /= all;
    sources.kept /= all;
  }
  return sources;
}

Seconds time_of(const RatedBytes& bytes, const costmodel::DeviceModel& device) {
  const auto time = [&](double moved, MemoryKernel kernel) {
    return moved > 0 ? device.memory_bound(Bytes(moved), kernel) : Seconds();
  };
  return time(bytes.plain, MemoryKernel::Cast) + time(bytes.both, MemoryKernel::CastTranspose);
}

// Casts of the share that is there in 16 bits, transposes of the one that is there in 8 or fewer.
Seconds cast_weights(const QuantisedProducts& products, double whole, double packed,
                     DType precision, const costmodel::DeviceModel& device,
                     const Execution& execution) {
  const auto transposed = static_cast<double>(products.transposed);
  const double rows = static_cast<double>(products.weights) - transposed;
  const auto cast = [&](double elements, bool columns) {
    return rated(weight_cast_bytes(whole * elements, columns, precision, device, execution),
                 execution);
  };
  RatedBytes by_rate = cast(transposed, true);
  by_rate.plain += cast(rows, false).plain;
  if (precision == DType::Nvfp4) {
    by_rate.plain += kBothInFourBits * packed * transposed;
  } else if (holds_columns(precision, device, execution)) {
    by_rate.plain += kTranspose * packed * transposed;
  }
  return time_of(by_rate, device);
}

}  // namespace

Seconds weight_casts_of_step(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                             DType precision, const costmodel::DeviceModel& device,
                             const Execution& execution) {
  if (block.quantised.weights == 0 || execution.casts_weights ||
      layout.offload.parameters != Tier::Device) {
    return {};
  }
  const WeightSources sources = sources_of(block, layout, mesh, precision, execution);
  const double packed = layout.zero_stage == 3 ? 0 : sources.packed;
  return cast_weights(block.quantised, sources.kept - packed, packed, precision, device, execution);
}

PassCasts weight_casts_of_passes(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                                 DType precision, const costmodel::DeviceModel& device,
                                 const Execution& execution) {
  const bool fetched = layout.offload.parameters != Tier::Device;
  if (block.quantised.weights == 0 || execution.casts_weights ||
      !(fetched || layout.zero_stage == 3)) {
    return {};
  }
  const WeightSources sources = sources_of(block, layout, mesh, precision, execution);
  const double packed = layout.zero_stage == 3 ? sources.packed : 0;
  const double whole = 1 - packed - (fetched ? 0 : sources.kept);
  const double own = layout.zero_stage == 3 ? sources.own : 0;
  const auto shard = [&](std::int64_t weights) {
    const double elements = own * static_cast<double>(weights);
    return time_of(
        rated(weight_cast_bytes(elements, false, precision, device, execution), execution), device);
  };
  QuantisedProducts of_forward = block.quantised;
  of_forward.transposed = 0;
  QuantisedProducts of_backward = block.quantised;
  of_backward.weights = of_backward.again;
  const bool gathers_again = execution.reshard_after_forward;
  return {cast_weights(of_forward, whole, 0, precision, device, execution) +
              shard(block.quantised.weights),
          cast_weights(of_backward, whole, packed, precision, device, execution) +
              (gathers_again ? shard(of_backward.weights) : Seconds())};
}

bool casts_in_passes(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                     const Execution& execution, DType precision) {
  const bool away = layout.offload.parameters != Tier::Device;
  return std::any_of(block.states.begin(), block.states.end(), [&](const StateGroup& group) {
    const bool gathered = layout.zero_stage == 3 && num_shards(group, mesh) > 1;
    return group.quantised > 0 && (execution.casts_weights || away || gathered) &&
           !stays_packed(group, layout, mesh, execution, precision);
  });
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
  add(cost.forward, input, 0, product.tensors, context);
  add(cost.input_grad, gradient, weight_copy(product, context), product.tensors, context);
  add(cost.weight_grad, input.transpose + gradient.transpose + cast_again(product, context),
      MemoryKernel::Cast, cast_kernels(product.tensors, context), context);
  if (context.execution.casts_weights) {
    add(cost.forward,
        weight_cast_bytes(product.weights, product.gives_input_gradient, context.precision,
                          context.device, context.execution),
        0, product.tensors, context);
  }
}

}  // namespace orrery::plan
