// SPDX-License-Identifier: Apache-2.0
// The collectives over gradients and parameters that a block's states need (plan/block/states.hpp),
// executed on the parts that ranks hold. What a rank does not hold of a tensor is not a number, so
// that whoever reads it is noticed.
#pragma once

#include <cmath>
#include <limits>
#include <set>

#include "plan/block/states.hpp"
#include "tests/unit/plan/semantics/rank_tensor.hpp"

namespace orrery::plan::semantics {

// What is not said by a layout.
struct Conditions {
  Execution execution{};
  int gpus_per_node = 1024;
  // Where experts are not cut evenly: those of each place of the expert axis, and the places of
  // each expert. Its tokens are divided over them, and its gradients are added up.
  std::vector<Indices> experts_at = {};
  std::vector<std::vector<int>> places_of = {};
  bool passes_sums = false;  // as where no gradient is asked for
};

// A collective of states with the ranks that take part in it.
class RankedCollective {
 public:
  RankedCollective(const StateCollective& one, const Mesh& mesh, int gpus_per_node) : one_(one) {
    const auto ranks = static_cast<std::size_t>(mesh.num_ranks());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<std::size_t>& group = groups_.emplace_back();
      for (std::size_t other = 0; other < ranks; ++other) {
        if (joins(mesh, gpus_per_node, static_cast<int>(rank), static_cast<int>(other))) {
          group.push_back(other);
        }
      }
      places_.push_back(std::find(group.begin(), group.end(), rank) - group.begin());
    }
  }

  bool sums_whole(double bytes) const {
    return one_.kind == sim::CommKind::AllReduce && one_.bytes >= bytes;
  }
  bool scatters() const { return one_.kind != sim::CommKind::AllReduce; }
  // Those that take part with this rank, in the order of their parts.
  const std::vector<std::size_t>& group(std::size_t rank) const { return groups_[rank]; }
  bool has_part(std::size_t rank, Eigen::Index element, Eigen::Index size) const {
    const auto parts = static_cast<Eigen::Index>(groups_[rank].size());
    return element / ((size + parts - 1) / parts) == places_[rank];
  }

 private:
  bool joins(const Mesh& mesh, int gpus_per_node, int rank, int other) const {
    const bool same_group = std::all_of(kAxes.begin(), kAxes.end(), [&](Axis axis) {
      const auto place = [&](int of) { return of / mesh.stride(axis) % mesh.of(axis); };
      const bool over = std::find(one_.axes.begin(), one_.axes.end(), axis) != one_.axes.end();
      const int parts = !over ? 1 : one_.neighbours > 0 ? one_.neighbours : mesh.of(axis);
      return place(other) / parts == place(rank) / parts;
    });
    switch (one_.span) {
      case StateCollective::Span::InsideNode:
        return same_group && other / gpus_per_node == rank / gpus_per_node;
      case StateCollective::Span::AcrossNodes:
        return same_group && other % gpus_per_node == rank % gpus_per_node;
      default:
        return same_group;
    }
  }

  StateCollective one_;
  std::vector<std::vector<std::size_t>> groups_;  // by rank
  std::vector<Eigen::Index> places_;              // of each in its own
};

// The states of one weight.
class WeightStates {
 public:
  WeightStates(const StateGroup& group, const BlockPlan& layout, const Mesh& mesh,
               const Conditions& conditions)
      : keeps_shards_(layout.zero_stage == 3) {
    BlockCost cost;
    cost.states = {group};
    const double whole =
        static_cast<double>(group.elements) * gradient_bytes(conditions.execution, DType::Fp16);
    for (const StateCollective& one :
         state_collectives(cost, layout, mesh, conditions.execution, DType::Fp16, false,
                           conditions.gpus_per_node)) {
      const RankedCollective ranked(one, mesh, conditions.gpus_per_node);
      switch (one.use) {
        case StateCollective::Use::Reduce:
          // Whole gradients are summed before anything is scattered.
          reductions_.insert(ranked.sums_whole(whole) ? reductions_.begin() : reductions_.end(),
                             ranked);
          break;
        case StateCollective::Use::Gather:
          gathers_.push_back(ranked);
          break;
        case StateCollective::Use::BackwardGather:
          backward_gathers_.push_back(ranked);
      }
    }
  }

  std::size_t num_reductions() const { return reductions_.size(); }
  const std::vector<RankedCollective>& gathers() const { return gathers_; }
  const std::vector<RankedCollective>& backward_gathers() const { return backward_gathers_; }
  bool keeps_shards() const { return keeps_shards_; }

  // Whether the rank updates an element: all, or its part of those that are gathered.
  bool owns(std::size_t rank, Eigen::Index element, Eigen::Index size) const {
    return gathers_.empty() || gathers_.front().has_part(rank, element, size);
  }

  // Leaves a rank what it updates.
  void keep_owned(Spread& spread) const {
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      keep(spread[rank],
           [&](Eigen::Index element) { return owns(rank, element, spread[rank].size()); });
    }
  }

  // Adds up the ranks of the `index`th reduction; one that scatters leaves each rank what it
  // updates, or sends to who does by a later one.
  void reduce(std::size_t index, Spread& spread) const {
    const Spread before = spread;
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      for (const std::size_t member : reductions_[index].group(rank)) {
        if (member != rank) {
          spread[rank].data += before[member].data;
        }
      }
      if (!reductions_[index].scatters()) {
        continue;
      }
      const std::set<std::size_t> reached = reached_later(index, rank);
      keep(spread[rank], [&](Eigen::Index element) {
        return std::any_of(reached.begin(), reached.end(), [&](std::size_t owner) {
          return owns(owner, element, spread[rank].size());
        });
      });
    }
  }

  // Every element from the rank of the group whose part it is in; between the passes only those
  // parts stay.
  static void gather(const RankedCollective& one, Spread& spread) {
    const Spread before = spread;
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      for (const std::size_t member : one.group(rank)) {
        for (Eigen::Index element = 0; element < spread[rank].size(); ++element) {
          if (one.has_part(member, element, spread[rank].size())) {
            spread[rank].data[element] = before[member].data[element];
          }
        }
      }
    }
  }
  static void keep_parts(const RankedCollective& one, Spread& spread) {
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      keep(spread[rank],
           [&](Eigen::Index element) { return one.has_part(rank, element, spread[rank].size()); });
    }
  }

 private:
  template <typename Keeps>
  static void keep(Part& part, const Keeps& keeps) {
    for (Eigen::Index element = 0; element < part.size(); ++element) {
      if (!keeps(element)) {
        part.data[element] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }

  std::set<std::size_t> reached_later(std::size_t index, std::size_t rank) const {
    std::set<std::size_t> reached = {rank};
    for (std::size_t later = index + 1; later < reductions_.size(); ++later) {
      if (!reductions_[later].scatters()) {
        continue;
      }
      for (const std::size_t from : std::set<std::size_t>(reached)) {
        const std::vector<std::size_t>& to = reductions_[later].group(from);
        reached.insert(to.begin(), to.end());
      }
    }
    return reached;
  }

  std::vector<RankedCollective> reductions_;
  std::vector<RankedCollective> gathers_;
  std::vector<RankedCollective> backward_gathers_;
  bool keeps_shards_;
};

}  // namespace orrery::plan::semantics
