// SPDX-License-Identifier: Apache-2.0
#include "plan/block/cut_order.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace orrery::plan {

namespace {

using models::Operator;

// Of a dimension what each rank of a mesh holds, as sorted lists of equal parts.
using Parts = std::vector<std::vector<int>>;

// A mesh of the same axes whose ranks are two each: enough to tell orders apart.
Mesh mesh_of_pairs(const Mesh& mesh) {
  Mesh pairs;
  for (const Axis axis : kAxes) {
    pairs.size[static_cast<std::size_t>(axis)] = std::min(mesh.of(axis), 2);
  }
  return pairs;
}

// What the ranks hold of a tensor, by the variables that an axis cuts or has cut.
class Cuts {
 public:
  explicit Cuts(const Mesh& mesh) : mesh_(&mesh) {}
  Cuts(const Layout& layout, const Mesh& mesh) : mesh_(&mesh) { cut_new(Layout(), layout, true); }

  // By the steps of conversions(). Of what one of them cuts a gradient takes the parts of its
  // `value`, where the rank has them; else the outermost axis cuts first.
  void convert(const Layout& from, const Layout& to, const Cuts* value = nullptr) {
    cut_new(from, to, true);
    for (const Conversion& step : conversions(from, to)) {
      if (from[step.axis].is_sharded()) {
        gather(step.axis, from[step.axis].var());
      }
    }
    const std::map<Var, Parts> gathered = parts_;
    cut_new(from, to, false);
    if (value != nullptr) {
      cut_as(*value, from, to, gathered);
    }
  }

  // A variable that both have and of which ranks hold other parts. Keys and values are read at all
  // positions, and so not cut where queries are.
  std::optional<Var> conflict(const Cuts& other) const {
    for (const auto& [var, parts] : parts_) {
      const auto theirs = other.parts_.find(var);
      if (theirs != other.parts_.end() && theirs->second != parts && is_cut(parts) &&
          is_cut(theirs->second)) {
        return var;
      }
    }
    return std::nullopt;
  }

  // What a result has of its operands, those of which come one after the other.
  void join(const Cuts& other) { parts_.insert(other.parts_.begin(), other.parts_.end()); }
  void keep(const Layout& layout) {
    std::erase_if(parts_, [&](const auto& cut) {
      return std::none_of(kAxes.begin(), kAxes.end(), [&](Axis axis) {
        return layout[axis].is_sharded() && layout[axis].var() == cut.first;
      });
    });
  }

 private:
  static bool has_order(Var var) { return var != Var::Choice && var != Var::Expert; }
  bool is_cut(const Parts& parts) const {
    return static_cast<int>(parts.front().size()) < mesh_->num_ranks();
  }
  int place(std::size_t rank, Axis axis) const {
    return static_cast<int>(rank) / mesh_->stride(axis) % mesh_->of(axis);
  }

  void cut_new(const Layout& from, const Layout& to, bool before_gathers) {
    for (auto axis = kAxes.rbegin(); axis != kAxes.rend(); ++axis) {
      const bool is_new = from[*axis] != to[*axis];
      if (is_new && cuts_before_gathers(from, to, *axis) == before_gathers) {
        slice(*axis, to);
      }
    }
  }

  void cut_as(const Cuts& value, const Layout& from, const Layout& to,
              const std::map<Var, Parts>& gathered) {
    for (const Axis axis : kAxes) {
      const Placement cut = to[axis];
      const bool is_new = from[axis] != cut && !cuts_before_gathers(from, to, axis);
      const auto theirs =
          is_new && cut.is_sharded() ? value.parts_.find(cut.var()) : value.parts_.end();
      if (theirs == value.parts_.end()) {
        continue;
      }
      const auto whole = gathered.find(cut.var());
      if (whole == gathered.end() || includes_all(whole->second, theirs->second)) {
        parts_[cut.var()] = theirs->second;
      }
    }
  }

  static bool includes_all(const Parts& whole, const Parts& parts) {
    for (std::size_t rank = 0; rank < whole.size(); ++rank) {
      if (!std::includes(whole[rank].begin(), whole[rank].end(), parts[rank].begin(),
                         parts[rank].end())) {
        return false;
      }
    }
    return true;
  }

  void slice(Axis axis, const Layout& to) {
    if (mesh_->of(axis) == 1 || !to[axis].is_sharded() || !has_order(to[axis].var())) {
      return;
    }
    std::vector<int> whole(static_cast<std::size_t>(mesh_->num_ranks()));
    std::iota(whole.begin(), whole.end(), 0);
    Parts& parts = parts_.try_emplace(to[axis].var(), whole.size(), whole).first->second;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const auto half = static_cast<std::ptrdiff_t>(parts[rank].size() / 2);
      const auto first = parts[rank].begin() + half * place(rank, axis);
      parts[rank] = std::vector<int>(first, first + half);
    }
  }

  void gather(Axis axis, Var var) {
    const auto found = parts_.find(var);
    if (mesh_->of(axis) == 1 || found == parts_.end()) {
      return;
    }
    const Parts before = found->second;
    for (std::size_t rank = 0; rank < before.size(); ++rank) {
      const auto stride = static_cast<std::size_t>(mesh_->stride(axis));
      const std::vector<int>& other =
          before[place(rank, axis) == 0 ? rank + stride : rank - stride];
      std::vector<int> both;
      std::set_union(before[rank].begin(), before[rank].end(), other.begin(), other.end(),
                     std::back_inserter(both));
      found->second[rank] = std::move(both);
    }
  }

  const Mesh* mesh_;
  std::map<Var, Parts> parts_;
};

class CutCheck {
 public:
  CutCheck(const models::Block& block, const BlockRules& rules, const Mesh& mesh)
      : block_(block),
        rules_(rules),
        mesh_(mesh_of_pairs(mesh)),
        produced_(produced_layouts(block, rules)) {
    for (const Layout& layout : produced_) {
      cuts_.emplace_back(layout, mesh_);
    }
  }

  std::optional<CutConflict> check() {
    for (const Operator& op : block_.operators) {
      forward(op);
    }
    if (block_.output >= 0) {  // handed on, and its gradient back
      const std::size_t slot = static_cast<std::size_t>(block_.output);
      const Layout stream = stream_layout(rules_);
      Cuts out = cuts_[slot];
      out.convert(produced_[slot], stream);
      note(out.conflict(Cuts(stream, mesh_)), "output of the block", block_.output);
      Cuts back(stream, mesh_);
      back.convert(stream, gradient_of(produced_[slot]));
      note(back.conflict(cuts_[slot]), "output of the block", block_.output);
    }
    return found_;
  }

 private:
  void note(std::optional<Var> var, std::string_view op, int tensor) {
    if (var && !found_) {
      found_ = {op, block_.tensors[static_cast<std::size_t>(tensor)].name, *var};
    }
  }

  void forward(const Operator& op) {
    const Assignment assignment = assign(block_, op, rules_.of(op));
    Cuts all(mesh_);
    for (std::size_t position = 0; position < op.inputs.size(); ++position) {
      const int tensor = op.inputs[position];
      const auto slot = static_cast<std::size_t>(tensor);
      const models::Tensor& value = block_.tensors[slot];
      Cuts read = cuts_[slot];
      read.convert(produced_[slot],
                   required_input(op, value, static_cast<int>(position), assignment));
      note(read.conflict(all), op.name, tensor);
      all.join(read);
      if (models::has_backward(block_, op) && !value.frozen) {
        read.convert(produced_gradient(op, value, static_cast<int>(position), assignment),
                     gradient_of(produced_[slot]), &cuts_[slot]);
        note(read.conflict(cuts_[slot]), op.name, tensor);
      }
    }
    for (const int weight : op.weights) {
      const models::Tensor& tensor = block_.tensors[static_cast<std::size_t>(weight)];
      const Layout elsewhere = required_input(op, tensor, 0, assign(block_, op, rules_.other));
      Cuts cuts(elsewhere, mesh_);
      cuts.convert(elsewhere, required_input(op, tensor, 0, assignment));
      note(cuts.conflict(all), op.name, weight);
      all.join(cuts);
    }
    for (const int output : op.outputs) {
      const auto slot = static_cast<std::size_t>(output);
      Cuts cuts = all;
      cuts.keep(produced_[slot]);
      cuts_[slot] = cuts;
    }
  }

  const models::Block& block_;
  const BlockRules& rules_;
  const Mesh mesh_;
  std::vector<Layout> produced_;
  std::vector<Cuts> cuts_;  // of every tensor as it is produced
  std::optional<CutConflict> found_;
};

}  // namespace

std::optional<CutConflict> find_cut_conflict(const models::Block& block, const BlockRules& rules,
                                             const Mesh& mesh) {
  return CutCheck(block, rules, mesh).check();
}

}  // namespace orrery::plan
