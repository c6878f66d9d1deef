// SPDX-License-Identifier: Apache-2.0
// Laws of the engine on random programs of fixed durations.
#include "sim/engine/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "sim/engine/critical_path.hpp"
#include "sim/engine/event_queue.hpp"
#include "tests/property/sim/engine_programs.hpp"

namespace orrery::sim {
namespace {

const SpecOptions kPlain{};
const SpecOptions kCyclic{.cycles = true};
const SpecOptions kCounters{.counters = true, .cycles = true};

// The definition, slowly: at each time the smallest node that may start starts, until none may;
// then time moves to the earliest end and everything that ends there ends.
class Naive {
 public:
  explicit Naive(const ProgramSpec& spec)
      : spec_(spec),
        counters_(spec.counters),
        start(spec.nodes.size(), SimTime{-1}),
        end(spec.nodes.size(), SimTime{-1}),
        done_(spec.nodes.size(), false) {}

  void evaluate() {
    while (true) {
      while (start_one(false) || start_one(true)) {
      }
      SimTime next = SimTime::max();
      for (std::size_t i = 0; i < end.size(); ++i) {
        if (!done_[i] && start[i].ps >= 0) {
          next = std::min(next, end[i]);
        }
      }
      if (next == SimTime::max()) {
        return;
      }
      now_ = next;
      for (NodeId node = 0; node < end.size(); ++node) {
        if (!done_[node] && start[node].ps >= 0 && end[node] == now_) {
          done_[node] = true;
          change(node, false);
        }
      }
    }
  }

 private:
  // Nodes that wait for counters start after the others.
  bool start_one(bool with_waits) {
    for (NodeId node = 0; node < spec_.nodes.size(); ++node) {
      if (start[node].ps < 0 && spec_.nodes[node].waits.empty() != with_waits && may_start(node)) {
        start[node] = now_;
        end[node] = now_ + SimTime{spec_.nodes[node].duration};
        change(node, true);
        return true;
      }
    }
    return false;
  }

  bool may_start(NodeId node) const {
    const NodeSpec& spec = spec_.nodes[node];
    for (const NodeId input : spec.inputs) {
      if (!done_[input]) {
        return false;
      }
    }
    for (NodeId earlier = 0; earlier < node; ++earlier) {
      for (const StreamId stream : spec_.nodes[earlier].streams) {
        if (!done_[earlier] && std::count(spec.streams.begin(), spec.streams.end(), stream) > 0) {
          return false;
        }
      }
    }
    return std::all_of(spec.waits.begin(), spec.waits.end(), [&](const CounterWait& wait) {
      return counters_[wait.counter] >= wait.at_least;
    });
  }

  void change(NodeId node, bool at_start) {
    for (const CounterChange& change : spec_.nodes[node].changes) {
      if (change.at_start == at_start) {
        counters_[change.counter] += change.delta;
      }
    }
  }

  const ProgramSpec& spec_;
  std::vector<std::int64_t> counters_;
  SimTime now_{0};

 public:
  std::vector<SimTime> start;
  std::vector<SimTime> end;

 private:
  std::vector<bool> done_;
};

TEST(EngineProperty, RunIsTheDefinition) {
  EXPECT_TRUE(rc::check("counters, groups, cycles", [] {
    const ProgramSpec spec = any_spec(kCounters);
    Naive naive(spec);
    naive.evaluate();
    const Timeline timeline = run(build(spec));
    RC_ASSERT(timeline.start == naive.start);
    RC_ASSERT(timeline.end == naive.end);
  }));
}

TEST(EngineProperty, SweepEqualsRunAndReplaysAreIdentical) {
  EXPECT_TRUE(rc::check("P1 and differential", [] {
    const Program program = build(any_spec(kCyclic));
    const Timeline timeline = run(program);
    RC_ASSERT(equal(timeline, run(program)));
    RC_ASSERT(equal(timeline, sweep(program)));
  }));
}

TEST(EngineProperty, EveryNodeRunsOnceOrTheDeadlockNamesItsStream) {
  EXPECT_TRUE(rc::check("P4", [] {
    const Program program = build(any_spec(kCounters));
    const Timeline timeline = run(program);
    const auto left = std::count(timeline.start.begin(), timeline.start.end(), SimTime{-1});
    RC_ASSERT((left > 0) == timeline.deadlock.has_value());
    if (!timeline.deadlock) {
      return;
    }
    RC_ASSERT(timeline.deadlock->nodes_left == static_cast<std::size_t>(left));
    RC_ASSERT(!timeline.deadlock->blocked.empty());
    for (StreamId stream = 0; stream < program.num_streams(); ++stream) {
      const auto nodes = program.nodes_of(stream);
      const bool blocked = std::any_of(nodes.begin(), nodes.end(),
                                       [&](NodeId node) { return timeline.start[node].ps < 0; });
      const std::string prefix = program.streams()[stream].name + ": ";
      const auto& lines = timeline.deadlock->blocked;
      const bool named = std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
        return line.starts_with(prefix) && line.find("waits for nothing") == std::string::npos;
      });
      RC_ASSERT(named == blocked);
    }
  }));
}

TEST(EngineProperty, StartsAreCausalAndStreamsExclusive) {
  EXPECT_TRUE(rc::check("P3 and P7", [] {
    const Program program = build(any_spec(kPlain));
    const Timeline timeline = run(program);
    RC_ASSERT(!timeline.deadlock);
    std::vector<SimTime> earliest(program.num_nodes(), SimTime{0});
    for (NodeId node = 0; node < program.num_nodes(); ++node) {
      for (const NodeId input : program.predecessors(node)) {
        earliest[node] = std::max(earliest[node], timeline.end[input]);
      }
    }
    for (StreamId stream = 0; stream < program.num_streams(); ++stream) {
      SimTime busy{0};
      const auto nodes = program.nodes_of(stream);
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (i > 0) {
          RC_ASSERT(timeline.start[nodes[i]] >= timeline.end[nodes[i - 1]]);
          earliest[nodes[i]] = std::max(earliest[nodes[i]], timeline.end[nodes[i - 1]]);
        }
        busy += program.latency(nodes[i]);
      }
      RC_ASSERT(busy <= timeline.makespan);
    }
    RC_ASSERT(timeline.start == earliest);  // not late either
  }));
}

TEST(EngineProperty, LabelsDoNotMatter) {
  EXPECT_TRUE(rc::check("P6", [] {
    const ProgramSpec spec = any_spec(kPlain);
    // A random order that keeps each stream's: repeatedly any node that is first on its streams.
    std::vector<NodeId> order;
    std::vector<bool> placed(spec.nodes.size(), false);
    while (order.size() < spec.nodes.size()) {
      std::vector<bool> taken(spec.num_streams, false);
      std::vector<NodeId> candidates;
      for (NodeId node = 0; node < spec.nodes.size(); ++node) {
        const auto& streams = spec.nodes[node].streams;
        if (!placed[node] &&
            std::none_of(streams.begin(), streams.end(), [&](StreamId s) { return taken[s]; })) {
          candidates.push_back(node);
        }
        for (const StreamId stream : streams) {
          taken[stream] = taken[stream] || !placed[node];
        }
      }
      const NodeId chosen =
          candidates[static_cast<std::size_t>(pick(0, static_cast<int>(candidates.size()) - 1))];
      placed[chosen] = true;
      order.push_back(chosen);
    }
    const Timeline original = run(build(spec));
    const Timeline relabelled = run(build(spec, order));
    RC_ASSERT(original.makespan == relabelled.makespan);
    for (NodeId place = 0; place < order.size(); ++place) {
      RC_ASSERT(original.start[order[place]] == relabelled.start[place]);
    }
    for (std::size_t pool = 0; pool < original.peaks.size(); ++pool) {
      RC_ASSERT(original.peaks[pool].bytes == relabelled.peaks[pool].bytes);
    }
  }));
}

TEST(EngineProperty, MakespanIsBetweenItsBounds) {
  EXPECT_TRUE(rc::check("P14", [] {
    const Program program = build(any_spec(kCounters));
    const Timeline timeline = run(program);
    if (timeline.deadlock) {
      return;
    }
    SimTime sum{0};
    std::vector<SimTime> chain(program.num_nodes(), SimTime{-1});
    const std::function<SimTime(NodeId)> longest = [&](NodeId node) {
      if (chain[node].ps < 0) {
        SimTime before{0};
        for (const NodeId input : program.predecessors(node)) {
          before = std::max(before, longest(input));
        }
        chain[node] = before + program.latency(node);
      }
      return chain[node];
    };
    for (NodeId node = 0; node < program.num_nodes(); ++node) {
      sum += program.latency(node);
      RC_ASSERT(longest(node) <= timeline.makespan);
    }
    RC_ASSERT(timeline.makespan <= sum);
  }));
}

TEST(EngineProperty, PeaksAreTheLargestSumOfLiveBuffers) {
  EXPECT_TRUE(rc::check("P15", [] {
    const ProgramSpec spec = any_spec(kCyclic);
    const Program program = build(spec);
    const Timeline timeline = run(program);
    const auto live_at = [&](PoolId pool, SimTime time) {
      std::int64_t bytes = 0;
      for (const BufferSpec& buffer : spec.buffers) {
        const SimTime from =
            buffer.producer == kNone ? SimTime{0} : timeline.start[buffer.producer];
        SimTime until = buffer.consumers.empty() ? SimTime::max() : SimTime{0};
        for (const NodeId consumer : buffer.consumers) {
          const SimTime end = timeline.end[consumer];
          until = std::max(until, end.ps < 0 ? SimTime::max() : end);
        }
        if (buffer.pool == pool && from.ps >= 0 && from <= time && time < until) {
          bytes += buffer.bytes;
        }
      }
      return bytes;
    };
    std::vector<SimTime> times = timeline.start;
    times.push_back(SimTime{0});
    std::sort(times.begin(), times.end());
    SimTime first_failure = SimTime::max();
    for (PoolId pool = 0; pool < spec.num_pools; ++pool) {
      std::int64_t peak = 0;
      SimTime at{0};
      for (const SimTime time : times) {
        if (time.ps >= 0 && live_at(pool, time) > peak) {
          peak = live_at(pool, time);
          at = time;
        }
        if (time.ps >= 0 && live_at(pool, time) > 60) {
          first_failure = std::min(first_failure, time);
        }
      }
      RC_ASSERT(timeline.peaks[pool].bytes == ByteCount(peak));
      RC_ASSERT(timeline.peaks[pool].at == at);
      ByteCount by_category;
      for (const ByteCount bytes : timeline.peaks[pool].by_category) {
        by_category += bytes;
      }
      RC_ASSERT(by_category == ByteCount(peak));
    }
    RC_ASSERT(timeline.out_of_memory.has_value() == (first_failure != SimTime::max()));
    if (timeline.out_of_memory) {
      RC_ASSERT(timeline.out_of_memory->at == first_failure);
    }
  }));
}

TEST(EngineProperty, TimesScaleExactly) {
  EXPECT_TRUE(rc::check("P21, scaling", [] {
    ProgramSpec spec = any_spec(kCounters);
    const Timeline before = run(build(spec));
    const std::int64_t factor = std::int64_t{1} << pick(1, 20);
    for (NodeSpec& node : spec.nodes) {
      node.duration *= factor;
    }
    const Timeline after = run(build(spec));
    RC_ASSERT(after.makespan == before.makespan * factor);
    for (std::size_t node = 0; node < spec.nodes.size(); ++node) {
      RC_ASSERT(after.start[node].ps < 0 || after.start[node] == before.start[node] * factor);
    }
  }));
}

TEST(EngineProperty, SlackIsExactlyWhatANodeCanGrow) {
  EXPECT_TRUE(rc::check("P21, slack", [] {
    ProgramSpec spec = any_spec(kPlain);
    RC_PRE(!spec.nodes.empty());
    const Program program = build(spec);
    const Timeline before = run(program);
    const std::vector<SimTime> slacks = slack(program, before);
    const auto node = static_cast<std::size_t>(pick(0, static_cast<int>(spec.nodes.size()) - 1));
    RC_ASSERT(slacks[node].ps >= 0);
    spec.nodes[node].duration += slacks[node].ps;
    RC_ASSERT(run(build(spec)).makespan == before.makespan);
    const int excess = pick(1, 9);
    spec.nodes[node].duration += excess;
    RC_ASSERT(run(build(spec)).makespan == before.makespan + SimTime{excess});
  }));
}

TEST(EngineProperty, LongerNodesNeverShortenTheMakespan) {
  EXPECT_TRUE(rc::check("P19", [] {
    ProgramSpec spec = any_spec(kPlain);
    RC_PRE(!spec.nodes.empty());
    const SimTime before = run(build(spec)).makespan;
    const auto node = static_cast<std::size_t>(pick(0, static_cast<int>(spec.nodes.size()) - 1));
    spec.nodes[node].duration += pick(0, 9);
    RC_ASSERT(run(build(spec)).makespan >= before);
  }));
}

TEST(EngineProperty, WhatIsUnusedChangesNothing) {
  EXPECT_TRUE(rc::check("P22", [] {
    ProgramSpec spec = any_spec(kCounters);
    const Timeline before = run(build(spec));
    ++spec.num_streams;
    spec.counters.push_back(0);
    spec.capacities.push_back(1e9);
    const Timeline after = run(build(spec));
    RC_ASSERT(equal(before, after));
  }));
}

TEST(EngineProperty, TheCriticalPathCoversTheMakespan) {
  EXPECT_TRUE(rc::check("critical path", [] {
    const Program program = build(any_spec(kCounters));
    const Timeline timeline = run(program);
    SimTime reached{0};
    for (const PathStep& step : critical_path(program, timeline)) {
      RC_ASSERT(step.from == reached);
      RC_ASSERT(step.from == timeline.start[step.node]);
      RC_ASSERT(step.to == timeline.end[step.node] || step.to == step.from);
      reached = step.to;
    }
    RC_ASSERT(reached == timeline.makespan);
  }));
}

TEST(EngineProperty, TheQueueEqualsASortedVector) {
  EXPECT_TRUE(rc::check("P5", [] {
    EventQueue queue;
    std::vector<Event> reference;
    for (int step = pick(0, 200); step > 0; --step) {
      if (pick(0, 2) < 2) {
        const Event event{{pick(0, 20)}, static_cast<NodeId>(pick(0, 1000))};
        queue.push(event);
        reference.insert(std::upper_bound(reference.begin(), reference.end(), event), event);
      } else if (!reference.empty()) {
        RC_ASSERT(queue.top() == reference.front());
        RC_ASSERT(queue.pop() == reference.front());
        reference.erase(reference.begin());
      }
      RC_ASSERT(queue.size() == reference.size());
    }
    for (const Event& event : reference) {
      RC_ASSERT(queue.pop() == event);
    }
    RC_ASSERT(queue.empty());
  }));
}

}  // namespace
}  // namespace orrery::sim
