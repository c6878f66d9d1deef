// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/validation.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "base/error.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/validation/predictions.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

std::vector<WeightedValue> any_values() {
  const auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(-1000, 1000), rc::gen::inRange(1, 20))));
  std::vector<WeightedValue> weighted;
  for (const auto& [value, weight] : values) {
    weighted.push_back({static_cast<double>(value), static_cast<double>(weight)});
  }
  return weighted;
}

TEST(QuantilePropertyTest, LiesBetweenTheExtremesAndGrowsWithTheShare) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<WeightedValue> values = any_values();
    const auto [low, high] =
        std::minmax_element(values.begin(), values.end(),
                            [](const auto& a, const auto& b) { return a.value < b.value; });
    const double median = weighted_quantile(values, 0.5);
    const double p90 = weighted_quantile(values, 0.9);
    RC_ASSERT(median >= low->value);
    RC_ASSERT(median <= p90);
    RC_ASSERT(p90 <= high->value);
  }));
}

TEST(QuantilePropertyTest, AnIntegerWeightIsARepetition) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<WeightedValue> values = any_values();
    std::vector<WeightedValue> repeated;
    for (const WeightedValue& entry : values) {
      for (int copy = 0; copy < static_cast<int>(entry.weight); ++copy) {
        repeated.push_back({entry.value, 1.0});
      }
    }
    for (const double share : {0.1, 0.5, 0.9}) {
      RC_ASSERT(weighted_quantile(values, share) == weighted_quantile(repeated, share));
    }
  }));
}

TEST(RedistributionPropertyTest, KeepsEveryLayerAndNeverLengthensTheLongestStage) {
  EXPECT_TRUE(rc::check([] {
    const int stages = *rc::gen::inRange(2, 17);
    const int layers = stages * *rc::gen::inRange(1, 9);
    const double head = *rc::gen::inRange(0, 80) / 10.0;
    const std::vector<int> blocks = redistributed_stages(layers, stages, head);
    int total = 0;
    double longest = 0;
    for (int stage = 0; stage < stages; ++stage) {
      const bool last = stage + 1 == stages;
      const int own = blocks[static_cast<std::size_t>(stage)] - (stage == 0 || last ? 1 : 0);
      RC_ASSERT(own >= 0);
      total += own;
      longest = std::max(longest, own + (last ? head : 0.0));
    }
    RC_ASSERT(total == layers);
    RC_ASSERT(longest <= layers / stages + head);
  }));
}

// Any text in any cell is a row, a reason or an Error; never anything else.
TEST(HostileTablePropertyTest, CellsNeverCrash) {
  auto cells = testing::default_cells();
  for (const char* name : {"cp", "ep", "experts", "top_k", "kv_heads", "head_dim", "ffn_hidden"}) {
    cells.emplace_back(name, "");
  }
  EXPECT_TRUE(rc::check([&] {
    const auto& [name, value] = *rc::gen::elementOf(cells);
    std::string text = *rc::gen::oneOf(
        rc::gen::string<std::string>(),
        rc::gen::element<std::string>("0", "1", "-1", "3", "7", "1e18", "999999999", "0x10", "none",
                                      "full", "fp8", "gpipe", "interleaved", "H100-80GB-SXM"));
    std::erase(text, '"');
    try {
      predict_training_row(testing::row_of({{name, text}}), 0);
    } catch (const Error& error) {
      RC_ASSERT(std::string(error.what()).size() <= 4000U);
    }
  }));
}

}  // namespace
}  // namespace orrery::studies
