// SPDX-License-Identifier: Apache-2.0
// The plans that the search of mixed clusters tries (docs/mixed-clusters.md). An arrangement says
// which stages of which replicas run where:
//   stages    every replica alike, its stages on one pool after the other, in every order of every
//             choice of pools, as many of each pool as fit
//   replicas  every replica on one pool, as many of each pool as fit, each pool's replicas with
//             their own number of micro-batches
//   beside    as many replicas on one pool as fit, and on what they leave of several pools replicas
//             whose stages are on one after the other
//   teams     pools in the same nodes: tensor-parallel groups over their GPUs, each with as many of
//             every pool as the others; equal shares of the tensors and shares by the GPUs' speed
// Its members are layouts (context and sequence parallelism, recomputation), cuts into stages,
// schedules and ZeRO stages. Cuts: every way to divide the blocks among the pools, then within a
// pool the cut whose slowest stage is fastest there; with replicas, the best such cut of each group
// of them; where every replica is on one pool the even cut, too. Where a device has several chunks,
// the chain is divided into as many equal parts and each of them cut such that its slowest stage,
// on the GPU that runs it, is fastest.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/mixed/simulate.hpp"
#include "search/space/constraints.hpp"
#include "sim/schedule.hpp"

namespace orrery::search {

struct Arrangement {
  int tp = 1;
  int cp = 1;
  int ep = 1;
  int expert_tp = 0;  // tensor-parallel ranks that cut each expert; 0: all
  int pp = 1;
  int dp = 1;
  std::int64_t micro_batch = 1;
  std::vector<plan::ReplicaGroup> groups;
  // Stages on each pool in turn, where all replicas are alike; empty where pools have their own.
  std::vector<int> runs;
  std::vector<int> team;                   // pools of the tensor-parallel ranks; empty: one
  std::vector<plan::TensorShares> shares;  // of a team, that are tried
  int ranks() const { return tp * cp; }    // of a stage of a replica
};

struct MixedLayout {
  bool sequence_parallel = false;
  plan::Recompute recompute = plan::Recompute::None;
  plan::ContextParallel context = plan::ContextParallel::Ring;
  plan::TensorShares shares = {};  // by tensor-parallel rank; empty: equal
};

// Schedules that put the virtual stages on the same devices.
struct MixedFamily {
  int chunks = 1;
  std::vector<std::uint16_t> device_of;
  std::vector<std::string> schedules;
  bool joins_passes = false;  // one of them
};

struct MixedCut {
  int family = 0;
  // Blocks of every pool in turn; the group of replicas whose cut it is; nothing where there is one
  // only.
  std::vector<int> blocks;
  bool even = false;  // as many layers in every stage
};

// What the members of an arrangement choose from.
struct MixedChoices {
  std::vector<MixedLayout> layouts;
  std::vector<MixedFamily> families;
  std::vector<MixedCut> cuts;
  std::vector<int> zero_stages;
};

// Passes of every chain position on one pool under one layout, summed from the left.
struct ChainTimes {
  std::vector<SimTime> forward;  // one more than positions
  std::vector<SimTime> backward;
  std::vector<SimTime> hidden;  // at most, where a forward and a backward run as one
  SimTime of(std::size_t begin, std::size_t end) const {
    return forward[end] - forward[begin] + backward[end] - backward[begin];
  }
  SimTime least(std::size_t begin, std::size_t end, bool joined) const {
    return of(begin, end) - (joined ? hidden[end] - hidden[begin] : SimTime{});
  }
  // Micro-batches a second through all positions.
  double speed() const { return 1.0 / to_seconds(of(0, forward.size() - 1)).value(); }
};

// Whether the replicas of mixed clusters run it: one chain of stages without slices, on devices
// that do not depend on its times.
bool runs_on_mixed(const sim::Schedule& schedule);

// The most GPUs that divide the nodes of all these pools, or of all pools: tensor-parallel groups
// lie inside the nodes of each.
std::int64_t gpus_of_every_node(const plan::MixedPlan& base, const std::vector<int>& pools);
std::int64_t gpus_of_every_node(const plan::MixedPlan& base);

// Used from one thread, with costs of its own.
class MixedSpace {
 public:
  static constexpr std::size_t kMost = 4'000'000;  // arrangements that are listed: about 3 GB

  // Refers to the first three. `stop` is asked now and then; true ends the listing.
  MixedSpace(const plan::MixedPlan& base, const Constraints& constraints,
             plan::MixedSimulator& simulator, const std::function<bool()>& stop = {},
             std::size_t most = kMost);
  // The same space for another thread.
  MixedSpace(const MixedSpace& other, plan::MixedSimulator& simulator);

  const std::vector<Arrangement>& arrangements() const { return *arrangements_; }
  // Whether none was left out by `stop`.
  bool is_whole() const { return is_whole_; }
  // Whether divided replicas beside whole ones are left out, because with them there are too many
  // arrangements to list; no plan that is left out is faster than the bound.
  bool leaves_out() const { return !lists_beside_; }
  Seconds bound_left_out();
  MixedChoices choices(const Arrangement& arrangement);
  std::int64_t num_members(const Arrangement& arrangement);

  // Chain positions of every virtual stage.
  std::vector<int> stages(const Arrangement& arrangement, const MixedLayout& layout,
                          const MixedFamily& family, const MixedCut& cut);
  void configure(const Arrangement& arrangement, const MixedLayout& layout,
                 const MixedFamily& family, const std::vector<int>& stages,
                 const std::string& schedule, int zero_stage, plan::MixedPlan& plan) const;

  // Lower bounds on the time of every member of an arrangement: of all layouts, of one, and of one
  // cut. Without traffic, optimizer and the gradients after the last backward.
  Seconds least_time(const Arrangement& arrangement);
  Seconds least_time(const Arrangement& arrangement, const MixedLayout& layout);
  Seconds least_time(const Arrangement& arrangement, const MixedLayout& layout,
                     const MixedFamily& family, const std::vector<int>& stages);

 private:
  const ChainTimes& times(int pool, const Arrangement& arrangement, const MixedLayout& layout);
  // By device of these pools; of each pool they are looked up once.
  std::vector<const ChainTimes*> times_of(const std::vector<int>& pools,
                                          const Arrangement& arrangement,
                                          const MixedLayout& layout);
  plan::BlockPlan block_of(const Arrangement& arrangement, const MixedLayout& layout) const;
  double weighted_least(const std::vector<const ChainTimes*>& kinds, double speeds);
  struct Stopped;
  struct TooMany;
  bool can_list(std::size_t most);
  void look();
  void add(const Arrangement& one);
  void add_all();
  void add_ranks(const std::vector<int>& pools, std::int64_t tp, std::int64_t widest);
  // The ranks of a stage are given, the rest of an arrangement is set.
  void add_shapes(const std::vector<int>& pools, const Arrangement& ranks);
  void add_stages(const std::vector<int>& order, Arrangement one);
  void add_replicas(const std::vector<int>& pools, Arrangement one);
  void add_beside(const std::vector<int>& order, Arrangement one);
  void add_teams(const std::vector<int>& pools);
  void add_team(Arrangement one, std::int64_t teams);
  std::vector<plan::TensorShares> shares_of(const Arrangement& one);
  static void add_group(int replicas, std::vector<int> pools, Arrangement& one);
  void add_micro_batches(Arrangement one, std::int64_t window);
  void add_shares(Arrangement arrangement, std::int64_t micro_batches, std::int64_t window);
  bool sets_experts(Arrangement& one) const;
  std::vector<int> context_degrees(const std::vector<int>& pools, std::int64_t tp,
                                   std::int64_t widest) const;
  plan::BlockPlan layout_of(const Arrangement& one) const;
  std::vector<plan::ContextParallel> contexts(const Arrangement& arrangement) const;
  std::int64_t gpus_of(int pool) const;
  std::int64_t gpus_of_node(int pool) const;
  std::int64_t num_layers() const;
  bool admits(const Arrangement& arrangement) const;
  std::vector<MixedLayout> layouts(const Arrangement& arrangement) const;
  std::vector<int> zero_stages(const Arrangement& arrangement) const;
  std::vector<MixedFamily> families(const Arrangement& arrangement);
  void add_families(const Arrangement& arrangement, int chunks, std::vector<MixedFamily>& families);
  // A schedule that may be chosen.
  struct Choice {
    std::string name;
    bool joins_passes = false;
  };
  const std::vector<Choice>& schedules();
  const std::vector<char>& takes(int pp, int chunks, std::int64_t micro_batches);
  std::vector<int> chunk_counts(const Arrangement& arrangement) const;
  bool has_even_cut(const Arrangement& arrangement, int chunks) const;
  const std::vector<std::uint16_t>& devices_of(std::size_t schedule, int pp, int chunks);

  const plan::MixedPlan& base_;
  const Constraints& constraints_;
  plan::MixedSimulator& simulator_;
  plan::BlockPlan layout_;  // as fixed
  std::shared_ptr<std::vector<Arrangement>> arrangements_;
  const std::function<bool()>* stop_ = nullptr;  // while arrangements are added
  std::uint64_t looks_ = 0;
  bool is_whole_ = true;
  bool lists_beside_ = true;
  // Pools and the ranks of a stage, of what is left out.
  std::vector<std::pair<std::vector<int>, Arrangement>> left_out_;
  std::optional<std::size_t> left_;  // where arrangements are counted: how many more may be listed
  std::vector<Choice> schedules_;
  std::map<std::tuple<int, int, std::int64_t>, std::vector<char>> takes_;  // by schedule
  std::map<std::tuple<std::size_t, int, int>, std::vector<std::uint16_t>> devices_;
  std::map<std::vector<std::int64_t>, ChainTimes> times_;
};

}  // namespace orrery::search
