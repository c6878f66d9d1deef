// SPDX-License-Identifier: Apache-2.0
// Exhaustive twins of planners that place stages on the GPUs of several machines: hetpipe, dapple.
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

struct TinyGpu {
  int node = 0;
  int speed = 1;
  int memory = 1;  // MB
};

// Slowest stage or transfer, and the way of one mini-batch through all of them, in ms;
// MB/ms = GB/s. Never where a stage does not fit.
std::array<double, 2> slowest_and_sum(const std::vector<Layer>& layers,
                                      const std::vector<const TinyGpu*>& gpus,
                                      const std::vector<int>& ends, int in_flight, int inside,
                                      int between) {
  double worst = 0;
  double all = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    const int first = s == 0 ? 0 : ends[s - 1];
    const TinyGpu& gpu = *gpus[s];
    const int held = std::min(in_flight, static_cast<int>(ends.size() - s));
    const double memory = held * (sum(layers, first, ends[s], &Layer::parameters) +
                                  sum(layers, first, ends[s], &Layer::activations));
    const double time = sum(layers, first, ends[s], &Layer::time) / gpu.speed;
    const bool near = s > 0 && gpus[s - 1]->node == gpu.node;
    const double exchange = s == 0 ? 0
                                   : 2.0 * layers[static_cast<std::size_t>(first - 1)].output /
                                         (near ? inside : between);
    worst = memory > gpu.memory ? kNever : std::max({worst, time, exchange});
    all += time + exchange;
  }
  return {worst, all};
}

// Mini-batches a ms of the order of the GPUs and the cut with the fastest slowest stage, of those
// the shortest way; 1 / slowest, or what so many in flight on that way make.
double best_worker(const std::vector<Layer>& layers, std::vector<TinyGpu> gpus, int in_flight,
                   int inside, int between) {
  double slowest = kNever;
  double shortest = kNever;
  std::vector<std::size_t> order(gpus.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  do {
    std::vector<const TinyGpu*> ordered;
    for (const std::size_t i : order) {
      ordered.push_back(&gpus[i]);
    }
    all_cuts(static_cast<int>(layers.size()), static_cast<int>(gpus.size()),
             [&](const std::vector<int>& ends) {
               if (ends.size() != gpus.size()) {
                 return;
               }
               const auto [worst, all] =
                   slowest_and_sum(layers, ordered, ends, in_flight, inside, between);
               if (worst < slowest * (1 - 1e-12)) {
                 slowest = worst;
                 shortest = all;
               } else if (worst <= slowest * (1 + 1e-12)) {
                 shortest = std::min(shortest, all);
               }
             });
  } while (std::next_permutation(order.begin(), order.end()));
  return slowest == kNever ? 0 : std::min(1 / slowest, in_flight / shortest);
}

using Workers = std::vector<std::vector<TinyGpu>>;

// By node, one GPU of each node, and where nodes pair up two GPUs of a fast and a slow one.
Workers by_node(const std::vector<TinyGpu>& kinds, int per_node) {
  Workers workers;
  for (const TinyGpu& kind : kinds) {
    workers.emplace_back(static_cast<std::size_t>(per_node), kind);
  }
  return workers;
}
Workers in_pairs(std::vector<TinyGpu> kinds, int per_node) {
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const TinyGpu& a, const TinyGpu& b) { return a.speed > b.speed; });
  Workers workers;
  for (std::size_t fast = 0, slow = kinds.size() - 1; fast < slow; ++fast, --slow) {
    workers.insert(workers.end(), static_cast<std::size_t>(per_node / 2),
                   {kinds[fast], kinds[fast], kinds[slow], kinds[slow]});
  }
  return workers;
}

constexpr std::array<const char*, 3> kPolicies = {"np", "ed", "hd"};

TEST(PlannerTwins, HetPipeEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(5);
    const int nodes = evenly(1, 5);
    const int per_node = evenly(1, nodes > 2 ? 3 : 5);
    const int in_flight = evenly(1, 4);
    const int inside = evenly(1, 40);
    const int between = evenly(1, 10);
    std::vector<TinyGpu> kinds;
    std::string text;
    for (int n = 0; n < nodes; ++n) {
      kinds.push_back({n, evenly(1, 4), evenly(50, 400)});
      text += fmt::format(R"({}{{"gpus": {}, "speed": {}, "memory": "{} MB"}})", n == 0 ? "" : ",",
                          per_node, kinds.back().speed, kinds.back().memory);
    }
    // No worker's clock runs away from another's: all are as fast as the slowest, which may be one
    // that fits nothing.
    const auto rate_of = [&](const Workers& workers) {
      double slowest = kNever;
      for (const std::vector<TinyGpu>& worker : workers) {
        slowest = std::min(slowest, best_worker(layers, worker, in_flight, inside, between));
      }
      return 1000 * slowest * static_cast<double>(workers.size());
    };
    std::vector<double> rates = {rate_of(by_node(kinds, per_node)),
                                 rate_of(Workers(static_cast<std::size_t>(per_node), kinds))};
    if (nodes % 2 == 0 && per_node % 2 == 0) {
      rates.push_back(rate_of(in_pairs(kinds, per_node)));
    }
    const double best = *std::max_element(rates.begin(), rates.end());
    const Json answer =
        solve("hetpipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
            "nodes": [{}], "bandwidth_inside": "{} GB/s", "bandwidth_between": "{} GB/s",
            "in_flight": {}}})",
                                     to_text(layers), text, inside, between, in_flight));
    if (best == 0) {
      RC_ASSERT(answer.find("feasible") != nullptr);
    } else {
      const Json& found = *answer.find("mini_batches_per_s_by_policy");
      for (std::size_t policy = 0; policy < rates.size(); ++policy) {
        RC_ASSERT(std::abs(number(found, kPolicies[policy]) - rates[policy]) <= 1e-9 * best);
      }
      RC_ASSERT(std::abs(number(answer, "mini_batches_per_s") - best) < 1e-9 * best);
    }
  }));
}

// Forward, backward and gradient all-reduce of a stage, or of a transfer between two.
using Block = std::array<double, 3>;

double latency_of(const std::vector<Block>& blocks, int micro_batches) {
  double worst = 0;
  for (std::size_t q = 0; q < blocks.size(); ++q) {
    double time = (micro_batches - 1) * (blocks[q][0] + blocks[q][1]);
    for (std::size_t s = 0; s <= q; ++s) {
      time += blocks[s][0];
    }
    double tail = -kNever;
    for (std::size_t s = 0; s < blocks.size(); ++s) {
      double between = 0;
      for (std::size_t a = std::min(s, q); a <= std::max(s, q); ++a) {
        between += blocks[a][1];
      }
      tail = std::max(tail, blocks[s][2] + (s <= q ? between : -between));
    }
    worst = std::max(worst, time + tail);
  }
  return worst;
}

struct TinyMachines {
  int count = 1;
  int gpus = 1;
  int inside = 1;   // MB/ms
  int between = 1;  // MB/ms

  double rate(const std::vector<int>& a, const std::vector<int>& b) const {
    int used = 0;
    for (std::size_t m = 0; m < a.size(); ++m) {
      used += a[m] + b[m] > 0 ? 1 : 0;
    }
    return used > 1 ? between : inside;
  }
};

// Latency in ms of stages on so many GPUs of each machine.
double latency_of(const std::vector<Layer>& layers, const std::vector<int>& ends,
                  const std::vector<std::vector<int>>& gpus, const TinyMachines& machines,
                  int micro_batches) {
  std::vector<Block> blocks;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    const int first = s == 0 ? 0 : ends[s - 1];
    const double r = std::accumulate(gpus[s].begin(), gpus[s].end(), 0);
    if (s > 0) {
      const double send =
          layers[static_cast<std::size_t>(first - 1)].output / machines.rate(gpus[s - 1], gpus[s]);
      blocks.push_back({send, send, 0});
    }
    blocks.push_back({0, sum(layers, first, ends[s], &Layer::time) / r,
                      2 * (r - 1) / r * sum(layers, first, ends[s], &Layer::parameters) /
                          machines.rate(gpus[s], gpus[s])});
  }
  return latency_of(blocks, micro_batches);
}

// Calls `use` with every way to give some GPUs of the machines to so many stages.
void all_placements(const TinyMachines& machines, std::size_t stages,
                    const std::function<void(const std::vector<std::vector<int>>&)>& use) {
  const auto count = static_cast<std::size_t>(machines.count);
  std::vector<std::vector<int>> gpus(stages, std::vector<int>(count, 0));
  std::vector<int> left(count, machines.gpus);
  const std::function<void(std::size_t, std::size_t)> give = [&](std::size_t s, std::size_t m) {
    if (m == count) {
      if (std::accumulate(gpus[s].begin(), gpus[s].end(), 0) == 0) {
        return;
      }
      s + 1 == stages ? use(gpus) : give(s + 1, 0);
      return;
    }
    for (int r = 0, most = left[m]; r <= most; ++r) {
      gpus[s][m] = r;
      left[m] = most - r;
      give(s, m + 1);
      left[m] = most;
    }
  };
  give(0, 0);
}

// Any GPUs may make a stage here; the planner places by three rules and keeps one partial plan a
// state, as published.
TEST(PlannerTwins, DappleIsNeverBelowBruteForceAndUsuallyEqual) {
  int equal = 0;
  int all = 0;
  int on_several = 0;
  EXPECT_TRUE(rc::check([&] {
    std::vector<Layer> layers = random_layers(5);
    for (Layer& layer : layers) {
      layer.parameters *= evenly(1, 40);  // else data parallelism is best
    }
    TinyMachines machines;
    machines.count = evenly(1, 4);
    machines.gpus = evenly(1, machines.count == 1 ? 7 : machines.count == 2 ? 4 : 3);
    machines.inside = evenly(5, 40);
    machines.between = evenly(1, 5);
    const int micro_batches = evenly(1, 9);
    double best = kNever;
    all_cuts(static_cast<int>(layers.size()), machines.count * machines.gpus,
             [&](const std::vector<int>& ends) {
               all_placements(machines, ends.size(), [&](const auto& gpus) {
                 best = std::min(best, latency_of(layers, ends, gpus, machines, micro_batches));
               });
             });
    const Json answer =
        solve("dapple", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
            "machines": {}, "gpus_per_machine": {}, "micro_batches": {},
            "bandwidth_inside": "{} GB/s", "bandwidth_between": "{} GB/s"}})",
                                    to_text(layers), machines.count, machines.gpus, micro_batches,
                                    machines.inside, machines.between));
    std::vector<int> ends;
    for (const Json& stage : answer.find("stages")->as_array()) {
      ends.push_back(static_cast<int>(stage.find("last")->as_integer()));
    }
    std::vector<std::vector<int>> gpus;
    for (const Json& stage : answer.find("gpus_by_machine")->as_array()) {
      gpus.emplace_back();
      for (const Json& count : stage.as_array()) {
        gpus.back().push_back(static_cast<int>(count.as_integer()));
      }
    }
    const double found = number(answer, "latency_s") * 1000;
    const double own = latency_of(layers, ends, gpus, machines, micro_batches);
    RC_ASSERT(std::abs(found - own) < 1e-9 * own);
    RC_ASSERT(found > best * (1 - 1e-9));
    RC_ASSERT(found < best * 2);
    ++all;
    on_several += ends.size() > 1 && machines.count > 1 ? 1 : 0;
    equal += found < best * (1 + 1e-9) ? 1 : 0;
  }));
  EXPECT_GT(on_several, all / 4);
  EXPECT_GT(equal, all * 8 / 10) << equal << " of " << all;
}

}  // namespace
}  // namespace orrery::search
