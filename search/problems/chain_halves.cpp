// SPDX-License-Identifier: Apache-2.0
#include "search/problems/chain_halves.hpp"

#include <algorithm>
#include <limits>

namespace orrery::search {

std::uint64_t ChainHalf::key() const {
  std::uint64_t key = 0;
  for (const int part : {first, last, low, high}) {
    key = key << 16U | static_cast<std::uint64_t>(part);
  }
  return key;
}

double BalancedHalves::dearest(const ChainHalf& half, int cut) {
  return std::max(best(half.left(cut)).cost, best(half.right(cut)).cost);
}

// The first cut whose left half costs as much as its right one, or the last there is.
int BalancedHalves::crossing(const ChainHalf& half) {
  int from = half.least_cut();
  int to = half.most_cut();
  while (from < to) {
    const int cut = (from + to) / 2;
    if (best(half.left(cut)).cost >= best(half.right(cut)).cost) {
      to = cut;
    } else {
      from = cut + 1;
    }
  }
  return from;
}

HalfCut BalancedHalves::best(const ChainHalf& half) {
  if (half.is_stage()) {
    return {cost_(half.first, half.last, half.low), half.last};
  }
  const std::uint64_t key = half.key();
  if (const auto found = known_.find(key); found != known_.end()) {
    return found->second;
  }
  int from = half.least_cut();
  int to = half.most_cut();
  if (grows_) {
    // Before the crossing the right half only gets dearer, behind it the left one.
    to = crossing(half);
    from = std::max(from, to - 1);
  }
  HalfCut best{dearest(half, to), to};
  for (int cut = from; cut < to; ++cut) {
    const double cost = dearest(half, cut);
    if (cost < best.cost) {
      best = {cost, cut};
    }
  }
  return known_[key] = best;
}

FittingHalves::Ends FittingHalves::next(const Ends& ends, int first, int device) const {
  Ends reached(ends.size());
  for (int last = first + 1; last <= layers_; ++last) {
    for (int from = last - 1; from >= first; --from) {
      if (ends[static_cast<std::size_t>(from)] != 0 && fits_(from, last, device)) {
        reached[static_cast<std::size_t>(last)] = 1;
        break;
      }
    }
  }
  return reached;
}

bool FittingHalves::any(const ChainHalf& half) {
  const ChainHalf of_all_ends{half.first, 0, half.low, half.high};
  const auto [entry, added] = ends_.try_emplace(of_all_ends.key());
  Ends& ends = entry->second;
  if (added) {
    ends.assign(static_cast<std::size_t>(layers_) + 1, 0);
    ends[static_cast<std::size_t>(half.first)] = 1;
    for (int device = half.low; device < half.high; ++device) {
      ends = next(ends, half.first, device);
    }
  }
  return ends[static_cast<std::size_t>(half.last)] != 0;
}

// From a cut on in one direction, until the half that grows alone costs as much as the best.
void FittingHalves::improve(const ChainHalf& half, int cut, int step, HalfCut& best) {
  for (; cut >= half.least_cut() && cut <= half.most_cut(); cut += step) {
    const ChainHalf growing = step > 0 ? half.left(cut) : half.right(cut);
    if (balanced_.best(growing.anywhere()).cost >= best.cost) {
      return;
    }
    if (any(half, cut)) {
      const double cost =
          std::max(this->best(half.left(cut)).cost, this->best(half.right(cut)).cost);
      best = cost < best.cost ? HalfCut{cost, cut} : best;
    }
  }
}

HalfCut FittingHalves::best(const ChainHalf& half) {
  const HalfCut balanced = balanced_.best(half.anywhere());
  HalfCut best{std::numeric_limits<double>::infinity(), balanced.cut};
  if (!any(half) || half.is_stage()) {
    return any(half) ? balanced : best;
  }
  const std::uint64_t key = half.key();
  if (const auto found = known_.find(key); found != known_.end()) {
    return found->second;
  }
  improve(half, balanced.cut, -1, best);
  improve(half, balanced.cut + 1, 1, best);
  return known_[key] = best;
}

}  // namespace orrery::search
