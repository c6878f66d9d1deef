// SPDX-License-Identifier: Apache-2.0
// Backward half of the interpreter.
#pragma once

#include "tests/unit/plan/semantics/interpreter_forward.hpp"

namespace orrery::plan::semantics {

// Adds a consumer's contribution to the gradient of its operand.
inline void Interpreter::give_gradient(std::size_t index, std::size_t position, Spread spread) {
  const Operator& op = block_.operators[index];
  const std::size_t slot = slot_of(op.inputs[position]);
  if (reads_earlier(op, position)) {
    give_slices(index, position, std::move(spread));
    return;
  }
  const Layout layout =
      produced_gradient(op, block_.tensors[slot], static_cast<int>(position), assignments_[index]);
  for (auto& [known, sum] : pending_[slot]) {
    if (known == layout) {
      for (std::size_t rank = 0; rank < sum.size(); ++rank) {
        sum[rank].data += spread[rank].index == sum[rank].index
                              ? spread[rank].data
                              : Eigen::ArrayXd::Constant(sum[rank].size(), std::nan(""));
      }
      return;
    }
  }
  pending_[slot].emplace_back(layout, std::move(spread));
}

inline void Interpreter::finish_gradient(int tensor) {
  const std::size_t slot = slot_of(tensor);
  if (const auto later = given_by_later_.find(slot); later != given_by_later_.end()) {
    pending_[slot].emplace_back(gradient_of(produced_[slot]), std::move(later->second));
    given_by_later_.erase(later);
  }
  for (auto& [layout, spread] : pending_[slot]) {
    const Layout to = gradient_of(produced_[slot]);
    convert(spread, layout, to, true, &values_[slot]);
    count(block_.tensors[slot], layout, to, false);
    if (gradients_[slot].empty()) {
      gradients_[slot] = std::move(spread);
      continue;
    }
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      gradients_[slot][rank].data += spread[rank].data;
    }
  }
  pending_[slot].clear();
}

// Scattered by the block where the weight is stored sharded.
inline void Interpreter::give_weight_gradient(std::size_t index, int weight, Spread spread) {
  const Operator& op = block_.operators[index];
  const models::Tensor& tensor = tensor_of(weight);
  const Layout used = required_input(op, tensor, 0, assignments_[index]);
  const Layout stored = stored_weight(op, tensor, assignments_[index], rules_.of(op));
  for (auto axis = kAxes.rbegin(); axis != kAxes.rend(); ++axis) {
    if (used[*axis].is_replicated() && stored[*axis].is_sharded()) {
      reduce(spread, *axis);
      collectives_.slice(spread, *axis, stored[*axis].var());
    }
  }
  count(tensor, stored, used, false, sim::CommKind::ReduceScatter);
  states_.at(weight).gradient = std::move(spread);
}

inline void Interpreter::backward_norm(std::size_t index, const Spread& dy,
                                       const std::vector<Spread>& weights) {
  const Operator& op = block_.operators[index];
  const double width = static_cast<double>(tensor_of(op.inputs.front()).dims.back().extent);
  const std::vector<Normalised>& norms = norms_.at(index);
  std::vector<RowSums> sums;
  std::vector<Eigen::ArrayXd> scaled;
  for (std::size_t rank = 0; rank < dy.size(); ++rank) {
    scaled.push_back(dy[rank].data * broadcast(weights[0][rank], dy[rank]));
    sums.push_back(row_sums(scaled[rank], scaled[rank] * norms[rank].x_hat, row_length(dy[rank])));
  }
  statistics(sums, index, false);
  Spread dx = dy;
  Spread d_scale = weights[0];
  Spread d_shift = weights.back();
  for (std::size_t rank = 0; rank < dy.size(); ++rank) {
    const Eigen::Index length = row_length(dy[rank]);
    for (Eigen::Index row = 0; row < sums[rank].first.size(); ++row) {
      const double mean = weights.size() == 2 ? sums[rank].first[row] / width : 0.0;
      dx[rank].data.segment(row * length, length) =
          norms[rank].inverse[row] *
          (scaled[rank].segment(row * length, length) - mean -
           norms[rank].x_hat.segment(row * length, length) * (sums[rank].second[row] / width));
    }
    d_scale[rank].data = sum_rows(dy[rank].data * norms[rank].x_hat, length);
    d_shift[rank].data = sum_rows(dy[rank].data, length);
  }
  give_gradient(index, 0, std::move(dx));
  if (tensor_of(op.weights[0]).frozen) {
    return;
  }
  give_weight_gradient(index, op.weights[0], std::move(d_scale));
  if (weights.size() == 2) {
    give_weight_gradient(index, op.weights[1], std::move(d_shift));
  }
}

// Gradients of one rank's operands; dw and dx begin as zeros of the operands' shapes.
struct OperandGradients {
  std::vector<Part> dx;
  std::vector<Part> dw;
};

inline void product_gradients(const Operator& op, int experts, const std::vector<Part>& in,
                              const std::vector<Part>& weights, const std::vector<Part>& dy,
                              const std::vector<Part>& own, OperandGradients& result) {
  for (std::size_t output = 0; output < dy.size(); ++output) {
    if (op.kind == OpKind::GroupedGemm) {
      const Indices& local = weights[output].index.front();
      for (std::size_t expert = 0; expert < local.size(); ++expert) {
        const Part rows = rows_of_expert(dy[output], local[expert], experts);
        const Part matrix = weights_of_expert(weights[output], expert);
        add_product(rows, matrix, result.dx[0]);
        Part one = matrix;
        one.data.setZero();
        add_product(rows_of_expert(in[0], local[expert], experts), rows, one);
        result.dw[output].data.segment(static_cast<Eigen::Index>(expert) * one.size(),
                                       one.size()) += one.data;
      }
      continue;
    }
    add_product(dy[output], weights[output], result.dx[0]);
    add_product(in[0], dy[output], result.dw[output]);
    if (has_biases(op)) {
      Part& bias = result.dw[dy.size() + output];
      const Reader place(bias);
      for_each(own[output], [&](Eigen::Index position, const std::vector<int>& global) {
        bias.data[place.place(columns_at(global, bias))] += own[output].data[position];
      });
    }
  }
}

inline void elementwise_gradients(const Operator& op, const std::vector<Part>& in,
                                  const std::vector<Part>& weights, const Part& dy,
                                  OperandGradients& result) {
  if (op.name.rfind("rotary", 0) == 0 && in.size() == 2) {
    const Reader own(in[0]);
    const Reader shared(in[1]);
    const int first = static_cast<int>(in[0].index[3].size());
    for_each(dy, [&](Eigen::Index position, const std::vector<int>& at) {
      if (at[3] < first) {
        result.dx[0].data[own.place(at)] = dy.data[position];
      } else {
        result.dx[1].data[shared.place({at[0], at[1], at[3] - first})] +=
            dy.data[position] * rotation(at[1]);
      }
    });
  } else if (op.name.rfind("rotary", 0) == 0) {
    for_each(dy, [&](Eigen::Index position, const std::vector<int>& global) {
      result.dx[0].data[position] = dy.data[position] * rotation(global[1]);
    });
  } else if (op.pointwise) {
    for (Part& dx : result.dx) {
      dx.data = dy.data;
    }
    for (std::size_t table = 0; table < weights.size(); ++table) {
      const Reader place(weights[table]);
      for_each(dy, [&](Eigen::Index position, const std::vector<int>& global) {
        result.dw[table].data[place.place({global[1], global[2]})] += dy.data[position];
      });
    }
  } else {
    result.dx[0].data = dy.data * in[0].data.unaryExpr(&activated_slope);
    if (in.size() == 2) {
      result.dx[0].data *= in[1].data;
      result.dx[1].data = dy.data * in[0].data.unaryExpr(&activated);
    }
  }
}

inline void loss_gradient(const Part& logits, const Part& exponentials, int vocab, Part& d_logits) {
  const Reader reader(exponentials);
  for_each(logits, [&](Eigen::Index position, const std::vector<int>& at) {
    d_logits.data[position] = std::exp(logits.data[position]) / reader.at({at[0], at[1]}) -
                              (at[2] == target_of(at[0], at[1], vocab) ? 1.0 : 0.0);
  });
}

inline void router_gradient(const Part& probabilities, const Part& d_weights, int experts,
                            Part& d_logits) {
  const Reader reader(probabilities);
  const Reader place(d_logits);
  for_each(d_weights, [&](Eigen::Index position, const std::vector<int>& at) {
    const int chosen = expert_of(at, experts);
    const double p = reader.at({at[0], at[1], chosen});
    for (int expert = 0; expert < experts; ++expert) {
      const double other = reader.at({at[0], at[1], expert});
      d_logits.data[place.place({at[0], at[1], expert})] +=
          d_weights.data[position] * p * ((expert == chosen ? 1.0 : 0.0) - other);
    }
  });
}

inline std::vector<Spread> Interpreter::bias_outputs(std::size_t index) const {
  const Operator& op = block_.operators[index];
  std::vector<Spread> own;
  for (std::size_t output = 0; has_biases(op) && output < op.outputs.size(); ++output) {
    const std::size_t slot = slot_of(op.outputs[output]);
    const Layout whole = gradient_of(produced_[slot]);
    const Layout read = read_layout(block_, op, op.weights[op.outputs.size() + output], rules_);
    Layout part = whole;
    for (const Axis axis : kAxes) {
      if (produced_[slot][axis].is_partial() && read[axis].is_sharded()) {
        part.set(axis, read[axis]);
      }
    }
    own.push_back(gradients_[slot]);
    collectives_.slice_new(own.back(), whole, part);
  }
  return own;
}

inline std::pair<Spread, Spread> Interpreter::attention_results(int output) {
  const Layout& from = produced_[slot_of(output)];
  std::pair<Spread, Spread> results = {values_[slot_of(output)], softmax_sums_.at(output)};
  repeat([&] {
    convert_value(results.first, output, gradient_of(from));
    convert(results.second, from, gradient_of(from));
  });
  return results;
}

inline void Interpreter::backward_operator(std::size_t index) {
  const Operator& op = block_.operators[index];
  for (const int output : op.outputs) {
    finish_gradient(output);
  }
  if (!models::has_backward(block_, op)) {
    return;
  }
  const bool is_loss = op.kind == OpKind::CrossEntropy;
  const std::size_t with_gradient = op.kind == OpKind::Router ? 1 : 0;
  if (!is_loss && gradients_[slot_of(op.outputs[with_gradient])].empty()) {
    return;
  }
  const std::vector<Spread> inputs = inputs_of(index, false);
  const std::vector<Spread> weights = weights_of(index, false);
  if (op.kind == OpKind::Norm) {
    backward_norm(index, gradients_[slot_of(op.outputs.front())], weights);
    return;
  }
  const int experts = static_cast<int>(block_.experts);
  const std::vector<Spread> biased = bias_outputs(index);
  const auto attended =
      op.kind == OpKind::Attention ? attention_results(op.outputs[0]) : std::pair<Spread, Spread>();
  std::vector<Spread> dx(inputs.size());
  std::vector<Spread> dw(weights.size());
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(mesh_.num_ranks()); ++rank) {
    std::vector<Part> in;
    std::vector<Part> used;
    std::vector<Part> dy;
    OperandGradients result;
    const auto zero = [](Part part) {
      part.data.setZero();
      return part;
    };
    for (const Spread& input : inputs) {
      in.push_back(input[rank]);
      result.dx.push_back(zero(input[rank]));
    }
    for (const Spread& weight : weights) {
      used.push_back(weight[rank]);
      result.dw.push_back(zero(weight[rank]));
    }
    for (const int output : op.outputs) {
      const Spread& gradient = gradients_[slot_of(output)];
      dy.push_back(gradient.empty() ? Part() : gradient[rank]);
    }
    std::vector<Part> own_dy;
    for (const Spread& gradient : biased) {
      own_dy.push_back(gradient.empty() ? Part() : gradient[rank]);
    }
    switch (op.kind) {
      case OpKind::Gemm:
      case OpKind::GroupedGemm:
        product_gradients(op, experts, in, used, dy, own_dy, result);
        break;
      case OpKind::Attention: {
        AttentionGradients gradients{result.dx[0], result.dx[1], result.dx[2],
                                     used.empty() ? Part() : result.dw[0]};
        attend_backward(
            {in[0], in[1], in[2], block_.attention.causal, used.empty() ? nullptr : used.data()},
            {&attended.first[rank], &attended.second[rank], &dy[0]}, gradients);
        result.dx = {gradients.q, gradients.k, gradients.v};
        if (!used.empty()) {
          result.dw = {gradients.table};
        }
        break;
      }
      case OpKind::Embedding: {
        const Reader table(used[0]);
        const Reader ids(in[0]);
        for_each(dy[0], [&](Eigen::Index position, const std::vector<int>& at) {
          const std::vector<int> row = {static_cast<int>(ids.at({at[0], at[1]})), at[2]};
          if (table.holds(row)) {
            result.dw[0].data[table.place(row)] += dy[0].data[position];
          }
        });
        break;
      }
      case OpKind::CrossEntropy:
        loss_gradient(in[0], values_[slot_of(op.outputs[2])][rank],
                      static_cast<int>(tensor_of(op.inputs[0]).dims.back().extent), result.dx[0]);
        break;
      case OpKind::Router:
        router_gradient(values_[slot_of(op.outputs[0])][rank], dy[1], experts, result.dx[0]);
        break;
      case OpKind::Permute:
        if (op.reduced.empty()) {
          const Reader place(result.dx[0]);
          for_each(dy[0], [&](Eigen::Index position, const std::vector<int>& at) {
            result.dx[0].data[place.place({at[0], at[1], at[3]})] += dy[0].data[position];
          });
        } else {
          add_product(dy[0], in[1], result.dx[0]);
          add_product(dy[0], in[0], result.dx[1]);
        }
        break;
      default:
        for (std::size_t sum = 0; sum < num_sums(op); ++sum) {
          OperandGradients own{operands_of(result.dx, sum, num_sums(op)), std::move(result.dw)};
          elementwise_gradients(op, operands_of(in, sum, num_sums(op)), used, dy[sum], own);
          for (std::size_t operand = 0; operand < own.dx.size(); ++operand) {
            result.dx[sum + operand * num_sums(op)] = std::move(own.dx[operand]);
          }
          result.dw = std::move(own.dw);
        }
    }
    for (std::size_t position = 0; position < dx.size(); ++position) {
      dx[position].push_back(std::move(result.dx[position]));
    }
    for (std::size_t weight = 0; weight < dw.size(); ++weight) {
      dw[weight].push_back(std::move(result.dw[weight]));
    }
  }
  for (std::size_t position = 0; position < dx.size(); ++position) {
    const models::Tensor& input = tensor_of(op.inputs[position]);
    if (input.element != models::Element::Int64 && !input.frozen) {
      give_gradient(index, position, std::move(dx[position]));
    }
  }
  for (std::size_t weight = 0; weight < dw.size(); ++weight) {
    if (!tensor_of(op.weights[weight]).frozen) {
      give_weight_gradient(index, op.weights[weight], std::move(dw[weight]));
    }
  }
}

inline void Interpreter::backward() {
  gather_parameters(false);
  std::fill(gradients_.begin(), gradients_.end(), Spread());
  if (block_.output >= 0) {
    const std::size_t slot = slot_of(block_.output);
    Spread gradient = !given_gradient_.empty()
                          ? given_gradient_
                          : collectives_.distribute(whole(block_.output), stream_layout(rules_));
    const Layout to = gradient_of(produced_[slot]);
    convert(gradient, stream_layout(rules_), to, true);
    count(block_.tensors[slot], stream_layout(rules_), to, false);
    gradients_[slot] = std::move(gradient);
  }
  for (std::size_t index = block_.operators.size(); index-- > 0;) {
    backward_operator(index);
  }
  if (block_.input >= 0) {
    finish_gradient(block_.input);
  }
}

}  // namespace orrery::plan::semantics
