// SPDX-License-Identifier: Apache-2.0
#include "plan/block/group_steps.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/block/cost.hpp"

namespace orrery::plan {

namespace {

// By step and one past the last: whether a stretch begins there. In a list whose steps all follow
// one another what a step waits for beside the one before it is over already.
std::vector<bool> stretch_starts(const std::vector<Step>& steps) {
  std::vector<bool> starts(steps.size() + 1, false);
  const bool serial = is_serial(steps);
  for (std::size_t index = 0; index < steps.size(); ++index) {
    if (steps[index].collective) {
      starts[index] = starts[index + 1] = true;
    }
    for (const int before : serial ? std::vector<int>() : steps[index].after) {
      const auto at = static_cast<std::size_t>(before);
      if (steps[at].collective && !steps[index].collective) {
        starts[index] = true;
      } else if (!steps[at].collective && steps[index].collective) {
        starts[at + 1] = true;
      }
    }
  }
  return starts;
}

Seconds time_of(const std::vector<Step>& steps, std::size_t begin, std::size_t end) {
  Seconds time;
  for (std::size_t index = begin; index < end; ++index) {
    time += steps[index].time;
  }
  return time;
}

// The steps from `begin` to before `end`, as a list of their own.
std::vector<Step> part_of(const std::vector<Step>& steps, std::size_t begin, std::size_t end) {
  const int shift = static_cast<int>(begin);
  std::vector<Step> part(steps.begin() + shift, steps.begin() + static_cast<std::ptrdiff_t>(end));
  for (Step& step : part) {
    std::erase_if(step.after, [shift](int before) { return before < shift; });
    for (int& before : step.after) {
      before -= shift;
    }
  }
  return part;
}

}  // namespace

std::vector<Step> at_pace_of_group(const std::vector<const std::vector<Step>*>& ranks) {
  const std::vector<Step>& first = *ranks.front();
  std::vector<Step> group = first;
  if (ranks.size() == 1) {
    return group;
  }
  for (const std::vector<Step>* rank : ranks) {
    ORRERY_CHECK(rank->size() == first.size(), "ranks of a group have different steps");
  }
  const std::vector<bool> starts = stretch_starts(first);
  for (std::size_t begin = 0; begin < first.size();) {
    std::size_t end = begin + 1;
    while (end < first.size() && !starts[end]) {
      ++end;
    }
    const auto slower = [&](const std::vector<Step>* a, const std::vector<Step>* b) {
      return time_of(*a, begin, end) < time_of(*b, begin, end);
    };
    const std::vector<Step>& slowest = **std::max_element(ranks.begin(), ranks.end(), slower);
    std::copy(slowest.begin() + static_cast<std::ptrdiff_t>(begin),
              slowest.begin() + static_cast<std::ptrdiff_t>(end),
              group.begin() + static_cast<std::ptrdiff_t>(begin));
    begin = end;
  }
  return group;
}

BlockSteps at_pace_of_group(const std::vector<BlockSteps>& ranks) {
  const auto list = [&](std::vector<Step> BlockSteps::*member) {
    std::vector<const std::vector<Step>*> lists;
    for (const BlockSteps& rank : ranks) {
      lists.push_back(&(rank.*member));
    }
    return at_pace_of_group(lists);
  };
  return {list(&BlockSteps::forward), list(&BlockSteps::backward), list(&BlockSteps::recompute)};
}

std::vector<Step> waiting_for_replicas(const std::vector<const std::vector<Step>*>& replicas,
                                       const StretchTime& alone) {
  std::vector<Step> steps = *replicas.front();
  std::vector<std::size_t> exchanges;
  for (std::size_t index = 0; index < steps.size(); ++index) {
    if (is_routed(steps[index])) {
      exchanges.push_back(index);
    }
  }
  const auto between = [&](std::size_t replica, std::size_t begin, std::size_t end) {
    return alone(replica, part_of(*replicas[replica], begin, end));
  };
  for (std::size_t place = 0; place < exchanges.size(); ++place) {
    const auto on_the_way = [&](std::size_t replica) {
      if (place > 0) {
        return between(replica, exchanges[place - 1] + 1, exchanges[place]);
      }
      return between(replica, 0, exchanges.front()) +
             between(replica, exchanges.back() + 1, steps.size());
    };
    Seconds slowest;
    for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
      ORRERY_CHECK(replicas[replica]->size() == steps.size(), "replicas have different steps");
      slowest = std::max(slowest, on_the_way(replica));
    }
    steps[exchanges[place]].time += slowest - on_the_way(0);
  }
  return steps;
}

}  // namespace orrery::plan
