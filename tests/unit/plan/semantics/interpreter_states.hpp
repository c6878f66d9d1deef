// SPDX-License-Identifier: Apache-2.0
// The states of the interpreter: parameters put together for the passes, gradients summed behind
// them, updates.
#pragma once

#include "tests/unit/plan/semantics/interpreter.hpp"

namespace orrery::plan::semantics {

inline Spread Interpreter::stored_at_first(std::size_t index, int weight) const {
  const Operator& op = block_.operators[index];
  const models::Tensor& tensor = tensor_of(weight);
  const Layout used = required_input(op, tensor, 0, assignments_[index]);
  const Layout stored = stored_weight(op, tensor, assignments_[index], rules_.of(op));
  // Axes that cut heads around attention alone cut what the others leave of them.
  const Layout elsewhere = required_input(op, tensor, 0, assign(block_, op, rules_.other));
  Spread spread = collectives_.distribute(whole(weight), elsewhere);
  collectives_.slice_new(spread, elsewhere, used);
  collectives_.slice_new(spread, used, stored);
  return spread;
}

// A backward of sums (biases, tables, shifts of norms) does without their values.
inline bool backward_reads(const Operator& op, std::size_t position) {
  return op.kind == OpKind::Attention || (op.kind == OpKind::Norm && position == 0) ||
         (models::is_gemm(op) && position < op.outputs.size());
}

inline void Interpreter::gather_parameters(bool forward) {
  for (std::size_t index = 0; index < block_.operators.size(); ++index) {
    const Operator& op = block_.operators[index];
    for (std::size_t position = 0; position < op.weights.size(); ++position) {
      const int weight = op.weights[position];
      State& state = states_.at(weight);
      if (state.parameters.empty()) {
        state.parameters = stored_at_first(index, weight);
        if (state.program.keeps_shards()) {
          state.program.keep_owned(state.parameters);
        }
      }
      if (forward) {
        state.whole = state.parameters;
      }
      for (const RankedCollective& one :
           forward ? state.program.gathers() : state.program.backward_gathers()) {
        WeightStates::keep_parts(one, state.whole);
        apply(state.whole, Twice::Same, forward || backward_reads(op, position),
              [&](Spread& to) { WeightStates::gather(one, to); });
      }
    }
  }
}

inline void Interpreter::add_gradients_of(const Interpreter& other) {
  for (auto& [weight, state] : states_) {
    const Spread& gradient = other.states_.at(weight).gradient;
    if (state.gradient.empty()) {
      state.gradient = gradient;
      continue;
    }
    for (std::size_t rank = 0; rank < gradient.size(); ++rank) {
      state.gradient[rank].data += gradient[rank].data;
    }
  }
}

inline void Interpreter::add_copies(Spread& gradient, int expert) {
  const std::vector<int>& places = places_of_[slot_of(expert)];
  const Spread before = gradient;
  for (std::size_t rank = 0; rank < gradient.size(); ++rank) {
    const std::vector<std::size_t> members = collectives_.members(rank, Axis::Expert);
    const int mine = collectives_.place(static_cast<int>(rank), Axis::Expert);
    if (std::find(places.begin(), places.end(), mine) == places.end()) {
      continue;
    }
    for (const int place : places) {
      const Reader theirs(before[members[slot_of(place)]]);
      for_each(gradient[rank], [&](Eigen::Index position, const std::vector<int>& at) {
        if (place != mine && at.front() == expert) {
          gradient[rank].data[position] += theirs.at(at);
        }
      });
    }
  }
}

// Whole gradients of copies first: ranks that hold an expert may have it at different places of
// what they shard.
inline void Interpreter::reduce_gradients() {
  for (auto& [weight, state] : states_) {
    if (state.gradient.empty()) {
      continue;
    }
    sums_to_zero_ = tensor_of(weight).name == "b_k";
    for (std::size_t expert = 0; expert < places_of_.size(); ++expert) {
      if (tensor_of(weight).dims.front().var == Var::Expert && places_of_[expert].size() > 1) {
        sum(state.gradient, [&](Spread& to) { add_copies(to, static_cast<int>(expert)); });
      }
    }
    for (std::size_t one = 0; one < state.program.num_reductions(); ++one) {
      sum(state.gradient, [&](Spread& to) { state.program.reduce(one, to); });
    }
    sums_to_zero_ = false;
  }
}

// Like Adam with a momentum and a bounded step, so that a gradient of another size shows.
inline void Interpreter::update() {
  for (auto& [weight, state] : states_) {
    if (state.gradient.empty()) {
      continue;
    }
    state.program.keep_owned(state.gradient);
    for (std::size_t rank = 0; rank < state.gradient.size(); ++rank) {
      const Eigen::ArrayXd& gradient = state.gradient[rank].data;
      if (state.momentum.size() <= rank) {
        state.momentum.push_back(state.gradient[rank]);
      } else {
        state.momentum[rank].data = 0.5 * state.momentum[rank].data + gradient;
      }
      const Eigen::ArrayXd& momentum = state.momentum[rank].data;
      state.parameters[rank].data -= 0.1 * momentum / (1 + momentum.abs());
    }
  }
}

}  // namespace orrery::plan::semantics
