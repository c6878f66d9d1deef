// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "models/network.hpp"

namespace orrery::models {
namespace {

double extent(const Dim& dim, const Workload& workload) {
  if (dim.extent != kFromWorkload) {
    return static_cast<double>(dim.extent) * dim.scale;
  }
  const std::int64_t bound = dim.var == Var::Batch ? workload.batch : workload.sequence;
  return static_cast<double>(bound) * dim.scale;
}

// An encoder has tokens and a number of items of its own.
Workload workload_of(const Block& block, const Workload& workload) {
  return block.tokens > 0 ? Workload{workload.batch * block.items, block.tokens} : workload;
}

const Tensor& tensor_of(const Block& block, int index) {
  return block.tensors[static_cast<std::size_t>(index)];
}

bool is_kernel_weight(const Tensor& weight, const Operator& op) {
  return std::any_of(weight.dims.begin(), weight.dims.end(),
                     [&](const Dim& dim) { return contains(op.reduced, dim.var); });
}

double gemm_flops(const Block& block, const Operator& op, const Workload& workload) {
  double rows = 1.0;
  for (const Dim& dim : tensor_of(block, op.inputs.front()).dims) {
    if (!contains(op.reduced, dim.var)) {
      rows *= extent(dim, workload);
    }
  }
  double per_row = 0.0;
  for (const int index : op.weights) {
    const Tensor& weight = tensor_of(block, index);
    if (!is_kernel_weight(weight, op)) {
      continue;
    }
    double elements = 1.0;
    for (const Dim& dim : weight.dims) {
      elements *= dim.var == Var::Expert ? 1.0 : extent(dim, workload);
    }
    per_row += elements;
  }
  return op.flops_per_point * rows * per_row;
}

double num_positions(const Tensor& tensor, const Workload& workload) {
  const auto found = std::find_if(tensor.dims.begin(), tensor.dims.end(),
                                  [](const Dim& dim) { return dim.var == Var::Seq; });
  ORRERY_CHECK(found != tensor.dims.end(), tensor.name);
  return extent(*found, workload);
}

// Query-key pairs of one sequence and head within itself.
double attended_pairs(const AttentionInfo& info, double sequence, bool causal_half) {
  const double window =
      info.window > 0 ? std::min(static_cast<double>(info.window), sequence) : sequence;
  if (info.causal && causal_half) {
    return window * (sequence - window / 2.0);
  }
  return window * sequence;
}

double attention_flops(const Block& block, const Operator& op, const Workload& workload,
                       bool causal_half) {
  const Tensor& queries = tensor_of(block, op.inputs[0]);
  const double length = num_positions(queries, workload);
  const double pairs = op.cross_attention
                           ? length * num_positions(tensor_of(block, op.inputs[1]), workload)
                           : attended_pairs(block.attention, length, causal_half);
  return op.flops_per_point * num_elements(queries, workload) / length * pairs;
}

std::int64_t weight_elements(const Tensor& tensor) {
  std::int64_t elements = 1;
  for (const Dim& dim : tensor.dims) {
    ORRERY_CHECK(!__builtin_mul_overflow(elements, dim.extent, &elements), tensor.name);
  }
  return elements;
}

enum class Counted { All, Untied, Active, Trained };

std::int64_t count_parameters(const Block& block, Counted counted) {
  std::int64_t total = 0;
  for (const Tensor& tensor : block.tensors) {
    if (tensor.kind != TensorKind::Weight || (counted != Counted::All && tensor.tied) ||
        (counted == Counted::Trained && tensor.frozen)) {
      continue;
    }
    std::int64_t elements = weight_elements(tensor);
    const bool expert = tensor.dims.front().var == Var::Expert;
    if (counted == Counted::Active && expert) {
      elements = elements / block.experts * block.top_k;
    }
    total += elements;
  }
  return total;
}

std::int64_t count_parameters(const Network& network, Counted counted) {
  std::vector<std::int64_t> of_block;
  for (const Block& block : network.blocks) {
    of_block.push_back(count_parameters(block, counted));
  }
  std::int64_t total = 0;
  for (const int index : network.chain) {
    total += of_block[static_cast<std::size_t>(index)];
  }
  return total;
}

double element_bytes(Element element, int compute_bytes) {
  switch (element) {
    case Element::Compute:
    case Element::Param:
      return compute_bytes;
    case Element::Fp32:
      return 4.0;
    case Element::Int64:
      return 8.0;
    case Element::Mask:
      return 1.0;
  }
  return 0.0;
}

bool is_kept(const Saved& saved, const SavedPolicy& policy) {
  if (saved.fused_only) {
    return policy.fused_attention;
  }
  // Router weights meet the activations inside the experts, as plans have it by default.
  return !saved.unweighted &&
         !(saved.attention_core && (policy.fused_attention || policy.selective));
}

}  // namespace

double num_elements(const Tensor& tensor, const Workload& workload) {
  double elements = 1.0;
  for (const Dim& dim : tensor.dims) {
    elements *= extent(dim, workload);
  }
  return elements;
}

Flops forward_flops(const Block& block, const Operator& op, const Workload& of_network,
                    bool causal_half) {
  const Workload workload = workload_of(block, of_network);
  switch (op.kind) {
    case OpKind::Gemm:
    case OpKind::GroupedGemm:
      return Flops(gemm_flops(block, op, workload));
    case OpKind::Attention:
      return Flops(attention_flops(block, op, workload, causal_half));
    default:
      return Flops(0.0);
  }
}

Flops forward_flops(const Block& block, const Workload& workload, bool causal_half) {
  Flops total;
  for (const Operator& op : block.operators) {
    total += forward_flops(block, op, workload, causal_half);
  }
  return total;
}

namespace {

// The forward of what runs once, twice and three times: a backward is a product for each of the
// gradients that are made, and attention's one of all its inputs.
using FlopsByPasses = std::array<Flops, 3>;

FlopsByPasses flops_by_passes(const Block& block, const Workload& workload, bool causal_half) {
  FlopsByPasses flops{};
  for (const Operator& op : block.operators) {
    const int of_inputs = gives_input_gradient(block, op) ? 1 : 0;
    const int of_weights =
        op.kind == OpKind::Attention ? of_inputs : (gives_weight_gradient(block, op) ? 1 : 0);
    flops[static_cast<std::size_t>(of_inputs + of_weights)] +=
        forward_flops(block, op, workload, causal_half);
  }
  return flops;
}

}  // namespace

Flops model_flops(const Network& network, const Workload& workload, bool causal_half) {
  std::vector<FlopsByPasses> of_block;
  for (const Block& block : network.blocks) {
    of_block.push_back(flops_by_passes(block, workload, causal_half));
  }
  FlopsByPasses total{};
  for (const int index : network.chain) {
    for (std::size_t passes = 0; passes < total.size(); ++passes) {
      total[passes] += of_block[static_cast<std::size_t>(index)][passes];
    }
  }
  return total[2] * 3.0 + total[1] * 2.0 + total[0];
}

double saved_bytes(const Block& block, const Workload& of_network, const SavedPolicy& policy) {
  double total = 0.0;
  const Workload workload = workload_of(block, of_network);
  for (const Operator& op : block.operators) {
    for (const Saved& saved : op.saved) {
      if (is_kept(saved, policy)) {
        total += num_elements(tensor_of(block, saved.tensor), workload) * saved.copies *
                 element_bytes(saved.element, policy.compute_bytes);
      }
    }
  }
  return total;
}

std::int64_t num_parameters(const Block& block) { return count_parameters(block, Counted::All); }

std::int64_t num_parameters(const Network& network) {
  return count_parameters(network, Counted::Untied);
}

std::int64_t num_trained_parameters(const Network& network) {
  return count_parameters(network, Counted::Trained);
}

std::int64_t num_active_parameters(const Network& network) {
  return count_parameters(network, Counted::Active);
}

}  // namespace orrery::models
