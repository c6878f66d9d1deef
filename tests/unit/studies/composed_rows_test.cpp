// SPDX-License-Identifier: Apache-2.0
// What docs/fidelity.md says of the rows of vtrain_singlenode_a100: they were put together from
// times of single layers that are not recomputed, and their output layer has a vocabulary that is
// not padded.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <tuple>

#include "base/csv.hpp"
#include "studies/rows/measurement.hpp"
#include "tests/folders.hpp"

namespace orrery::studies {
namespace {

namespace fs = std::filesystem;

const fs::path kFile = orrery::shared_folder() / "measurements/vtrain_singlenode_a100.csv";

// Hidden size, layers, tp, pp, dp and micro-batch; then seconds by number of micro-batches.
using Plan =
    std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
using Times = std::map<std::int64_t, double>;

std::map<Plan, Times> times_by_plan() {
  std::map<Plan, Times> plans;
  for (const Measurement& row : read_measurements(read_csv_file(kFile.string()), "vtrain")) {
    plans[{*row.hidden, *row.layers, *row.tp, *row.pp, *row.dp, *row.micro_batch}]
         [*row.num_microbatches] = row.value;
  }
  return plans;
}

TEST(ComposedRowsTest, EveryMicroBatchAddsTheSameTime) {
  if (!fs::exists(kFile)) {
    GTEST_SKIP() << "the shared measurements are absent";
  }
  int triples = 0;
  for (const auto& [plan, times] : times_by_plan()) {
    for (const auto& [count, time] : times) {
      const auto twice = times.find(2 * count);
      const auto fourfold = times.find(4 * count);
      if (twice == times.end() || fourfold == times.end()) {
        continue;
      }
      ++triples;
      const double added = 2 * (twice->second - time);
      EXPECT_NEAR(fourfold->second - twice->second, added, 1e-4 * added);  // six digits are printed
    }
  }
  EXPECT_GT(triples, 100);
}

// On two stages a micro-batch adds half of the layers and the output layer.
double output_layer(const std::map<Plan, Times>& plans, std::int64_t tp) {
  const auto added = [&](std::int64_t layers) {
    const Times& times = plans.at({2048, layers, tp, 2, 2, 4});
    return (times.at(4) - times.at(2)) / 2;
  };
  return 2 * added(12) - added(24);
}

TEST(ComposedRowsTest, HalfOfTheVocabularyTakesAQuarterOfTheTime) {
  if (!fs::exists(kFile)) {
    GTEST_SKIP() << "the shared measurements are absent";
  }
  const std::map<Plan, Times> plans = times_by_plan();
  EXPECT_GT(output_layer(plans, 1), 4 * output_layer(plans, 2));  // 50,257 and 25,128 columns
}

// Twelve layers and the output layer on the last of two stages take what they take beside the
// embedding on one: the first stage, whose layers are as many, is not slower. vTrain's predictor
// exempts the last stage from recomputation (src/predictor.py, create_layer_graph).
TEST(ComposedRowsTest, NoStageRecomputes) {
  if (!fs::exists(kFile)) {
    GTEST_SKIP() << "the shared measurements are absent";
  }
  const std::map<Plan, Times> plans = times_by_plan();
  const auto added = [&](std::int64_t layers, std::int64_t stages, std::int64_t dp) {
    const Times& times = plans.at({2048, layers, 2, stages, dp, 4});
    return (times.rbegin()->second - times.begin()->second) /
           static_cast<double>(times.rbegin()->first - times.begin()->first);
  };
  const double alone = added(12, 1, 1);
  const double layer = (added(24, 2, 2) - added(12, 2, 2)) / 6;
  EXPECT_LT(added(24, 2, 2), alone);
  EXPECT_GT(12 * 1.2 * layer, alone);  // a fifth more a layer would show; a forward is a third
}

}  // namespace
}  // namespace orrery::studies
