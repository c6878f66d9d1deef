// SPDX-License-Identifier: Apache-2.0
// Exhaustive twins of planners on tiny problems: diffusionpipe's partition, infinipipe's groups and
// recomputation.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule.hpp"
#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

// (M + 2 S - 2) x the longest stage or transfer + synchronisation of every cut, the mean over
// iterations without and with an extra forward of every micro-batch.
struct TinyBackbone {
  std::vector<Layer> layers;
  std::vector<int> forwards;  // ms, beside the layers' times
  int devices = 1;
  int micro_batches = 1;
  double rate = 1;  // MB/ms
  double share = 0;

  double cost(const std::vector<int>& ends) const {
    const auto stages = static_cast<double>(ends.size());
    const double r = devices / stages;
    const double back = stages > 1 ? layers.back().output / r / rate : 0;
    double sync = 0;
    std::array<double, 2> longest = {0, back};
    for (std::size_t s = 0; s < ends.size(); ++s) {
      const int first = s == 0 ? 0 : ends[s - 1];
      sync =
          std::max(sync, 2 * (r - 1) / r * sum(layers, first, ends[s], &Layer::parameters) / rate);
      for (const int extra : {0, 1}) {
        const double time =
            sum(layers, first, ends[s], &Layer::time) +
            (1 + extra) * std::accumulate(forwards.begin() + first, forwards.begin() + ends[s], 0);
        const double sent = s == 0 ? 0 : layers[static_cast<std::size_t>(first - 1)].output / rate;
        double& most = longest[static_cast<std::size_t>(extra)];
        most = std::max({most, time / r, (2 + extra) * sent / r});
      }
    }
    const double slots = micro_batches + 2 * stages - 2;
    return (1 - share) * slots * longest[0] + share * (slots * longest[1] + back) + sync;
  }
};

TEST(PlannerTwins, DiffusionPipePartitionEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    TinyBackbone tiny;
    tiny.layers = random_layers(8);
    std::string listed;
    for (Layer& layer : tiny.layers) {
      layer.parameters = evenly(1, 600);  // often worth a longer stage
      tiny.forwards.push_back(evenly(0, 20));
      listed += fmt::format(
          R"({}{{"forward": "{} ms", "backward": "{} ms", "output": "{} MB", "parameters": "{} MB"}})",
          listed.empty() ? "" : ",", tiny.forwards.back(), layer.time, layer.output,
          layer.parameters);
    }
    tiny.devices = evenly(1, 9);
    tiny.micro_batches = evenly(1, 9);
    tiny.rate = evenly(1, 40);
    tiny.share = evenly(0, 5) * 0.25;
    double best = kNever;
    all_cuts(static_cast<int>(tiny.layers.size()), tiny.devices, [&](const std::vector<int>& ends) {
      if (tiny.devices % static_cast<int>(ends.size()) == 0) {
        best = std::min(best, tiny.cost(ends));
      }
    });
    const Json answer =
        solve("diffusionpipe",
              fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
            "devices": {}, "micro_batches": {}, "bandwidth": "{} GB/s",
            "self_conditioning": {}}})",
                          listed, tiny.devices, tiny.micro_batches, tiny.rate, tiny.share));
    const Json* with = answer.find("with_self_conditioning");
    const double mean = (1 - tiny.share) * number(answer, "estimate_s") +
                        (with != nullptr ? tiny.share * number(*with, "estimate_s") : 0);
    RC_ASSERT(std::abs(mean * 1000 - best) < 1e-9 * best);
  }));
}

// Layers that follow each other, in parts of any size and on all devices that idle: the filling
// places all frozen work or takes all idle time.
TEST(PlannerTwins, DiffusionPipeFillsIdleTimes) {
  int most_layers = 0;
  EXPECT_TRUE(rc::check([&] {
    const std::vector<Layer> layers = random_layers(24);
    const int devices = evenly(1, 17);
    std::vector<int> frozen(static_cast<std::size_t>(evenly(0, 41)));
    std::string listed;
    for (int& layer : frozen) {
      layer = evenly(1, 200);
      listed += fmt::format("{}\"{} ms\"", listed.empty() ? "" : ", ", layer);
    }
    most_layers = std::max(most_layers, static_cast<int>(frozen.size()));
    const Json answer =
        solve("diffusionpipe",
              fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
            "devices": {}, "micro_batches": {}, "bandwidth": "{} GB/s", "frozen_layers": [{}]}})",
                          to_text(layers), devices, evenly(1, 17), evenly(1, 40), listed));
    const double backbone = number(answer, "backbone_s") * 1000;
    const double iteration = number(answer, "iteration_s") * 1000;
    // Without replicas the estimate has no gradient reduction: slots alone.
    RC_ASSERT(backbone <= number(answer, "estimate_s") * 1000 * (1 + 1e-9));
    const double idle = number(answer, "bubble_fraction_without_filling") * backbone * devices;
    const double all = std::accumulate(frozen.begin(), frozen.end(), 0.0);
    const double placed = all - (iteration - backbone) * devices;
    RC_ASSERT(std::abs(placed - std::min(all, idle)) <= 1e-9 * (all + backbone * devices));
    RC_ASSERT(iteration <= number(answer, "iteration_without_filling_s") * 1000 * (1 + 1e-12));
    // One after the other, only the last in part, never on more devices than there are.
    double in_bubbles = 0;
    double end = 0;
    const auto& filling = answer.find("filling")->as_array();
    for (std::size_t i = 0; i < filling.size(); ++i) {
      const double work = number(filling[i], "share") * frozen.at(i);
      const double start = number(filling[i], "start_s") * 1000;
      RC_ASSERT(start >= end);
      end = number(filling[i], "end_s") * 1000;
      RC_ASSERT(work <= (end - start) * devices * (1 + 1e-9) + 1e-9);
      RC_ASSERT(i + 1 == filling.size() || work == frozen[i]);
      in_bubbles += work;
    }
    RC_ASSERT(end <= backbone * (1 + 1e-12));
    RC_ASSERT(std::abs(in_bubbles - placed) <= 1e-9 * (all + backbone * devices));
  }));
  EXPECT_GE(most_layers, 20);
}

// Sequences longer than half a chunk: each is a chunk of its own, or two slices of the same length.
struct TinySequences {
  std::vector<int> tokens;  // longest first
  int stages = 1;
  int layers = 1;
  int memory = 1;
  static constexpr int kChunk = 100;
  static constexpr double kBytes = 8;  // of a token and layer
  static constexpr double kKept = 1;

  int slices(int i) const { return tokens[static_cast<std::size_t>(i)] > kChunk ? 2 : 1; }
  std::vector<double> chunks(int first, int last) const {
    std::vector<double> all;
    for (int i = first; i < last; ++i) {
      const int count = slices(i);
      all.insert(all.end(), static_cast<std::size_t>(count),
                 static_cast<double>(tokens[static_cast<std::size_t>(i)]) / count);
    }
    return all;
  }
  // Chunks that a stage keeps after each of its forwards, by the lists of the schedule.
  std::vector<std::vector<std::size_t>> kept(int first, int last, int stage) const {
    sim::ScheduleParams params;
    params.stages = stages;
    params.micro_batches = last - first;
    for (int i = first; i < last; ++i) {
      params.slices_of.push_back(slices(i));
    }
    const sim::PipelineOrder order = sim::find_schedule("infinipipe", "test").order(params);
    std::vector<std::vector<std::size_t>> sets;
    std::vector<std::size_t> now;
    for (const sim::Pass& pass : order.passes[static_cast<std::size_t>(stage)]) {
      if (pass.kind == sim::PassKind::Forward) {
        now.push_back(pass.micro_batch);
        sets.push_back(now);
      } else {
        std::erase(now, pass.micro_batch);
      }
    }
    return sets;
  }
};

// Least seconds of recomputed layers on a stage, over all choices; a set of chunks is looked at
// when its last one is chosen.
double least_recompute(const TinySequences& tiny, int first, int last, int stage) {
  const std::vector<double> chunks = tiny.chunks(first, last);
  const std::vector<std::vector<std::size_t>> sets = tiny.kept(first, last, stage);
  double best = kNever;
  std::vector<int> layers;
  const auto fits = [&](const std::vector<std::size_t>& set) {
    double held = 0;
    for (const std::size_t chunk : set) {
      held += chunks[chunk] * (TinySequences::kBytes * (tiny.layers - layers[chunk]) +
                               TinySequences::kKept * layers[chunk]);
    }
    return held <= tiny.memory + 1e-6;
  };
  const std::function<void(double)> choose = [&](double cost) {
    for (const std::vector<std::size_t>& set : sets) {
      if (cost >= best || (set.back() + 1 == layers.size() && !fits(set))) {
        return;
      }
    }
    if (layers.size() == chunks.size()) {
      best = cost;
      return;
    }
    const double time = chunks[layers.size()] * 1e-3;
    for (int count = 0; count <= tiny.layers; ++count) {
      layers.push_back(count);
      choose(cost + count * time);
      layers.pop_back();
    }
  };
  choose(0);
  return best;
}

// Of a pipeline as its chunks run: all work, that of its fill and drain, and the recomputation of
// the stage with the most, a third of forward and backward.
double tiny_group_time(const TinySequences& tiny, int first, int last) {
  const std::vector<double> chunks = tiny.chunks(first, last);
  const double work = std::accumulate(chunks.begin(), chunks.end(), 0.0) * 1e-3 * tiny.layers;
  double recompute = 0;
  for (int stage = 0; stage < tiny.stages; ++stage) {
    recompute = std::max(recompute, least_recompute(tiny, first, last, stage));
  }
  return work + (tiny.stages - 1) * work / static_cast<double>(chunks.size()) + recompute / 3;
}

TEST(PlannerTwins, InfiniPipeEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    TinySequences tiny;
    // Up to ten chunks; without long sequences as many sequences.
    const int most_tokens = evenly(0, 2) == 0 ? 101 : 201;
    const int n = evenly(1, most_tokens == 101 ? 11 : 6);
    std::string text;
    for (int i = 0; i < n; ++i) {
      tiny.tokens.push_back(evenly(51, most_tokens));
    }
    std::sort(tiny.tokens.rbegin(), tiny.tokens.rend());
    for (int i = 0; i < n; ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ",", tiny.tokens[static_cast<std::size_t>(i)]);
    }
    tiny.stages = evenly(1, 4);
    tiny.layers = evenly(1, 4);
    tiny.memory = evenly(100, 4000);
    std::map<std::pair<int, int>, double> times;
    const auto of_group = [&](int first, int last) {
      const auto [at, is_new] = times.try_emplace({first, last}, 0.0);
      at->second = is_new ? tiny_group_time(tiny, first, last) : at->second;
      return at->second;
    };
    double best = kNever;
    all_cuts(n, n, [&](const std::vector<int>& ends) {
      double time = 0;
      for (std::size_t g = 0; g < ends.size(); ++g) {
        time += of_group(g == 0 ? 0 : ends[g - 1], ends[g]);
      }
      best = std::min(best, time);
    });
    const Json answer =
        solve("infinipipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
            "sequences": [{}], "chunk_tokens": 100, "stages": {}, "layers_per_stage": {},
            "per_token": "1 ms", "per_token_pair": "0 s", "activations_per_token": "8 B",
            "input_per_token": "1 B", "memory": "{} B"}})",
                                        text, tiny.stages, tiny.layers, tiny.memory));
    if (best == kNever) {
      RC_ASSERT(answer.find("feasible") != nullptr);
      return;
    }
    RC_ASSERT(answer.find("proven")->as_bool());
    RC_ASSERT(std::abs(number(answer, "time_s") - best) < 1e-9 * best);
    int first = 0;
    for (const Json& group : answer.find("groups")->as_array()) {
      const int last = first + static_cast<int>(group.find("sequences")->as_integer());
      const std::vector<double> chunks = tiny.chunks(first, last);
      const Json::Array& stages = group.find("recomputed_layers_by_stage")->as_array();
      for (int stage = 0; stage < tiny.stages; ++stage) {
        const Json::Array& layers = stages[static_cast<std::size_t>(stage)].as_array();
        const double least = least_recompute(tiny, first, last, stage);
        double chosen = layers.empty() ? kNever : 0;
        for (std::size_t i = 0; i < layers.size(); ++i) {
          chosen += static_cast<double>(layers[i].as_integer()) * chunks.at(i) * 1e-3;
        }
        RC_ASSERT((chosen == least || std::abs(chosen - least) < 1e-9));
      }
      first = last;
    }
  }));
}

}  // namespace
}  // namespace orrery::search
