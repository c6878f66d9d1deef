// SPDX-License-Identifier: Apache-2.0
// The event engine. A node starts when nothing holds it back any more: one hold for each data
// predecessor and one for each of its streams until it is at the head. Whatever ends releases the
// holds of its successors and of the next nodes of its streams.
#include "sim/engine/engine.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "sim/engine/engine_counters.hpp"
#include "sim/engine/engine_fluid.hpp"
#include "sim/engine/engine_state.hpp"
#include "sim/engine/event_queue.hpp"

namespace orrery::sim {
namespace {

class Engine {
 public:
  explicit Engine(const Program& program) : program_(program) {
    const std::size_t n = program.num_nodes();
    start_.assign(n, kNever);
    end_.assign(n, kNever);
    if (program.has_shared_demands()) {
      fluid_.emplace(program);
    }
    if (program.has_counters()) {
      gate_.emplace(program);
    }
    holds_.resize(n);
    for (NodeId node = 0; node < n; ++node) {
      holds_[node] = static_cast<std::uint32_t>(program.predecessors(node).size() +
                                                program.streams_of(node).size());
      if (holds_[node] == 0) {
        ready_.push_back(node);
      }
    }
    cursor_.assign(program.num_streams(), 0);
    for (StreamId stream = 0; stream < program.num_streams(); ++stream) {
      release_head(stream);
    }
  }

  Timeline run() {
    while (true) {
      start_ready();
      if (next_event() > now_) {
        if (fluid_ && fluid_->needs_solve()) {
          fluid_->solve(now_);
          continue;
        }
        if (next_event() == SimTime::max()) {
          break;
        }
        now_ = next_event();
      }
      end_all_of_now();
    }
    return timeline();
  }

 private:
  bool is_shared(NodeId node) const { return fluid_ && program_.work(node) > 0.0; }

  SimTime next_event() const {
    const SimTime fixed = queue_.empty() ? SimTime::max() : queue_.top().time;
    return fluid_ ? std::min(fixed, fluid_->next_end()) : fixed;
  }

  void start_ready() {
    for (const NodeId node : ready_) {
      if (gate_ && !program_.counter_waits(node).empty()) {
        gate_->arrive(node);
      } else {
        start(node);
      }
    }
    ready_.clear();
    if (gate_) {
      for (NodeId node = gate_->next(); node != kNone; node = gate_->next()) {
        start(node);
      }
    }
  }

  void start(NodeId node) {
    start_[node] = now_;
    const SimTime event = checked_sum(now_, program_.latency(node));
    if (!is_shared(node)) {
      end_[node] = event;
    }
    queue_.push({event, node});
    if (gate_) {
      gate_->apply_changes(node, true);
    }
  }

  void end_all_of_now() {
    while (!queue_.empty() && queue_.top().time == now_) {
      const NodeId node = queue_.pop().node;
      if (is_shared(node)) {
        fluid_->join(node, now_);
      } else {
        finish(node);
      }
    }
    while (fluid_ && fluid_->next_end() == now_) {
      const NodeId node = fluid_->pop();
      end_[node] = now_;
      finish(node);
    }
  }

  void finish(NodeId node) {
    ++num_finished_;
    for (const NodeId successor : program_.successors(node)) {
      release(successor);
    }
    for (const StreamId stream : program_.streams_of(node)) {
      ++cursor_[stream];
      release_head(stream);
    }
    if (gate_) {
      gate_->apply_changes(node, false);
    }
  }

  void release(NodeId node) {
    if (--holds_[node] == 0) {
      ready_.push_back(node);
    }
  }

  void release_head(StreamId stream) {
    const std::span<const NodeId> nodes = program_.nodes_of(stream);
    if (cursor_[stream] < nodes.size()) {
      release(nodes[cursor_[stream]]);
    }
  }

  Timeline timeline() {
    Timeline result;
    result.makespan = now_;
    if (num_finished_ < program_.num_nodes()) {
      result.deadlock =
          explain_deadlock(program_, end_, gate_ ? gate_->values() : program_.counters());
    }
    result.start = std::move(start_);
    result.end = std::move(end_);
    if (fluid_) {
      result.bottleneck = fluid_->take_bottlenecks();
    }
    if (gate_) {
      result.released_by = gate_->take_released_by();
    }
    result.peaks = memory_peaks(program_, result.start, result.end, result.out_of_memory);
    return result;
  }

  const Program& program_;
  SimTime now_{0};
  std::vector<SimTime> start_;
  std::vector<SimTime> end_;
  std::vector<std::uint32_t> holds_;
  std::vector<std::uint32_t> cursor_;  // per stream: position of its head
  std::vector<NodeId> ready_;          // held back by counters at most
  EventQueue queue_;
  std::optional<FluidNodes> fluid_;
  std::optional<CounterGate> gate_;
  std::size_t num_finished_ = 0;
};

}  // namespace

void time_overflow() {
  throw BeyondSimulatedTime("", "the simulated time exceeds 106 days",
                            "use fewer or shorter tasks");
}

Timeline run(const Program& program) {
  ORRERY_CHECK(program.finalized(), "a program is finalized before it runs");
  return Engine(program).run();
}

}  // namespace orrery::sim
