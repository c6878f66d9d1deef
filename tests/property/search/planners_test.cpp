// SPDX-License-Identifier: Apache-2.0
// Planners that cut chains, against brute force on tiny random problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

TEST(PlannerProperty, PipeDreamEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(6);
    const int workers = *rc::gen::inRange(1, 5);
    const double bandwidth = 1e-3 * *rc::gen::inRange(1, 50);  // GB/s = MB/ms x 1
    const Json answer = solve(
        "pipedream", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                        "levels": [{{"workers": {}, "bandwidth": "{} GB/s"}}]}})",
                                 to_text(layers), workers, bandwidth * 1000));
    double best = kNever;                  // ms
    const double rate = bandwidth * 1000;  // MB/ms
    const int n = static_cast<int>(layers.size());
    all_cuts(n, workers, [&](const std::vector<int>& ends) {
      all_shares(workers, ends.size(), [&](const std::vector<int>& shares) {
        double worst = 0;
        for (std::size_t s = 0; s < ends.size(); ++s) {
          const int first = s == 0 ? 0 : ends[s - 1];
          const double m = shares[s];
          const double reduce =
              4 * (m - 1) * sum(layers, first, ends[s], &Layer::parameters) / (rate * m);
          worst = std::max(worst, (sum(layers, first, ends[s], &Layer::time) + reduce) / m);
          if (s > 0) {
            worst = std::max(worst,
                             2.0 * layers[static_cast<std::size_t>(first - 1)].output / (rate * m));
          }
        }
        best = std::min(best, worst);
      });
    });
    RC_ASSERT(std::abs(number(answer, "bottleneck_s") * 1000 - best) < 1e-9 * best);
  }));
}

TEST(PlannerProperty, SppEqualsBruteForceOnUniformLinks) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(6);
    const int devices = *rc::gen::inRange(1, 5);
    const int micro_batches = *rc::gen::inRange(1, 9);
    const int rate = *rc::gen::inRange(1, 40);  // GB/s = MB/ms
    std::string rows;
    for (int i = 0; i < devices; ++i) {
      std::string row;
      for (int j = 0; j < devices; ++j) {
        row += fmt::format(R"({}"{} GB/s")", j == 0 ? "" : ",", i == j ? 0 : rate);
      }
      rows += fmt::format("{}[{}]", i == 0 ? "" : ",", row);
    }
    const Json answer =
        solve("spp", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                               "bandwidth": [{}], "micro_batches": {}}})",
                                 to_text(layers), rows, micro_batches));
    std::vector<double> best(std::min(layers.size(), static_cast<std::size_t>(devices)), kNever);
    all_cuts(static_cast<int>(layers.size()), devices, [&](const std::vector<int>& ends) {
      all_shares(devices, ends.size(), [&](const std::vector<int>& shares) {
        double worst = 0;
        for (std::size_t s = 0; s < ends.size(); ++s) {
          const int first = s == 0 ? 0 : ends[s - 1];
          const double r = shares[s];
          const double reduce =
              2 * (r - 1) / r * sum(layers, first, ends[s], &Layer::parameters) / rate;
          worst = std::max(
              {worst, sum(layers, first, ends[s], &Layer::time) / r, reduce / micro_batches});
          if (s > 0) {
            worst = std::max(worst, 2.0 * layers[static_cast<std::size_t>(first - 1)].output /
                                        std::max(shares[s - 1], shares[s]) / rate);
          }
        }
        best[ends.size() - 1] = std::min(best[ends.size() - 1], worst);
      });
    });
    const Json::Array& found = answer.find("least_bottleneck_s_by_stages")->as_array();
    RC_ASSERT(found.size() == best.size());
    for (std::size_t s = 0; s < best.size(); ++s) {
      RC_ASSERT(std::abs(found[s].as_number() * 1000 - best[s]) < 1e-9 * best[s]);
    }
  }));
}

TEST(PlannerProperty, DappleIsNeverBelowBruteForceAndUsuallyEqual) {
  int equal = 0;
  int all = 0;
  EXPECT_TRUE(rc::check([&] {
    const std::vector<Layer> layers = random_layers(5);
    const int gpus = *rc::gen::inRange(1, 5);
    const int micro_batches = *rc::gen::inRange(1, 9);
    const int rate = *rc::gen::inRange(1, 40);
    const Json answer =
        solve("dapple", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                                  "machines": 1, "gpus_per_machine": {}, "micro_batches": {},
                                  "bandwidth_inside": "{} GB/s", "bandwidth_between": "1 GB/s"}})",
                                    to_text(layers), gpus, micro_batches, rate));
    double best = kNever;
    for (int used = 1; used <= gpus; ++used) {
      all_cuts(static_cast<int>(layers.size()), used, [&](const std::vector<int>& ends) {
        all_shares(used, ends.size(), [&](const std::vector<int>& shares) {
          // Stages and transfers: {forward, backward, all-reduce}.
          std::vector<std::array<double, 3>> blocks;
          for (std::size_t s = 0; s < ends.size(); ++s) {
            const int first = s == 0 ? 0 : ends[s - 1];
            const double r = shares[s];
            if (s > 0) {
              const double send =
                  static_cast<double>(layers[static_cast<std::size_t>(first - 1)].output) / rate;
              blocks.push_back({send, send, 0});
            }
            blocks.push_back(
                {0, sum(layers, first, ends[s], &Layer::time) / r,
                 2 * (r - 1) / r * sum(layers, first, ends[s], &Layer::parameters) / rate});
          }
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
          best = std::min(best, worst);
        });
      });
    }
    const double found = number(answer, "latency_s") * 1000;
    RC_ASSERT(found > best * (1 - 1e-9));
    RC_ASSERT(found < best * 1.5);
    ++all;
    equal += found < best * (1 + 1e-9) ? 1 : 0;
  }));
  // One best plan is kept per state, which is not exact; it is nearly always.
  EXPECT_GT(equal, all * 8 / 10);
}

TEST(PlannerProperty, BaPipeBottleneckEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(8);
    const int n = static_cast<int>(layers.size());
    const int devices = *rc::gen::inRange(1, n + 1);
    std::vector<int> speeds;
    std::string text;
    for (int i = 0; i < devices; ++i) {
      speeds.push_back(*rc::gen::inRange(1, 4));
      text += fmt::format(R"({}{{"speed": {}}})", i == 0 ? "" : ",", speeds.back());
    }
    const Json answer =
        solve("bapipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                                  "devices": [{}], "bandwidth": "5 GB/s", "micro_batches": 4}})",
                                    to_text(layers), text));
    double best = kNever;
    all_cuts(n, devices, [&](const std::vector<int>& ends) {
      if (static_cast<int>(ends.size()) != devices) {
        return;
      }
      double worst = 0;
      for (std::size_t s = 0; s < ends.size(); ++s) {
        const int first = s == 0 ? 0 : ends[s - 1];
        worst = std::max(worst, sum(layers, first, ends[s], &Layer::time) / speeds[s]);
        if (s > 0) {
          worst = std::max(worst, 2.0 * layers[static_cast<std::size_t>(first - 1)].output / 5);
        }
      }
      best = std::min(best, worst);
    });
    RC_ASSERT(std::abs(number(answer, "bottleneck_s") * 1000 - best) < 1e-9 * best);
  }));
}

// The cut of every division lies between the compute-balanced and the memory-balanced one, and no
// stage holds more than its memory; with one division the window holds the best cut.
TEST(PlannerProperty, DawnPiperFitsMemory) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(8);
    RC_PRE(layers.size() >= 2);
    const int memory = *rc::gen::inRange(20, 400);
    const Json answer = solve(
        "dawnpiper", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                                     "devices": 2, "memory": "{} MB", "host_bandwidth": "1 GB/s"}})",
                                 to_text(layers), memory));
    if (answer.find("feasible") != nullptr) {
      return;
    }
    for (std::size_t s = 0; s < 2; ++s) {
      const Json& stage = answer.find("stages")->as_array()[s];
      const int first = static_cast<int>(stage.find("first")->as_integer());
      const int last = static_cast<int>(stage.find("last")->as_integer());
      const double held = static_cast<double>(2 - s);
      const double relieved = number(stage, "swapped_bytes") + number(stage, "recomputed_bytes");
      const double bytes = 1e6 * (sum(layers, first, last, &Layer::parameters) +
                                  held * sum(layers, first, last, &Layer::activations)) -
                           held * relieved;
      RC_ASSERT(bytes <= memory * 1e6 * (1 + 1e-6));
    }
  }));
}

TEST(PlannerProperty, LayerPipeEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int count = *rc::gen::inRange(1, 4);
    const int processors = *rc::gen::inRange(1, 5);
    std::string text;
    std::vector<int> tasks;  // forwards in order, then both gradients of each layer backwards
    std::vector<int> gradients;
    for (int i = 0; i < count; ++i) {
      const int forward = *rc::gen::inRange(1, 20);
      const int gradient = *rc::gen::inRange(1, 20);
      tasks.push_back(forward);
      gradients.insert(gradients.begin(), {gradient, gradient});
      text += fmt::format(R"({}{{"forward": "{} ms", "backward": "{} ms"}})", i == 0 ? "" : ",",
                          forward, 2 * gradient);
    }
    tasks.insert(tasks.end(), gradients.begin(), gradients.end());
    const Json answer = solve(
        "layerpipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                        "processors": {}}})",
                                 text, processors));
    int best = 1 << 30;
    all_cuts(static_cast<int>(tasks.size()), processors, [&](const std::vector<int>& ends) {
      int worst = 0;
      int first = 0;
      for (const int end : ends) {
        worst = std::max(worst, std::accumulate(tasks.begin() + first, tasks.begin() + end, 0));
        first = end;
      }
      best = std::min(best, worst);
    });
    RC_ASSERT(std::abs(number(answer, "arc_load_s") * 1000 - best) < 1e-9 * best);
  }));
}

TEST(PlannerProperty, DipVariantsEqualBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int count = *rc::gen::inRange(1, 6);
    const int memory = *rc::gen::inRange(1, 30);
    std::vector<std::array<int, 4>> pairs;  // start, end, bytes kept, and when recomputed
    std::vector<int> added;
    std::string text;
    for (int i = 0; i < count; ++i) {
      const int start = *rc::gen::inRange(0, 6);
      const int end = start + *rc::gen::inRange(0, 4);
      const int small = *rc::gen::inRange(0, 5);
      pairs.push_back({start, end, small + *rc::gen::inRange(1, 8), small});
      added.push_back(*rc::gen::inRange(1, 9));
      text += fmt::format(
          R"({}{{"start": {}, "end": {}, "variants": [{{"time": "0 s", "memory": "{} GB"}},
                                                      {{"time": "{} s", "memory": "{} GB"}}]}})",
          i == 0 ? "" : ",", start, end, pairs.back()[2], added.back(), small);
    }
    const Json answer = solve("dip", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
                        "modules": [{{"name": "a", "instances": 1, "times": ["1 s"]}}],
                        "memory": "{} GB", "pairs": [{}]}})",
                                                 memory, text));
    double best = kNever;
    for (int choice = 0; choice < 1 << count; ++choice) {
      const auto recomputes = [choice](std::size_t i) { return (choice >> i) % 2 == 1; };
      bool fits = true;
      for (int instant = 0; instant < 10; ++instant) {
        int held = 0;
        for (std::size_t i = 0; i < pairs.size(); ++i) {
          const bool alive = pairs[i][0] <= instant && instant <= pairs[i][1];
          held += alive ? pairs[i][recomputes(i) ? 3 : 2] : 0;
        }
        fits = fits && held <= memory;
      }
      double time = 0;
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        time += recomputes(i) ? added[i] : 0;
      }
      best = fits ? std::min(best, time) : best;
    }
    const Json& chosen = *answer.find("memory");
    if (best == kNever) {
      RC_ASSERT(chosen.find("feasible") != nullptr);
    } else {
      RC_ASSERT(std::abs(number(chosen, "added_s") - best) < 1e-9);
    }
  }));
}

}  // namespace
}  // namespace orrery::search
