// SPDX-License-Identifier: Apache-2.0
// A chain on devices that are halved again and again, each with a layer or more: the cuts between
// the halves that balance a cost, of all cuts or of those that leave every device what it can hold.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace orrery::search {

// Layers [first, last) on devices [low, high), at most as many as layers.
struct ChainHalf {
  int first = 0;
  int last = 0;
  int low = 0;
  int high = 1;

  bool is_stage() const { return high - low == 1; }
  int middle() const { return (low + high) / 2; }
  int least_cut() const { return first + (middle() - low); }
  int most_cut() const { return last - (high - middle()); }
  ChainHalf left(int cut) const { return {first, cut, low, middle()}; }
  ChainHalf right(int cut) const { return {cut, last, middle(), high}; }
  // The same on the first devices: enough where devices are alike.
  ChainHalf anywhere() const { return {first, last, 0, high - low}; }
  std::uint64_t key() const;  // each number at most 65,535
};

struct HalfCut {
  double cost = 0;  // of the dearest stage
  int cut = 0;
};
using KnownCuts = std::unordered_map<std::uint64_t, HalfCut>;

class BalancedHalves {
 public:
  // What layers [first, last) cost as the stage of a device.
  using Cost = std::function<double(int first, int last, int device)>;
  // `grows`: no layer costs less than nothing. Then the cut is where the halves' dearest stages
  // cost alike, which for devices that are alike is the least; else every cut is tried.
  BalancedHalves(Cost cost, bool grows) : cost_(std::move(cost)), grows_(grows) {}

  HalfCut best(const ChainHalf& half);

 private:
  double dearest(const ChainHalf& half, int cut);
  int crossing(const ChainHalf& half);

  Cost cost_;
  bool grows_;
  KnownCuts known_;
};

class FittingHalves {
 public:
  using Fits = std::function<bool(int first, int last, int device)>;
  // `balanced`: of costs that are alike on all devices.
  FittingHalves(int layers, BalancedHalves& balanced, Fits fits)
      : layers_(layers), balanced_(balanced), fits_(std::move(fits)) {}

  // Whether any cuts fit.
  bool any(const ChainHalf& half);
  bool any(const ChainHalf& half, int cut) { return any(half.left(cut)) && any(half.right(cut)); }
  // The least cost of those that do; infinite where none does.
  HalfCut best(const ChainHalf& half);

 private:
  using Ends = std::vector<char>;  // by layer: whether stages from the first one may end before it
  Ends next(const Ends& ends, int first, int device) const;
  void improve(const ChainHalf& half, int cut, int step, HalfCut& best);

  int layers_;
  BalancedHalves& balanced_;
  Fits fits_;
  std::unordered_map<std::uint64_t, Ends> ends_;
  KnownCuts known_;
};

}  // namespace orrery::search
