// SPDX-License-Identifier: Apache-2.0
#include "plan/block_steps.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "plan/gemm_kernels.hpp"

namespace orrery::plan {

namespace {

using models::Block;
using models::Operator;
using models::OpKind;
using models::Tensor;
using sim::CommKind;
using sim::PassKind;

bool streams_pieces(const BlockContext& context, CommKind kind, Axis axis) {
  if (axis == Axis::Context) {
    return context.layout.context == ContextParallel::Ring && kind != CommKind::AllToAll;
  }
  // PyTorch does not fuse gathers of what gets one fp8 scale a row (pytorch/pytorch issue 149990).
  const bool gathers = kind == CommKind::AllGather &&
                       (context.precision != DType::Fp8 || context.execution.fp8_gathers);
  return axis == Axis::Tensor && context.execution.stream_tp &&
         (gathers || kind == CommKind::ReduceScatter);
}

// Time beyond the kernel when a collective runs in n pieces under it (user-buffer overlap):
// x/n + (n-1) max(x/n, y) - x, y = one piece of the collective.
Seconds streamed_excess(Seconds kernel, Seconds collective, int pieces) {
  if (pieces <= 1) {
    return Seconds();
  }
  const Seconds share = kernel / static_cast<double>(pieces);
  const Seconds piece = collective / static_cast<double>(pieces - 1);
  return share + std::max(share, piece) * static_cast<double>(pieces - 1) - kernel;
}

class StepList {  // builds one list of steps
 public:
  StepList(const BlockContext& context, std::vector<Step>& steps)
      : context_(context), steps_(steps) {}

  int add_kernel(const Operator& op, PassKind pass, const KernelCost& cost,
                 std::vector<int> after) {
    if (cost.time.value() <= 0) {
      return -1;
    }
    Step step;
    step.name = op.name;
    step.pass = pass;
    step.time = cost.time;
    step.launches = cost.launches;
    step.cost_class = cost.cost_class;
    step.flops = cost.flops;
    step.after = clean(std::move(after));
    steps_.push_back(std::move(step));
    return last();
  }

  // The collectives from one layout to another, chained; returns the last one or `after_step`.
  // A collective that streams under `kernel` costs only what the kernel does not hide.
  int add_conversion(const Tensor& tensor, const Layout& from, const Layout& to, PassKind pass,
                     int after_step, Seconds kernel) {
    int previous = after_step;
    for (const MergedConversion& merged :
         merged_conversions(tensor, from, to, context_.mesh, context_.extents)) {
      Step step = collective(tensor, merged, pass);
      if (streams_pieces(context_, merged.kind, merged.axes.front())) {
        step.time = streamed_excess(kernel, step.time, step.group.ranks);
      }
      if (step.time.value() <= 0) {
        continue;
      }
      step.after = clean({previous});
      steps_.push_back(std::move(step));
      previous = last();
    }
    return previous;
  }

  int last() const { return static_cast<int>(steps_.size()) - 1; }

 private:
  static std::vector<int> clean(std::vector<int> after) {
    std::erase_if(after, [](int step) { return step < 0; });
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    return after;
  }

  Step collective(const Tensor& tensor, const MergedConversion& merged, PassKind pass) const {
    Step step;
    step.name = tensor.name;
    step.pass = pass;
    step.collective = true;
    step.comm = merged.kind;
    step.axis = merged.axes.front();
    for (const Axis axis : merged.axes) {
      step.axes = static_cast<std::uint8_t>(step.axes | (1U << static_cast<unsigned>(axis)));
    }
    const bool fp8 = merged.kind == CommKind::AllGather && step.axis == Axis::Tensor &&
                     gathered_in_fp8(context_.block, tensor, context_.execution, context_.precision);
    step.bytes = Bytes(static_cast<double>(merged.elements) *
                       (fp8 ? 1 : element_bytes(tensor.element, context_.precision)));
    step.group = group_of(context_.mesh, merged.axes, context_.gpus_per_node);
    step.cost_class = step.group.nodes > 1 ? CostClass::InterNode : CostClass::IntraNode;
    step.time = context_.collectives.time(merged.kind, step.bytes, step.group);
    return step;
  }

  const BlockContext& context_;
  std::vector<Step>& steps_;
};

class Lowering {
 public:
  explicit Lowering(const BlockContext& context)
      : context_(context),
        block_(context.block),
        rules_(rules_of(context.layout, context.execution.vocab_parallel)),
        produced_(produced_layouts(block_, rules_)) {
    const KernelContext kernels{context.device, context.execution, context.precision,
                                context.mesh, context.extents, context.layout.sequence_parallel,
                                context.layout.context == ContextParallel::Ring};
    for (const Operator& op : block_.operators) {
      assignments_.push_back(assign(block_, op, rules_.of(op)));
      costs_.push_back(operator_cost(block_, op, assignments_.back(), kernels));
    }
  }

  // Which operators run: all, or those whose results were not kept.
  enum class Part : std::uint8_t { All, AttentionCore, NotKept };

  void forward(std::vector<Step>& steps, PassKind pass, Part part) const {
    StepList list(context_, steps);
    const bool attention_core_only = part == Part::AttentionCore;
    const auto kept = part == Part::NotKept ? kept_products(block_) : std::vector<int>{};
    std::vector<int> ready(block_.tensors.size(), -1);  // step that produces the tensor
    std::vector<Converted> converted;
    for (std::size_t index = 0; index < block_.operators.size(); ++index) {
      const Operator& op = block_.operators[index];
      if (attention_core_only && !op.attention_core) {
        continue;
      }
      const auto num_kept = std::count_if(op.outputs.begin(), op.outputs.end(), [&](int output) {
        return std::ranges::find(kept, output) != kept.end();
      });
      // Of products that run as one kernel here, those that were kept do not run again.
      const auto outputs = static_cast<double>(std::max<std::size_t>(1, op.outputs.size()));
      const double share = 1.0 - static_cast<double>(num_kept) / outputs;
      if (share == 0) {
        continue;
      }
      std::vector<int> after;
      for (std::size_t position = 0; position < op.inputs.size(); ++position) {
        const int tensor = op.inputs[position];
        after.push_back(converted_input(list, converted, tensor, required(index, position), pass,
                                        costs_[index].forward.time * streamed_share(op), ready));
      }
      KernelCost cost = costs_[index].forward;
      cost.time = cost.time * share;
      cost.flops = cost.flops * share;
      const int step = list.add_kernel(op, pass, cost, std::move(after));
      for (const int output : op.outputs) {
        ready[static_cast<std::size_t>(output)] = step;
      }
      if (!attention_core_only) {
        reduce_results(list, op, pass, step);
      }
    }
    if (!attention_core_only && block_.output >= 0) {
      const auto output = static_cast<std::size_t>(block_.output);
      list.add_conversion(block_.tensors[output], produced_[output], stream_layout(rules_), pass,
                          ready[output], Seconds());
    }
  }

  void backward(std::vector<Step>& steps) const {
    StepList list(context_, steps);
    std::vector<int> gradient(block_.tensors.size(), -1);  // step after which it is complete
    if (block_.output >= 0) {
      const auto output = static_cast<std::size_t>(block_.output);
      gradient[output] =
          list.add_conversion(block_.tensors[output], stream_layout(rules_),
                              gradient_of(produced_[output]), PassKind::InputGrad, -1, Seconds());
    }
    for (std::size_t index = block_.operators.size(); index-- > 0;) {
      operator_backward(list, index, gradient);
    }
  }

 private:
  // Partial results that no operator of the network reads (the loss) are summed at once.
  void reduce_results(StepList& list, const Operator& op, PassKind pass, int step) const {
    for (const int output : op.outputs) {
      const auto slot = static_cast<std::size_t>(output);
      if (output == block_.output || is_read(output)) {
        continue;
      }
      list.add_conversion(block_.tensors[slot], produced_[slot], gradient_of(produced_[slot]),
                          pass, step, Seconds());
    }
  }

  bool is_read(int tensor) const {
    return std::any_of(block_.operators.begin(), block_.operators.end(),
                       [tensor](const Operator& op) {
                         return std::find(op.inputs.begin(), op.inputs.end(), tensor) !=
                                op.inputs.end();
                       });
  }

  bool has_gradient(int tensor) const {
    const Tensor& value = block_.tensors[static_cast<std::size_t>(tensor)];
    const bool is_input = std::none_of(
        block_.operators.begin(), block_.operators.end(), [tensor](const Operator& op) {
          return std::find(op.outputs.begin(), op.outputs.end(), tensor) != op.outputs.end();
        });
    const bool from_network = tensor == block_.input || tensor == block_.memory;
    return value.element != models::Element::Int64 && (!is_input || from_network);
  }

  Layout required(std::size_t index, std::size_t position) const {
    const Operator& op = block_.operators[index];
    const auto tensor = static_cast<std::size_t>(op.inputs[position]);
    return required_input(op, block_.tensors[tensor], static_cast<int>(position),
                          assignments_[index]);
  }

  struct Converted {
    int tensor;
    Layout to;
    int step;
  };

  // Converts an input once per target layout; operators that need the same one share it.
  int converted_input(StepList& list, std::vector<Converted>& converted, int tensor,
                      const Layout& to, PassKind pass, Seconds kernel,
                      const std::vector<int>& ready) const {
    for (const Converted& known : converted) {
      if (known.tensor == tensor && known.to == to) {
        return known.step;
      }
    }
    const auto slot = static_cast<std::size_t>(tensor);
    const int step = list.add_conversion(block_.tensors[slot], produced_[slot], to, pass,
                                         ready[slot], kernel);
    converted.push_back({tensor, to, step});
    return step;
  }

  // Keys and values stream under one attention kernel together: each hides under its share.
  static double streamed_share(const Operator& op) {
    return op.kind == OpKind::Attention && op.inputs.size() > 2 ? 0.5 : 1.0;
  }

  // Input gradient, weight gradient and, between them, what has to be communicated: inputs are
  // gathered again, input gradients reduced, beside the weight-gradient GEMM where both overlap.
  void operator_backward(StepList& list, std::size_t index, std::vector<int>& gradient) const {
    const Operator& op = block_.operators[index];
    const OperatorCost& cost = costs_[index];
    std::vector<int> outputs_ready;
    for (const int output : op.outputs) {
      outputs_ready.push_back(gradient[static_cast<std::size_t>(output)]);
    }
    const bool has_weight_grad = cost.weight_grad.time.value() > 0;
    const bool overlap = has_weight_grad && context_.execution.overlap_tp;
    const std::vector<int> regathered =
        overlap || !has_weight_grad ? regather(list, index, outputs_ready) : std::vector<int>{};
    std::vector<int> before_input_grad = outputs_ready;
    if (!has_weight_grad) {
      before_input_grad.insert(before_input_grad.end(), regathered.begin(), regathered.end());
    }
    const int input_grad =
        list.add_kernel(op, PassKind::InputGrad, cost.input_grad, std::move(before_input_grad));
    const std::vector<int> reduced = reduce_gradients(list, index, input_grad, gradient);
    if (!has_weight_grad) {
      return;
    }
    std::vector<int> after = outputs_ready;
    if (overlap) {
      after.insert(after.end(), regathered.begin(), regathered.end());
    } else {
      after.insert(after.end(), reduced.begin(), reduced.end());
      const std::vector<int> blocking = regather(list, index, {list.last()});
      after.insert(after.end(), blocking.begin(), blocking.end());
    }
    list.add_kernel(op, PassKind::WeightGrad, cost.weight_grad, std::move(after));
  }

  // Gradients of a tensor with several consumers are added before one reduction, at the last one.
  std::vector<int> reduce_gradients(StepList& list, std::size_t index, int input_grad,
                                    std::vector<int>& gradient) const {
    const Operator& op = block_.operators[index];
    std::vector<int> reduced;
    for (std::size_t position = 0; position < op.inputs.size(); ++position) {
      const int tensor = op.inputs[position];
      if (!is_first_consumer(index, tensor) || !has_gradient(tensor)) {
        continue;
      }
      const auto slot = static_cast<std::size_t>(tensor);
      const Layout from = produced_gradient(op, block_.tensors[slot], static_cast<int>(position),
                                            assignments_[index]);
      gradient[slot] = list.add_conversion(
          block_.tensors[slot], from, gradient_of(produced_[slot]), PassKind::InputGrad,
          input_grad, costs_[index].input_grad.time * (0.5 * streamed_share(op)));
      reduced.push_back(gradient[slot]);
    }
    return reduced;
  }

  // Only gathers are repeated: other conversions keep their result, which is no larger.
  std::vector<int> regather(StepList& list, std::size_t index,
                            const std::vector<int>& after) const {
    const Operator& op = block_.operators[index];
    std::vector<int> steps;
    const bool product = op.kind == OpKind::Gemm || op.kind == OpKind::GroupedGemm;
    if (op.kind != OpKind::Attention && !(product && context_.execution.regathers_inputs)) {
      return steps;
    }
    const int start = after.empty() ? -1 : after.back();
    for (std::size_t position = 0; position < op.inputs.size(); ++position) {
      const auto slot = static_cast<std::size_t>(op.inputs[position]);
      const Layout to = required(index, position);
      const std::vector<Conversion> needed = conversions(produced_[slot], to);
      const bool gathers = std::any_of(needed.begin(), needed.end(), [](const Conversion& c) {
        return c.kind == CommKind::AllGather;
      });
      if (gathers) {
        steps.push_back(list.add_conversion(
            block_.tensors[slot], produced_[slot], to, PassKind::WeightGrad, start,
            costs_[index].input_grad.time * (0.5 * streamed_share(op))));
      }
    }
    return steps;
  }

  bool is_first_consumer(std::size_t index, int tensor) const {
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      const std::vector<int>& inputs = block_.operators[earlier].inputs;
      if (std::find(inputs.begin(), inputs.end(), tensor) != inputs.end()) {
        return false;
      }
    }
    return true;
  }

  const BlockContext& context_;
  const Block& block_;
  BlockRules rules_;
  std::vector<Layout> produced_;
  std::vector<Assignment> assignments_;
  std::vector<OperatorCost> costs_;
};

// CUDA_LAUNCH_BLOCKING: every kernel also takes the host the time to issue it: its launch, or its
// part of what the framework's own code takes for the pass.
void expose_host(const BlockContext& context, std::vector<Step>& steps) {
  int launches = 0;
  for (const Step& step : steps) {
    launches += step.collective ? 1 : step.launches;
  }
  const Seconds host = context.block.kind == models::BlockKind::Layer
                           ? context.execution.host_per_block
                           : Seconds();
  const Seconds each = std::max(context.device.profile().kernel_launch,
                                host / static_cast<double>(std::max(1, launches)));
  for (Step& step : steps) {
    step.time += each * static_cast<double>(step.collective ? 1 : step.launches);
  }
}

}  // namespace

BlockSteps lower_block(const BlockContext& context) {
  const Lowering lowering(context);
  BlockSteps steps;
  lowering.forward(steps.forward, PassKind::Forward, Lowering::Part::All);
  lowering.backward(steps.backward);
  if (context.layout.recompute == Recompute::Full) {
    lowering.forward(steps.recompute, PassKind::Recompute, Lowering::Part::All);
  } else if (context.layout.recompute == Recompute::Selective) {
    lowering.forward(steps.recompute, PassKind::Recompute, Lowering::Part::AttentionCore);
  } else if (context.layout.recompute == Recompute::Products) {
    lowering.forward(steps.recompute, PassKind::Recompute, Lowering::Part::NotKept);
  }
  if (context.execution.blocking_launches) {
    for (std::vector<Step>* list : {&steps.forward, &steps.recompute, &steps.backward}) {
      expose_host(context, *list);
    }
  }
  return steps;
}

}  // namespace orrery::plan
