// SPDX-License-Identifier: Apache-2.0
#include "plan/block/layout_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "plan/block/cut_order.hpp"
#include "plan/block/steps.hpp"
#include "plan/schedule_traits.hpp"

namespace orrery::plan {

namespace {

using models::Block;
using models::Dim;
using models::Operator;
using models::Tensor;

std::string axes_text(const std::vector<Axis>& axes, const Mesh& mesh) {
  std::string text;
  for (const Axis axis : axes) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : " x ", to_text(axis), mesh.of(axis));
  }
  return text;
}

class BlockCheck {
 public:
  BlockCheck(const Plan& plan, int block, const BlockPlan& layout, const std::string& where)
      : block_(plan.network.blocks[static_cast<std::size_t>(block)]),
        mesh_(mesh_of(layout, plan.data_ranks(layout))),
        rules_(rules_of(layout, plan.execution.vocab_parallel)),
        extents_{plan.micro_batch * plan.dp * block_.items,
                 block_.tokens > 0 ? block_.tokens : plan.sequence},
        states_variables_(std::any_of(layout.variables.begin(), layout.variables.end(),
                                      [](const VarList& list) { return !list.empty(); })),
        tensor_mesh_(layout.tensor_parallel),
        splits_ranks_(splits_ranks(layout)),
        serves_(plan.serving != nullptr),
        where_(where) {}

  void check_sizes() const {
    const std::vector<Layout> produced = produced_layouts(block_, rules_);
    for (const Operator& op : block_.operators) {
      const Assignment assignment = assign(block_, op, rules_.of(op));
      for (std::size_t position = 0; position < op.inputs.size(); ++position) {
        const Tensor& tensor = tensor_of(op.inputs[position]);
        check(tensor, required_input(op, tensor, static_cast<int>(position), assignment));
      }
      for (const int weight : op.weights) {
        check(tensor_of(weight), stored_weight(op, tensor_of(weight), assignment, rules_.of(op)));
      }
      for (const int output : op.outputs) {
        check(tensor_of(output), produced[static_cast<std::size_t>(output)]);
        check_sum(op, tensor_of(output), produced[static_cast<std::size_t>(output)], assignment);
      }
    }
    check_stream();
  }

  void check_cuts() const {
    if (!states_variables_ && tensor_mesh_ == TensorMesh::OneD && !splits_ranks_) {
      return;
    }
    const std::optional<CutConflict> conflict = find_cut_conflict(block_, rules_, mesh_);
    if (!conflict) {
      return;
    }
    const std::string_view var = to_text(conflict->var);
    const std::string who = states_variables_ ? "`variables`"
                            : splits_ranks_
                                ? "the axes that experts make of tp and cp"
                                : fmt::format("the axes of a {} mesh", to_text(tensor_mesh_));
    bad_input(where_,
              fmt::format("block \"{}\", tensor \"{}\": {} cut dimension {} over several axes, and "
                          "at \"{}\" in another order than elsewhere, so that ranks would work on "
                          "each other's parts",
                          block_.name, conflict->tensor, who, var, conflict->op),
              states_variables_ ? fmt::format("{} in the list of one axis alone", var)
              : splits_ranks_
                  ? "expert_tp = 0 (as tp) or 1, ep a multiple of the ranks that it spreads over"
                  : "another tensor_parallel: 1d, 2d or 2.5d");
  }

 private:
  const Tensor& tensor_of(int index) const {
    return block_.tensors[static_cast<std::size_t>(index)];
  }

  // What is partial on an axis is the sum of what its ranks make: they must have different parts of
  // an operand, along a variable that the operator sums over.
  void check_sum(const Operator& op, const Tensor& output, const Layout& produced,
                 const Assignment& assignment) const {
    for (const Axis axis : kAxes) {
      const std::optional<Var>& var = assignment[static_cast<std::size_t>(axis)];
      if (mesh_.of(axis) == 1 || !produced[axis].is_partial() ||
          (sums_over(op, *var) && is_cut(op, axis, assignment))) {
        continue;
      }
      bad_input(where_,
                fmt::format("block \"{}\", tensor \"{}\": axis {} cuts {} at \"{}\", which does "
                            "not sum over it, so that its ranks would add up copies of one result",
                            block_.name, output.name, to_text(axis), to_text(*var), op.name),
                fmt::format("`variables` of axis {} without {}", to_text(axis), to_text(*var)));
    }
  }

  bool is_cut(const Operator& op, Axis axis, const Assignment& assignment) const {
    for (std::size_t position = 0; position < op.inputs.size(); ++position) {
      const Tensor& input = tensor_of(op.inputs[position]);
      if (required_input(op, input, static_cast<int>(position), assignment)[axis].is_sharded()) {
        return true;
      }
    }
    return std::any_of(op.weights.begin(), op.weights.end(), [&](int weight) {
      return required_input(op, tensor_of(weight), 0, assignment)[axis].is_sharded();
    });
  }

  void check(const Tensor& tensor, const Layout& layout) const {
    for (const Dim& dim : tensor.dims) {
      check(tensor, dim, layout);
    }
  }

  void check(const Tensor& tensor, const Dim& dim, const Layout& layout) const {
    std::vector<Axis> axes;
    std::int64_t parts = 1;
    for (const Axis axis : kAxes) {
      const bool cuts =
          mesh_.of(axis) > 1 && layout[axis].is_sharded() && same_dim(layout[axis].var(), dim.var);
      if (cuts) {
        axes.push_back(axis);
        parts *= mesh_.of(axis);
      }
    }
    const std::int64_t extent = local_extent(dim, Layout(), Mesh(), extents_);
    if (!mesh_.shares.empty() && is_cut_by_shares(dim.var) && !axes.empty() &&
        axes.front() == Axis::Tensor) {
      check_shares(tensor, dim, extent, axes);
      return;
    }
    const bool rounds_up = dim.var == Var::Vocab || dim.var == Var::Position ||
                           dim.var == Var::Choice || dim.scale != 1.0;
    if (axes.empty() || rounds_up) {
      return;  // padded rows of tables, and shares of the tokens
    }
    if (dim.var == Var::KvHead && parts % extent == 0) {
      return;  // key and value heads may be repeated
    }
    const std::string place = place_of(tensor, dim, extent);
    if (parts > extent) {
      bad_input(where_, fmt::format("{} is sharded by {}, more than its size", place,
                                    axes_text(axes, mesh_)));
    }
    const bool padded = is_of_encoder(dim) || (serves_ && dim.var == Var::Seq);
    if (extent % parts != 0 && !padded) {
      bad_input(where_, fmt::format("{} is not divisible by {}", place, axes_text(axes, mesh_)),
                fmt::format("remainder {}; only the rows of tables (vocabulary, positions) may be "
                            "uneven, padded to the next multiple",
                            extent % parts));
    }
  }

  // Tokens of an encoder, in its blocks and where its features enter the stream: they are padded.
  bool is_of_encoder(const Dim& dim) const {
    return dim.var == Var::Seq && (block_.tokens > 0 || dim.extent != models::kFromWorkload);
  }

  std::string place_of(const Tensor& tensor, const Dim& dim, std::int64_t extent) const {
    return fmt::format("block \"{}\", tensor \"{}\": dimension {} = {}", block_.name, tensor.name,
                       to_text(dim.var), extent);
  }

  // Every rank holds a unit of everything. Attention alone (Ulysses) cuts again, and evenly, what
  // a rank holds.
  void check_shares(const Tensor& tensor, const Dim& dim, std::int64_t extent,
                    const std::vector<Axis>& axes) const {
    const std::string place = place_of(tensor, dim, extent);
    const bool exchanged =
        same_dim(dim.var, Var::Head) && tensor.kind != models::TensorKind::Weight;
    if (axes.size() > 1 && !exchanged) {
      bad_input(where_,
                fmt::format("{} is cut along {}; tensor_shares divide it along tp alone", place,
                            axes_text(axes, mesh_)),
                "leave out tensor_shares, or `variables` that name it");
    }
    const TensorShares& shares = mesh_.shares;
    const std::int64_t units = extent / share_unit(dim, extent);
    for (int rank = 0; rank < shares.ranks(); ++rank) {
      if (units_of_rank(shares, rank, units) == 0) {
        bad_input(
            where_,
            fmt::format("{} is {} unit{} of {} on axis tp: a share of {} in {} leaves none to "
                        "rank {}",
                        place, units, units == 1 ? "" : "s", share_unit(dim, extent),
                        shares.of(rank), shares.sum(), rank),
            nearest_share(shares, rank, units));
      }
    }
    check_held_heads(dim, extent, axes, place);
  }

  void check_held_heads(const Dim& dim, std::int64_t extent, const std::vector<Axis>& axes,
                        const std::string& place) const {
    const std::vector<Axis> others(axes.begin() + 1, axes.end());
    std::int64_t parts = 1;
    for (const Axis axis : others) {
      parts *= mesh_.of(axis);
    }
    for (int rank = 0; rank < mesh_.shares.ranks(); ++rank) {
      const std::int64_t held = share_extent(mesh_.shares, rank, dim, extent);
      const bool repeats = dim.var == Var::KvHead && parts % held == 0;
      if (held % parts != 0 && !repeats) {
        bad_input(where_,
                  fmt::format("{}: rank {} of axis tp holds {}, not divisible by {}", place, rank,
                              held, axes_text(others, mesh_)),
                  fmt::format("shares that leave every rank a multiple of {}", parts));
      }
    }
  }

  static std::string nearest_share(const TensorShares& shares, int rank, std::int64_t units) {
    if (units < shares.ranks()) {
      return fmt::format("at most tp = {}", units);
    }
    std::vector<int> list = shares.list();
    int& share = list[static_cast<std::size_t>(rank)];
    while (share < TensorShares::kMaxShare && units_of_rank(TensorShares(list), rank, units) == 0) {
      ++share;
    }
    return fmt::format("a share of {} gives it one", share);
  }

  static bool same_dim(Var a, Var b) {
    const auto canonical = [](Var var) { return var == Var::KvHead ? Var::Head : var; };
    return canonical(a) == canonical(b);
  }

  // The stream between blocks must be cut by every rank or shared by all of an axis; an axis that
  // leaves no dimension of it is replicated.
  void check_stream() const {
    const int stream = block_.input >= 0 ? block_.input : block_.output;
    if (stream >= 0) {
      check(tensor_of(stream), stream_layout(rules_));
    }
  }

  const Block& block_;
  Mesh mesh_;
  BlockRules rules_;
  Extents extents_;
  bool states_variables_;
  TensorMesh tensor_mesh_;
  bool splits_ranks_;
  bool serves_;  // context ranks split a cache, whatever its length
  const std::string& where_;
};

bool is_iterated(const models::Network& network, Var var) {
  return std::any_of(network.blocks.begin(), network.blocks.end(), [&](const Block& block) {
    return std::any_of(block.operators.begin(), block.operators.end(),
                       [&](const Operator& op) { return iterates_over(block, op, var); });
  });
}

}  // namespace

void check_variables(const Plan& plan, const BlockPlan& layout, const std::string& where) {
  for (const Axis axis : {Axis::Expert, Axis::Shard, Axis::Replica}) {
    if (!layout.variables[static_cast<std::size_t>(axis)].empty()) {
      bad_input(where,
                fmt::format("`variables` of axis {}: it splits the batch (and experts) and nothing "
                            "else",
                            to_text(axis)),
                "tp, tp-row, tp-depth, cp and cp-heads can be told");
    }
  }
  for (const Axis axis : kAxes) {
    for (const Var var : layout.variables[static_cast<std::size_t>(axis)].vars()) {
      if (var == Var::KeySeq) {
        bad_input(
            where,
            fmt::format("`variables` of axis {}: kernels of passes are not timed with parts of "
                        "the keys ({})",
                        to_text(axis), to_text(var)),
            "name seq; serving plans keep parts of the keys on the ranks of cp");
      }
      if (!is_iterated(plan.network, var)) {
        bad_input(where,
                  fmt::format("`variables` of axis {}: no operator of {} has the variable {}",
                              to_text(axis), plan.network.spec.name, to_text(var)),
                  "`orrery show layout` lists the dimensions of every tensor");
      }
    }
  }
}

namespace {

// Of each run of blocks with one layout, every block once.
template <typename Look>
void for_blocks(const Plan& plan, const std::string& where, Look look) {
  std::size_t position = 0;
  for (const BlockRun& run : plan.blocks) {
    std::vector<int> seen;
    for (int count = 0; count < run.count; ++count, ++position) {
      const int block = plan.network.chain[position];
      if (std::find(seen.begin(), seen.end(), block) == seen.end()) {
        seen.push_back(block);
        look(BlockCheck(plan, block, run.layout, where));
      }
    }
  }
}

}  // namespace

void check_layouts(const Plan& plan, const std::string& where) {
  for_blocks(plan, where, [](const BlockCheck& block) {
    block.check_sizes();
    block.check_cuts();
  });
}

void check_layout_sizes(const Plan& plan, const std::string& where) {
  for_blocks(plan, where, [](const BlockCheck& block) { block.check_sizes(); });
}

void check_cut_orders(const Plan& plan, const std::string& where) {
  for_blocks(plan, where, [](const BlockCheck& block) { block.check_cuts(); });
}

}  // namespace orrery::plan
