// SPDX-License-Identifier: Apache-2.0
#include "plan/block/kernels.hpp"

#include <algorithm>

#include "plan/block/attention_kernels.hpp"
#include "plan/block/eager_kernels.hpp"
#include "plan/block/gemm_kernels.hpp"
#include "plan/block/inference_kernels.hpp"
#include "plan/block/lookup_products.hpp"
#include "plan/block/quantised_casts.hpp"
#include "plan/block/tensors.hpp"
#include "plan/dispatchers.hpp"

namespace orrery::plan {

namespace {

using costmodel::MemoryKernel;
using models::Block;
using models::Dim;
using models::Operator;
using models::OpKind;
using models::Tensor;

Layout weight_layout(const Operator& op, const Tensor& weight, const Assignment& assignment) {
  return required_input(op, weight, 0, assignment);
}

MemoryKernel kernel_of(OpKind kind) {
  switch (kind) {
    case OpKind::Norm:
      return MemoryKernel::Norm;
    case OpKind::Embedding:
      return MemoryKernel::Embedding;
    case OpKind::CrossEntropy:
      return MemoryKernel::CrossEntropy;
    case OpKind::Permute:
      return MemoryKernel::Permute;
    default:
      return MemoryKernel::Elementwise;
  }
}

bool is_routed(const Tensor& tensor) {
  return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                     [](const Dim& dim) { return dim.var == Var::Choice; });
}

// Forward traffic: every operand once, times the operator's factor. An embedding reads the rows it
// gathers, not its table.
Bytes forward_bytes(const Block& block, const Operator& op, const Assignment& assignment,
                    const KernelContext& context) {
  double bytes = 0;
  const auto add = [&](int index, const Layout& layout) {
    const Tensor& tensor = tensor_at(block, index);
    const bool routed = op.kind != OpKind::Permute && is_routed(tensor);
    bytes += static_cast<double>(local_elements(tensor, layout, context.mesh, context.extents)) *
             element_bytes(tensor.element, context.precision) *
             (routed ? imbalance_of(context) : 1.0);
  };
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const int index = op.inputs[position];
    add(index, required_input(op, tensor_at(block, index), static_cast<int>(position), assignment));
  }
  for (const int index : op.outputs) {
    const Layout layout = produced_output(op, tensor_at(block, index), assignment);
    add(index, layout);
    if (norm_writes_fp8(block, tensor_at(block, index), context)) {
      bytes -= static_cast<double>(
          local_elements(tensor_at(block, index), layout, context.mesh, context.extents));
    }
    if (op.kind == OpKind::Embedding) {
      add(index, layout);
    }
  }
  if (op.kind != OpKind::Embedding) {
    for (const int index : op.weights) {
      add(index, weight_layout(op, tensor_at(block, index), assignment));
    }
  }
  return Bytes(bytes * op.bytes_factor);
}

// Passes over the logits of a loss that is not one kernel, in bytes a logit. Megatron's
// vocab_parallel_cross_entropy: cast 6, max 4, subtract 8, exp 8, sum 4 and divide 8 forward;
// scale 8 and cast 6 backward. What torch.compile joins of it between the all-reduces
// (megatron/core/fusions/fused_cross_entropy.py): cast and max 6; subtract, exp and sum 8; divide
// 8; scale and cast 6. Eager PyTorch: cast 6 and log_softmax 12; nll_loss 4, log_softmax 12 and
// cast 6.
struct LossTraffic {
  double forward;
  double backward;
  int forward_kernels;
  int backward_kernels;
};
constexpr LossTraffic kMegatronLoss = {38, 14, 6, 6};
constexpr LossTraffic kCompiledLoss = {22, 6, 3, 1};
constexpr LossTraffic kEagerLoss = {18, 22, 6, 6};

const LossTraffic& loss_traffic(const Execution& execution) {
  if (execution.eager_loss) {
    return kEagerLoss;
  }
  return execution.compiled_loss ? kCompiledLoss : kMegatronLoss;
}

// Routing by PyTorch's kernels (megatron/core/transformer/moe/moe_utils.py: the router's fused
// forms are options), in bytes a token and expert. Forward: softmax 6, cast 6, top-k 2,
// probabilities (zeros 2, copy 4, scatter) and map (zeros 2, int 6, copy 8, scatter, bool 5); the
// balancing loss softmax 6, top-k 4, its map (4, 8, 8, scatter, 5), sums 5 and three small kernels.
// Backward: gather, zeros 2, scatter, cast 6, softmax 10; of the loss copy 4, softmax 10 and the
// sum 6.
struct RouterTraffic {
  double bytes;
  int kernels;
};
constexpr RouterTraffic kRouterForward = {81, 23};
constexpr RouterTraffic kRouterBackward = {38, 8};

// TransformerEngine's kernels (common/fused_router, from 2.6 on): top-k reads the scores 2 and
// writes probabilities 4, map 1 and what its backward reads 4; the balancing loss has the same of
// its own and reads 4 in the loss. Backward: top-k reads 9 and writes 2; the loss writes 4, of
// which its scores' kernel reads 8 and writes 2; the sum of both 6.
constexpr RouterTraffic kFusedRouterForward = {26, 3};
constexpr RouterTraffic kFusedRouterBackward = {31, 4};

// Engines of inference: a kernel reads the scores in fp32 and writes the weights and experts of a
// token, two count and sort these by expert (vLLM csrc/moe: topk_softmax_kernels.cu,
// moe_align_sum_kernels.cu).
constexpr RouterTraffic kInferenceRouter = {4, 3};

OperatorCost router_cost(const Block& block, const Operator& op, const Assignment& assignment,
                         const KernelContext& context) {
  const Tensor& scores = tensor_at(block, op.outputs.front());
  const double count = static_cast<double>(local_elements(
      scores, produced_output(op, scores, assignment), context.mesh, context.extents));
  const auto pass = [&](const RouterTraffic& traffic) {
    const Bytes bytes(traffic.bytes * count / traffic.kernels);
    return KernelCost{context.device.memory_bound(bytes, MemoryKernel::Softmax) *
                          static_cast<double>(traffic.kernels),
                      Flops(), traffic.kernels, CostClass::MemoryBound};
  };
  OperatorCost cost;
  const bool fused = context.execution.fused_router;
  cost.forward = pass(context.forward_only ? kInferenceRouter
                      : fused              ? kFusedRouterForward
                                           : kRouterForward);
  cost.input_grad = pass(fused ? kFusedRouterBackward : kRouterBackward);
  return cost;
}

// Tokens that arrive from other ranks for several local experts are sorted from source order to
// expert order, and back before they return: one more read and write of the routed tokens in each
// pass (megatron/core/transformer/moe/token_dispatcher.py, sort_chunks_by_idxs). What arrives once
// for all experts of a rank is copied for them there instead, and not where it started
// (_DeepepManager.get_permuted_hidden_states_by_experts).
void sort_chunks(const Block& block, const Operator& op, const Assignment& assignment,
                 const KernelContext& context, OperatorCost& cost) {
  if (context.expert_ranks == 1 || block.experts <= context.expert_ranks ||
      dispatcher_facts(context.execution).once_a_rank) {
    return;
  }
  const bool dispatches = is_routed(tensor_at(block, op.outputs.front()));
  const int index = dispatches ? op.outputs.front() : op.inputs.front();
  const Tensor& routed = tensor_at(block, index);
  if (!is_routed(routed)) {
    return;
  }
  const Layout layout = dispatches ? produced_output(op, routed, assignment)
                                   : required_input(op, routed, 0, assignment);
  const double bytes =
      2.0 * static_cast<double>(local_elements(routed, layout, context.mesh, context.extents)) *
      element_bytes(routed.element, context.precision) * imbalance_of(context);
  add_memory(cost.forward, bytes, MemoryKernel::Permute, context);
  add_memory(cost.input_grad, bytes, MemoryKernel::Permute, context);
}

// Tokens that travel to their experts in 8 bits are cast where they start, once for all copies, and
// so are the gradients of what experts give back (DeepSeek-V3, arXiv 2412.19437, 3.3.3). Experts
// that compute in 16 bits or more widen what arrives.
void cast_dispatched(const Block& block, const Operator& op, const Assignment& assignment,
                     const KernelContext& context, OperatorCost& cost) {
  if (!context.execution.quantised_dispatch || context.expert_ranks == 1) {
    return;
  }
  const bool dispatches = is_routed(tensor_at(block, op.outputs.front()));
  const int whole = dispatches ? op.inputs.front() : op.outputs.front();
  const int routed = dispatches ? op.outputs.front() : op.inputs.front();
  if (!is_routed(tensor_at(block, routed))) {
    return;
  }
  KernelCost& pass = dispatches ? cost.forward : cost.input_grad;
  const auto cast = [&](int index, const Layout& layout) {
    const Tensor& tensor = tensor_at(block, index);
    const auto elements =
        static_cast<double>(local_elements(tensor, layout, context.mesh, context.extents));
    const int bytes = 1 + element_bytes(models::Element::Compute, context.precision);
    add_memory(pass, bytes * elements * (is_routed(tensor) ? imbalance_of(context) : 1.0),
               MemoryKernel::Cast, context);
  };
  const Layout arriving = required_input(op, tensor_at(block, op.inputs.front()), 0, assignment);
  const Layout leaving = produced_output(op, tensor_at(block, op.outputs.front()), assignment);
  cast(whole, dispatches ? arriving : leaving);
  if (!is_quantised(context.precision)) {
    cast(routed, dispatches ? leaving : arriving);
  }
}

bool permutes_on_the_way(const Operator& op, const KernelContext& context) {
  return op.kind == OpKind::Permute && context.expert_ranks > 1 &&
         dispatcher_facts(context.execution).orders_tokens;
}

// What the rank that gets most tokens does more than the mean.
double permuted_on_arrival(const Operator& op, const KernelContext& context) {
  const bool arrival = op.kind == OpKind::Permute && !finds_rows_by_index(context) &&
                       dispatcher_facts(context.execution).once_a_rank;
  return arrival ? imbalance_of(context) : 1.0;
}

OperatorCost memory_cost(const Block& block, const Operator& op, const Assignment& assignment,
                         const KernelContext& context) {
  const bool by_index = op.kind == OpKind::Permute && finds_rows_by_index(context);
  if (by_index && is_routed(tensor_at(block, op.outputs.front()))) {
    return {};
  }
  if (!by_index && permutes_on_the_way(op, context)) {
    OperatorCost casts;
    cast_dispatched(block, op, assignment, context, casts);
    return casts;
  }
  if (context.execution.fused_experts && is_between_experts(block, op)) {
    return {};
  }
  const Bytes bytes =
      forward_bytes(block, op, assignment, context) * permuted_on_arrival(op, context);
  const MemoryKernel kernel = by_index ? MemoryKernel::Elementwise : kernel_of(op.kind);
  const EagerPasses eager = eager_passes(block, op, context.execution);
  const auto kernels = [&](Bytes traffic, int launches) {
    // Each kernel has its share of the traffic and a launch of its own.
    return KernelCost{context.device.memory_bound(traffic / static_cast<double>(launches), kernel) *
                          static_cast<double>(launches),
                      Flops(), launches, CostClass::MemoryBound};
  };
  // Copies of tokens that are added up without weights: their gradients are copies alone.
  const bool adds = context.execution.weighted_activations &&
                    std::any_of(op.saved.begin(), op.saved.end(),
                                [](const models::Saved& saved) { return saved.unweighted; });
  const double backward = (adds ? 1.0 : op.backward_bytes_factor) * eager.backward;
  OperatorCost cost;
  cost.forward = kernels(bytes * eager.forward, eager.forward_kernels);
  cost.input_grad = kernels(bytes * backward, eager.backward_kernels);
  if (context.reruns_norms && runs_with_norms(block, op)) {
    cost.input_grad.time += cost.forward.time;
    cost.input_grad.launches += cost.forward.launches;
  }
  if (op.kind == OpKind::Permute && !by_index) {
    sort_chunks(block, op, assignment, context, cost);
    cast_dispatched(block, op, assignment, context, cost);
  }
  if (op.kind == OpKind::Embedding) {
    // The gradient of the table is dense: filled with zeros, then added to the gradient buffer.
    const Tensor& table = tensor_at(block, op.weights.front());
    const double elements = static_cast<double>(
        local_elements(table, weight_layout(op, table, assignment), context.mesh, context.extents));
    add_memory(cost.input_grad,
               elements * element_bytes(models::Element::Param, context.precision) +
                   accumulation_bytes(elements, context),
               MemoryKernel::Elementwise, context);
  }
  return cost;
}

}  // namespace

int element_bytes(models::Element element, DType precision) {
  switch (element) {
    case models::Element::Compute:
    case models::Element::Param:
      return static_cast<int>(bytes_per_element(unquantised(precision)));
    case models::Element::Fp32:
      return 4;
    case models::Element::Int64:
      return 8;
    case models::Element::Mask:
      return 1;
  }
  return 0;
}

namespace {

OperatorCost loss_cost(const Block& block, const Operator& op, const Assignment& assignment,
                       const KernelContext& context) {
  const Execution& execution = context.execution;
  const Tensor& logits = tensor_at(block, op.inputs.front());
  const double count = static_cast<double>(local_elements(
      logits, required_input(op, logits, 0, assignment), context.mesh, context.extents));
  const auto kernels = [&](double bytes, int launches) {
    return KernelCost{context.device.memory_bound(Bytes(bytes * count), MemoryKernel::Elementwise),
                      Flops(), launches, CostClass::MemoryBound};
  };
  OperatorCost cost;
  if (execution.fused_cross_entropy) {
    cost = memory_cost(block, op, assignment, context);
  } else {
    const LossTraffic& traffic = loss_traffic(execution);
    cost.forward = kernels(traffic.forward, traffic.forward_kernels);
    cost.input_grad = kernels(traffic.backward, traffic.backward_kernels);
  }
  if (const int again = execution.loss_evaluations; again > 0) {
    const KernelCost evaluations =
        kernels(kEagerLoss.forward * again, kEagerLoss.forward_kernels * again);
    cost.input_grad.time += evaluations.time;
    cost.input_grad.launches += evaluations.launches;
  }
  return cost;
}

OperatorCost whole_cost(const Block& block, const Operator& op, const Assignment& assignment,
                        const KernelContext& context) {
  switch (op.kind) {
    case OpKind::Gemm:
    case OpKind::GroupedGemm:
      return gemm_cost(block, op, assignment, context);
    case OpKind::Attention:
      return attention_cost(block, op, assignment, context);
    case OpKind::Router:
      return router_cost(block, op, assignment, context);
    case OpKind::CrossEntropy:
      return loss_cost(block, op, assignment, context);
    case OpKind::Embedding:
      return context.execution.lookup_products && !context.forward_only
                 ? lookup_by_products(block, op, assignment, context)
                 : memory_cost(block, op, assignment, context);
    default:
      return memory_cost(block, op, assignment, context);
  }
}

}  // namespace

double imbalance_of(const KernelContext& context) {
  return context.expert_ranks > 1 ? context.execution.routing_imbalance : 1.0;
}

bool is_between_experts(const Block& block, const Operator& op) {
  const auto made_by_experts = [&](int tensor) {
    return std::any_of(block.operators.begin(), block.operators.end(), [&](const Operator& other) {
      return other.kind == OpKind::GroupedGemm &&
             std::find(other.outputs.begin(), other.outputs.end(), tensor) != other.outputs.end();
    });
  };
  return op.kind == OpKind::Elementwise && !op.inputs.empty() && made_by_experts(op.inputs.front());
}

void add_memory(KernelCost& cost, double bytes, MemoryKernel kernel, const KernelContext& context) {
  cost.time += context.device.memory_bound(Bytes(bytes), kernel);
  cost.launches += 1;
}

// Operators of no product make all their gradients in one kernel.
OperatorCost operator_cost(const Block& block, const Operator& op, const Assignment& assignment,
                           const KernelContext& context) {
  OperatorCost cost = whole_cost(block, op, assignment, context);
  const bool product = models::is_gemm(op);
  const bool input_grad =
      product ? models::gives_input_gradient(block, op) : models::has_backward(block, op);
  if (context.forward_only || !input_grad || op.backward_bytes_factor == 0) {
    cost.input_grad = {};
  }
  if (context.forward_only || !models::gives_weight_gradient(block, op)) {
    cost.weight_grad = {};
  }
  return cost;
}

}  // namespace orrery::plan
