// SPDX-License-Identifier: Apache-2.0
// The kernels that an operator runs on one device once its operands have layouts: shapes from
// local extents, times from the device model. Forward, input-gradient and weight-gradient apart.
#pragma once

#include <span>

#include "costmodel/device_model.hpp"
#include "costmodel/group_shape.hpp"
#include "models/operators.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "plan/slices.hpp"

namespace orrery::plan {

enum class CostClass : std::uint8_t {
  Gemm,
  Attention,
  MemoryBound,
  IntraNode,
  InterNode,
  GroupedGemm,  // of experts
  AllToAll,     // inside a node
};
inline constexpr int kNumCostClasses = 7;
constexpr bool is_product(CostClass kind) {
  return kind == CostClass::Gemm || kind == CostClass::GroupedGemm;
}

// Exchanges inside a node err more than other collectives there; between nodes networks decide.
constexpr CostClass class_of(sim::CommKind kind, const costmodel::GroupShape& group) {
  return group.nodes > 1                   ? CostClass::InterNode
         : kind == sim::CommKind::AllToAll ? CostClass::AllToAll
                                           : CostClass::IntraNode;
}

struct KernelCost {
  Seconds time;
  Flops flops;
  int launches = 0;
  CostClass cost_class = CostClass::MemoryBound;
};

struct OperatorCost {
  KernelCost forward;
  KernelCost input_grad;   // zero for fused element-wise backwards: all of it is in here
  KernelCost weight_grad;  // zero where the operator has no GEMM weights
};

// What the operator's kernels need to know beside its shapes.
struct KernelContext {
  const costmodel::DeviceModel& device;
  const Execution& execution;
  DType precision;
  const Mesh& mesh;
  Extents extents;
  bool sequence_parallel = false;
  bool ring = false;   // attention over context ranks runs a kernel for each part of the keys
  bool zigzag = true;  // context ranks hold parts of equal work of a causal triangle
  Slice slice{};
  int pieces = 1;  // SUMMA: products of a part of the inner dimension each
  // Tokens of the sequences that are packed into one, each of which sees itself alone; empty: one.
  std::span<const std::int64_t> packed{};
  bool recasts = false;  // per-operator checkpointing keeps no inputs of products
  int expert_ranks = 1;  // that experts are spread over
  bool forward_only = false;
  bool reruns_norms = false;  // the backward does (eager_kernels.hpp)
};

inline const models::Tensor& tensor_at(const models::Block& block, int index) {
  return block.tensors[static_cast<std::size_t>(index)];
}

// What the busiest of the ranks that experts are spread over has of routed tokens, over the mean.
double imbalance_of(const KernelContext& context);

// The activation between the two products of experts.
bool is_between_experts(const models::Block& block, const models::Operator& op);

// One more kernel, which moves so many bytes.
void add_memory(KernelCost& cost, double bytes, costmodel::MemoryKernel kernel,
                const KernelContext& context);

OperatorCost operator_cost(const models::Block& block, const models::Operator& op,
                           const Assignment& assignment, const KernelContext& context);

// Bytes of one element of a tensor as computed with.
int element_bytes(models::Element element, DType precision);

}  // namespace orrery::plan
