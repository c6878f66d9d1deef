// SPDX-License-Identifier: Apache-2.0
#include "sim/collective_time.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "sim/engine/fair_share_progress.hpp"
#include "sim/engine/flow_network.hpp"

namespace orrery::sim {
namespace {

constexpr SimTime kInactive{-1};  // of a rank without messages in a step

[[noreturn]] void fail_beyond() {
  throw BeyondSimulatedTime("", "the messages of a collective are beyond simulated time",
                            "at most 106 days can be simulated");
}

SimTime reduction(const CollectiveCosts& costs, const CollectiveMessage& message) {
  return message.reduces && costs.reduce ? costs.reduce(message.bytes) : SimTime{};
}

// When each rank may begin its next step, as long as no two messages meet on a port.
class Sweep {
 public:
  Sweep(const CollectiveCosts& costs, int ranks)
      : costs_(costs),
        ready_(static_cast<std::size_t>(ranks), costs.endpoint),
        next_(ready_.size(), kInactive),
        send_free_(ready_.size()),
        receive_free_(ready_.size()) {}

  // False when two messages would share a port, or when times grow so long that sums may not fit.
  bool add_step(const std::vector<CollectiveMessage>& messages) {
    for (const CollectiveMessage& message : messages) {
      if (message.bytes != last_bytes_) {
        last_bytes_ = message.bytes;
        last_duration_ = costs_.message(message.bytes);
      }
      if (last_duration_.ps > SimTime::max().ps / 2 - ready_[message.from].ps) {
        return false;
      }
      const SimTime begin = ready_[message.from] + costs_.latency;
      const SimTime end = ready_[message.from] + last_duration_;
      if (end > begin) {
        if (begin < send_free_[message.from] || begin < receive_free_[message.to]) {
          return false;
        }
        send_free_[message.from] = end;
        receive_free_[message.to] = end;
      }
      next_[message.from] = std::max(next_[message.from], end);
      next_[message.to] = std::max(next_[message.to], end + reduction(costs_, message));
    }
    for (std::size_t rank = 0; rank < ready_.size(); ++rank) {
      if (next_[rank] != kInactive) {
        ready_[rank] = std::max(ready_[rank], next_[rank]) + costs_.endpoint;
        next_[rank] = kInactive;
      }
    }
    return true;
  }

  SimTime last() const { return *std::max_element(ready_.begin(), ready_.end()); }

 private:
  const CollectiveCosts& costs_;
  std::vector<SimTime> ready_;
  std::vector<SimTime> next_;
  std::vector<SimTime> send_free_;
  std::vector<SimTime> receive_free_;
  ByteCount last_bytes_{-1};
  SimTime last_duration_;
};

std::optional<CollectiveRun> sweep(const CollectiveAlgorithm& algorithm, int ranks, ByteCount size,
                                   const CollectiveCosts& costs) {
  Sweep ports(costs, ranks);
  std::vector<CollectiveMessage> messages;
  std::uint64_t count = 0;
  const std::uint32_t steps = algorithm.num_steps(ranks, size);
  for (std::uint32_t step = 0; step < steps; ++step) {
    messages.clear();
    algorithm.append_step(ranks, size, step, messages);
    if (!ports.add_step(messages)) {
      return std::nullopt;
    }
    count += messages.size();
  }
  return CollectiveRun{ports.last(), count, false};
}

// The same with ports shared by max-min fairness.
class SharedPorts {
 public:
  SharedPorts(const CollectiveAlgorithm& algorithm, int ranks, ByteCount size,
              const CollectiveCosts& costs)
      : algorithm_(algorithm),
        ranks_(ranks),
        size_(size),
        costs_(costs),
        num_steps_(algorithm.num_steps(ranks, size)),
        step_of_(static_cast<std::size_t>(ranks), 0),
        began_(step_of_.size()) {
    for (int port = 0; port < 2 * ranks; ++port) {  // out of rank r: r, into it: ranks + r
      network_.add_link(costs.bandwidth.value());
    }
  }

  CollectiveRun run() {
    for (std::uint32_t rank = 0; rank < step_of_.size(); ++rank) {
      begin(rank, costs_.endpoint);
    }
    for (auto ended = network_.advance(); !ended.empty(); ended = network_.advance()) {
      for (const FlowId flow : ended) {
        end(message_of_[flow]);
      }
    }
    if (!window_.empty()) {
      fail_beyond();
    }
    return {last_, messages_, true};
  }

 private:
  struct Step {
    std::vector<CollectiveMessage> messages;  // in order of sender
    std::vector<std::uint32_t> pending;       // per rank: messages that have not ended
    std::vector<SimTime> ready;               // per rank: the latest end so far
    std::uint32_t left = 0;                   // ranks that are done with it
  };
  struct Place {
    std::uint32_t step;
    std::uint32_t message;
  };

  Step& step(std::uint32_t index) {
    while (first_step_ + window_.size() <= index) {
      window_.emplace_back();
      Step& made = window_.back();
      made.pending.resize(step_of_.size());
      made.ready.resize(step_of_.size(), kInactive);
      const auto next = static_cast<std::uint32_t>(first_step_ + window_.size() - 1);
      algorithm_.append_step(ranks_, size_, next, made.messages);
      for (const CollectiveMessage& message : made.messages) {
        ++made.pending[message.from];
        ++made.pending[message.to];
      }
    }
    return window_[index - first_step_];
  }

  // The rank, done with all earlier steps at `at`, begins the step it is in and passes those in
  // which nothing is left for it.
  void begin(std::uint32_t rank, SimTime at) {
    while (step_of_[rank] < num_steps_) {
      began_[rank] = at;
      const std::uint32_t index = step_of_[rank];
      Step& current = step(index);
      const auto first = std::lower_bound(
          current.messages.begin(), current.messages.end(), rank,
          [](const CollectiveMessage& message, std::uint32_t r) { return message.from < r; });
      for (auto message = first; message != current.messages.end() && message->from == rank;
           ++message) {
        const auto place = static_cast<std::uint32_t>(message - current.messages.begin());
        send(*message, {index, place}, at - network_.now());
      }
      if (current.pending[rank] > 0) {
        return;
      }
      at = leave(rank);
    }
    last_ = std::max(last_, at);
  }

  // Everything of the rank in its step has ended; returns when it may begin the next one.
  SimTime leave(std::uint32_t rank) {
    Step& current = step(step_of_[rank]);
    SimTime at = began_[rank];
    if (current.ready[rank] != kInactive) {
      at = std::max(at, current.ready[rank]) + costs_.endpoint;
    }
    ++step_of_[rank];
    ++current.left;
    while (!window_.empty() && window_.front().left == step_of_.size()) {
      window_.pop_front();
      ++first_step_;
    }
    return at;
  }

  void send(const CollectiveMessage& message, Place place, SimTime delay) {
    const std::array<ResourceId, 2> route = {message.from,
                                             static_cast<ResourceId>(message.to + step_of_.size())};
    const FlowId flow = network_.start(message.bytes, route, delay + costs_.latency);
    if (message_of_.size() <= flow) {
      message_of_.resize(flow + 1);
    }
    message_of_[flow] = place;
    ++messages_;
  }

  void end(Place place) {
    Step& of = step(place.step);
    const CollectiveMessage message = of.messages[place.message];
    const SimTime now = network_.now();
    of.ready[message.from] = std::max(of.ready[message.from], now);
    of.ready[message.to] = std::max(of.ready[message.to], now + reduction(costs_, message));
    for (const std::uint32_t rank : {message.from, message.to}) {
      --step(place.step).pending[rank];
    }
    for (const std::uint32_t rank : {message.from, message.to}) {
      if (step_of_[rank] == place.step && step(place.step).pending[rank] == 0) {
        const SimTime at = leave(rank);
        begin(rank, at);
      }
    }
  }

  const CollectiveAlgorithm& algorithm_;
  const int ranks_;
  const ByteCount size_;
  const CollectiveCosts& costs_;
  const std::uint32_t num_steps_;
  FlowNetwork network_;
  std::vector<std::uint32_t> step_of_;  // per rank, and when it began that step
  std::vector<SimTime> began_;
  std::deque<Step> window_;
  std::size_t first_step_ = 0;
  std::vector<Place> message_of_;
  SimTime last_;
  std::uint64_t messages_ = 0;
};

}  // namespace

SimTime CollectiveCosts::message(ByteCount bytes) const {
  const SimTime end = Progress{bytes.bytes().value(), bandwidth.value(), latency}.end();
  if (end == SimTime::max()) {
    fail_beyond();
  }
  return end;
}

CollectiveRun collective_time(const CollectiveAlgorithm& algorithm, int ranks, ByteCount size,
                              const CollectiveCosts& costs) {
  ORRERY_CHECK(ranks >= 1 && size.value() >= 0, "a collective");
  ORRERY_CHECK(costs.bandwidth.value() > 0.0 && costs.latency.ps >= 0 && costs.endpoint.ps >= 0,
               "costs of a collective");
  if (algorithm.num_steps(ranks, size) == 0) {
    return {SimTime{}, 0, false};
  }
  if (const auto alone = sweep(algorithm, ranks, size, costs)) {
    return *alone;
  }
  return SharedPorts(algorithm, ranks, size, costs).run();
}

}  // namespace orrery::sim
