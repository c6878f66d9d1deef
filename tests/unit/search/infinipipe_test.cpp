// SPDX-License-Identifier: Apache-2.0
// InfiniPipe's recomputation against the lists that its schedule runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "search/problems/live_chunks.hpp"
#include "sim/schedule.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

sim::PipelineOrder lists_over_slices(const std::vector<int>& slices, int stages) {
  sim::ScheduleParams params;
  params.stages = stages;
  params.micro_batches = static_cast<int>(slices.size());
  params.slices_of = slices;
  const sim::Schedule& schedule = sim::find_schedule("infinipipe", "test");
  EXPECT_EQ(to_text(schedule.check(params)), "");
  return schedule.order(params);
}

// What is kept before every backward is what the lists have begun and not ended by then.
TEST(InfiniPipePlanner, KeepsWhatTheListsKeep) {
  for (const std::vector<int>& slices :
       {std::vector<int>{1, 1, 1, 1, 1, 1}, {8}, {5, 5, 5}, {6, 3, 3, 1, 1, 1, 1}, {2, 1}}) {
    const int stages = 4;
    LiveChunks live(stages);
    for (const int count : slices) {
      live.append(count);
    }
    const sim::PipelineOrder order = lists_over_slices(slices, stages);
    for (int stage = 0; stage < stages; ++stage) {
      std::vector<bool> kept(static_cast<std::size_t>(live.size()), false);
      int backwards = 0;
      for (const sim::Pass& pass : order.passes[static_cast<std::size_t>(stage)]) {
        if (pass.kind == sim::PassKind::Forward) {
          kept[pass.micro_batch] = true;
          continue;
        }
        const LiveChunks::Set set = live.before_backward(stage, backwards++);
        for (int chunk = 0; chunk < live.size(); ++chunk) {
          EXPECT_EQ(set.holds(chunk), kept[static_cast<std::size_t>(chunk)])
              << slices.size() << ' ' << stage << ' ' << backwards << ' ' << chunk;
        }
        kept[pass.micro_batch] = false;
      }
      EXPECT_EQ(backwards, live.size());
    }
  }
}

// One long sequence runs as Seq1F1B with n slices: every stage keeps all eight, of which four fit,
// so that half of the layers are recomputed on each.
TEST(InfiniPipePlanner, RecomputesForAllSlicesOfALongSequence) {
  const Json answer = solve("infinipipe", R"({"schema": "orrery-problem", "version": 1,
      "sequences": [65536], "chunk_tokens": 8192, "stages": 4, "layers_per_stage": 8,
      "per_token": "20 ns", "per_token_pair": "0 ps", "activations_per_token": "1 kB",
      "input_per_token": "0 kB", "memory": "262144 kB"})");
  const Json& group = answer.find("groups")->as_array().front();
  EXPECT_EQ(*group.find("slices_of"), parse_json("[8]", "expected"));
  EXPECT_TRUE(group.find("proven")->as_bool());
  for (const Json& stage : group.find("recomputed_layers_by_stage")->as_array()) {
    std::int64_t layers = 0;
    for (const Json& count : stage.as_array()) {
      layers += count.as_integer();
    }
    EXPECT_EQ(layers, 32);  // of 64
  }
}

// Long and short sequences, run as planned: no stage ever keeps more than its memory, and with one
// recomputed layer less some stage would.
TEST(InfiniPipePlanner, EveryPrefixOfTheListsFits) {
  const Json answer = solve("infinipipe", R"({"schema": "orrery-problem", "version": 1,
      "sequences": [4000, 2000, 1000, 1000, 1000, 1000], "chunk_tokens": 1000, "stages": 3,
      "layers_per_stage": 4, "per_token": "1 us", "per_token_pair": "0 s",
      "activations_per_token": "10 B", "input_per_token": "1 B", "memory": "100 kB"})");
  ASSERT_EQ(answer.find("groups")->as_array().size(), 1U);
  const Json& group = answer.find("groups")->as_array().front();
  const Json::Array& tokens = group.find("chunk_tokens")->as_array();
  std::vector<int> slices;
  for (const Json& count : group.find("slices_of")->as_array()) {
    slices.push_back(static_cast<int>(count.as_integer()));
  }
  const sim::PipelineOrder order = lists_over_slices(slices, 3);
  int recomputed = 0;
  for (std::size_t stage = 0; stage < 3; ++stage) {
    const Json::Array& layers =
        group.find("recomputed_layers_by_stage")->as_array()[stage].as_array();
    double held = 0;
    double most = 0;
    for (const sim::Pass& pass : order.passes[stage]) {
      const auto count = static_cast<double>(layers.at(pass.micro_batch).as_integer());
      const double bytes = tokens[pass.micro_batch].as_number() * (10 * (4 - count) + count);
      held += pass.kind == sim::PassKind::Forward ? bytes : -bytes;
      most = std::max(most, held);
      recomputed += static_cast<int>(count);
    }
    EXPECT_LE(most, 100'000 * (1 + 1e-9)) << stage;
    EXPECT_GT(most, 100'000 - 9'000) << stage;
  }
  EXPECT_GT(recomputed, 0);
}

// Two sequences of 600 slices, all kept at once: no integer program, but every set still fits and
// most of what is recomputed has to be.
TEST(InfiniPipePlanner, ManySlicesGiveUpWhatTheyCan) {
  const Json answer = solve("infinipipe", R"({"schema": "orrery-problem", "version": 1,
      "sequences": [600000, 600000], "chunk_tokens": 1000, "stages": 3, "layers_per_stage": 4,
      "per_token": "1 us", "per_token_pair": "0 s", "activations_per_token": "10 B",
      "input_per_token": "0 B", "memory": "12 MB"})");
  ASSERT_EQ(answer.find("groups")->as_array().size(), 1U);
  const Json& group = answer.find("groups")->as_array().front();
  EXPECT_FALSE(group.find("proven")->as_bool());
  LiveChunks live(3);
  live.append(600);
  live.append(600);
  for (int stage = 0; stage < 3; ++stage) {
    const Json::Array& layers = group.find("recomputed_layers_by_stage")
                                    ->as_array()[static_cast<std::size_t>(stage)]
                                    .as_array();
    double most = 0;
    for (int k = 0; k < live.size(); ++k) {
      const LiveChunks::Set set = live.before_backward(stage, k);
      double kept = 0;
      for (int chunk = set.first; chunk < set.begun; ++chunk) {
        const auto count = layers[static_cast<std::size_t>(chunk)].as_integer();
        kept += set.holds(chunk) ? 10'000.0 * static_cast<double>(4 - count) : 0;
      }
      most = std::max(most, kept);
    }
    EXPECT_LE(most, 12e6 * (1 + 1e-9)) << stage;
    EXPECT_GT(most, 12e6 - 10'000) << stage;
  }
}

}  // namespace
}  // namespace orrery::search
