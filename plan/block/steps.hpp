// SPDX-License-Identifier: Apache-2.0
// One block as the steps of one rank: kernels and the collectives that the conversion rules derive
// between them, forward, backward and recomputation apart. Each step runs on the compute or the
// communication stream of its device and waits for the steps it names.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "plan/block/kernels.hpp"
#include "plan/block_rules.hpp"
#include "plan/layout.hpp"
#include "plan/slices.hpp"

namespace orrery::plan {

struct Step {
  std::string_view name;  // of the operator or tensor; points into the network
  sim::PassKind pass = sim::PassKind::Forward;
  bool collective = false;
  Seconds time;  // alone
  int launches = 1;
  CostClass cost_class = CostClass::MemoryBound;
  Flops flops;
  // Collectives only.
  sim::CommKind comm = sim::CommKind::None;
  Axis axis = Axis::Tensor;  // that it counts for: the first of its axes, ep of routed tokens
  std::uint8_t axes = 0;     // all of them, bit i for axis i
  Bytes bytes;               // buffer size as nccl-tests prints it
  costmodel::GroupShape group;
  int pieces = 1;          // broadcasts or reductions that SUMMA makes of it
  bool in_hops = false;    // keys, values or their gradients go from rank to rank, a part each
  std::vector<int> after;  // earlier steps of the same list, beside stream order
};

// Tokens travel to their experts or back.
inline bool is_routed(const Step& step) { return step.collective && step.axis == Axis::Expert; }

// Operators of a block that graphs replay: all where its passes are replayed as a whole; of another
// layer with experts what graph_scope says (Megatron-LM core/transformer/cuda_graphs.py,
// --cuda-graph-scope attn, moe_router, moe_preprocess).
std::vector<bool> recorded_operators(const Execution& execution, const models::Block& block);
// What the framework's own code takes the host for a pass of a block, in which it issues kernels,
// in equal parts for its operators: none for those that graphs replay.
Seconds host_of_pass(const Execution& execution, const models::Block& block);

struct BlockSteps {
  std::vector<Step> forward;
  std::vector<Step> backward;
  std::vector<Step> recompute;  // replayed before the backward; empty without recomputation
};

// The links that collectives over some axes take, and how many GPUs of a node take part.
struct RankNetwork {
  const costmodel::CollectiveModel* collectives = nullptr;
  int gpus_per_node = 0;
};

struct BlockContext {
  const models::Block& block;
  BlockPlan layout;
  Mesh mesh;
  Extents extents;  // of all data ranks together
  const costmodel::DeviceModel& device;
  const costmodel::CollectiveModel& collectives;
  const Execution& execution;
  DType precision;
  int gpus_per_node;
  Slice slice{};                           // the part of every sequence that `extents` is about
  std::span<const std::int64_t> packed{};  // tokens of the sequences in each, if several
  // Between the replicas that share experts, where their GPUs are unlike; else as all others.
  RankNetwork experts{};
  bool forward_only = false;  // no gradients will be asked for

  int gradient_bytes() const {
    return execution.fp32_gradients ? 4 : element_bytes(models::Element::Param, precision);
  }
};

BlockSteps lower_block(const BlockContext& context);

// Those of its layout; a block that only runs forward passes sums.
BlockRules rules_of(const BlockContext& context);

// Layout in which each tensor of the block is produced (block input included), by tensor index.
std::vector<Layout> produced_layouts(const models::Block& block, const BlockRules& rules);

// Layout in which an operator needs an input, of tensors that were produced in these.
Layout needed_input(const models::Block& block, const models::Operator& op, std::size_t position,
                    const Assignment& assignment, const BlockRules& rules,
                    const std::vector<Layout>& produced);

// Layout in which the output that a weight of an operator belongs to is read first: by an operator,
// or by the next block.
Layout read_layout(const models::Block& block, const models::Operator& op, int weight,
                   const BlockRules& rules);

// A conversion by sub-collectives of the same kind on several axes merges into one over their
// product; what a step needs to know of it.
struct MergedConversion {
  sim::CommKind kind = sim::CommKind::None;
  std::vector<Axis> axes;
  std::int64_t elements = 0;
  bool routed = false;      // tokens travel to their experts or back
  bool to_experts = false;  // to their experts
};
std::vector<MergedConversion> merged_conversions(const models::Tensor& tensor, const Layout& from,
                                                 const Layout& to, const Mesh& mesh,
                                                 const Extents& extents);

}  // namespace orrery::plan
