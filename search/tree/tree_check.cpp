// SPDX-License-Identifier: Apache-2.0
#include "search/tree/tree_check.hpp"

#include <bit>
#include <cmath>
#include <tuple>

namespace orrery::search {

namespace {

constexpr std::size_t kMaxOverflowText = 4000;

bool is_time(Seconds time) { return std::isfinite(time.value()) && time > Seconds(); }

bool suits(Task task, const Node& node) {
  switch (task) {
    case Task::Bound:
      return node.level == Level::Group;
    case Task::Visit:
      return true;
    default:
      return node.is_plan();
  }
}

// Whether such a task ends with this time, or without any.
bool has_right_time(Task task, const Node& asked, const Outcomes& outcomes) {
  const std::optional<Seconds>& time = outcomes.time;
  switch (task) {
    case Task::Bound:
      return time && *time >= Seconds();
    case Task::TryOut:
      return time ? is_time(*time) : outcomes.misfits.size() == 1;
    case Task::Visit:
      return time ? asked.is_plan() && is_time(*time)
                  : !asked.is_plan() || outcomes.misfits.size() == 1;
    case Task::Interval:
      return !time || (is_time(*time) && is_time(outcomes.high) && *time <= outcomes.high);
    case Task::Replay:
      return !time;
  }
  return false;
}

}  // namespace

const TreeCheck::Of& TreeCheck::of(std::uint32_t group) {
  if (!of_ || of_->group != group) {
    const Space& space = tree_.space;
    const Group& degrees = tree_.groups[group];
    of_ = Of{group, space.layouts(degrees).size(), space.zero_stages(degrees).size(),
             static_cast<std::uint64_t>(space.num_members(degrees)), &space.families(degrees)};
  }
  return *of_;
}

std::uint64_t TreeCheck::schedules(const Node& node) {
  return (*of(node.group).families)[node.family].schedules.size();
}

std::uint64_t TreeCheck::num_plans(const Node& node) {
  switch (node.level) {
    case Level::Group:
      return of(node.group).members;
    case Level::Family:
      return schedules(node) * of(node.group).zeros;
    case Level::Room:
      return schedules(node) * static_cast<std::uint64_t>(std::popcount(node.zeros));
    default:
      return static_cast<std::uint64_t>(std::popcount(node.zeros));
  }
}

void TreeCheck::node(const ByteReader& in, const Node& node) {
  const auto wrong = [&] { in.fail("holds a node that is not of this space"); };
  if (node.group >= tree_.groups.size()) {
    wrong();
  }
  const std::uint64_t first = tree_.first_order[node.group];
  if (node.level == Level::Group) {
    if (node.order != first || std::isnan(node.bound.value())) {
      wrong();
    }
    return;
  }
  const auto& [group, layouts, zeros, members, families] = of(node.group);
  if (node.layout >= layouts || node.family >= families->size()) {
    wrong();
  }
  const Family& family = (*families)[node.family];
  const bool has_zeros =
      node.level == Level::Family ? node.zeros == 0 : node.zeros != 0 && node.zeros < (1U << zeros);
  const bool has_one = !node.is_plan() || std::has_single_bit(node.zeros);
  const std::uint64_t number = schedules(node);
  const bool has_schedule =
      node.level >= Level::Schedule ? node.schedule < number : node.schedule == 0;
  const std::uint64_t order = first + (static_cast<std::uint64_t>(family.first) * layouts +
                                       node.layout * number + node.schedule) *
                                          zeros;
  if (!has_zeros || !has_one || !has_schedule || node.order != order ||
      !std::isfinite(node.bound.value())) {
    wrong();
  }
}

void TreeCheck::question(const ByteReader& in, Task task, const Node& node) {
  this->node(in, node);
  if (!suits(task, node)) {
    in.fail("asks of a node what it cannot be asked");
  }
}

void TreeCheck::child(const ByteReader& in, const Node& asked, const Node& child) {
  node(in, child);
  const bool same_family =
      asked.level == Level::Group || (child.layout == asked.layout && child.family == asked.family);
  const bool same_schedule = asked.level < Level::Schedule || child.schedule == asked.schedule;
  const bool same_zeros = asked.level < Level::Room || (child.zeros & ~asked.zeros) == 0;
  const bool next_level = static_cast<int>(child.level) == static_cast<int>(asked.level) + 1;
  if (child.group != asked.group || !same_family || !same_schedule || !same_zeros || !next_level) {
    in.fail("holds a node that does not follow from what was asked");
  }
}

// Their positions are those of plans below the node.
std::uint64_t TreeCheck::num_misfits(const ByteReader& in, const Node& asked,
                                     const Outcomes& outcomes) {
  const std::uint64_t zeros = of(asked.group).zeros;
  const std::uint64_t range = asked.level == Level::Group     ? of(asked.group).members
                              : asked.level < Level::Schedule ? schedules(asked) * zeros
                                                              : zeros;
  std::uint64_t misfits = 0;
  for (const Outcomes::Run& run : outcomes.misfits) {
    const std::uint64_t at = run.first - asked.order;  // huge when it is before
    if (run.count == 0 || run.step == 0 || at >= range ||
        run.count - 1 > (range - 1 - at) / run.step) {
      in.fail("counts plans that are not below the node");
    }
    misfits += run.count;
    if (misfits > range) {
      in.fail("counts more plans than are below the node");
    }
  }
  return misfits;
}

void TreeCheck::overflow(const ByteReader& in, const Overflow& overflow) {
  if (overflow.text.size() > kMaxOverflowText) {
    in.fail("explains a misfit at too much length");
  }
  if (overflow.misfit) {
    node(in, *overflow.misfit);
    if (!overflow.misfit->is_plan()) {
      in.fail("holds a misfit that is no plan");
    }
  }
}

void TreeCheck::answer(const ByteReader& in, Task task, const Node& asked,
                       const Outcomes& outcomes) {
  if (!has_right_time(task, asked, outcomes)) {
    in.fail("holds a time that cannot be");
  }
  const bool goes_on = task == Task::Visit && !asked.is_plan();
  const bool is_misfit = (task == Task::TryOut || task == Task::Visit) && !outcomes.time;
  const bool may_miss = goes_on || is_misfit;
  if ((!goes_on && !outcomes.children.empty()) || (!may_miss && !outcomes.misfits.empty())) {
    in.fail("answers what it was not asked");
  }
  overflow(in, outcomes.overflow);
  if (!may_miss) {
    return;
  }
  std::uint64_t plans = num_misfits(in, asked, outcomes);
  const Node* before = nullptr;
  const auto key = [](const Node& of) {
    return std::tie(of.layout, of.family, of.schedule, of.zeros);
  };
  for (const Node& one : outcomes.children) {
    child(in, asked, one);
    if (before != nullptr && key(*before) >= key(one)) {
      in.fail("holds a node twice");
    }
    before = &one;
    plans += num_plans(one);
  }
  if (plans > (task == Task::TryOut ? 1 : num_plans(asked))) {
    in.fail("counts more plans than are below the node");
  }
}

}  // namespace orrery::search
