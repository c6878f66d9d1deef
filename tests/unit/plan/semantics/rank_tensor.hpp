// SPDX-License-Identifier: Apache-2.0
// Tensors as the ranks of a mesh hold them: every rank has the rows, columns, ... of the global
// tensor whose indices it lists. The collectives of Rule 3 on such tensors, so that what a derived
// program computes can be compared with the serial result element by element.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "plan/layout.hpp"

namespace orrery::plan::semantics {

using Indices = std::vector<int>;

// One rank's part, row-major over `index`.
struct Part {
  std::vector<Var> vars;
  std::vector<Indices> index;  // global indices held, by dimension
  Eigen::ArrayXd data;
  std::vector<models::Dim> dims =
      {};  // as the network states them; empty: nothing is cut by shares

  int dim_of(Var var) const {
    const auto found = std::find(vars.begin(), vars.end(), var);
    return found == vars.end() ? -1 : static_cast<int>(found - vars.begin());
  }
  Eigen::Index size() const {
    Eigen::Index product = 1;
    for (const Indices& list : index) {
      product *= static_cast<Eigen::Index>(list.size());
    }
    return product;
  }
};

inline Part part_of(std::vector<Var> vars, std::vector<Indices> index) {
  Part part{std::move(vars), std::move(index), {}};
  part.data = Eigen::ArrayXd::Zero(part.size());
  return part;
}

// Calls visit(position, global indices) for every element.
template <typename Visit>
void for_each(const Part& part, const Visit& visit) {
  std::vector<std::size_t> at(part.index.size(), 0);
  std::vector<int> global(part.index.size());
  const Eigen::Index size = part.size();
  for (Eigen::Index position = 0; position < size; ++position) {
    for (std::size_t dim = 0; dim < at.size(); ++dim) {
      global[dim] = part.index[dim][at[dim]];
    }
    visit(position, global);
    for (std::size_t dim = at.size(); dim-- > 0;) {
      if (++at[dim] < part.index[dim].size()) {
        break;
      }
      at[dim] = 0;
    }
  }
}

// Value at global indices; the part must hold them.
class Reader {
 public:
  explicit Reader(const Part& part) : part_(part) {
    for (const Indices& list : part.index) {
      Indices& places = places_.emplace_back();
      for (std::size_t place = 0; place < list.size(); ++place) {
        places.resize(std::max(places.size(), static_cast<std::size_t>(list[place]) + 1), -1);
        places[static_cast<std::size_t>(list[place])] = static_cast<int>(place);
      }
    }
  }
  bool holds(const std::vector<int>& global) const { return find(global) >= 0; }
  // -1: not held.
  Eigen::Index find(const std::vector<int>& global) const {
    Eigen::Index place = 0;
    for (std::size_t dim = 0; dim < places_.size(); ++dim) {
      const int own = place_in(dim, global[dim]);
      if (own < 0) {
        return -1;
      }
      place = place * static_cast<Eigen::Index>(part_.index[dim].size()) + own;
    }
    return place;
  }
  Eigen::Index place(const std::vector<int>& global) const {
    const Eigen::Index place = find(global);
    if (place < 0) {
      throw std::out_of_range("a rank reads what it does not hold");
    }
    return place;
  }
  double at(const std::vector<int>& global) const { return part_.data[place(global)]; }

 private:
  int place_in(std::size_t dim, int global) const {
    const auto at = static_cast<std::size_t>(global);
    return at < places_[dim].size() ? places_[dim][at] : -1;
  }

  const Part& part_;
  std::vector<Indices> places_;  // by dimension and global index; -1: not held
};

// The same tensor on all ranks.
using Spread = std::vector<Part>;

// The place on an axis of the ranks that work on a copy of a token (indices {batch, seq, choice}).
using OwnerOf = std::function<int(const std::vector<int>&, Axis)>;

class Collectives {
 public:
  // `experts_at`: by place of the expert axis; empty: cut evenly.
  Collectives(const Mesh& mesh, OwnerOf owner, std::vector<Indices> experts_at = {})
      : mesh_(mesh), owner_(std::move(owner)), experts_at_(std::move(experts_at)) {}

  int ranks() const { return mesh_.num_ranks(); }
  int place(int rank, Axis axis) const { return rank / mesh_.stride(axis) % mesh_.of(axis); }

  Spread distribute(const Part& whole, const Layout& layout) const {
    Spread spread(static_cast<std::size_t>(ranks()), whole);
    slice_new(spread, Layout(), layout);
    return spread;
  }

  // Replicated axes that become sharded, the outermost first.
  void slice_new(Spread& spread, const Layout& from, const Layout& to) const {
    for (auto axis = kAxes.rbegin(); axis != kAxes.rend(); ++axis) {
      if (from[*axis].is_replicated() && to[*axis].is_sharded()) {
        slice(spread, *axis, to[*axis].var());
      }
    }
  }

  void slice(Spread& spread, Axis axis, Var var) const {
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      const int mine = place(static_cast<int>(rank), axis);
      if (var == Var::Choice) {
        keep_own_copies(spread[rank], mine, axis);
      } else {
        cut(spread[rank], dim_for(spread[rank], var), mine, axis);
      }
    }
  }

  // As another tensor of the same dimension is.
  void cut_as(Spread& spread, const Spread& other, Var var) const {
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      const auto dim = static_cast<std::size_t>(dim_for(spread[rank], var));
      const auto theirs = static_cast<std::size_t>(dim_for(other[rank], var));
      keep_indices(spread[rank], dim, other[rank].index[theirs]);
    }
  }

  // Of heads that several ranks have, values are the same; gradients are added.
  void gather(Spread& spread, Axis axis, Var var, bool gradient = false) const {
    if (var == Var::Choice) {
      reduce(spread, axis);  // every copy is somewhere, zero elsewhere
      return;
    }
    const Spread before = spread;
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      const std::vector<std::size_t> group = members(rank, axis);
      const int dim = dim_for(before[rank], var);
      Indices all;
      for (const std::size_t member : group) {
        const Indices& held = before[member].index[static_cast<std::size_t>(dim)];
        all.insert(all.end(), held.begin(), held.end());
      }
      std::sort(all.begin(), all.end());
      all.erase(std::unique(all.begin(), all.end()), all.end());
      Part whole = before[rank];
      whole.index[static_cast<std::size_t>(dim)] = all;
      whole.data = Eigen::ArrayXd::Zero(whole.size());
      const Reader reader(whole);
      for (const std::size_t member : group) {
        for_each(before[member], [&](Eigen::Index position, const std::vector<int>& global) {
          double& value = whole.data[reader.place(global)];
          value = (gradient ? value : 0.0) + before[member].data[position];
        });
      }
      spread[rank] = std::move(whole);
    }
  }

  // Sums, or the largest, of all ranks of an axis.
  void reduce(Spread& spread, Axis axis, bool largest = false) const {
    const Spread before = spread;
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      Eigen::ArrayXd& data = spread[rank].data;
      for (const std::size_t member : members(rank, axis)) {
        if (member == rank) {
          continue;
        }
        const Eigen::ArrayXd& theirs = before[member].data;
        data = largest ? data.max(theirs).eval() : (data + theirs).eval();
      }
    }
  }

  std::vector<std::size_t> members(std::size_t rank, Axis axis) const {
    const int stride = mesh_.stride(axis);
    const int first = static_cast<int>(rank) - place(static_cast<int>(rank), axis) * stride;
    std::vector<std::size_t> group;
    for (int member = 0; member < mesh_.of(axis); ++member) {
      group.push_back(static_cast<std::size_t>(first + member * stride));
    }
    return group;
  }

 private:
  // KvHead is cut together with Head.
  static int dim_for(const Part& part, Var var) {
    const int dim = part.dim_of(var);
    return dim >= 0 ? dim : part.dim_of(Var::KvHead);
  }

  // Where shares divide the dimension, by the rule of plans; else, where it does not divide, the
  // first ranks have one more than the others.
  void cut(Part& part, int dim, int mine, Axis axis) const {
    const auto slot = static_cast<std::size_t>(dim);
    const Indices& list = part.index[slot];
    const bool shared =
        axis == Axis::Tensor && !mesh_.shares.empty() && is_cut_by_shares(part.vars[slot]);
    const auto held = static_cast<std::int64_t>(list.size());
    const ShareRange range = shared ? share_range(mesh_.shares, mine, part.dims.at(slot), held)
                                    : even_range(part.vars[slot], held, mine, mesh_.of(axis));
    if (axis == Axis::Expert && part.vars[slot] == Var::Expert && !experts_at_.empty()) {
      keep_indices(part, slot, experts_at_[static_cast<std::size_t>(mine)]);
    } else {
      keep_indices(part, slot, Indices(list.begin() + range.begin, list.begin() + range.end));
    }
  }

  static void keep_indices(Part& part, std::size_t dim, Indices kept) {
    const Part before = part;
    part.index[dim] = std::move(kept);
    part.data = Eigen::ArrayXd::Zero(part.size());
    const Reader reader(before);
    for_each(part, [&](Eigen::Index position, const std::vector<int>& global) {
      part.data[position] = reader.at(global);
    });
  }

  static ShareRange even_range(Var var, std::int64_t held, int mine, int parts) {
    if (var == Var::KvHead && held < parts) {  // on several ranks
      const std::int64_t head = mine * held / parts;
      return {head, head + 1};
    }
    const std::int64_t length = held / parts;
    const std::int64_t more = held % parts;
    const std::int64_t begin = length * mine + std::min<std::int64_t>(mine, more);
    return {begin, begin + length + (mine < more ? 1 : 0)};
  }

  void keep_own_copies(Part& part, int mine, Axis axis) const {
    for_each(part, [&](Eigen::Index position, const std::vector<int>& global) {
      if (owner_(global, axis) != mine) {
        part.data[position] = 0;
      }
    });
  }

  Mesh mesh_;
  OwnerOf owner_;
  std::vector<Indices> experts_at_;
};

}  // namespace orrery::plan::semantics
