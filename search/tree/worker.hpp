// SPDX-License-Identifier: Apache-2.0
// What one thread of the search does with a node of the tree, with costs of its own. The tree:
//   group   degrees and micro-batch; bound: the work of its blocks
//   family  a layout, a cut into stages and the schedules that place them alike; bound: head,
//           passes and tail of the busiest device (plan/stage/layout_bounds.hpp)
//   room    the same with the ZeRO stages that may fit; bound: what its memory allows, too
//   schedule  one of them; bound: with the passes that it cuts in two
//   plan    a schedule and a ZeRO stage; bound: the schedule's own lists without data-parallel
//           traffic
// Memory is bounded from below the same way: states, and one micro-batch of every virtual stage.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/simulation/simulate.hpp"
#include "search/space/space.hpp"

namespace orrery::search {

enum class Level : std::uint8_t { Group, Family, Room, Schedule, Plan };

struct Node {
  Seconds bound;
  std::uint64_t order = 0;  // of its first plan in the space: ties go to the earlier one; from
                            // Schedule on, that of the schedule under the first ZeRO stage
  std::uint32_t group = 0;
  std::uint16_t layout = 0;
  std::uint16_t family = 0;
  std::uint16_t schedule = 0;  // index in the family, once chosen
  Level level = Level::Family;
  std::uint8_t zeros = 0;  // bits by index in the group's ZeRO stages; from Room on
  bool is_plan() const { return level == Level::Plan; }
  // Index of the first ZeRO stage, and position of the plan with it in the space.
  int first_zero() const { return zeros == 0 ? 0 : std::countr_zero(zeros); }
  std::uint64_t position() const { return order + static_cast<std::uint64_t>(first_zero()); }
  // Total over all nodes that are open at one time.
  bool operator>(const Node& other) const {
    return std::tie(bound, order, zeros) > std::tie(other.bound, other.order, other.zeros);
  }
};

// The plan that misses memory by least, of those that were looked at.
struct Overflow {
  std::string text;
  ByteCount excess;
  std::optional<Node> misfit = {};  // the plan, where it is memory that it misses
  bool replayed = false;            // it fits by categories, but not when it is replayed
  bool is_closer_than(const Overflow& other) const {
    return !text.empty() && (other.text.empty() || excess < other.excess);
  }
};

// What became of a node.
struct Outcomes {
  std::vector<Node> children;
  // Plans found not to fit: runs of consecutive positions in the space, every `step`-th of them.
  struct Run {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    std::uint64_t step = 1;
  };
  std::vector<Run> misfits;
  Overflow overflow;
  // Of a plan that was simulated; of a group its bound; of an interval the lower end.
  std::optional<Seconds> time;
  Seconds high;  // the upper end
  // These plans cannot be run, whatever memory there is.
  void refuse(const Run& plans, const std::string& problem);
};

// What is known when a batch of nodes is handed out, the same for all of it.
struct Known {
  Seconds cutoff;      // bounds from here on are of no interest
  bool found = false;  // some plan fits
  Overflow closest;
  int interval_draws = 0;
  Seconds drawing = Seconds();    // how long they may take at another rank; 0: without a limit
  ByteCount replay_reserve = {};  // what the replay of memory keeps free
};

class Worker {
 public:
  // `kept`: a simulator with costs from an earlier search, that outlives this; null: one of its
  // own.
  Worker(const Space& space, const std::vector<Group>& groups,
         const std::vector<std::uint64_t>& first_order, plan::Simulator* kept = nullptr);

  Seconds bound(const Group& group);
  // What follows from a node that is no plan, below the cutoff; of a group its families.
  Outcomes expand(const Node& node, const Known& known);
  Outcomes judge(const Node& plan);    // which fits
  Outcomes try_out(const Node& plan);  // which may not
  // Of a node that is no group and cannot be evaluated: all plans below it are misfits.
  Outcomes refused(const Node& node, const std::string& why);
  // Without a time where `stop` ended the draws.
  Outcomes interval(const Node& plan, int draws, const std::function<bool()>& stop);
  // Whether it fits when its memory is replayed, by so many threads.
  plan::MemoryVerdict replay(const Node& plan, ByteCount reserve, int jobs);

  // The plan of a node, in a copy that the worker rewrites.
  const plan::Plan& configure(const Node& node);
  plan::Simulator& simulator() { return simulator_; }

 private:
  // What plans of a group choose from.
  struct Choices {
    const std::vector<Member>* layouts = nullptr;
    const std::vector<Family>* families = nullptr;
    std::vector<int> zeros;
  };
  const Choices& choices_of(std::uint32_t group);
  const plan::Plan& configure(const Group& group, const Member& layout, const Family& family,
                              int schedule, int zero);
  // Whether a floor on memory rules plans out: beyond the GPU, and no news for the closest misfit.
  bool is_beyond(ByteCount floor, const Known& known) const;
  // Whether the plan fits; else it is added to the misfits, with what misses, `exactly` or at
  // least.
  bool fits(const Node& node, const plan::Plan& plan, bool exactly, Outcomes& outcomes);
  Outcomes open(std::uint32_t group, const Known& known);
  // Families [range.first, range.second) of a layout, which have the same slices.
  Node family_node(std::uint32_t group, std::size_t layout, std::size_t family);
  void refuse_all(const Node& node, const std::string& why, Outcomes& outcomes);
  void open_families(std::uint32_t group, std::size_t layout,
                     std::pair<std::size_t, std::size_t> range, const Known& known,
                     Outcomes& outcomes);
  plan::LayoutBounds& bounds_of(const Node& node, const Family& family,
                                const std::vector<int>& zeros);
  void make_room(const Node& node, const Known& known, Outcomes& outcomes);
  void add_schedules(const Node& node, const Known& known, Outcomes& outcomes);
  void add_plans(const Node& node, const Known& known, Outcomes& outcomes);

  const Space& space_;
  const std::vector<Group>& groups_;
  const std::vector<std::uint64_t>& first_order_;
  std::vector<Choices> choices_;  // by group, as they are asked for
  plan::Plan plan_;
  std::unique_ptr<plan::Simulator> own_;
  plan::Simulator& simulator_;
  using BoundsKey = std::tuple<std::uint32_t, std::uint16_t, int, int>;
  std::map<BoundsKey, plan::LayoutBounds> bounds_;  // by group, layout, slices and encoder runs
};

}  // namespace orrery::search
