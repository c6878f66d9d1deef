// SPDX-License-Identifier: Apache-2.0
#include "plan/block/joined_steps.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "plan/block/cost.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::plan {

namespace {

bool is_routed(const Step& step) { return step.collective && step.axis == Axis::Expert; }
std::size_t stream_of(const Step& step) { return is_routed(step) ? 1 : 0; }

// One of the two passes, while the steps of both are put in order.
class PassInLine {
 public:
  explicit PassInLine(const std::vector<Step>& steps)
      : steps_(steps), behind_(steps.size()), end_(steps.size(), -1.0) {
    for (std::size_t index = 0; index < steps.size(); ++index) {
      waiting_[stream_of(steps[index])].push_back(index);
    }
    for (std::size_t index = steps.size(); index-- > 0;) {
      behind_[index] += steps[index].time.value();
      for (const int before : steps[index].after) {
        double& most = behind_[static_cast<std::size_t>(before)];
        most = std::max(most, behind_[index]);
      }
    }
  }

  // The next step of a stream: when what it waits for has ended; negative while that is not known.
  struct Next {
    std::size_t index = 0;
    double ready = -1.0;
    double behind = 0;
  };
  Next next(std::size_t stream) const {
    if (at_[stream] == waiting_[stream].size()) {
      return {};
    }
    Next next{waiting_[stream][at_[stream]], 0.0, 0.0};
    next.behind = behind_[next.index];
    for (const int before : steps_[next.index].after) {
      const double end = end_[static_cast<std::size_t>(before)];
      if (end < 0) {
        return {};
      }
      next.ready = std::max(next.ready, end);
    }
    return next;
  }
  void take(std::size_t stream, std::size_t index, double end) {
    ++at_[stream];
    end_[index] = end;
  }
  const Step& step(std::size_t index) const { return steps_[index]; }

 private:
  const std::vector<Step>& steps_;
  std::vector<double> behind_;  // seconds from a step's start to the end of the pass
  std::vector<double> end_;     // of the steps that have been taken
  std::array<std::vector<std::size_t>, 2> waiting_;
  std::array<std::size_t, 2> at_{};
};

struct Choice {
  std::size_t pass = 0;
  std::size_t index = 0;
};

// The steps of both passes in the order in which they are issued.
std::vector<Choice> issue_order(const std::vector<Step>& forward,
                                const std::vector<Step>& backward) {
  std::array<PassInLine, 2> passes{PassInLine(forward), PassInLine(backward)};
  std::array<double, 2> free{};  // by stream
  std::vector<Choice> order;
  while (order.size() < forward.size() + backward.size()) {
    Choice best;
    std::size_t best_stream = 0;
    double best_start = -1.0;
    double best_behind = 0;
    for (std::size_t pass = 0; pass < 2; ++pass) {
      for (std::size_t stream = 0; stream < 2; ++stream) {
        const PassInLine::Next next = passes[pass].next(stream);
        const double start = std::max(next.ready, free[stream]);
        const bool first = best_start < 0 || start < best_start ||
                           (start == best_start && next.behind > best_behind);
        if (next.ready >= 0 && first) {
          best = {pass, next.index};
          best_stream = stream;
          best_start = start;
          best_behind = next.behind;
        }
      }
    }
    ORRERY_CHECK(best_start >= 0, "a pass's steps depend on later ones");
    PassInLine& pass = passes[best.pass];
    free[best_stream] = best_start + pass.step(best.index).time.value();
    pass.take(best_stream, best.index, free[best_stream]);
    order.push_back(best);
  }
  return order;
}

}  // namespace

bool routes_tokens(const std::vector<Step>& steps) {
  return std::any_of(steps.begin(), steps.end(), is_routed);
}

std::vector<Step> in_turn(const std::vector<Step>& first, const std::vector<Step>& then) {
  std::vector<Step> list = first;
  const int shift = static_cast<int>(first.size());
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

SimTime joined_time(const std::vector<Step>& forward, const std::vector<Step>& backward,
                    const costmodel::DeviceModel& device) {
  sim::Program program;
  const std::array<sim::StreamId, 2> streams = {
      program.add_stream(0, sim::StreamKind::Compute, "compute"),
      program.add_stream(0, sim::StreamKind::Collective, "comm")};
  const sim::ResourceId processors = program.add_resource(1.0, "streaming multiprocessors");
  const std::array<sim::Demand, 2> demands = {sim::Demand{processors, 1.0},
                                              sim::Demand{processors, collective_demand(device)}};
  const std::array<const std::vector<Step>*, 2> passes = {&forward, &backward};
  std::array<std::vector<sim::NodeId>, 2> nodes;
  nodes[0].resize(forward.size());
  nodes[1].resize(backward.size());
  for (const auto& [pass, index] : issue_order(forward, backward)) {
    const Step& step = (*passes[pass])[index];
    const std::size_t stream = stream_of(step);
    const sim::NodeId node =
        program.add_shared_work(streams[stream], SimTime{}, step.time, {&demands[stream], 1}, {});
    for (const int before : step.after) {
      program.depend(node, nodes[pass][static_cast<std::size_t>(before)]);
    }
    nodes[pass][index] = node;
  }
  program.finalize();
  const sim::Timeline timeline = sim::run(program);
  ORRERY_CHECK(!timeline.deadlock, "the steps of two passes depend on later ones");
  return timeline.makespan;
}

}  // namespace orrery::plan
