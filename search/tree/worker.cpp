// SPDX-License-Identifier: Apache-2.0
#include "search/tree/worker.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "plan/modules.hpp"
#include "plan/slices.hpp"
#include "plan/stage/arcs.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/servers.hpp"
#include "plan/stage/spread_attention.hpp"
#include "search/tree/memory_check.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kBoundsKept = 1024;  // a few kB each

}  // namespace

Worker::Worker(const Space& space, const std::vector<Group>& groups,
               const std::vector<std::uint64_t>& first_order, plan::Simulator* kept)
    : space_(space),
      groups_(groups),
      first_order_(first_order),
      choices_(groups.size()),
      plan_(space.base()),
      own_(kept == nullptr ? std::make_unique<plan::Simulator>(space.base()) : nullptr),
      simulator_(kept == nullptr ? *own_ : *kept) {}

const plan::Plan& Worker::configure(const Group& group, const Member& layout, const Family& family,
                                    int schedule, int zero) {
  Member member = layout;
  member.chunks = family.chunks;
  member.slices = family.slices;
  member.balanced = family.balanced;
  member.schedule = schedule;
  member.zero_stage = zero;
  space_.configure(group, member, plan_);
  return plan_;
}

const Worker::Choices& Worker::choices_of(std::uint32_t group) {
  Choices& choices = choices_[group];
  if (choices.layouts == nullptr) {
    const Group& degrees = groups_[group];
    choices = {&space_.layouts(degrees), &space_.families(degrees), space_.zero_stages(degrees)};
  }
  return choices;
}

const plan::Plan& Worker::configure(const Node& node) {
  const Choices& choices = choices_of(node.group);
  const Family& family = (*choices.families)[node.family];
  return configure(groups_[node.group], (*choices.layouts)[node.layout], family,
                   family.schedules[node.schedule],
                   choices.zeros[static_cast<std::size_t>(node.first_zero())]);
}

namespace {

// Whether blocks cost the same in both.
bool same_passes(const Family& a, const Family& b) {
  return a.slices == b.slices && a.parts == b.parts;
}

bool any_of(const std::vector<Family>& families, bool plan::StagePlacement::*trait) {
  return std::any_of(families.begin(), families.end(),
                     [trait](const Family& family) { return family.placement.*trait; });
}

}  // namespace

Seconds Worker::bound(const Group& group) {
  Seconds least(std::numeric_limits<double>::infinity());
  if (space_.num_members(group) == 0) {
    return least;
  }
  const std::vector<Family>& families = space_.families(group);
  const bool shares = group.pp > 1 && space_.schedules().shares_ends();
  const bool joins = any_of(families, &plan::StagePlacement::joins_passes);
  const int zero = space_.zero_stages(group).front();
  const Member* previous = nullptr;
  for (const Member& layout : space_.layouts(group)) {
    if (previous != nullptr && previous->context == layout.context &&
        previous->sequence_parallel == layout.sequence_parallel && previous->mesh == layout.mesh &&
        previous->tp_inner == layout.tp_inner && previous->ep_inside == layout.ep_inside &&
        previous->ulysses_degree == layout.ulysses_degree) {
      continue;  // recomputation only adds work
    }
    previous = &layout;
    for (std::size_t family = 0; family < families.size(); ++family) {
      if (family > 0 && same_passes(families[family], families[family - 1])) {
        continue;
      }
      configure(group, layout, families[family], families[family].schedules.front(), zero);
      plan_.blocks.front().layout.recompute = plan::Recompute::None;
      least = std::min(least, simulator_.layout_bounds(plan_, {zero}).least_time(shares, joins));
    }
  }
  return least;
}

bool Worker::is_beyond(ByteCount floor, const Known& known) const {
  const ByteCount capacity = plan_.cluster.gpu.memory - plan_.memory_reserve;
  if (floor <= capacity) {
    return false;
  }
  return known.found || (!known.closest.text.empty() && floor - capacity >= known.closest.excess);
}

Outcomes Worker::open(std::uint32_t group_index, const Known& known) {
  Outcomes outcomes;
  const std::vector<Family>& families = *choices_of(group_index).families;
  const std::size_t layouts = choices_of(group_index).layouts->size();
  for (std::size_t index = 0; index < layouts; ++index) {
    for (std::size_t first = 0; first < families.size();) {
      std::size_t end = first + 1;  // of the families with the same passes
      while (end < families.size() && same_passes(families[end], families[first])) {
        ++end;
      }
      const std::size_t misfits = outcomes.misfits.size();
      const std::size_t children = outcomes.children.size();
      try {
        open_families(group_index, index, {first, end}, known, outcomes);
      } catch (const BeyondSimulatedTime& beyond) {
        outcomes.misfits.resize(misfits);
        outcomes.children.resize(children);
        for (std::size_t family = first; family < end; ++family) {
          refuse_all(family_node(group_index, index, family), beyond.what(), outcomes);
        }
      }
      first = end;
    }
  }
  return outcomes;
}

Node Worker::family_node(std::uint32_t group, std::size_t layout, std::size_t family) {
  const Choices& choices = choices_of(group);
  const Family& cut = (*choices.families)[family];
  Node node;
  node.group = group;
  node.level = Level::Family;
  node.layout = static_cast<std::uint16_t>(layout);
  node.family = static_cast<std::uint16_t>(family);
  node.order =
      first_order_[group] + (static_cast<std::uint64_t>(cut.first) * choices.layouts->size() +
                             layout * cut.schedules.size()) *
                                choices.zeros.size();
  return node;
}

// All plans below a node that is no group.
void Worker::refuse_all(const Node& node, const std::string& why, Outcomes& outcomes) {
  const Choices& choices = choices_of(node.group);
  const std::uint64_t schedules =
      node.level >= Level::Schedule ? 1 : (*choices.families)[node.family].schedules.size();
  for (std::size_t zero = 0; zero < choices.zeros.size(); ++zero) {
    if (node.level == Level::Family || (node.zeros >> zero & 1U) != 0) {
      outcomes.refuse({node.order + zero, schedules, choices.zeros.size()}, why);
    }
  }
}

Outcomes Worker::refused(const Node& node, const std::string& why) {
  Outcomes outcomes;
  refuse_all(node, why, outcomes);
  return outcomes;
}

void Worker::open_families(std::uint32_t group_index, std::size_t layout,
                           std::pair<std::size_t, std::size_t> range, const Known& known,
                           Outcomes& outcomes) {
  const Group& group = groups_[group_index];
  const std::vector<Family>& families = *choices_of(group_index).families;
  const std::vector<Member>& layouts = *choices_of(group_index).layouts;
  const std::vector<int>& zeros = choices_of(group_index).zeros;
  const bool shares = group.pp > 1 && space_.schedules().shares_ends();
  const bool joins = any_of(families, &plan::StagePlacement::joins_passes);
  const bool recomputes = any_of(families, &plan::StagePlacement::recomputes);
  const Family& cuts = families[range.first];
  configure(group, layouts[layout], cuts, cuts.schedules.front(), zeros.front());
  const plan::LayoutBounds bounds = simulator_.layout_bounds(plan_, zeros);
  if (bounds.least_time(shares, joins) >= known.cutoff) {
    return;
  }
  bool fits = false;
  for (std::size_t zero = 0; zero < zeros.size(); ++zero) {
    fits = fits || !is_beyond(bounds.least_memory(zero, recomputes), known);
  }
  for (std::size_t family = range.first; family < range.second; ++family) {
    const Family& cut = families[family];
    Node node = family_node(group_index, layout, family);
    if (!fits) {
      outcomes.misfits.push_back({node.order, cut.schedules.size() * zeros.size(), 1});
      continue;
    }
    const ScheduleChoice& choice =
        space_.schedules().choices()[static_cast<std::size_t>(cut.schedules.front())];
    const std::vector<int>& stages =
        space_.schedules().stages(group.pp, cut.chunks, choice, cut.balanced);
    node.bound = bounds.time(stages, cut.placement, simulator_.transfer_times());
    if (node.bound < known.cutoff) {
      outcomes.children.push_back(node);
    }
  }
}

Outcomes Worker::expand(const Node& node, const Known& known) {
  if (node.level == Level::Group) {
    return open(node.group, known);
  }
  Outcomes outcomes;
  if (node.level == Level::Family) {
    make_room(node, known, outcomes);
  } else if (node.level == Level::Room) {
    add_schedules(node, known, outcomes);
  } else {
    add_plans(node, known, outcomes);
  }
  return outcomes;
}

// Of the layout of a node, to which the plan is configured; most are asked again soon.
plan::LayoutBounds& Worker::bounds_of(const Node& node, const Family& family,
                                      const std::vector<int>& zeros) {
  const BoundsKey key{node.group, node.layout, family.slices, family.parts};
  const auto known = bounds_.find(key);
  if (known != bounds_.end()) {
    return known->second;
  }
  if (bounds_.size() >= kBoundsKept) {
    bounds_.clear();
  }
  return bounds_.emplace(key, simulator_.layout_bounds(plan_, zeros)).first->second;
}

void Worker::make_room(const Node& node, const Known& known, Outcomes& outcomes) {
  const Family& family = (*choices_of(node.group).families)[node.family];
  const std::vector<int>& zeros = choices_of(node.group).zeros;
  configure(node);
  plan::LayoutBounds& bounds = bounds_of(node, family, zeros);
  const std::vector<ByteCount> floors = bounds.memory(plan_.stage_blocks, family.placement);
  const ByteCount capacity = plan_.cluster.gpu.memory - plan_.memory_reserve;
  Seconds least(std::numeric_limits<double>::infinity());
  Node room = node;
  room.level = Level::Room;
  for (std::size_t zero = 0; zero < zeros.size(); ++zero) {
    const ByteCount floor = floors[zero];
    if (is_beyond(floor, known)) {
      outcomes.misfits.push_back({node.order + zero, family.schedules.size(), zeros.size()});
      continue;
    }
    const Seconds passes =
        bounds.time(plan_.stage_blocks, family.placement, simulator_.transfer_times(), zero);
    if (passes >= known.cutoff) {
      continue;
    }
    room.zeros = static_cast<std::uint8_t>(room.zeros | (1U << zero));
    const Seconds within =
        floor > capacity ? node.bound
                         : bounds.time_within(plan_.stage_blocks, family.placement, zero, capacity);
    least = std::min(least, std::max(passes, within));
  }
  room.bound = std::max(node.bound, least);
  if (room.zeros != 0 && room.bound < known.cutoff) {
    outcomes.children.push_back(room);
  }
}

void Worker::add_schedules(const Node& node, const Known& known, Outcomes& outcomes) {
  const Family& family = (*choices_of(node.group).families)[node.family];
  const std::size_t zeros = choices_of(node.group).zeros.size();
  // The bound of the family is exact about whole backwards of one chain.
  const bool same = family.placement.whole_backwards && !family.placement.shares_ends;
  for (std::size_t schedule = 0; schedule < family.schedules.size(); ++schedule) {
    Node child = node;
    child.level = Level::Schedule;
    child.schedule = static_cast<std::uint16_t>(schedule);
    child.order = node.order + schedule * zeros;
    if (!same) {
      // The last ZeRO stage has the least optimizer.
      Node least = child;
      least.zeros = std::bit_floor(child.zeros);
      child.bound = std::max(node.bound, simulator_.lower_bound(configure(least)));
    }
    if (child.bound < known.cutoff) {
      outcomes.children.push_back(child);
    }
  }
}

void Worker::add_plans(const Node& node, const Known& known, Outcomes& outcomes) {
  std::vector<Node> fitting;
  for (unsigned zero = 0; zero < 8; ++zero) {
    if ((node.zeros >> zero & 1U) == 0) {
      continue;
    }
    Node child = node;
    child.level = Level::Plan;
    child.zeros = static_cast<std::uint8_t>(1U << zero);
    if (fits(child, configure(child), !known.found, outcomes)) {
      fitting.push_back(child);
    }
  }
  if (fitting.empty()) {
    return;
  }
  // Without data-parallel traffic ZeRO stages differ in the optimizer alone, and the last one has
  // least of it.
  const Seconds lists = simulator_.list_bound(configure(fitting.back()));
  for (Node& child : fitting) {
    child.bound = std::max(node.bound, lists);
    if (child.bound < known.cutoff) {
      outcomes.children.push_back(child);
    }
  }
}

namespace {

// Why the schedule cannot run this layout: it shards states that workers of servers, or devices
// with parts of a layer, do not share, or cannot be cut into slices or parts. Farther from a plan
// than any misfit.
std::string schedule_problem(const plan::Plan& plan) {
  for (const auto problem_of :
       {plan::servers_problem, plan::spread_attention_problem, plan::arcs_problem,
        plan::slices_problem, plan::encoder_parts_problem}) {
    if (std::string problem = problem_of(plan); !problem.empty()) {
      return problem;
    }
  }
  return "";
}

}  // namespace

bool Worker::fits(const Node& node, const plan::Plan& plan, bool exactly, Outcomes& outcomes) {
  if (std::string problem = schedule_problem(plan); !problem.empty()) {
    outcomes.refuse({node.position(), 1, 1}, problem);
    return false;
  }
  try {
    const plan::MemoryVerdict verdict =
        exactly ? simulator_.fits(plan) : simulator_.fits_or_misses(plan);
    if (verdict.fits) {
      return true;
    }
    const Overflow overflow{verdict.text, verdict.excess, node};
    if (overflow.is_closer_than(outcomes.overflow)) {
      outcomes.overflow = overflow;
    }
  } catch (const BeyondSimulatedTime&) {
    throw;
  } catch (const Error&) {  // a document that cannot go on with these costs
    if (plan.schedule_document == nullptr) {
      throw;
    }
  }
  outcomes.misfits.push_back({node.position(), 1, 1});
  return false;
}

Outcomes Worker::interval(const Node& node, int draws, const std::function<bool()>& stop) {
  Outcomes outcomes;
  const plan::Simulation run =
      simulator_.run(configure(node), {.interval_draws = draws, .stop_draws = stop});
  if (run.has_interval()) {
    outcomes.time = run.interval_low;
    outcomes.high = run.interval_high;
  }
  return outcomes;
}

plan::MemoryVerdict Worker::replay(const Node& node, ByteCount reserve, int jobs) {
  return replay_verdict(configure(node), simulator_, reserve, jobs);
}

Outcomes Worker::try_out(const Node& node) {
  Outcomes outcomes;
  return fits(node, configure(node), true, outcomes) ? judge(node) : outcomes;
}

Outcomes Worker::judge(const Node& node) {
  Outcomes outcomes;
  outcomes.time = simulator_.run(configure(node)).iteration_time;
  return outcomes;
}

}  // namespace orrery::search
