// SPDX-License-Identifier: Apache-2.0
// Laws of nodes that share resources, against a slow reference that fills progressively in long
// double at every event. Times are compared up to one picosecond of rounding a node.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/property/sim/engine_programs.hpp"

namespace orrery::sim {
namespace {

const SpecOptions kShared{.shared = true};

std::int64_t tolerance(const ProgramSpec& spec) {
  return static_cast<std::int64_t>(spec.nodes.size()) + 1;
}

bool near(SimTime a, SimTime b, std::int64_t picoseconds) {
  return std::abs(a.ps - b.ps) <= picoseconds;
}

class Reference {
 public:
  explicit Reference(const ProgramSpec& spec)
      : spec_(spec), left_(spec.nodes.size(), 0.0L), state_(spec.nodes.size(), State::Waiting) {
    start.assign(spec.nodes.size(), SimTime{-1});
    end.assign(spec.nodes.size(), SimTime{-1});
    event_.assign(spec.nodes.size(), SimTime::max());
  }

  void evaluate() {
    while (true) {
      bool any = true;
      while (any) {
        any = start_what_may();
        any = end_what_is_due() || any;
      }
      rates_ = fill();
      SimTime next = SimTime::max();
      for (NodeId node = 0; node < state_.size(); ++node) {
        if (state_[node] == State::Flowing) {
          const long double wait = std::ceil(left_[node] / rates_[node] * 1e12L - 1e-3L);
          event_[node] = now_ + SimTime{static_cast<std::int64_t>(std::max(0.0L, wait))};
        }
        next = std::min(next, event_[node]);
      }
      if (next == SimTime::max()) {
        return;
      }
      for (NodeId node = 0; node < state_.size(); ++node) {
        if (state_[node] == State::Flowing) {
          left_[node] -= rates_[node] * static_cast<long double>((next - now_).ps) * 1e-12L;
        }
      }
      now_ = next;
    }
  }

  std::vector<SimTime> start;
  std::vector<SimTime> end;

 private:
  enum class State { Waiting, Latency, Flowing, Done };

  bool start_what_may() {
    bool any = false;
    for (NodeId node = 0; node < state_.size(); ++node) {
      if (state_[node] == State::Waiting && may_start(node)) {
        state_[node] = State::Latency;
        start[node] = now_;
        event_[node] = now_ + SimTime{spec_.nodes[node].duration};
        any = true;
      }
    }
    return any;
  }

  bool end_what_is_due() {
    bool any = false;
    for (NodeId node = 0; node < state_.size(); ++node) {
      if (event_[node] != now_) {
        continue;
      }
      any = true;
      event_[node] = SimTime::max();
      if (state_[node] == State::Latency && spec_.nodes[node].bytes > 0.0) {
        state_[node] = State::Flowing;
        left_[node] = spec_.nodes[node].bytes;
      } else {
        state_[node] = State::Done;
        end[node] = now_;
      }
    }
    return any;
  }

  bool may_start(NodeId node) const {
    const auto done = [&](NodeId other) { return state_[other] == State::Done; };
    const NodeSpec& spec = spec_.nodes[node];
    if (!std::all_of(spec.inputs.begin(), spec.inputs.end(), done)) {
      return false;
    }
    for (NodeId earlier = 0; earlier < node; ++earlier) {
      const auto& others = spec_.nodes[earlier].streams;
      for (const StreamId stream : spec.streams) {
        if (!done(earlier) && std::count(others.begin(), others.end(), stream) > 0) {
          return false;
        }
      }
    }
    return true;
  }

  // All rates rise together; those that cross a full resource stop.
  std::vector<long double> fill() const {
    std::vector<long double> rates(state_.size(), 0.0L);
    std::vector<long double> free(spec_.capacities.begin(), spec_.capacities.end());
    std::vector<NodeId> rising;
    for (NodeId node = 0; node < state_.size(); ++node) {
      if (state_[node] == State::Flowing) {
        rising.push_back(node);
      }
    }
    while (!rising.empty()) {
      std::vector<long double> users(free.size(), 0.0L);
      for (const NodeId node : rising) {
        for (const ResourceId resource : spec_.nodes[node].route) {
          users[resource] += 1.0L;
        }
      }
      long double step = std::numeric_limits<long double>::infinity();
      for (std::size_t i = 0; i < free.size(); ++i) {
        step = users[i] > 0.0L ? std::min(step, free[i] / users[i]) : step;
      }
      for (const NodeId node : rising) {
        rates[node] += step;
      }
      for (std::size_t i = 0; i < free.size(); ++i) {
        free[i] -= step * users[i];
      }
      std::erase_if(rising, [&](NodeId node) {
        const auto& route = spec_.nodes[node].route;
        return std::any_of(route.begin(), route.end(), [&](ResourceId resource) {
          return free[resource] <= 1e-12L * static_cast<long double>(spec_.capacities[resource]);
        });
      });
    }
    return rates;
  }

  const ProgramSpec& spec_;
  SimTime now_{0};
  std::vector<long double> left_;
  std::vector<long double> rates_;
  std::vector<State> state_;
  std::vector<SimTime> event_;
};

TEST(EngineSharedProperty, EqualsProgressiveFilling) {
  EXPECT_TRUE(rc::check("differential, P9", [] {
    const ProgramSpec spec = any_spec(kShared);
    Reference reference(spec);
    reference.evaluate();
    const Timeline timeline = run(build(spec));
    for (std::size_t node = 0; node < spec.nodes.size(); ++node) {
      RC_ASSERT(near(timeline.start[node], reference.start[node], tolerance(spec)));
      RC_ASSERT(near(timeline.end[node], reference.end[node], tolerance(spec)));
    }
  }));
}

TEST(EngineSharedProperty, SharingCostsTimeButNeverMoreThanTakingTurns) {
  EXPECT_TRUE(rc::check("P14", [] {
    const ProgramSpec spec = any_spec(kShared);
    const Timeline timeline = run(build(spec));
    SimTime turns{0};
    for (std::size_t node = 0; node < spec.nodes.size(); ++node) {
      double rate = std::numeric_limits<double>::infinity();
      for (const ResourceId resource : spec.nodes[node].route) {
        rate = std::min(rate, spec.capacities[resource]);
      }
      const SimTime alone =
          SimTime{spec.nodes[node].duration} + to_sim_time(Seconds(spec.nodes[node].bytes / rate));
      RC_ASSERT(timeline.end[node] - timeline.start[node] + SimTime{1} >= alone);
      turns += alone;
    }
    RC_ASSERT(timeline.makespan <= turns + SimTime{tolerance(spec)});
  }));
}

TEST(EngineSharedProperty, ReplaysAreIdenticalAndTheCriticalResourceIsUsed) {
  EXPECT_TRUE(rc::check("P1", [] {
    const ProgramSpec spec = any_spec(kShared);
    const Timeline timeline = run(build(spec));
    RC_ASSERT(equal(timeline, run(build(spec))));
    RC_ASSERT(timeline.bottleneck == run(build(spec)).bottleneck);
    for (std::size_t node = 0; node < timeline.bottleneck.size(); ++node) {
      const auto& route = spec.nodes[node].route;
      const bool flows = spec.nodes[node].bytes > 0.0;
      RC_ASSERT(flows == (timeline.bottleneck[node] != kNone));
      RC_ASSERT(!flows || std::count(route.begin(), route.end(), timeline.bottleneck[node]) == 1);
    }
  }));
}

TEST(EngineSharedProperty, TimesScale) {
  EXPECT_TRUE(rc::check("P21", [] {
    ProgramSpec spec = any_spec(kShared);
    const Timeline before = run(build(spec));
    const std::int64_t factor = std::int64_t{1} << pick(1, 10);
    for (NodeSpec& node : spec.nodes) {
      node.duration *= factor;
    }
    for (double& capacity : spec.capacities) {
      capacity /= static_cast<double>(factor);
    }
    const Timeline after = run(build(spec));
    RC_ASSERT(near(after.makespan, before.makespan * factor, tolerance(spec) * factor));
  }));
}

}  // namespace
}  // namespace orrery::sim
