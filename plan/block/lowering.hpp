// SPDX-License-Identifier: Apache-2.0
// Lowers one block to the steps of one rank (steps.hpp): kernels in execution order with the
// conversions of their operands before them, and the same backwards. Which collectives there are
// follows from layouts alone (layout.hpp). O(operators x operands) a pass.
#pragma once

#include <vector>

#include "plan/block/gathered.hpp"
#include "plan/block/step_list.hpp"

namespace orrery::plan {

// Indices of operators in the order in which they are issued: as listed, or with the shared experts
// moved to where routed tokens travel (the first half of them after the dispatch).
std::vector<std::size_t> execution_order(const models::Block& block, bool hoist_shared_experts);

class Lowering {
 public:
  explicit Lowering(const BlockContext& context);

  // Which operators run: all, or those whose results were not kept.
  enum class Part : std::uint8_t { All, AttentionCore, NotKept, Chosen };

  void forward(std::vector<Step>& steps, sim::PassKind pass, Part part) const;
  void backward(std::vector<Step>& steps) const;

 private:
  struct Converted {
    int tensor;
    Layout to;
    int step;
  };

  static std::size_t slot_of(int tensor) { return static_cast<std::size_t>(tensor); }
  const models::Tensor& tensor_of(int tensor) const { return block_.tensors[slot_of(tensor)]; }

  bool is_read(int tensor) const;
  bool has_gradient(int tensor) const;
  Layout required(std::size_t index, std::size_t position) const;
  // The first operator that reads a tensor, and as which of its inputs; its backward comes last.
  struct Use {
    std::size_t index;
    std::size_t position;
  };
  Use first_use(int tensor) const;
  Layout gradient_layout(const Use& use) const;
  // Whether no operator before this one reads the tensor with a gradient of the same layout.
  bool is_first_of_its_layout(const Use& use) const;
  Conversions conversions_of(int tensor, const Layout& from, const Layout& to) const;
  // Outputs of one product that are partial sums: they are one buffer, reduced at once, and so is
  // their gradient. Empty for all other tensors.
  const std::vector<int>& joint_outputs(int tensor) const { return joint_[slot_of(tensor)]; }
  // Keys and values stream under one attention kernel together: each hides under its share.
  static double streamed_share(const models::Operator& op) {
    return op.kind == models::OpKind::Attention && op.inputs.size() > 2 ? 0.5 : 1.0;
  }
  // Backward, what is gathered again and what is reduced share the kernel as well, but where the
  // former has the first part of a ring and the latter those after it.
  double streamed_backward(const models::Operator& op) const {
    const bool in_turn = op.kind == models::OpKind::Attention && context_.execution.gathered_ring;
    return streamed_share(op) * (in_turn ? 1.0 : 0.5);
  }

  // Forward.
  Layout found(int tensor, const Layout& to, sim::PassKind pass) const;
  void reduce_results(StepList& list, const models::Operator& op, sim::PassKind pass,
                      int step) const;
  int converted_input(StepList& list, std::vector<Converted>& converted, int tensor,
                      const Layout& to, sim::PassKind pass, Seconds kernel,
                      const std::vector<int>& ready) const;

  // Backward.
  using Gradients = std::vector<std::vector<int>>;  // by tensor: steps after which it is complete
  void operator_backward(StepList& list, std::size_t index, Gradients& gradient) const;
  std::vector<int> reduce_gradients(StepList& list, std::size_t index, int input_grad,
                                    Gradients& gradient) const;
  void reduce_joint_gradients(StepList& list, std::size_t index, int input_grad,
                              Gradients& gradient) const;
  std::vector<int> regather(StepList& list, std::size_t index, const std::vector<int>& after) const;

  // Both: weights between where they are stored and where they are needed, all of an operator at
  // once (AllGather), and their gradients back (ReduceScatter); the statistics of cut rows.
  int convert_weights(StepList& list, std::size_t index, sim::CommKind kind, sim::PassKind pass,
                      int after) const;
  int add_statistics(StepList& list, std::size_t index, sim::PassKind pass,
                     const std::vector<int>& after) const;

  const BlockContext& context_;
  const models::Block& block_;
  BlockRules rules_;
  std::vector<Layout> produced_;
  std::vector<std::size_t> order_;
  std::vector<Assignment> assignments_;
  std::vector<OperatorCost> costs_;
  std::vector<std::vector<int>> joint_;  // by tensor
  GatheredCopies copies_;
};

}  // namespace orrery::plan
