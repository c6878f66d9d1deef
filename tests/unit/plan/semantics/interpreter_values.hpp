// SPDX-License-Identifier: Apache-2.0
// Conversions of the interpreter, and what it makes of a value on its way to where it is read.
#pragma once

#include "tests/unit/plan/semantics/interpreter_states.hpp"

namespace orrery::plan::semantics {

inline void Interpreter::convert(Spread& spread, const Layout& from, const Layout& to,
                                 bool gradient, const Spread* value) {
  for (const Axis axis : kAxes) {
    if (from[axis].is_partial() && from[axis] != to[axis]) {
      reduce(spread, axis);
    }
  }
  cut_new(spread, from, to, true, nullptr);
  for (const Conversion& step : conversions(from, to)) {
    const Placement source = from[step.axis];
    if (source.is_sharded()) {
      collectives_.gather(spread, step.axis, source.var(), gradient);
    }
  }
  cut_new(spread, from, to, false, value);
}

// What slices, reductions and exchanges cut, the outermost axis first.
inline void Interpreter::cut_new(Spread& spread, const Layout& from, const Layout& to,
                                 bool before_gathers, const Spread* value) const {
  for (auto axis = kAxes.rbegin(); axis != kAxes.rend(); ++axis) {
    if (from[*axis] == to[*axis] || !to[*axis].is_sharded() ||
        cuts_before_gathers(from, to, *axis) != before_gathers) {
      continue;
    }
    if (value != nullptr && to[*axis].var() != Var::Choice) {
      collectives_.cut_as(spread, *value, to[*axis].var());
    } else {
      collectives_.slice(spread, *axis, to[*axis].var());
    }
  }
}

// Sums where ranks have parts of what is summed over, of a softmax those of its exponentials with
// them. As frameworks do: a product adds its bias itself where its output is no partial sum; else
// it is added to what the reduction leaves on a rank.
inline bool Interpreter::is_summed_later(int tensor) const {
  return std::any_of(kAxes.begin(), kAxes.end(), [&](Axis axis) {
    return mesh_.of(axis) > 1 && produced_[slot_of(tensor)][axis].is_partial();
  });
}

// Between its reductions and its gathers: divided by sums of a softmax, or with a bias.
inline bool Interpreter::changes_when_summed(int tensor) const {
  const bool biased =
      std::any_of(block_.operators.begin(), block_.operators.end(), [&](const Operator& op) {
        return has_biases(op) &&
               std::find(op.outputs.begin(), op.outputs.end(), tensor) != op.outputs.end();
      });
  return is_summed_later(tensor) && (biased || softmax_sums_.contains(tensor));
}

inline void add_bias(const Part& bias, Part& part) {
  const Reader reader(bias);
  for_each(part, [&](Eigen::Index position, const std::vector<int>& global) {
    part.data[position] += reader.at(columns_at(global, bias));
  });
}

inline void Interpreter::convert_value(Spread& spread, int tensor, const Layout& to) {
  const Layout& from = produced_[slot_of(tensor)];
  if (!changes_when_summed(tensor)) {
    convert(spread, from, to);
    return;
  }
  Layout summed = to;
  for (const Axis axis : kAxes) {
    summed.set(axis, from[axis].is_sharded() ? from[axis] : to[axis]);
  }
  convert(spread, from, summed);
  if (const auto found = softmax_sums_.find(tensor); found != softmax_sums_.end()) {
    Spread sums = found->second;
    convert(sums, from, summed);
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      divide_rows(sums[rank], spread[rank]);
    }
  }
  for (std::size_t index = 0; index < block_.operators.size(); ++index) {
    const Operator& op = block_.operators[index];
    const auto output = std::find(op.outputs.begin(), op.outputs.end(), tensor);
    if (output == op.outputs.end() || !has_biases(op)) {
      continue;
    }
    const auto place = op.outputs.size() + static_cast<std::size_t>(output - op.outputs.begin());
    const Spread& bias = states_.at(op.weights[place]).whole;  // never stored otherwise
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      add_bias(bias[rank], spread[rank]);
    }
  }
  convert(spread, summed, to);
}

}  // namespace orrery::plan::semantics
