// SPDX-License-Identifier: Apache-2.0
#include "search/problems/backbone_cut.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

using StageCost = std::function<double(int first, int last)>;

int replicas_of(const Backbone& backbone, int stages) { return backbone.devices / stages; }

// The longer of a stage's passes and its transfers, with `extra` more forwards of each micro-batch:
// 0, 1, or between for the mean over iterations.
double slot(const Backbone& backbone, int first, int last, int replicas, double extra) {
  const double time =
      backbone.layers.time(first, last) + extra * backbone.layers.forward(first, last);
  const double send = (2 + extra) * backbone.layers.cut(first) / backbone.bandwidth;
  return std::max(time, send) / replicas;
}

double synchronisation(const Backbone& backbone, int first, int last, int replicas) {
  return 2.0 * (replicas - 1) / replicas * backbone.layers.parameters(first, last) /
         backbone.bandwidth;
}

double slots(const Backbone& backbone, int stages) {
  return backbone.micro_batches + 2 * stages - 2;
}

void add_estimates(const Backbone& backbone, BackboneCut& cut) {
  const int stages = static_cast<int>(cut.stages.size());
  double longest_sync = 0;
  for (const ChainStage& stage : cut.stages) {
    longest_sync =
        std::max(longest_sync, synchronisation(backbone, stage.first, stage.last, stage.replicas));
  }
  for (const int extra : {0, 1}) {
    BackboneEstimate& estimate = cut.estimates[static_cast<std::size_t>(extra)];
    const double back = extra * way_back(backbone, stages);
    estimate.longest = back;
    for (const ChainStage& stage : cut.stages) {
      estimate.longest = std::max(estimate.longest,
                                  slot(backbone, stage.first, stage.last, stage.replicas, extra));
    }
    estimate.cost = slots(backbone, stages) * estimate.longest + back + longest_sync;
  }
  cut.cost = (1 - backbone.conditioned) * cut.estimates[0].cost +
             backbone.conditioned * cut.estimates[1].cost;
}

// The cut into `stages` whose largest stage costs least, and what that costs.
std::pair<double, BackboneCut> least_largest(const Backbone& backbone, int stages,
                                             const StageCost& cost_of) {
  const int n = backbone.layers.size();
  const auto row = static_cast<std::size_t>(n) + 1;
  std::vector<double> best(row * (static_cast<std::size_t>(stages) + 1), kNever);
  std::vector<int> from(best.size(), 0);
  best[0] = 0;
  for (int stage = 0; stage < stages; ++stage) {
    for (int last = stage + 1; last <= n; ++last) {
      const auto to = static_cast<std::size_t>(stage + 1) * row + static_cast<std::size_t>(last);
      for (int first = stage; first < last; ++first) {
        const double cost =
            std::max(best[static_cast<std::size_t>(stage) * row + static_cast<std::size_t>(first)],
                     cost_of(first, last));
        if (cost < best[to]) {
          best[to] = cost;
          from[to] = first;
        }
      }
    }
  }
  BackboneCut cut;
  for (int stage = stages, last = n; stage > 0; --stage) {
    const int first = from[static_cast<std::size_t>(stage) * row + static_cast<std::size_t>(last)];
    cut.stages.insert(cut.stages.begin(), {first, last, replicas_of(backbone, stages)});
    last = first;
  }
  return {best.back(), std::move(cut)};
}

// Of the first stages of a cut, the largest of each: slots without and with the extra forward, and
// synchronisation. None is less than any whole cut has, so that few of them are unlike.
using Largest = std::array<double, 3>;

struct Partial {
  Largest largest;
  int first = 0;             // of its last stage
  std::size_t previous = 0;  // among the partial cuts that end there
};

bool covers(const Largest& one, const Largest& other) {
  return one[0] <= other[0] && one[1] <= other[1] && one[2] <= other[2];
}

void add(const Partial& partial, std::vector<Partial>& front) {
  const auto is_better = [&](const Partial& other) {
    return covers(other.largest, partial.largest);
  };
  if (std::none_of(front.begin(), front.end(), is_better)) {
    std::erase_if(front,
                  [&](const Partial& other) { return covers(partial.largest, other.largest); });
    front.push_back(partial);
  }
}

// All partial cuts that no other one covers and that may still be better than a given one.
class CutFronts {
 public:
  CutFronts(const Backbone& backbone, int stages)
      : backbone_(backbone),
        stages_(stages),
        replicas_(replicas_of(backbone, stages)),
        row_(static_cast<std::size_t>(backbone.layers.size()) + 1),
        fronts_(row_ * (static_cast<std::size_t>(stages) + 1)) {
    for (const std::size_t which : {0, 1, 2}) {
      least_[which] = least_largest(backbone, stages, [&](int first, int last) {
                        return cost(which, first, last);
                      }).first;
    }
    const double back = way_back(backbone, stages);
    least_[1] = std::max(least_[1], back);
  }

  // The stages of a cut that costs less than `most`, none if there is no such cut.
  std::vector<ChainStage> better_than(double most) {
    const int n = backbone_.layers.size();
    front(0, 0) = {{least_, 0, 0}};
    for (int stage = 0; stage < stages_; ++stage) {
      for (int last = stage + 1; last <= n - (stages_ - stage - 1); ++last) {
        for (int first = stage; first < last; ++first) {
          extend(stage, first, last, most);
        }
      }
    }
    const std::vector<Partial>& whole = front(stages_, n);
    if (whole.empty()) {
      return {};
    }
    const auto best = std::min_element(
        whole.begin(), whole.end(),
        [&](const Partial& a, const Partial& b) { return total(a.largest) < total(b.largest); });
    std::vector<ChainStage> stages;
    const Partial* partial = &*best;
    for (int stage = stages_, last = n; stage > 0; --stage) {
      stages.insert(stages.begin(), {partial->first, last, replicas_});
      last = partial->first;
      partial = &front(stage - 1, last)[partial->previous];
    }
    return stages;
  }

 private:
  // Without iterations of a kind its slots do not matter.
  double cost(std::size_t which, int first, int last) const {
    if (which == 2) {
      return synchronisation(backbone_, first, last, replicas_);
    }
    const bool counts = which == 0 ? backbone_.conditioned < 1 : backbone_.conditioned > 0;
    return counts ? slot(backbone_, first, last, replicas_, static_cast<double>(which)) : 0;
  }

  double total(const Largest& largest) const {
    const double slot_mean =
        (1 - backbone_.conditioned) * largest[0] + backbone_.conditioned * largest[1];
    return slots(backbone_, stages_) * slot_mean +
           backbone_.conditioned * way_back(backbone_, stages_) + largest[2];
  }

  std::vector<Partial>& front(int stage, int last) {
    return fronts_[static_cast<std::size_t>(stage) * row_ + static_cast<std::size_t>(last)];
  }

  void extend(int stage, int first, int last, double most) {
    const std::vector<Partial>& before = front(stage, first);
    std::vector<Partial>& after = front(stage + 1, last);
    if (before.empty()) {
      return;
    }
    const Largest own = {cost(0, first, last), cost(1, first, last), cost(2, first, last)};
    for (std::size_t index = 0; index < before.size(); ++index) {
      Partial longer{before[index].largest, first, index};
      for (std::size_t which = 0; which < own.size(); ++which) {
        longer.largest[which] = std::max(longer.largest[which], own[which]);
      }
      if (total(longer.largest) < most) {
        add(longer, after);
      }
    }
  }

  const Backbone& backbone_;
  int stages_;
  int replicas_;
  std::size_t row_;
  Largest least_{};
  std::vector<std::vector<Partial>> fronts_;  // by number of stages and their end
};

}  // namespace

double way_back(const Backbone& backbone, int stages) {
  const double bytes = backbone.layers.layer(backbone.layers.size() - 1).output.value();
  return stages > 1 ? bytes / replicas_of(backbone, stages) / backbone.bandwidth : 0;
}

// The cut with the least longest slot is not always the best one, but near it: few others need to
// be looked at.
BackboneCut cut_backbone(const Backbone& backbone, int stages) {
  const int replicas = replicas_of(backbone, stages);
  BackboneCut cut = least_largest(backbone, stages, [&](int first, int last) {
                      return slot(backbone, first, last, replicas, backbone.conditioned);
                    }).second;
  add_estimates(backbone, cut);
  CutFronts fronts(backbone, stages);
  if (std::vector<ChainStage> better = fronts.better_than(cut.cost); !better.empty()) {
    cut.stages = std::move(better);
    add_estimates(backbone, cut);
  }
  return cut;
}

}  // namespace orrery::search
