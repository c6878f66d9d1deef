// SPDX-License-Identifier: Apache-2.0
// Slices of sequences in the interpreter: attention reads the keys and values of the earlier ones,
// whose gradients go back to them.
#pragma once

#include "tests/unit/plan/semantics/interpreter_values.hpp"

namespace orrery::plan::semantics {

inline bool Interpreter::reads_earlier(const Operator& op, std::size_t position) const {
  return op.kind == OpKind::Attention && position > 0 && !earlier_.empty();
}

// A tensor as the slices of its sequences produced it, one behind the other.
inline Spread Interpreter::with_earlier(std::size_t slot) const {
  Spread all;
  for (std::size_t rank = 0; rank < values_[slot].size(); ++rank) {
    Part whole = values_[slot][rank];
    const auto tokens = static_cast<std::size_t>(whole.dim_of(Var::Seq));
    Indices& list = whole.index[tokens];
    for (const Interpreter* slice : earlier_) {
      const Indices& theirs = slice->values_[slot][rank].index[tokens];
      list.insert(list.end(), theirs.begin(), theirs.end());
    }
    std::sort(list.begin(), list.end());
    whole.data = Eigen::ArrayXd::Zero(whole.size());
    const Reader place(whole);
    const auto copy = [&](const Part& part) {
      for_each(part, [&](Eigen::Index position, const std::vector<int>& at) {
        whole.data[place.place(at)] = part.data[position];
      });
    };
    copy(values_[slot][rank]);
    for (const Interpreter* slice : earlier_) {
      copy(slice->values_[slot][rank]);
    }
    all.push_back(std::move(whole));
  }
  return all;
}

// Of keys and values of all slices so far: every slice's own to it.
inline void Interpreter::give_slices(std::size_t index, std::size_t position, Spread spread) {
  const Operator& op = block_.operators[index];
  const std::size_t slot = slot_of(op.inputs[position]);
  const Layout to = gradient_of(produced_[slot]);
  const Spread values = with_earlier(slot);
  convert(
      spread,
      produced_gradient(op, block_.tensors[slot], static_cast<int>(position), assignments_[index]),
      to, true, &values);
  for (Interpreter* slice : earlier_) {
    Spread own = spread;
    collectives_.cut_as(own, slice->values_[slot], Var::Seq);
    Spread& sum = slice->given_by_later_[slot];
    for (std::size_t rank = 0; rank < own.size() && !sum.empty(); ++rank) {
      own[rank].data += sum[rank].data;
    }
    sum = std::move(own);
  }
  collectives_.cut_as(spread, values_[slot], Var::Seq);
  pending_[slot].emplace_back(to, std::move(spread));
}

}  // namespace orrery::plan::semantics
