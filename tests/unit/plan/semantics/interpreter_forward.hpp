// SPDX-License-Identifier: Apache-2.0
// Forward half of the interpreter.
#pragma once

#include <limits>

#include "tests/unit/plan/semantics/interpreter_slices.hpp"

namespace orrery::plan::semantics {

inline int target_of(int batch, int position, int vocab) {
  return (batch * 7 + position * 3 + 1) % vocab;
}

inline std::vector<Spread> Interpreter::inputs_of(std::size_t index, bool forward) {
  const Operator& op = block_.operators[index];
  std::vector<Spread> inputs;
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const std::size_t slot = slot_of(op.inputs[position]);
    const Layout to = needed_input(block_, op, position, assignments_[index], rules_, produced_);
    inputs.push_back(reads_earlier(op, position) ? with_earlier(slot) : values_[slot]);
    if (forward) {
      convert_value(inputs.back(), op.inputs[position], to);
    } else {
      repeat([&] { convert_value(inputs.back(), op.inputs[position], to); });
    }
    const bool product = models::is_gemm(op) && models::gives_weight_gradient(block_, op);
    const bool again = op.kind == OpKind::Attention || (product && !layout_.keep_gathered);
    // Converted once per layout forward; of a backward's inputs only the gathered ones again.
    bool is_new = true;
    for (std::size_t earlier = 0; forward && earlier < index; ++earlier) {
      const Operator& other = block_.operators[earlier];
      for (std::size_t place = 0; place < other.inputs.size(); ++place) {
        is_new = is_new && !(other.inputs[place] == op.inputs[position] &&
                             needed_input(block_, other, place, assignments_[earlier], rules_,
                                          produced_) == to);
      }
    }
    if (forward && is_new) {
      count(block_.tensors[slot], produced_[slot], to, true);
    } else if (!forward && again) {
      count(block_.tensors[slot], kept_layout(produced_[slot], to), to, false);
    }
  }
  return inputs;
}

inline std::vector<Spread> Interpreter::weights_of(std::size_t index, bool forward) {
  const Operator& op = block_.operators[index];
  std::vector<Spread> weights;
  for (const int weight : op.weights) {
    const models::Tensor& tensor = tensor_of(weight);
    const Layout used = required_input(op, tensor, 0, assignments_[index]);
    const Layout stored = stored_weight(op, tensor, assignments_[index], rules_.of(op));
    weights.push_back(states_.at(weight).whole);
    convert(weights.back(), stored, used);
    const bool product = models::is_gemm(op) && models::gives_input_gradient(block_, op);
    if (forward || (product && !layout_.keep_gathered)) {
      count(tensor, stored, used, forward);
    }
  }
  return weights;
}

// The part of an output: its indices are those of the operands it comes from.
inline Part Interpreter::shape_of(int tensor, const std::vector<Part>& inputs,
                                  const std::vector<Part>& weights) const {
  Part part = whole(tensor);
  for (std::size_t dim = 0; dim < part.vars.size(); ++dim) {
    if (part.vars[dim] == Var::HeadDim) {  // never cut, and of a key wider than of its first part
      continue;
    }
    for (const std::vector<Part>* operands : {&weights, &inputs}) {  // inputs win
      for (auto operand = operands->rbegin(); operand != operands->rend(); ++operand) {
        const int found = operand->dim_of(part.vars[dim]);
        const bool table = operands == &weights && part.vars[dim] == Var::Latent;
        if (found >= 0 && !table) {
          part.index[dim] = operand->index[static_cast<std::size_t>(found)];
        }
      }
    }
  }
  part.data = Eigen::ArrayXd::Zero(part.size());
  return part;
}

inline void Interpreter::statistics(std::vector<RowSums>& sums, std::size_t index, bool forward) {
  Spread spread;
  const auto length = static_cast<std::size_t>(2 * sums.front().first.size());
  for (const RowSums& sum : sums) {
    Indices rows(length);
    std::iota(rows.begin(), rows.end(), 0);
    spread.push_back(part_of({Var::Latent}, {rows}));
    spread.back().data << sum.first, sum.second;
  }
  const Operator& op = block_.operators[index];
  std::vector<Axis> axes;
  for (const Axis axis : statistics_axes(block_, op, assignments_[index])) {
    reduce(spread, axis);
    if (mesh_.of(axis) > 1) {
      axes.push_back(axis);
    }
  }
  if (!axes.empty()) {
    traffic_[{forward, sim::CommKind::AllReduce, axes}] +=
        static_cast<std::int64_t>(sums.front().first.size()) *
        static_cast<std::int64_t>(op.weights.size()) * 4;
  }
  for (std::size_t rank = 0; rank < sums.size(); ++rank) {
    const Eigen::Index half = sums[rank].first.size();
    sums[rank] = {spread[rank].data.head(half), spread[rank].data.tail(half)};
  }
}

inline void Interpreter::forward_norm(std::size_t index, const Spread& x,
                                      const std::vector<Spread>& weights) {
  const Operator& op = block_.operators[index];
  const double width = static_cast<double>(tensor_of(op.inputs.front()).dims.back().extent);
  std::vector<RowSums> sums;
  for (const Part& part : x) {
    sums.push_back(row_sums(part.data, part.data.square(), row_length(part)));
  }
  statistics(sums, index, true);
  Spread& out = values_[slot_of(op.outputs.front())];
  out = x;
  norms_[index].clear();
  for (std::size_t rank = 0; rank < x.size(); ++rank) {
    norms_[index].push_back(normalised(x[rank], sums[rank], width, op.weights.size() == 2));
    out[rank].data = norms_[index].back().x_hat * broadcast(weights[0][rank], x[rank]);
    if (weights.size() == 2) {
      out[rank].data += broadcast(weights[1][rank], x[rank]);
    }
  }
}

// Of an element-wise operator: those of an adapter are one for each projection of the product, and
// so are the operands, in turn.
inline std::size_t num_sums(const Operator& op) { return op.adapter ? op.outputs.size() : 1; }

inline std::vector<Part> operands_of(const std::vector<Part>& all, std::size_t sum,
                                     std::size_t sums) {
  std::vector<Part> own;
  for (std::size_t position = sum; position < all.size(); position += sums) {
    own.push_back(all[position]);
  }
  return own;
}

inline void add_elementwise(const Operator& op, const std::vector<Part>& in,
                            const std::vector<Part>& weights, Part& out) {
  if (op.name.rfind("rotary", 0) == 0 && in.size() == 2) {  // a part that all heads share behind it
    const Reader own(in[0]);
    const Reader shared(in[1]);
    const int first = static_cast<int>(in[0].index[3].size());
    for_each(out, [&](Eigen::Index position, const std::vector<int>& at) {
      out.data[position] =
          at[3] < first ? own.at(at) : shared.at({at[0], at[1], at[3] - first}) * rotation(at[1]);
    });
  } else if (op.name.rfind("rotary", 0) == 0) {
    for_each(out, [&](Eigen::Index position, const std::vector<int>& global) {
      out.data[position] = in[0].data[position] * rotation(global[1]);
    });
  } else if (op.pointwise) {
    for (const Part& operand : in) {
      out.data += operand.index == out.index ? operand.data
                                             : Eigen::ArrayXd::Constant(out.size(), std::nan(""));
    }
    for (const Part& table : weights) {
      const Reader reader(table);
      for_each(out, [&](Eigen::Index position, const std::vector<int>& global) {
        out.data[position] += reader.at({global[1], global[2]});
      });
    }
  } else {
    out.data = in[0].data.unaryExpr(&activated);
    if (in.size() == 2) {
      out.data *= in[1].data;
    }
  }
}

inline void add_products(const Operator& op, int experts, const std::vector<bool>& bias,
                         const std::vector<Part>& in, const std::vector<Part>& weights,
                         std::vector<Part>& out) {
  for (std::size_t output = 0; output < out.size(); ++output) {
    if (op.kind == OpKind::GroupedGemm) {
      const Indices& local = weights[output].index.front();
      for (std::size_t expert = 0; expert < local.size(); ++expert) {
        add_product(rows_of_expert(in[0], local[expert], experts),
                    weights_of_expert(weights[output], expert), out[output]);
      }
      continue;
    }
    add_product(in[0], weights[output], out[output]);
    if (bias[output]) {
      add_bias(weights[out.size() + output], out[output]);
    }
  }
}

// Logits are small here: their exponentials are summed as they are.
inline void add_loss(const Part& logits, int vocab, std::vector<Part>& values) {
  values[0].data.setConstant(-std::numeric_limits<double>::infinity());
  const Reader place(values[0]);
  for_each(logits, [&](Eigen::Index position, const std::vector<int>& at) {
    const double logit = logits.data[position];
    const Eigen::Index token = place.place({at[0], at[1]});
    values[0].data[token] = std::max(values[0].data[token], logit);
    values[1].data[token] += at[2] == target_of(at[0], at[1], vocab) ? logit : 0.0;
    values[2].data[token] += std::exp(logit);
  });
}

inline void route(const Part& logits, int experts, std::vector<Part>& out) {
  const Reader reader(logits);
  const auto probability = [&](int b, int s, int expert) {
    double sum = 0;
    for (int other = 0; other < experts; ++other) {
      sum += std::exp(reader.at({b, s, other}));
    }
    return std::exp(reader.at({b, s, expert})) / sum;
  };
  for_each(out[0], [&](Eigen::Index position, const std::vector<int>& at) {
    out[0].data[position] = probability(at[0], at[1], at[2]);
  });
  for_each(out[1], [&](Eigen::Index position, const std::vector<int>& at) {
    out[1].data[position] = probability(at[0], at[1], expert_of(at, experts));
  });
}

inline std::vector<bool> Interpreter::adds_biases(const Operator& op) const {
  std::vector<bool> adds;
  for (const int output : op.outputs) {
    adds.push_back(has_biases(op) && !is_summed_later(output));
  }
  return adds;
}

inline void Interpreter::forward_operator(std::size_t index) {
  const Operator& op = block_.operators[index];
  const std::vector<Spread> inputs = inputs_of(index, true);
  const std::vector<Spread> weights = weights_of(index, true);
  if (op.kind == OpKind::Norm) {
    forward_norm(index, inputs.front(), weights);
    return;
  }
  const int experts = static_cast<int>(block_.experts);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(mesh_.num_ranks()); ++rank) {
    std::vector<Part> in;
    std::vector<Part> used;
    std::vector<Part> out;
    for (const Spread& input : inputs) {
      in.push_back(input[rank]);
    }
    for (const Spread& weight : weights) {
      used.push_back(weight[rank]);
    }
    for (const int output : op.outputs) {
      out.push_back(shape_of(output, in, used));
    }
    switch (op.kind) {
      case OpKind::Gemm:
      case OpKind::GroupedGemm:
        add_products(op, experts, adds_biases(op), in, used, out);
        break;
      case OpKind::Attention:
        softmax_sums_[op.outputs[0]].push_back(rows_of_heads(out[0]));
        attend({in[0], in[1], in[2], block_.attention.causal, used.empty() ? nullptr : used.data()},
               {&out[0], &softmax_sums_[op.outputs[0]].back()});
        if (!is_summed_later(op.outputs[0])) {
          divide_rows(softmax_sums_[op.outputs[0]].back(), out[0]);
        }
        break;
      case OpKind::Embedding: {
        const Reader table(used[0]);
        const Reader ids(in[0]);
        for_each(out[0], [&](Eigen::Index position, const std::vector<int>& at) {
          const std::vector<int> row = {static_cast<int>(ids.at({at[0], at[1]})), at[2]};
          out[0].data[position] = table.holds(row) ? table.at(row) : 0.0;
        });
        break;
      }
      case OpKind::CrossEntropy:
        add_loss(in[0], static_cast<int>(tensor_of(op.inputs[0]).dims.back().extent), out);
        break;
      case OpKind::Router:
        route(in[0], experts, out);
        break;
      case OpKind::Permute:
        if (op.reduced.empty()) {
          const Reader reader(in[0]);
          for_each(out[0], [&](Eigen::Index position, const std::vector<int>& at) {
            out[0].data[position] = reader.at({at[0], at[1], at[3]});
          });
        } else {
          add_product(in[1], in[0], out[0]);
        }
        break;
      default:
        for (std::size_t sum = 0; sum < num_sums(op); ++sum) {
          add_elementwise(op, operands_of(in, sum, num_sums(op)), used, out[sum]);
        }
    }
    for (std::size_t output = 0; output < out.size(); ++output) {
      values_[slot_of(op.outputs[output])].push_back(std::move(out[output]));
    }
  }
}

inline void Interpreter::forward() {
  gather_parameters(true);
  softmax_sums_.clear();
  for (std::size_t tensor = 0; tensor < block_.tensors.size(); ++tensor) {
    const bool weight = block_.tensors[tensor].kind == models::TensorKind::Weight;
    const bool made =
        std::any_of(block_.operators.begin(), block_.operators.end(), [&](const Operator& op) {
          return std::find(op.outputs.begin(), op.outputs.end(), static_cast<int>(tensor)) !=
                 op.outputs.end();
        });
    values_[tensor].clear();
    if (!weight && !made) {
      values_[tensor] = collectives_.distribute(whole(static_cast<int>(tensor)), produced_[tensor]);
    }
  }
  if (!given_input_.empty()) {
    values_[slot_of(block_.input)] = given_input_;
  }
  for (std::size_t index = 0; index < block_.operators.size(); ++index) {
    forward_operator(index);
  }
  for (const int tensor : results()) {
    const std::size_t slot = slot_of(tensor);
    const Layout to = block_.output >= 0 ? stream_layout(rules_) : gradient_of(produced_[slot]);
    takes_largest_ = tensor_of(tensor).name == "largest_logit";
    convert_value(values_[slot], tensor, to);
    takes_largest_ = false;
    count(block_.tensors[slot], produced_[slot], to, true);
  }
}

inline double Interpreter::objective() const {
  const auto value = [&](std::size_t result) {
    return values_[slot_of(results()[result])].front().data;
  };
  if (block_.output >= 0) {
    return (value(0) * whole(block_.output).data).sum();
  }
  return (value(2).log() - value(1)).sum();
}

}  // namespace orrery::plan::semantics
