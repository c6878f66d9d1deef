// SPDX-License-Identifier: Apache-2.0
// Exhaustive twins of planners on tiny problems: diffusionpipe's partition, infinipipe's groups and
// recomputation.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule.hpp"
#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

TEST(PlannerTwins, DiffusionPipePartitionEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(6);
    const int devices = evenly(1, 7);
    const int micro_batches = evenly(1, 9);
    const int rate = evenly(1, 40);  // MB/ms
    // For every number of stages the least longest stage, and of the cuts with it the
    // synchronisation of one: the planner keeps the first it meets.
    std::vector<double> longest(static_cast<std::size_t>(devices) + 1, kNever);
    std::vector<std::vector<double>> syncs(longest.size());
    all_cuts(static_cast<int>(layers.size()), devices, [&](const std::vector<int>& ends) {
      const std::size_t stages = ends.size();
      if (devices % static_cast<int>(stages) != 0) {
        return;
      }
      const double r = static_cast<double>(devices) / static_cast<double>(stages);
      double worst = 0;
      double sync = 0;
      for (std::size_t s = 0; s < stages; ++s) {
        const int first = s == 0 ? 0 : ends[s - 1];
        worst = std::max(worst, sum(layers, first, ends[s], &Layer::time) / r);
        if (s > 0) {
          worst =
              std::max(worst, 2.0 * layers[static_cast<std::size_t>(first - 1)].output / r / rate);
        }
        sync = std::max(sync,
                        2 * (r - 1) / r * sum(layers, first, ends[s], &Layer::parameters) / rate);
      }
      if (worst < longest[stages] * (1 - 1e-12)) {
        longest[stages] = worst;
        syncs[stages].clear();
      }
      if (worst <= longest[stages] * (1 + 1e-12)) {
        syncs[stages].push_back(sync);
      }
    });
    double low = kNever;
    double high = kNever;
    for (std::size_t s = 1; s < longest.size(); ++s) {
      if (!syncs[s].empty()) {
        const double slots = (micro_batches + 2 * static_cast<double>(s) - 2) * longest[s];
        low = std::min(low, slots + *std::min_element(syncs[s].begin(), syncs[s].end()));
        high = std::min(high, slots + *std::max_element(syncs[s].begin(), syncs[s].end()));
      }
    }
    const Json answer = solve(
        "diffusionpipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
            "devices": {}, "micro_batches": {}, "bandwidth": "{} GB/s"}})",
                                     to_text(layers), devices, micro_batches, rate));
    const double estimate = number(answer, "estimate_s") * 1000;
    RC_ASSERT(estimate >= low * (1 - 1e-9));
    RC_ASSERT(estimate <= high * (1 + 1e-9));
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
  double group_time(int first, int last) const {
    const std::vector<double> all_chunks = chunks(first, last);
    double most = 0;
    for (const std::vector<std::size_t>& set : kept(first, last, 0)) {
      double held = 0;
      for (const std::size_t chunk : set) {
        held += all_chunks[chunk];
      }
      most = std::max(most, held);
    }
    const double all = most * kBytes * layers;
    const double least = most * kKept * layers;
    if (least > memory) {
      return kNever;
    }
    const double share = all > memory ? (all - memory) / (all - least) : 0;
    const double work = std::accumulate(all_chunks.begin(), all_chunks.end(), 0.0) * 1e-3 * layers;
    return work + (stages - 1) * work / static_cast<double>(all_chunks.size()) + share * work / 3;
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
    double best = kNever;
    all_cuts(n, n, [&](const std::vector<int>& ends) {
      double time = 0;
      for (std::size_t g = 0; g < ends.size(); ++g) {
        time += tiny.group_time(g == 0 ? 0 : ends[g - 1], ends[g]);
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
