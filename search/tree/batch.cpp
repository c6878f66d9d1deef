// SPDX-License-Identifier: Apache-2.0
#include "search/tree/batch.hpp"

#include <limits>

namespace orrery::search {

namespace {

constexpr std::uint64_t kOfBound = 8;
constexpr std::uint64_t kOfAnswer = 8000;  // draws of an interval, a replay of memory

}  // namespace

void Outcomes::refuse(const Run& plans, const std::string& problem) {
  const Overflow impossible{problem, ByteCount(std::numeric_limits<std::int64_t>::max())};
  if (impossible.is_closer_than(overflow)) {
    overflow = impossible;
  }
  misfits.push_back(plans);
}

// Groups: by families and layouts. Lists and their evaluation: by passes.
std::uint64_t Tree::work_of(Task task, const Node& node) const {
  if (task == Task::Interval || task == Task::Replay) {
    return kOfAnswer;
  }
  const Group& group = groups[node.group];
  if (node.level == Level::Group) {
    const bool is_last = node.group + 1 == groups.size();
    const std::uint64_t members = is_last ? static_cast<std::uint64_t>(space.num_members(group))
                                          : first_order[node.group + 1] - first_order[node.group];
    return task == Task::Bound ? kOfBound : 10 + members / 64;
  }
  if (node.level <= Level::Room) {
    return node.level == Level::Family ? 1 : 4;
  }
  const auto passes = static_cast<std::uint64_t>(micro_batches(group) * group.pp *
                                                 space.families(group)[node.family].chunks);
  const std::uint64_t lists = 12 + passes / 64;
  const std::uint64_t times = 25 + passes / 256;
  if (task == Task::TryOut) {
    return lists + times;
  }
  return node.is_plan() ? times : lists;
}

}  // namespace orrery::search
