// SPDX-License-Identifier: Apache-2.0
// Checks of what a plan says of its tensor-parallel ranks: their mesh and their shares.
#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "plan/block/layout_check.hpp"
#include "plan/block_rules.hpp"
#include "plan/schedule_traits.hpp"

namespace orrery::plan {

namespace {

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
  if (expert_tensor_ranks(layout) < layout.tp) {
    bad_input(where, fmt::format("expert_tp = {} spreads experts over a row of ranks, not over a "
                                 "{} mesh",
                                 layout.expert_tp, name));
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

}  // namespace orrery::plan
