// SPDX-License-Identifier: Apache-2.0
// Planners that cut chains, against brute force on tiny random problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

// Workers of a level of the machine, and MB/ms between them.
struct TinyLevel {
  int workers = 1;
  int rate = 1;
};

// The least over all cuts of layers [first, last) and all shares of the workers of the last level
// of the slowest stage or transfer, a stage as fast as the levels below it let it be; in ms.
double least_bottleneck(const std::vector<Layer>& layers, int first, int last,
                        std::vector<TinyLevel> levels) {
  if (levels.empty()) {
    return sum(layers, first, last, &Layer::time);
  }
  const TinyLevel level = levels.back();
  levels.pop_back();
  double inside = 1;
  for (const TinyLevel& below : levels) {
    inside *= below.workers;
  }
  double best = kNever;
  all_cuts(last - first, level.workers, [&](const std::vector<int>& ends) {
    all_shares(level.workers, ends.size(), [&](const std::vector<int>& shares) {
      double worst = 0;
      for (std::size_t s = 0; s < ends.size(); ++s) {
        const int from = first + (s == 0 ? 0 : ends[s - 1]);
        const int to = first + ends[s];
        const double m = shares[s];
        const double reduce =
            4 * (m - 1) * sum(layers, from, to, &Layer::parameters) / (level.rate * m) / inside;
        worst = std::max(worst, (least_bottleneck(layers, from, to, levels) + reduce) / m);
        // Received and sent over the links of this stage's replicas.
        if (s > 0) {
          worst = std::max(
              worst, 2.0 * layers[static_cast<std::size_t>(from - 1)].output / (level.rate * m));
        }
        if (to < static_cast<int>(layers.size())) {
          worst = std::max(
              worst, 2.0 * layers[static_cast<std::size_t>(to - 1)].output / (level.rate * m));
        }
      }
      best = std::min(best, worst);
    });
  });
  return best;
}

TEST(PlannerProperty, PipeDreamEqualsBruteForceOnAllLevels) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(5);
    std::vector<TinyLevel> levels;
    std::string text;
    for (int left = evenly(1, 4); left > 0; --left) {
      levels.push_back({evenly(1, levels.empty() ? 5 : 4), evenly(1, levels.empty() ? 50 : 20)});
      text += fmt::format(R"({}{{"workers": {}, "bandwidth": "{} GB/s"}})", text.empty() ? "" : ",",
                          levels.back().workers, levels.back().rate);
    }
    const Json answer = solve(
        "pipedream", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                        "levels": [{}]}})",
                                 to_text(layers), text));
    const double best = least_bottleneck(layers, 0, static_cast<int>(layers.size()), levels);
    RC_ASSERT(std::abs(number(answer, "bottleneck_s") * 1000 - best) < 1e-9 * best);
  }));
}

struct TinyDevice {
  int speed = 1;
  int memory = 1;  // MB
};

// An executor of BaPipe: what stage i of n keeps at most, and how many transfers a slot holds.
struct TinyExecutor {
  const char* name;
  int (*kept)(int i, int n);
  int sends;
};
constexpr std::array<TinyExecutor, 4> kTinyExecutors = {
    {{"1f1b-as", [](int i, int n) { return n - i; }, 2},
     {"1f1b-so", [](int i, int n) { return 2 * (n - i) - 1; }, 2},
     {"1f1b-sno", [](int i, int n) { return n - i; }, 2},
     {"fbp-as", [](int i, int n) { return 2 * (n - i); }, 1}}};

// The least bottleneck of the cuts that fit, and of those that have it the least longest transfer.
struct TinyBalance {
  double bottleneck = kNever;
  double send = kNever;
};

TinyBalance best_balance(const std::vector<Layer>& layers, const std::vector<TinyDevice>& devices,
                         const TinyExecutor& executor, int micro_batches) {
  TinyBalance best;
  const int n = static_cast<int>(devices.size());
  all_cuts(static_cast<int>(layers.size()), n, [&](const std::vector<int>& ends) {
    TinyBalance cut{0, 0};
    bool fits = static_cast<int>(ends.size()) == n;
    for (int s = 0; fits && s < n; ++s) {
      const TinyDevice& device = devices[static_cast<std::size_t>(s)];
      const int first = s == 0 ? 0 : ends[static_cast<std::size_t>(s - 1)];
      const int last = ends[static_cast<std::size_t>(s)];
      const int held = std::min(executor.kept(s, n), micro_batches);
      fits = sum(layers, first, last, &Layer::parameters) +
                 held * sum(layers, first, last, &Layer::activations) <=
             device.memory;
      const double send = s == 0 ? 0 : layers[static_cast<std::size_t>(first - 1)].output / 5.0;
      cut.send = std::max(cut.send, send);
      cut.bottleneck =
          std::max({cut.bottleneck, sum(layers, first, last, &Layer::time) / device.speed,
                    executor.sends * send});
    }
    const bool faster = cut.bottleneck < best.bottleneck * (1 - 1e-12);
    const bool as_fast = cut.bottleneck <= best.bottleneck * (1 + 1e-12);
    if (fits && (faster || (as_fast && cut.send < best.send))) {
      best = cut;
    }
  });
  return best;
}

// Slots, and what transfers add to them (BaPipePlanner.TimesOfExecutorsAreThoseOfTheirLists).
double time_of(const TinyExecutor& executor, const TinyBalance& cut, int n, int micro_batches) {
  const std::string_view name = executor.name;
  const int slots = micro_batches + n - 1;
  if (name == "1f1b-sno") {
    return slots * (cut.bottleneck + 2 * cut.send);
  }
  int trips = n - 1;
  for (int j = 1; name == "1f1b-as" && j < micro_batches; ++j) {
    trips += j % n == 1 % n ? 0 : 1;
  }
  return slots * cut.bottleneck + 2 * cut.send * trips;
}

TEST(PlannerProperty, BaPipeBalanceEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(8);
    const int n = evenly(1, static_cast<int>(layers.size()) + 1);
    const int micro_batches = evenly(1, 12);
    const bool concurrent = evenly(0, 2) == 0;
    const int most_memory = evenly(40, 1500);
    std::vector<TinyDevice> devices;
    std::string text;
    for (int i = 0; i < n; ++i) {
      devices.push_back({evenly(1, 4), evenly(30, most_memory)});
      text +=
          fmt::format(R"({}{{"speed": {}, "memory": "{} MB", "concurrent": {}}})",
                      i == 0 ? "" : ",", devices.back().speed, devices.back().memory, concurrent);
    }
    const Json answer =
        solve("bapipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                                  "devices": [{}], "bandwidth": "5 GB/s", "micro_batches": {}}})",
                                    to_text(layers), text, micro_batches));
    double best = kNever;
    for (const TinyExecutor& executor : kTinyExecutors) {
      const TinyBalance cut = best_balance(layers, devices, executor, micro_batches);
      const Json* const times = answer.find("executors_s");
      const Json* const found = times == nullptr ? nullptr : times->find(executor.name);
      const bool runs = cut.bottleneck < kNever && (executor.sends == 2 || concurrent);
      RC_ASSERT((found != nullptr) == runs);
      if (runs) {
        const double time = time_of(executor, cut, n, micro_batches);
        RC_ASSERT(std::abs(found->as_number() * 1000 - time) < 1e-9 * time);
        best = std::min(best, time);
      }
    }
    RC_ASSERT((answer.find("feasible") != nullptr) == (best == kNever));
    if (best < kNever) {
      RC_ASSERT(std::abs(number(answer, "time_s") * 1000 - best) < 1e-9 * best);
    }
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
