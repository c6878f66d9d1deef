// SPDX-License-Identifier: Apache-2.0
// Exhaustive twins of planners on tiny problems: tessel, crosspipe, zero-bubble.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

// A chain of blocks on two devices, each on one or both.
struct TinyBlock {
  std::vector<int> devices;
  int time = 1;
  int memory = 0;
};

// Activations held on each device while the body repeats for long, instant by instant.
bool fits_memory(const std::vector<TinyBlock>& blocks, const std::vector<int>& starts, int period,
                 int cap) {
  constexpr int kRepetitions = 12;
  for (int device = 0; device < 2; ++device) {
    for (int t = (kRepetitions - 2) * period; t < (kRepetitions - 1) * period; ++t) {
      int held = 0;
      for (std::size_t b = 0; b < blocks.size(); ++b) {
        const auto& on = blocks[b].devices;
        for (int k = 0; k < kRepetitions; ++k) {
          const int instant = starts[b] + k * period + (blocks[b].memory < 0 ? blocks[b].time : 0);
          held +=
              std::count(on.begin(), on.end(), device) > 0 && instant <= t ? blocks[b].memory : 0;
        }
      }
      if (held > cap) {
        return false;
      }
    }
  }
  return true;
}

bool runs_apart(const std::vector<TinyBlock>& blocks, const std::vector<int>& starts, int period) {
  for (int device = 0; device < 2; ++device) {
    std::vector<int> busy(static_cast<std::size_t>(period), 0);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const auto& on = blocks[b].devices;
      for (int t = 0; std::count(on.begin(), on.end(), device) > 0 && t < blocks[b].time; ++t) {
        ++busy[static_cast<std::size_t>((starts[b] + t) % period)];
      }
    }
    if (*std::max_element(busy.begin(), busy.end()) > 1) {
      return false;
    }
  }
  return true;
}

bool has_body(const std::vector<TinyBlock>& blocks, int period, int in_flight, int cap) {
  bool found = false;
  std::vector<int> starts;
  const std::function<void(int)> place = [&](int ready) {
    if (starts.size() == blocks.size()) {
      found =
          found || (runs_apart(blocks, starts, period) && fits_memory(blocks, starts, period, cap));
      return;
    }
    const int time = blocks[starts.size()].time;
    const int last = starts.empty() ? 0 : in_flight * period - time;
    for (int start = ready; start <= last && !found; ++start) {
      starts.push_back(start);
      place(start + time);
      starts.pop_back();
    }
  };
  place(0);
  return found;
}

TEST(PlannerTwins, TesselEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int in_flight = evenly(1, 4);
    const int cap = evenly(1, 4);
    std::vector<TinyBlock> blocks;
    std::string text;
    int total = 0;
    constexpr std::array<int, 4> kMemory = {1, 1, -1, -1};
    const std::vector<int> second =
        evenly(0, 3) == 0 ? std::vector<int>{0, 1} : std::vector<int>{1};
    for (std::size_t b = 0; b < kMemory.size(); ++b) {
      const bool outer = b == 0 || b == 3;
      blocks.push_back({outer ? std::vector<int>{0} : second, evenly(1, 4), kMemory[b]});
      total += blocks.back().time;
      text +=
          fmt::format(R"({}{{"devices": [{}], "time": {}, "memory": {}{}}})", b == 0 ? "" : ",",
                      outer ? "0" : (second.size() == 2 ? "0, 1" : "1"), blocks.back().time,
                      blocks.back().memory, b == 0 ? "" : fmt::format(R"(, "after": [{}])", b - 1));
    }
    int least = 1;
    while (least <= total && !has_body(blocks, least, in_flight, cap)) {
      ++least;
    }
    const Json answer =
        solve("tessel", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "devices": 2,
            "in_flight": {}, "memory": {}, "blocks": [{}]}})",
                                    in_flight, cap, text));
    if (least > total) {
      RC_ASSERT(answer.find("feasible") != nullptr);
    } else {
      RC_ASSERT(answer.find("period") != nullptr);
      RC_ASSERT(answer.find("period")->as_integer() == least);
    }
  }));
}

// Every order of two micro-batches' six passes on every stage, micro-batches in any order.
using Order = std::vector<int>;  // 3 x micro-batch + kind

std::vector<Order> all_orders() {
  std::vector<Order> orders;
  Order order = {0, 1, 2, 3, 4, 5};
  do {
    std::array<std::size_t, 6> at{};
    for (std::size_t i = 0; i < order.size(); ++i) {
      at[static_cast<std::size_t>(order[i])] = i;
    }
    if (at[0] < at[1] && at[1] < at[2] && at[3] < at[4] && at[4] < at[5]) {
      orders.push_back(order);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

// Longest stage span, or never for a deadlock or more than `cap` micro-batches alive.
double span_of(const std::vector<const Order*>& lists, const std::array<int, 3>& time,
               const std::vector<int>& latency, int cap) {
  const std::size_t stages = lists.size();
  std::vector<std::array<int, 6>> end(stages);
  for (auto& ends : end) {
    ends.fill(-1);
  }
  std::vector<std::size_t> at(stages, 0);
  std::vector<int> free(stages, 0);
  std::vector<int> begun(stages, -1);
  std::vector<int> alive(stages, 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t s = 0; s < stages; ++s) {
      while (at[s] < 6) {
        const int pass = (*lists[s])[at[s]];
        const int kind = pass % 3;
        const bool down = kind == 0 && s > 0;
        const bool up = kind == 1 && s + 1 < stages;
        int input = 0;
        if (down || up) {
          const std::size_t from = down ? s - 1 : s + 1;
          const int ended = end[from][static_cast<std::size_t>(pass)];
          if (ended < 0) {
            break;
          }
          input = ended + latency[std::min(s, from)];
        }
        alive[s] += kind == 0 ? 1 : kind == 2 ? -1 : 0;
        if (alive[s] > cap) {
          return kNever;
        }
        const int start = std::max(free[s], input);
        begun[s] = begun[s] < 0 ? start : begun[s];
        free[s] = start + time[static_cast<std::size_t>(kind)];
        end[s][static_cast<std::size_t>(pass)] = free[s];
        ++at[s];
        progress = true;
      }
    }
  }
  double longest = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    longest = at[s] < 6 ? kNever : std::max(longest, static_cast<double>(free[s] - begun[s]));
  }
  return longest;
}

TEST(PlannerTwins, CrossPipeEqualsBruteForce) {
  const std::vector<Order> orders = all_orders();
  ASSERT_EQ(orders.size(), 20U);
  EXPECT_TRUE(rc::check([&orders] {
    const auto stages = static_cast<std::size_t>(evenly(1, 4));
    const std::array<int, 3> time = {evenly(1, 5), evenly(1, 5), evenly(1, 5)};
    const int cap = evenly(1, 3);
    std::vector<int> latency;
    std::string text;
    for (std::size_t s = 0; s + 1 < stages; ++s) {
      latency.push_back(evenly(0, 5));
      text += fmt::format("{}{}", s == 0 ? "" : ",", latency.back());
    }
    double best = kNever;
    std::vector<const Order*> lists(stages);
    const std::function<void(std::size_t)> choose = [&](std::size_t s) {
      if (s == stages) {
        best = std::min(best, span_of(lists, time, latency, cap));
        return;
      }
      for (const Order& order : orders) {
        lists[s] = &order;
        choose(s + 1);
      }
    };
    choose(0);
    const Json answer =
        solve("crosspipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "stages": {},
            "micro_batches": 2, "forward": {}, "input_grad": {}, "weight_grad": {}, "memory": {},
            "latency": [{}]}})",
                                       stages, time[0], time[1], time[2], cap, text));
    RC_ASSERT(number(answer, "longest_span") == best);
  }));
}

// The list heuristic never beats the exact order, keeps within its memory and often equals it.
TEST(PlannerTwins, ZeroBubbleIsNeverBelowTheExactOrder) {
  int equal = 0;
  int all = 0;
  EXPECT_TRUE(rc::check([&] {
    const int stages = evenly(1, 4);
    const int micro_batches = evenly(1, 4);
    const std::array<int, 3> time = {evenly(1, 4), evenly(1, 4), evenly(1, 4)};
    const int cap = evenly(stages, 2 * stages + 1);
    const int send = evenly(0, 3);
    std::string latency;
    for (int s = 0; s + 1 < stages; ++s) {
      latency += fmt::format("{}{}", s == 0 ? "" : ",", send);
    }
    const Json exact = solve(
        "crosspipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "stages": {},
            "micro_batches": {}, "forward": {}, "input_grad": {}, "weight_grad": {}, "memory": {},
            "latency": [{}]}})",
                                 stages, micro_batches, time[0], time[1], time[2], cap, latency));
    const Json listed = solve(
        "zero-bubble", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "stages": {},
            "micro_batches": {}, "forward": "{} s", "input_grad": "{} s", "weight_grad": "{} s",
            "send": "{} s", "activation": "1 MB", "memory": "{} MB"}})",
                                   stages, micro_batches, time[0], time[1], time[2], send, cap));
    const double best = number(exact, "longest_span");
    RC_ASSERT(exact.find("proven")->as_bool());
    RC_ASSERT(number(listed, "longest_span_s") >= best - 1e-9);
    RC_ASSERT(number(listed, "peak_bytes") <= cap * 1e6);
    equal += number(listed, "longest_span_s") <= best + 1e-9 ? 1 : 0;
    ++all;
  }));
  EXPECT_GE(equal, all / 2) << equal << " of " << all;
}

}  // namespace
}  // namespace orrery::search
