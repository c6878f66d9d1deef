// SPDX-License-Identifier: Apache-2.0
// DynaPipe's messages on channels that hold up whoever posts out of turn.
#include "search/problems/communication_plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/property/search/random_iterations.hpp"

namespace orrery::search {
namespace {

// Runs the lists of all devices with one communication stream each, on which messages go one after
// the other and wait for their other end. Which of them got stuck; passes by device.
struct Executed {
  bool stuck = false;
  std::vector<std::vector<std::pair<Action, int>>> passes;
};

Executed execute(const std::vector<std::vector<Instruction>>& lists) {
  struct Post {
    bool activation;
    bool sends;
    int micro_batch;
    int peer;
  };
  const std::size_t devices = lists.size();
  std::vector<std::size_t> next(devices, 0);
  std::vector<std::vector<Post>> posted(devices);
  std::vector<std::size_t> done(devices, 0);  // messages of its stream
  Executed result;
  result.passes.resize(devices);
  const auto has_ended = [&](std::size_t device, bool activation, bool sends, int micro_batch) {
    for (std::size_t k = 0; k < done[device]; ++k) {
      const Post& post = posted[device][k];
      if (post.activation == activation && post.sends == sends && post.micro_batch == micro_batch) {
        return true;
      }
    }
    return false;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t device = 0; device < devices; ++device) {
      for (bool runs = true; runs && next[device] < lists[device].size();) {
        const auto [action, micro_batch, peer] = lists[device][next[device]];
        switch (action) {
          case Action::SendActivationStart:
          case Action::ReceiveActivationStart:
          case Action::SendGradientStart:
          case Action::ReceiveGradientStart: {
            const bool sends =
                action == Action::SendActivationStart || action == Action::SendGradientStart;
            const bool activation =
                action == Action::SendActivationStart || action == Action::ReceiveActivationStart;
            posted[device].push_back({activation, sends, micro_batch, peer});
            break;
          }
          case Action::SendActivationWait:
            runs = has_ended(device, true, true, micro_batch);
            break;
          case Action::ReceiveActivationWait:
            runs = has_ended(device, true, false, micro_batch);
            break;
          case Action::SendGradientWait:
            runs = has_ended(device, false, true, micro_batch);
            break;
          case Action::ReceiveGradientWait:
            runs = has_ended(device, false, false, micro_batch);
            break;
          case Action::Forward:
          case Action::Backward:
            result.passes[device].emplace_back(action, micro_batch);
            break;
          case Action::OptimizerStep:
            break;
        }
        next[device] += runs ? 1 : 0;
        moved = moved || runs;
      }
    }
    for (std::size_t device = 0; device + 1 < devices; ++device) {
      const std::size_t other = device + 1;
      if (done[device] == posted[device].size() || done[other] == posted[other].size()) {
        continue;
      }
      const Post& a = posted[device][done[device]];
      const Post& b = posted[other][done[other]];
      if (a.peer == static_cast<int>(other) && b.peer == static_cast<int>(device) &&
          a.activation == b.activation && a.sends != b.sends && a.micro_batch == b.micro_batch) {
        ++done[device];
        ++done[other];
        moved = true;
      }
    }
  }
  for (std::size_t device = 0; device < devices; ++device) {
    result.stuck =
        result.stuck || next[device] < lists[device].size() || done[device] < posted[device].size();
  }
  return result;
}

TEST(CommunicationPlan, MessagesInTheOrderOfTheTimelineNeverWaitForEachOther) {
  EXPECT_TRUE(rc::check([] {
    Iteration iteration = random_iteration(10);
    iteration.model.stages = drawn(1, 6);
    const OrderedMicroBatches ordered = order_micro_batches(iteration.list, 0, iteration.model);
    const Executed run = execute(communication_plan(ordered.run));
    RC_ASSERT(!run.stuck);
    for (std::size_t device = 0; device < run.passes.size(); ++device) {
      const std::vector<sim::Pass>& list = ordered.lists.passes[device];
      RC_ASSERT(run.passes[device].size() == list.size());
      for (std::size_t k = 0; k < list.size(); ++k) {
        const bool forward = list[k].kind == sim::PassKind::Forward;
        RC_ASSERT(run.passes[device][k].first == (forward ? Action::Forward : Action::Backward));
        RC_ASSERT(run.passes[device][k].second == static_cast<int>(list[k].micro_batch));
      }
    }
  }));
}

// Every device posts what it receives when it needs it: two stages wait for each other.
TEST(CommunicationPlan, MessagesPostedWhenNeededGetStuck) {
  std::vector<std::vector<Instruction>> lists(2);
  const auto add = [&](std::size_t device, Action start, Action wait, int micro_batch) {
    const int peer = device == 0 ? 1 : 0;
    lists[device].push_back({start, micro_batch, peer});
    lists[device].push_back({wait, micro_batch, peer});
  };
  const auto receive = [&](std::size_t device, bool activation, int micro_batch) {
    add(device, activation ? Action::ReceiveActivationStart : Action::ReceiveGradientStart,
        activation ? Action::ReceiveActivationWait : Action::ReceiveGradientWait, micro_batch);
  };
  for (const int micro_batch : {0, 1}) {
    lists[0].push_back({Action::Forward, micro_batch, -1});
    add(0, Action::SendActivationStart, Action::SendActivationWait, micro_batch);
    receive(1, true, micro_batch);
    lists[1].push_back({Action::Forward, micro_batch, -1});
    lists[1].push_back({Action::Backward, micro_batch, -1});
    add(1, Action::SendGradientStart, Action::SendGradientWait, micro_batch);
  }
  for (const int micro_batch : {0, 1}) {
    receive(0, false, micro_batch);
    lists[0].push_back({Action::Backward, micro_batch, -1});
  }
  EXPECT_TRUE(execute(lists).stuck);
}

}  // namespace
}  // namespace orrery::search
