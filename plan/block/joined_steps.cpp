// SPDX-License-Identifier: Apache-2.0
#include "plan/block/joined_steps.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "plan/block/cost.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::plan {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// What a pass keeps in its own order: kernels and what stops them, routed tokens, weight gradients.
enum Queue : std::size_t { kKernels, kRouted, kWeightGrads };
constexpr std::size_t kQueues = 3;

Queue queue_of(const Step& step) {
  return is_routed(step)                          ? kRouted
         : step.pass == sim::PassKind::WeightGrad ? kWeightGrads
                                                  : kKernels;
}
std::size_t stream_of(Queue queue) { return queue == kRouted ? 1 : 0; }

// One of the two passes, while the steps of both are put in order.
class PassInLine {
 public:
  explicit PassInLine(const std::vector<Step>& steps)
      : steps_(steps),
        behind_(steps.size()),
        until_exchange_(steps.size(), kNever),
        end_(steps.size(), -1.0),
        before_(steps.size(), -1) {
    for (std::size_t index = 0; index < steps.size(); ++index) {
      const Queue queue = queue_of(steps[index]);
      const std::vector<std::size_t>& kernels = waiting_[kKernels];
      if (queue == kWeightGrads && !kernels.empty()) {
        before_[index] = static_cast<int>(kernels.back());
      }
      waiting_[queue].push_back(index);
    }
    for (std::size_t index = steps.size(); index-- > 0;) {
      behind_[index] += steps[index].time.value();
      for (const int before : steps[index].after) {
        double& most = behind_[static_cast<std::size_t>(before)];
        most = std::max(most, behind_[index]);
      }
    }
    double until = kNever;
    for (std::size_t index = steps.size(); index-- > 0;) {
      const Queue queue = queue_of(steps[index]);
      if (queue != kWeightGrads) {
        until = queue == kRouted ? 0.0 : until + steps[index].time.value();
        until_exchange_[index] = until;
      }
    }
  }

  // The next step of a queue: when what it waits for has ended; negative while that is not known.
  struct Next {
    std::size_t index = 0;
    double ready = -1.0;
    double behind = 0;
    double until_exchange = kNever;
  };
  Next next(Queue queue) const {
    if (at_[queue] == waiting_[queue].size()) {
      return {};
    }
    Next next;
    next.index = waiting_[queue][at_[queue]];
    next.ready = 0.0;
    next.behind = behind_[next.index];
    next.until_exchange = until_exchange_[next.index];
    bool known = true;
    for_awaited(next.index, [&](std::size_t before) {
      known = known && end_[before] >= 0;
      next.ready = std::max(next.ready, end_[before]);
    });
    return known ? next : Next{};
  }
  void take(Queue queue, std::size_t index, double end) {
    ++at_[queue];
    end_[index] = end;
  }
  const Step& step(std::size_t index) const { return steps_[index]; }
  // What a step waits for: a weight gradient also for the kernel before it, which may have made
  // what it reads.
  template <typename Visit>
  void for_awaited(std::size_t index, Visit visit) const {
    for (const int before : steps_[index].after) {
      visit(static_cast<std::size_t>(before));
    }
    if (before_[index] >= 0) {
      visit(static_cast<std::size_t>(before_[index]));
    }
  }

 private:
  const std::vector<Step>& steps_;
  std::vector<double> behind_;  // seconds from a step's start to the end of the pass
  // Seconds of kernels from a step's start to the next tokens that travel; weight gradients lead to
  // none.
  std::vector<double> until_exchange_;
  std::vector<double> end_;  // of the steps that have been taken
  std::vector<int> before_;  // of a weight gradient: the last kernel before it
  std::array<std::vector<std::size_t>, kQueues> waiting_;
  std::array<std::size_t, kQueues> at_{};
};

struct Choice {
  std::size_t pass = 0;
  Queue queue = kKernels;
  PassInLine::Next next;
  double start = -1.0;

  // What can start first; of equals what leads to an exchange soonest, so that the other pass's
  // kernels run beside it; of those what has most behind it.
  bool before(const Choice& other) const {
    return std::tuple(start, next.until_exchange, -next.behind) <
           std::tuple(other.start, other.next.until_exchange, -other.next.behind);
  }
};

Choice first_of(const std::array<PassInLine, 2>& passes, const std::array<double, 2>& free) {
  Choice best;
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    for (const Queue queue : {kKernels, kRouted, kWeightGrads}) {
      const PassInLine::Next next = passes[pass].next(queue);
      const Choice choice{pass, queue, next, std::max(next.ready, free[stream_of(queue)])};
      if (next.ready >= 0 && (best.start < 0 || choice.before(best))) {
        best = choice;
      }
    }
  }
  ORRERY_CHECK(best.start >= 0, "a pass's steps depend on later ones");
  return best;
}

// The steps of both passes in the order in which they are issued.
std::vector<Choice> issue_order(std::array<PassInLine, 2>& passes, std::size_t steps) {
  std::array<double, 2> free{};  // by stream
  std::vector<Choice> order;
  while (order.size() < steps) {
    order.push_back(first_of(passes, free));
    const Choice& choice = order.back();
    PassInLine& pass = passes[choice.pass];
    const double end = choice.start + pass.step(choice.next.index).time.value();
    free[stream_of(choice.queue)] = end;
    pass.take(choice.queue, choice.next.index, end);
  }
  return order;
}

}  // namespace

std::vector<Step> in_turn(std::vector<Step> first, const std::vector<Step>& then) {
  const int shift = static_cast<int>(first.size());
  std::vector<Step> list = std::move(first);
  for (const Step& step : then) {
    list.push_back(step);
    for (int& before : list.back().after) {
      before += shift;
    }
    if (step.after.empty() && shift > 0) {
      list.back().after.push_back(shift - 1);
    }
  }
  return list;
}

JoinedPasses join_passes(const std::vector<Step>& forward, const std::vector<Step>& backward,
                         const costmodel::DeviceModel& device) {
  sim::Program program;
  const std::array<sim::StreamId, 2> streams = {
      program.add_stream(0, sim::StreamKind::Compute, "compute"),
      program.add_stream(0, sim::StreamKind::Collective, "comm")};
  const sim::ResourceId processors = program.add_resource(1.0, "streaming multiprocessors");
  const std::array<sim::Demand, 2> demands = {sim::Demand{processors, 1.0},
                                              sim::Demand{processors, collective_demand(device)}};
  std::array<PassInLine, 2> passes{PassInLine(forward), PassInLine(backward)};
  std::array<std::vector<sim::NodeId>, 2> nodes;
  nodes[0].resize(forward.size());
  nodes[1].resize(backward.size());
  std::vector<sim::NodeId> computing;
  for (const Choice& choice : issue_order(passes, forward.size() + backward.size())) {
    const std::size_t stream = stream_of(choice.queue);
    const PassInLine& pass = passes[choice.pass];
    const sim::NodeId node = program.add_shared_work(
        streams[stream], SimTime{}, pass.step(choice.next.index).time, {&demands[stream], 1}, {});
    pass.for_awaited(choice.next.index,
                     [&](std::size_t before) { program.depend(node, nodes[choice.pass][before]); });
    nodes[choice.pass][choice.next.index] = node;
    if (choice.queue != kRouted) {
      computing.push_back(node);
    }
  }
  program.finalize();
  const sim::Timeline timeline = sim::run(program);
  ORRERY_CHECK(!timeline.deadlock, "the steps of two passes depend on later ones");
  JoinedPasses joined{timeline.makespan, timeline.makespan};
  for (const sim::NodeId node : computing) {
    joined.exposed -= timeline.end[node] - timeline.start[node];
  }
  return joined;
}

}  // namespace orrery::plan
