// SPDX-License-Identifier: Apache-2.0
// What one thread of the search on mixed clusters does with a node of the tree, with costs of its
// own. The tree: arrangement, layout, cut, schedule, ZeRO stage, plan; each with a bound that no
// plan below it is faster than.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/stage/split_backward.hpp"
#include "search/mixed/memory_floor.hpp"
#include "search/mixed/space.hpp"

namespace orrery::search {

struct MixedNode {
  Seconds bound;
  std::int64_t sequence = 0;  // of creation: orders nodes of equal bounds
  std::int64_t plans = 0;
  int arrangement = 0;
  int layout = -1;
  int cut = -1;
  int schedule = -1;
  int zero = -1;
  bool listed = false;  // the bound is that of its lists
};

// What became of a node.
struct MixedStep {
  std::vector<MixedNode> children;
  std::int64_t same = 0;                      // plans that equal others
  std::int64_t misfits = 0;                   // plans that do not fit
  std::optional<plan::MemoryVerdict> misfit;  // one of them
  std::optional<Seconds> time;                // of a plan that was simulated
};

// Of memory, when a batch is handed out, the same for all of it.
struct MixedKnown {
  bool found = false;                // some plan fits
  std::optional<ByteCount> closest;  // of the plan that misses by least: how much
};

class MixedWorker {
 public:
  // The first two outlive this; `stop` as of MixedSpace.
  MixedWorker(const plan::MixedPlan& base, const Constraints& constraints,
              const std::function<bool()>& stop = {});
  explicit MixedWorker(const MixedWorker& other);

  const MixedSpace& space() const { return space_; }
  Seconds bound_left_out() { return space_.bound_left_out(); }
  // Arrangements alone: how many plans, and their bound, or 0 for one.
  MixedNode root(int arrangement, bool bounded);
  // Whether the space has such a node: what is chosen is there to choose, from the top on.
  bool has(const MixedNode& node);
  MixedStep step(const MixedNode& node, const MixedKnown& known);
  std::uint64_t passes_of(const MixedNode& node) const;  // stages x micro-batches of all groups
  const plan::MixedPlan& configure(const MixedNode& node);
  plan::MixedSimulation simulate(const MixedNode& plan, int interval_draws,
                                 const std::function<bool()>& stop_draws);
  // Whether a plan that fits by categories does so when it is replayed.
  plan::MemoryVerdict replay(const MixedNode& plan, ByteCount reserve, int jobs);

 private:
  const Arrangement& arrangement_of(const MixedNode& node) const {
    return space_.arrangements()[static_cast<std::size_t>(node.arrangement)];
  }
  const MixedChoices& choices_of(const MixedNode& node);
  const MixedFamily& family_of(const MixedNode& node);
  void add_layouts(MixedNode node, MixedStep& step);
  void add_cuts(MixedNode node, const MixedKnown& known, MixedStep& step);
  void add_schedules(MixedNode node, const MixedKnown& known, MixedStep& step);
  std::optional<MixedMemoryFloor> memory_floor(MixedNode node);
  // What every plan of a layout, or of it and a cut, misses at least; 0 where some may fit.
  ByteCount least_excess(const MixedNode& node);
  // Whether that is of no interest: some plan fits, or misses by no more.
  bool is_hopeless(const MixedNode& node, const MixedKnown& known);
  static bool is_hopeless(ByteCount excess, const MixedKnown& known);
  void add_zero_stages(MixedNode node, MixedStep& step);
  void add_plan(MixedNode node, MixedStep& step);

  const plan::MixedPlan& base_;
  const Constraints& constraints_;
  plan::MixedPlan plan_;
  plan::MixedSimulator simulator_;
  MixedSpace space_;
  std::vector<plan::Plan> views_;  // by pool
  plan::SplitBackwards splits_;
  MixedChoices choices_;
  int choices_of_ = -1;  // arrangement
};

// About, in units of some 10 microseconds; decides how much is evaluated side by side.
std::uint64_t work_of(const MixedNode& node);

}  // namespace orrery::search
