// SPDX-License-Identifier: Apache-2.0
// The steps of one pass of a block as they are appended: kernels, and the collectives of a
// conversion with their times. A collective that runs in pieces under a kernel costs only what the
// kernel does not hide. Deterministic; O(1) a step.
#pragma once

#include <string_view>
#include <vector>

#include "plan/block/steps.hpp"

namespace orrery::plan {

// Whether the broadcasts of SUMMA carry the collectives of this axis (rows and columns of a
// two-dimensional tensor mesh).
bool is_summa(const BlockPlan& layout, Axis axis);

// Whether a collective over this axis runs in pieces under the product that it feeds or follows.
bool streams_tensor_ranks(const Execution& execution, DType precision, sim::CommKind kind,
                          Axis axis);

// Several tensors that are converted together: one buffer.
struct Conversions {
  std::string_view name;
  std::vector<MergedConversion> steps;
  double bytes_per_element = 0;
  bool gathers_fp8 = false;       // over tensor ranks
  bool quantised_tokens = false;  // on their way to experts
  bool read_in_parts = false;     // keys and values, by the queries of every context rank
  // Adds a tensor's: to the same buffers where kinds and axes agree.
  void join(const Conversions& other);
};

// One tensor, as it is when it is read: keys and values, repeated or not, for every query head.
Conversions conversions_of(const BlockContext& context, const models::Tensor& tensor,
                           const Layout& from, const Layout& to);

// Whether tokens on their way to experts, or back, are sent by kernels that send one once to every
// node that has one of its experts, and there once to every such rank; what its experts of a rank
// give back is added up before it returns (DeepEP csrc/kernels/internode.cu and intranode.cu).
bool is_sent_once(const Step& step, const Execution& execution);

class StepList {
 public:
  StepList(const BlockContext& context, std::vector<Step>& steps)
      : context_(context), steps_(steps) {}

  // The index of the kernel's step; where it takes no time and waits for one step, that one's, or
  // for none, -1.
  int add_kernel(const models::Operator& op, sim::PassKind pass, const KernelCost& cost,
                 std::vector<int> after);

  // The collectives from one layout to another, chained; returns the last one or `after_step`.
  // Those that stream under `kernel` by user buffers or a ring cost what it does not hide.
  int add_conversion(const models::Tensor& tensor, const Layout& from, const Layout& to,
                     sim::PassKind pass, int after_step, Seconds kernel);
  int add_conversions(const Conversions& conversions, sim::PassKind pass, int after_step,
                      Seconds kernel);
  // All-reduce of a few fp32 values a token.
  int add_statistics(const models::Operator& op, const std::vector<Axis>& axes, double elements,
                     sim::PassKind pass, const std::vector<int>& after);

  // SUMMA: the broadcasts (or reductions) among the steps from `first` on run one piece ahead of
  // the kernel's pieces. x the kernel, y one piece of all of them together: the pass takes
  // y + (n - 1) max(x/n, y) + x/n; the excess over x is shared by their sizes.
  void hide_pieces(int first, Seconds kernel);

  int size() const { return static_cast<int>(steps_.size()); }
  int last() const { return size() - 1; }

 private:
  Step collective(std::string_view name, const MergedConversion& merged, double bytes_per_element,
                  sim::PassKind pass) const;
  void gather_round_ring(Step& step, Seconds kernel) const;
  Seconds routed_time(const Step& step, const costmodel::CollectiveModel& collectives) const;
  Seconds token_time(const MergedConversion& merged) const;
  RankNetwork network_of(const MergedConversion& merged) const;
  Seconds broadcast_time(Bytes piece, const costmodel::GroupShape& group) const;

  const BlockContext& context_;
  std::vector<Step>& steps_;
};

}  // namespace orrery::plan
