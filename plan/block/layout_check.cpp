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
        serves_(plan.serving != nullptr),
        where_(where) {}

  void check() const {
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
      }
    }
    check_stream();
    if (states_variables_ || tensor_mesh_ != TensorMesh::OneD) {
      check_cuts();
    }
  }

 private:
  const Tensor& tensor_of(int index) const {
    return block_.tensors[static_cast<std::size_t>(index)];
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
    if (axes.empty() || dim.var == Var::Vocab || dim.var == Var::Choice || dim.scale != 1.0) {
      return;  // a padded vocabulary, and shares of the tokens, round up
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
                fmt::format("remainder {}; only the vocabulary may be uneven, padded to the next "
                            "multiple",
                            extent % parts));
    }
  }

  void check_cuts() const {
    const std::optional<CutConflict> conflict = find_cut_conflict(block_, rules_, mesh_);
    if (!conflict) {
      return;
    }
    const std::string_view var = to_text(conflict->var);
    const std::string who = states_variables_
                                ? "`variables`"
                                : fmt::format("the axes of a {} mesh", to_text(tensor_mesh_));
    bad_input(where_,
              fmt::format("block \"{}\", tensor \"{}\": {} cut dimension {} over several axes, and "
                          "at \"{}\" in another order than elsewhere, so that ranks would work on "
                          "each other's parts",
                          block_.name, conflict->tensor, who, var, conflict->op),
              states_variables_ ? fmt::format("{} in the list of one axis alone", var)
                                : "another tensor_parallel: 1d, 2d or 2.5d");
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
  bool serves_;  // context ranks split a cache, whatever its length
  const std::string& where_;
};

// Of a mesh whose factors are not stated.
void refuse_degree(const BlockPlan& layout, std::string_view name, const std::string& where) {
  const bool square = layout.tensor_parallel == TensorMesh::TwoD;
  const char* shape = square                                         ? "square"
                      : layout.tensor_parallel == TensorMesh::ThreeD ? "cube"
                                                                     : "square times a depth";
  const int side = static_cast<int>(std::sqrt(layout.tp));
  bad_input(where,
            fmt::format("a {} mesh does not cover tp = {} ranks, which are no {}", name, layout.tp,
                        shape),
            square ? fmt::format("state tp_rows, or take tp = {} or {}", side * side,
                                 (side + 1) * (side + 1))
                   : "state tp_rows and tp_depth");
}

}  // namespace

void check_tensor_mesh(const BlockPlan& layout, const std::string& where) {
  const std::string name(to_text(layout.tensor_parallel));
  const bool summa = layout.tensor_parallel == TensorMesh::TwoD ||
                     layout.tensor_parallel == TensorMesh::TwoAndHalfD;
  if (!summa && layout.broadcasts != Broadcasts::Pipelined) {
    bad_input(where, fmt::format("broadcasts = {} belongs to tensor_parallel 2d or 2.5d, not {}",
                                 to_text(layout.broadcasts), name));
  }
  if (layout.tensor_parallel == TensorMesh::OneD) {
    if (layout.tp_rows > 1 || layout.tp_depth > 1 || layout.tp_inner != TensorAxis::Columns) {
      bad_input(where, "tp_rows, tp_depth and tp_inner belong to tensor_parallel 2d, 2.5d or 3d");
    }
    return;
  }
  const TensorFactors factors = tensor_factors(layout);
  if (factors.product() != layout.tp && layout.tp_rows == 0 && layout.tp_depth == 0) {
    refuse_degree(layout, name, where);
  }
  if (factors.product() != layout.tp) {
    bad_input(where,
              fmt::format("a {} mesh of {} columns x {} rows x {} does not cover tp = {} ranks",
                          name, factors.columns, factors.rows, factors.depth, layout.tp),
              "columns x tp_rows x tp_depth = tp");
  }
  if (layout.tensor_parallel == TensorMesh::TwoD && layout.tp_depth > 1) {
    bad_input(where, "tp_depth belongs to tensor_parallel 2.5d or 3d, not 2d");
  }
  if (layout.tp > 1 && layout.tp_inner != TensorAxis::Columns && factors.of(layout.tp_inner) == 1) {
    bad_input(where,
              fmt::format("tp_inner = {}, but the {} mesh of {} columns x {} rows x {} has no axis "
                          "of {}",
                          to_text(layout.tp_inner), name, factors.columns, factors.rows,
                          factors.depth, to_text(layout.tp_inner)),
              "the axis whose ranks are neighbours: one of more than one rank");
  }
  if (layout.sequence_parallel) {
    bad_input(where, fmt::format("sequence_parallel belongs to tensor_parallel 1d; {} splits the "
                                 "stream already",
                                 name));
  }
  if (layout.expert_tp == 1 && layout.tp > 1) {
    bad_input(where, fmt::format("expert_tp = 1 spreads experts over a row of ranks, not over a "
                                 "{} mesh",
                                 name));
  }
}

namespace {

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

// The tensor-parallel ranks of all stages share the vocabulary, each group in the same shares.
void check_shared_vocabulary(const Plan& plan, const BlockPlan& layout, const std::string& where) {
  if (layout.tp * plan.pp > TensorShares::kMaxRanks) {
    bad_input(where,
              fmt::format("tensor_shares with schedule {}: the vocabulary is cut over tp x pp = {} "
                          "ranks",
                          plan.schedule, layout.tp * plan.pp),
              fmt::format("at most {}, or schedule = 1f1b", TensorShares::kMaxRanks));
  }
  const std::int64_t vocab = plan.network.spec.vocab;
  const TensorShares shares = layout.tensor_shares.repeated(plan.pp);
  for (int rank = 0; rank < layout.tp; ++rank) {
    if (share_extent(shares, rank + layout.tp * (plan.pp - 1), {Var::Vocab, vocab}, vocab) == 0) {
      bad_input(where,
                fmt::format("a share of {} in {} leaves nothing of the vocabulary {} to rank {} of "
                            "axis tp",
                            shares.of(rank), shares.sum(), vocab, rank),
                "a larger share, or schedule = 1f1b");
    }
  }
}

}  // namespace

void check_tensor_shares(const Plan& plan, const BlockPlan& layout, const std::string& where) {
  const auto refuse = [&](const std::string& with, const std::string& hint) {
    bad_input(where, fmt::format("tensor_shares with {}", with), hint);
  };
  const TensorShares& shares = layout.tensor_shares;
  if (layout.tp < 2 || shares.ranks() != layout.tp) {
    bad_input(
        where,
        fmt::format("tensor_shares has {} entr{}, but tp = {}", shares.ranks(),
                    shares.ranks() == 1 ? "y" : "ies", layout.tp),
        layout.tp >= 2 && layout.tp <= TensorShares::kMaxRanks
            ? fmt::format("{}, one for each rank of axis tp", layout.tp)
            : fmt::format("shares are for tp = 2 to {}; leave them out", TensorShares::kMaxRanks));
  }
  if (layout.tensor_parallel != TensorMesh::OneD) {
    refuse(fmt::format("tensor_parallel = {}", to_text(layout.tensor_parallel)),
           "they divide one axis: tensor_parallel = 1d");
  }
  if (plan.serving) {
    refuse("serving", "a serving plan cuts tensors evenly: leave them out");
  }
  const ScheduleTraits traits = schedule_traits(plan);
  if (traits.spreads_attention || traits.packs_sequences) {
    refuse(fmt::format("schedule {}, which divides tensors over devices by itself", plan.schedule),
           "schedule = 1f1b");
  }
  if (traits.shares_output_layer) {
    check_shared_vocabulary(plan, layout, where);
  }
}

void check_layouts(const Plan& plan, const std::string& where) {
  std::size_t position = 0;
  for (const BlockRun& run : plan.blocks) {
    std::vector<int> seen;
    for (int count = 0; count < run.count; ++count, ++position) {
      const int block = plan.network.chain[position];
      if (std::find(seen.begin(), seen.end(), block) == seen.end()) {
        seen.push_back(block);
        BlockCheck(plan, block, run.layout, where).check();
      }
    }
  }
}

}  // namespace orrery::plan
