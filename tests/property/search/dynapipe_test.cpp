// SPDX-License-Identifier: Apache-2.0
// DynaPipe's plan of an iteration against brute force: cuts, clusters, orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "search/problems/micro_batches.hpp"
#include "sim/engine/engine.hpp"
#include "tests/property/search/random_iterations.hpp"
#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

std::vector<Sample> random_samples(int most, bool targets) {
  std::vector<Sample> samples;
  for (int i = drawn(1, most); i > 0; --i) {
    samples.push_back(
        {static_cast<double>(drawn(1, 60)), targets ? static_cast<double>(drawn(0, 60)) : 0.0});
  }
  sort_samples(samples);
  return samples;
}

MicroBatchModel random_model(double bytes) {
  MicroBatchModel model;
  model.base = drawn(1, 50);
  model.per_token = drawn(1, 5);
  model.per_token_squared = drawn(0, 3) * 0.01;
  model.bytes_per_token = bytes;
  return model;
}

struct CutTimes {
  double sum = 0;
  double longest = 0;
};

// Calls `use` with every cut whose micro-batches keep no more than `cap`.
void feasible_cuts(const std::vector<Sample>& samples, const MicroBatchModel& model, double cap,
                   const std::function<void(const CutTimes&)>& use) {
  const auto count = static_cast<int>(samples.size());
  all_cuts(count, count, [&](const std::vector<int>& ends) {
    CutTimes cut;
    int first = 0;
    for (const int end : ends) {
      Sample longest;
      for (int i = first; i < end; ++i) {
        const Sample& sample = samples[static_cast<std::size_t>(i)];
        longest = {std::max(longest.input, sample.input), std::max(longest.target, sample.target)};
      }
      if (model.bytes(end - first, longest) > cap) {
        return;
      }
      cut.sum += model.time(end - first, longest);
      cut.longest = std::max(cut.longest, model.time(end - first, longest));
      first = end;
    }
    use(cut);
  });
}

// Every split of up to 12 samples, under every way to recompute and both caps.
TEST(DynaPipe, CutsEqualBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Sample> samples = random_samples(12, drawn(0, 1) == 1);
    const std::vector<MicroBatchModel> models = {random_model(4), random_model(2), random_model(1)};
    const Pipelines pipelines{drawn(1, 8), drawn(1, 2), drawn(1, 3)};
    const double memory = drawn(20, 900);
    const MicroBatches found =
        make_micro_batches(samples, models, pipelines, {memory / pipelines.stages, memory}, 0);
    double best = kNever;
    std::size_t mode = 0;
    for (; mode < models.size() && best == kNever; ++mode) {
      for (const double cap : {memory / pipelines.stages, memory}) {
        if (best == kNever) {
          feasible_cuts(samples, models[mode], cap, [&](const CutTimes& cut) {
            best = std::min(best, (pipelines.stages - 1) * cut.longest / pipelines.chunks +
                                      cut.sum / pipelines.replicas);
          });
        }
      }
    }
    RC_ASSERT(found.found() == (best < kNever));
    if (!found.found()) {
      return;
    }
    RC_ASSERT(std::abs(found.score - best) < 1e-9 * best);
    RC_ASSERT(found.mode + 1 == mode);
    int next = 0;
    for (const MicroBatch& one : found.list) {
      RC_ASSERT(one.first == next && one.last > one.first && one.bytes <= memory);
      RC_ASSERT(one.replica >= 0 && one.replica < pipelines.replicas);
      next = one.last;
    }
    RC_ASSERT(next == static_cast<int>(samples.size()));
  }));
}

// The more stages, the shorter the bound on the longest micro-batch that is best: down to the least
// that has a cut.
TEST(DynaPipe, EveryNumberOfStagesHasItsBound) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Sample> samples = random_samples(12, true);
    const MicroBatchModel model = random_model(1);
    const double cap = drawn(60, 900);
    std::vector<CutTimes> cuts;
    feasible_cuts(samples, model, cap, [&](const CutTimes& cut) { cuts.push_back(cut); });
    for (const int stages : {1, 2, 3, 5, 9, 17, 65, 1025}) {
      double best = kNever;
      for (const CutTimes& cut : cuts) {
        best = std::min(best, (stages - 1) * cut.longest + cut.sum);
      }
      const MicroBatches found = make_micro_batches(samples, {model}, {stages, 1, 1}, {cap}, 0);
      RC_ASSERT(found.found() == !cuts.empty());
      RC_ASSERT(cuts.empty() || std::abs(found.score - best) < 1e-9 * best);
    }
  }));
}

double spread_of(const std::vector<double>& values, const std::vector<int>& cluster_of) {
  std::map<int, std::vector<double>> clusters;
  for (std::size_t i = 0; i < values.size(); ++i) {
    clusters[cluster_of[i]].push_back(values[i]);
  }
  double sum = 0;
  for (const auto& [number, members] : clusters) {
    const double mean =
        std::accumulate(members.begin(), members.end(), 0.0) / static_cast<double>(members.size());
    for (const double value : members) {
      sum += (value - mean) * (value - mean);
    }
  }
  return sum;
}

TEST(DynaPipe, ClustersEqualBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int count = drawn(1, 8);
    const int clusters = drawn(1, 3);
    std::vector<double> values;
    for (int i = 0; i < count; ++i) {
      values.push_back(drawn(1, 30));
    }
    double best = kNever;
    std::vector<int> tried(values.size(), 0);
    const std::function<void(std::size_t)> assign = [&](std::size_t i) {
      if (i == values.size()) {
        best = std::min(best, spread_of(values, tried));
        return;
      }
      for (tried[i] = 0; tried[i] < clusters; ++tried[i]) {
        assign(i + 1);
      }
    };
    assign(0);
    const std::vector<int> found = cluster(values, clusters);
    RC_ASSERT(*std::max_element(found.begin(), found.end()) < clusters);
    RC_ASSERT(std::abs(spread_of(values, found) - best) < 1e-6);
  }));
}

// Differencing is a heuristic: never below the best of all ways to deal, usually as good.
TEST(DynaPipe, DealsNearlyAsEvenlyAsBruteForce) {
  int equal = 0;
  int all = 0;
  EXPECT_TRUE(rc::check([&] {
    const int parts = drawn(1, 3);
    std::vector<double> values;
    for (int i = drawn(1, 8); i > 0; --i) {
      values.push_back(drawn(1, 30));
    }
    const auto fullest = [&](const std::vector<int>& set_of) {
      std::vector<double> sums(static_cast<std::size_t>(parts), 0.0);
      for (std::size_t i = 0; i < values.size(); ++i) {
        sums.at(static_cast<std::size_t>(set_of[i])) += values[i];
      }
      return *std::max_element(sums.begin(), sums.end());
    };
    double best = kNever;
    std::vector<int> tried(values.size(), 0);
    const std::function<void(std::size_t)> assign = [&](std::size_t i) {
      if (i == values.size()) {
        best = std::min(best, fullest(tried));
        return;
      }
      for (tried[i] = 0; tried[i] < parts; ++tried[i]) {
        assign(i + 1);
      }
    };
    assign(0);
    const double found = fullest(deal(values, parts));
    RC_ASSERT(found >= best);
    RC_ASSERT(found <= best * 4 / 3);
    equal += found == best ? 1 : 0;
    ++all;
  }));
  EXPECT_GE(equal, all * 3 / 4) << equal << " of " << all;
}

// What a device may do next: cycles of at most one forward and one backward, written anew, times by
// plain recursion.
double makespan_of(const Iteration& iteration, const std::vector<int>& order) {
  const auto stages = static_cast<std::size_t>(iteration.model.stages);
  const auto at = [&](std::size_t j) -> const MicroBatch& {
    return iteration.list[static_cast<std::size_t>(order[j])];
  };
  const double send = iteration.model.send;
  std::vector<std::size_t> forwards(stages, 0);
  std::vector<std::size_t> backwards(stages, 0);
  std::vector<double> free(stages, 0);
  std::vector<std::vector<double>> forward(stages, std::vector<double>(order.size()));
  std::vector<std::vector<double>> backward = forward;
  for (std::size_t half = 0; backwards.front() < order.size(); ++half) {
    const std::vector<std::size_t> arrived = forwards;
    const std::vector<std::size_t> returned = backwards;
    for (std::size_t i = 0; i < stages; ++i) {
      if ((half + i) % 2 == 0) {
        const std::size_t j = forwards[i];
        double held = 0;
        for (std::size_t k = backwards[i]; k < j; ++k) {
          held += at(k).bytes;
        }
        const bool there = i == 0 ? j < order.size() : j < arrived[i - 1];
        if (there && held + at(j).bytes <= iteration.model.memory) {
          const double input = i == 0 ? 0 : forward[i - 1][j] + send;
          free[i] = std::max(free[i], input) + at(j).time * (1 - iteration.model.backward_share);
          forward[i][j] = free[i];
          ++forwards[i];
        }
      } else {
        const std::size_t j = backwards[i];
        const bool last = i + 1 == stages;
        if (j < (last ? forwards[i] : returned[i + 1])) {
          const double input = last ? 0 : backward[i + 1][j] + send;
          free[i] = std::max(free[i], input) + at(j).time * iteration.model.backward_share;
          backward[i][j] = free[i];
          ++backwards[i];
        }
      }
    }
  }
  return *std::max_element(free.begin(), free.end());
}

// As many clusters as micro-batches: every order.
TEST(DynaPipe, OrdersEqualBruteForce) {
  EXPECT_TRUE(rc::check([] {
    Iteration iteration = random_iteration(5);
    const std::size_t count = iteration.list.size();
    for (std::size_t i = 0; i < count; ++i) {
      iteration.list[i].time += 1e-4 * static_cast<double>(i);  // all differ
    }
    iteration.model.clusters = static_cast<int>(count);
    const OrderedMicroBatches found = order_micro_batches(iteration.list, 0, iteration.model);
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    RC_ASSERT(std::abs(found.as_sorted - makespan_of(iteration, order)) < 1e-9);
    double best = kNever;
    do {
      best = std::min(best, makespan_of(iteration, order));
    } while (std::next_permutation(order.begin(), order.end()));
    RC_ASSERT(std::abs(found.makespan - best) < 1e-9);
    RC_ASSERT(std::abs(makespan_of(iteration, found.order) - best) < 1e-9);
    iteration.model.clusters = 2;
    const OrderedMicroBatches fewer = order_micro_batches(iteration.list, 0, iteration.model);
    RC_ASSERT(fewer.makespan >= found.makespan - 1e-9);
    RC_ASSERT(fewer.makespan <= fewer.as_sorted);
  }));
}

TEST(DynaPipe, EqualSamplesRunAsOneForwardOneBackward) {
  EXPECT_TRUE(rc::check([] {
    const int stages = drawn(1, 6);
    const int count = drawn(1, 12);
    MicroBatchModel model;
    model.base = 1e-3;
    model.per_token = 1e-5 * drawn(1, 100);
    model.bytes_per_token = 1;
    const std::vector<Sample> samples(static_cast<std::size_t>(count), {64, 0});
    const MicroBatches found =
        make_micro_batches(samples, {model}, {stages, 1, 1}, {64, 64.0 * stages}, 0);
    for (const MicroBatch& one : found.list) {
      RC_ASSERT(one.last - one.first == 1);  // memory holds one sample a stage
    }
    PipelineModel pipeline;
    pipeline.stages = stages;
    pipeline.memory = 64.0 * stages;
    const OrderedMicroBatches ordered = order_micro_batches(found.list, 0, pipeline);
    const sim::PipelineOrder expected =
        sim::find_schedule("1f1b", "test").order({.stages = stages, .micro_batches = count});
    RC_ASSERT(ordered.lists.passes == expected.passes);
    const double each = found.list.front().time;
    RC_ASSERT(std::abs(ordered.makespan - (count + stages - 1) * each) < 1e-9);
  }));
}

// The fewest micro-batches of 2,000 long samples on 4,096 stages are more passes than a run has.
TEST(DynaPipe, RefusesMorePassesThanARunHas) {
  Json problem = parse_json(find_planner("dynapipe", "test").example, "example");
  Json samples = Json::array();
  for (int i = 0; i < 2000; ++i) {
    samples.push(Json(Json::Array{Json(8000)}));
  }
  problem.set("samples", std::move(samples));
  problem.set("stages", 4096);
  try {
    (void)run_planner(find_planner("dynapipe", "test"), problem, "problem");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_NE(std::string(error.what()).find("take fewer stages or samples"), std::string::npos)
        << error.what();
  }
}

TEST(DynaPipe, AnswersHoldOrdersAndInstructions) {
  const Json answer = solve("dynapipe",
                            R"({"schema": "orrery-problem", "version": 1,
    "samples": [[512], [100], [120], [90], [480], [60]], "stages": 4, "replicas": 2,
    "recompute": [
      {"name": "none", "per_micro_batch": "1 ms", "per_token": "10 us", "per_token_squared": "1 ns",
       "activations_per_token": "1 MB"},
      {"name": "full", "per_micro_batch": "1 ms", "per_token": "13 us", "per_token_squared": "1 ns",
       "activations_per_token": "0.1 MB", "backward_share": 0.75}],
    "memory": "400 MB", "instructions": true})");
  EXPECT_EQ(answer.find("recompute")->as_string(), "full");  // 512 MB of the longest do not fit
  const Json::Array& replicas = answer.find("replicas")->as_array();
  ASSERT_EQ(replicas.size(), 2U);
  double slowest = 0;
  std::size_t ordered = 0;
  for (const Json& replica : replicas) {
    slowest = std::max(slowest, number(replica, "makespan_s"));
    EXPECT_LE(number(replica, "makespan_s"), number(replica, "sorted_makespan_s"));
    EXPECT_EQ(replica.find("instructions")->as_array().size(), 4U);
    ordered += replica.find("order")->as_array().size();
  }
  EXPECT_EQ(number(answer, "iteration_s"), slowest);
  EXPECT_EQ(ordered, answer.find("micro_batches")->as_array().size());
}

}  // namespace
}  // namespace orrery::search
