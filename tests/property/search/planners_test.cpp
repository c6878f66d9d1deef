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
    const int workers = evenly(1, 5);
    const double bandwidth = 1e-3 * evenly(1, 50);  // GB/s = MB/ms x 1
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
          // Received and sent over the links of this stage's replicas.
          if (s > 0) {
            worst = std::max(worst,
                             2.0 * layers[static_cast<std::size_t>(first - 1)].output / (rate * m));
          }
          if (ends[s] < n) {
            worst = std::max(
                worst, 2.0 * layers[static_cast<std::size_t>(ends[s] - 1)].output / (rate * m));
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
    const std::vector<Layer> layers = random_layers(8);
    const int devices = evenly(1, 5);
    const int micro_batches = evenly(1, 9);
    const int rate = evenly(1, 40);  // GB/s = MB/ms
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
    // No stage, channel or all-reduce is done sooner.
    RC_ASSERT(answer.find("iteration_s")->as_number() >
              micro_batches * answer.find("bottleneck_s")->as_number() * (1 - 1e-6));
    for (std::size_t s = 0; s < best.size(); ++s) {
      RC_ASSERT(std::abs(found[s].as_number() * 1000 - best[s]) < 1e-9 * best[s]);
    }
  }));
}

// The least bottleneck, and of the cuts that have it the least longest transfer.
TEST(PlannerProperty, BaPipeBalanceEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(8);
    const int n = static_cast<int>(layers.size());
    const int devices = evenly(1, n + 1);
    std::vector<int> speeds;
    std::string text;
    for (int i = 0; i < devices; ++i) {
      speeds.push_back(evenly(1, 4));
      text += fmt::format(R"({}{{"speed": {}}})", i == 0 ? "" : ",", speeds.back());
    }
    const Json answer =
        solve("bapipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                                  "devices": [{}], "bandwidth": "5 GB/s", "micro_batches": 4}})",
                                    to_text(layers), text));
    double best = kNever;
    double least_send = kNever;
    all_cuts(n, devices, [&](const std::vector<int>& ends) {
      if (static_cast<int>(ends.size()) != devices) {
        return;
      }
      double worst = 0;
      double send = 0;
      for (std::size_t s = 0; s < ends.size(); ++s) {
        const int first = s == 0 ? 0 : ends[s - 1];
        worst = std::max(worst, sum(layers, first, ends[s], &Layer::time) / speeds[s]);
        if (s > 0) {
          send = std::max(send, layers[static_cast<std::size_t>(first - 1)].output / 5.0);
        }
      }
      worst = std::max(worst, 2 * send);
      if (worst < best * (1 - 1e-12)) {
        best = worst;
        least_send = send;
      } else if (worst <= best * (1 + 1e-12)) {
        least_send = std::min(least_send, send);
      }
    });
    // Four micro-batches, transfers that stop the passes.
    const double blocking = (4 + devices - 1) * (best + 2 * least_send);
    const double found = number(*answer.find("executors_s"), "1f1b-sno") * 1000;
    RC_ASSERT(std::abs(found - blocking) < 1e-9 * blocking);
    RC_ASSERT(std::abs(number(answer, "bottleneck_s") * 1000 - best) < 1e-9 * best);
  }));
}

// The cut of every division lies between the compute-balanced and the memory-balanced one, and no
// stage holds more than its memory; with one division the window holds the best cut.
TEST(PlannerProperty, DawnPiperFitsMemory) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(8);
    RC_PRE(layers.size() >= 2);
    const int memory = evenly(20, 400);
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
    const int count = evenly(1, 4);
    const int processors = evenly(1, 5);
    std::string text;
    std::vector<int> tasks;  // forwards in order, then both gradients of each layer backwards
    std::vector<int> gradients;
    std::vector<int> layers;
    for (int i = 0; i < count; ++i) {
      const int forward = evenly(1, 20);
      const int gradient = evenly(1, 20);
      tasks.push_back(forward);
      gradients.insert(gradients.begin(), {gradient, gradient});
      layers.push_back(forward + 2 * gradient);
      text += fmt::format(R"({}{{"forward": "{} ms", "backward": "{} ms"}})", i == 0 ? "" : ",",
                          forward, 2 * gradient);
    }
    tasks.insert(tasks.end(), gradients.begin(), gradients.end());
    const Json answer = solve(
        "layerpipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                        "processors": {}}})",
                                 text, processors));
    const auto least_load = [processors](const std::vector<int>& of) {
      int least = 1 << 30;
      all_cuts(static_cast<int>(of.size()), processors, [&](const std::vector<int>& ends) {
        int worst = 0;
        int first = 0;
        for (const int end : ends) {
          worst = std::max(worst, std::accumulate(of.begin() + first, of.begin() + end, 0));
          first = end;
        }
        least = std::min(least, worst);
      });
      return least;
    };
    // Whole layers are among the cuts.
    const int whole = least_load(layers);
    const int best = std::min(least_load(tasks), whole);
    RC_ASSERT(number(answer, "speedup") >= 1);
    RC_ASSERT(std::abs(number(answer, "layer_load_s") * 1000 - whole) < 1e-9 * whole);
    RC_ASSERT(std::abs(number(answer, "arc_load_s") * 1000 - best) < 1e-9 * best);
  }));
}

TEST(PlannerProperty, DipVariantsEqualBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int count = evenly(1, 6);
    const int memory = evenly(1, 30);
    std::vector<std::array<int, 4>> pairs;  // start, end, bytes kept, and when recomputed
    std::vector<int> added;
    std::string text;
    for (int i = 0; i < count; ++i) {
      const int start = evenly(0, 6);
      const int end = start + evenly(0, 4);
      const int small = evenly(0, 5);
      pairs.push_back({start, end, small + evenly(1, 8), small});
      added.push_back(evenly(1, 9));
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
