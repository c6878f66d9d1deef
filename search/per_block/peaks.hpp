// SPDX-License-Identifier: Apache-2.0
// Paths through a stage of which only its set is known. Blocks are whole, so some stage of a
// pipeline has at least as many layers as the mean, rounded up; which one depends on the plan. For
// each stage of a set there is a path that stays at that stage while micro-batches pass, forwards
// and back:
//     forwards of micro-batch 0 up to the stage, its own of 0 to i, those of i behind it up to a
//     stage behind all of the set (or to the last one, and gradients of i back to such a stage);
//     all that the device there does, until a gradient of micro-batch k of one behind all of the
//     set;
//     gradients of k down to the stage, its own of k to the last one, those of the last before it;
//     what the device of the first stage still does.
// But for the stays these paths are the same for the whole set, so that together they bound the
// makespan by the passes of the stage that has the layers, whichever it is.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "search/per_block/critical_path.hpp"

namespace orrery::search {

struct PeakPath {
  PassPath common;
  // More passes of the stage itself.
  double forwards = 0;
  double gradients = 0;
  double weight_grads = 0;
};

// Durations by which paths are chosen.
struct PeakTimes {
  std::vector<double> forward;      // by virtual stage
  std::vector<double> gradient;     // backward, or input gradient where it is cut
  std::vector<double> weight_grad;  // zero where it is not cut
  std::vector<double> send;
  double own_forward = 0;  // of the stage with the layers
  double own_gradient = 0;
  double own_weight_grad = 0;
};

class PeakPaths {
 public:
  PeakPaths() = default;  // of nothing known
  // Refers to the lists.
  explicit PeakPaths(const sim::PipelineOrder& order);
  // Lists of one chain in which every stage runs its micro-batches in order.
  bool known() const { return known_; }
  // Of a set of stages (ascending), the longest through each device, at most `count`, and one that
  // stays on the device of the stage. O(passes).
  std::vector<PeakPath> longest(const std::vector<std::size_t>& stages, const PeakTimes& times,
                                std::size_t count) const;

 private:
  // From the pass at `begin` of a device's list, which is the forward of a stage or, `back`, its
  // gradient, to the gradient at `end`.
  struct Run {
    double length = 0;
    std::size_t device = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool back = false;
  };
  using Places = std::vector<std::vector<std::size_t>>;  // in lists, by virtual stage and unit
  std::optional<Run> run_of(std::size_t device, std::size_t last, const PeakTimes& times,
                            const std::vector<int>& weight_grads) const;
  void count(const sim::Pass& pass, PassPath& path) const;
  int weight_grads_between(std::size_t stage, std::size_t begin, std::size_t end) const;
  // Of the set, the fewest between gradients of each unit and the last one.
  std::vector<int> weight_grads_after(const std::vector<std::size_t>& stages) const;
  PeakPath path_of(const Run& run, int weight_grads) const;
  PeakPath on_device(const std::vector<std::size_t>& stages) const;

  const sim::PipelineOrder* order_ = nullptr;
  bool known_ = false;
  bool splits_ = false;
  std::size_t stages_ = 0;
  std::size_t units_ = 0;
  Places forward_;
  Places gradient_;
  Places weight_grad_;
  PassPath last_;  // what the device of the first stage does after its last gradient
};

}  // namespace orrery::search
