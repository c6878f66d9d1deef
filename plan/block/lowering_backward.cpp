// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "plan/block/lowering.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {

using models::Operator;
using models::OpKind;
using models::Tensor;
using sim::CommKind;
using sim::PassKind;

void Lowering::backward(std::vector<Step>& steps) const {
  StepList list(context_, steps);
  Gradients gradient(block_.tensors.size());
  if (block_.output >= 0) {
    const std::size_t output = slot_of(block_.output);
    gradient[output] = {list.add_conversion(block_.tensors[output], stream_layout(rules_),
                                            gradient_of(produced_[output]), PassKind::InputGrad, -1,
                                            Seconds())};
  }
  for (auto index = order_.rbegin(); index != order_.rend(); ++index) {
    operator_backward(list, *index, gradient);
  }
}

bool Lowering::has_gradient(int tensor) const {
  const Tensor& value = tensor_of(tensor);
  const bool is_input =
      std::none_of(block_.operators.begin(), block_.operators.end(), [tensor](const Operator& op) {
        return std::find(op.outputs.begin(), op.outputs.end(), tensor) != op.outputs.end();
      });
  const bool from_network = tensor == block_.input || tensor == block_.memory;
  return !value.frozen && value.element != models::Element::Int64 && (!is_input || from_network);
}

// Input gradient, weight gradient and, between them, what has to be communicated: gathered inputs
// and weights were not kept (or were) and are gathered again, input gradients are reduced. Beside a
// weight-gradient GEMM both run in its shadow when the execution overlaps them.
void Lowering::operator_backward(StepList& list, std::size_t index, Gradients& gradient) const {
  const Operator& op = block_.operators[index];
  if (!models::has_backward(block_, op)) {
    return;
  }
  const OperatorCost& cost = costs_[index];
  std::vector<int> outputs_ready;
  for (const int output : op.outputs) {
    const std::vector<int>& steps = gradient[slot_of(output)];
    outputs_ready.insert(outputs_ready.end(), steps.begin(), steps.end());
  }
  const bool has_weight_grad = cost.weight_grad.time.value() > 0;
  // SUMMA's pieces already run beside the GEMM that they belong to.
  const bool overlap =
      has_weight_grad && context_.execution.overlap_tp && !is_summa(context_.layout, Axis::Tensor);
  const std::vector<int> regathered =
      overlap || !has_weight_grad ? regather(list, index, outputs_ready) : std::vector<int>{};
  std::vector<int> before_input_grad = outputs_ready;
  if (!has_weight_grad) {
    before_input_grad.insert(before_input_grad.end(), regathered.begin(), regathered.end());
  }
  int first = list.size();
  const bool has_input_grad = models::gives_input_gradient(block_, op);
  if (models::is_gemm(op) && has_input_grad && copies_.of_weights(index) == GatheredCopy::Dropped) {
    before_input_grad.push_back(
        convert_weights(list, index, CommKind::AllGather, PassKind::InputGrad, list.last()));
  }
  before_input_grad.push_back(add_statistics(list, index, PassKind::InputGrad, before_input_grad));
  const int input_grad =
      list.add_kernel(op, PassKind::InputGrad, cost.input_grad, std::move(before_input_grad));
  const std::vector<int> reduced = reduce_gradients(list, index, input_grad, gradient);
  if (context_.execution.overlap_tp) {
    list.hide_pieces(first, cost.input_grad.time);
  }
  if (!has_weight_grad) {
    if (models::gives_weight_gradient(block_, op)) {
      convert_weights(list, index, CommKind::ReduceScatter, PassKind::WeightGrad, input_grad);
    }
    return;
  }
  std::vector<int> after = outputs_ready;
  first = list.size();
  if (overlap) {
    after.insert(after.end(), regathered.begin(), regathered.end());
  } else {
    after.insert(after.end(), reduced.begin(), reduced.end());
    const std::vector<int> blocking = regather(list, index, {list.last()});
    after.insert(after.end(), blocking.begin(), blocking.end());
  }
  const int weight_grad =
      list.add_kernel(op, PassKind::WeightGrad, cost.weight_grad, std::move(after));
  convert_weights(list, index, CommKind::ReduceScatter, PassKind::WeightGrad, weight_grad);
  if (context_.execution.overlap_tp) {
    list.hide_pieces(first, cost.weight_grad.time);
  }
}

Layout Lowering::gradient_layout(const Use& use) const {
  const Operator& op = block_.operators[use.index];
  return produced_gradient(op, tensor_of(op.inputs[use.position]), static_cast<int>(use.position),
                           assignments_[use.index]);
}

bool Lowering::is_first_of_its_layout(const Use& use) const {
  const int tensor = block_.operators[use.index].inputs[use.position];
  const Layout layout = gradient_layout(use);
  for (std::size_t earlier = 0; earlier < use.index; ++earlier) {
    const std::vector<int>& inputs = block_.operators[earlier].inputs;
    const auto found = std::find(inputs.begin(), inputs.end(), tensor);
    if (found != inputs.end() &&
        gradient_layout({earlier, static_cast<std::size_t>(found - inputs.begin())}) == layout) {
      return false;
    }
  }
  return true;
}

// Gradients of a tensor that its consumers give in one layout are added before one reduction, at
// the consumer whose backward comes last; those in different layouts are converted apart.
std::vector<int> Lowering::reduce_gradients(StepList& list, std::size_t index, int input_grad,
                                            Gradients& gradient) const {
  const Operator& op = block_.operators[index];
  std::vector<int> reduced;
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const int tensor = op.inputs[position];
    const Use use{index, position};
    if (!has_gradient(tensor) || !joint_outputs(tensor).empty() || !is_first_of_its_layout(use)) {
      continue;
    }
    const std::size_t slot = slot_of(tensor);
    reduced.push_back(list.add_conversion(
        block_.tensors[slot], gradient_layout(use), gradient_of(produced_[slot]),
        PassKind::InputGrad, input_grad, costs_[index].input_grad.time * streamed_backward(op)));
    gradient[slot].push_back(reduced.back());
  }
  reduce_joint_gradients(list, index, input_grad, gradient);
  return reduced;
}

// The gradients of joint outputs are one buffer, converted when the last of them is there.
void Lowering::reduce_joint_gradients(StepList& list, std::size_t index, int input_grad,
                                      Gradients& gradient) const {
  for (const int input : block_.operators[index].inputs) {
    const std::vector<int>& joint = joint_outputs(input);
    const bool complete = !joint.empty() && has_gradient(input) &&
                          first_use(input).index == index &&
                          std::all_of(joint.begin(), joint.end(),
                                      [&](int tensor) { return first_use(tensor).index >= index; });
    if (!complete || !gradient[slot_of(input)].empty()) {
      continue;
    }
    Conversions all;
    for (const int tensor : joint) {
      all.join(conversions_of(tensor, gradient_layout(first_use(tensor)),
                              gradient_of(produced_[slot_of(tensor)])));
    }
    const int step = list.add_conversions(all, PassKind::InputGrad, input_grad, Seconds());
    for (const int tensor : joint) {
      gradient[slot_of(tensor)] = {step};
    }
  }
}

// Only gathers are repeated: other conversions keep their result, which is no larger.
std::vector<int> Lowering::regather(StepList& list, std::size_t index,
                                    const std::vector<int>& after) const {
  const Operator& op = block_.operators[index];
  std::vector<int> steps;
  const bool product = models::is_gemm(op) && models::gives_weight_gradient(block_, op);
  const bool gathered =
      context_.execution.reuses_gathered && context_.layout.recompute == Recompute::Full;
  const auto gathers_again = [&](int tensor) {
    return (op.kind == OpKind::Attention && !gathered) ||
           (product && copies_.of_input(index, tensor) == GatheredCopy::Dropped);
  };
  const int start = after.empty() ? -1 : after.back();
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const std::size_t slot = slot_of(op.inputs[position]);
    const Layout to = required(index, position);
    const Layout kept = kept_layout(produced_[slot], to);
    const std::vector<Conversion> needed = conversions(kept, to);
    const bool gathers = std::any_of(needed.begin(), needed.end(), [&](const Conversion& gather) {
      return context_.mesh.of(gather.axis) > 1;
    });
    if (gathers && gathers_again(op.inputs[position])) {
      steps.push_back(list.add_conversion(block_.tensors[slot], kept, to, PassKind::WeightGrad,
                                          start,
                                          costs_[index].input_grad.time * streamed_backward(op)));
    }
  }
  return steps;
}

}  // namespace orrery::plan
