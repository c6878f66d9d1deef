// SPDX-License-Identifier: Apache-2.0
// Weights, quantiles and the documents of a validation, by hand.
#include <gmock/gmock.h>

#include "studies/validation/validation.hpp"

namespace orrery::studies {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

RowResult result(const std::string& source, const std::string& config, double predicted,
                 double measured) {
  RowResult row;
  row.id = config + "-" + std::to_string(predicted);
  row.config_id = config;
  row.source = source;
  row.quantity = "iteration_time_s";
  row.predicted = predicted;
  row.measured = measured;
  return row;
}

RowResult skipped(const std::string& source, const std::string& config) {
  RowResult row = result(source, config, 0, 0);
  row.skipped_because = "vocab is not stated";
  return row;
}

std::vector<WeightedValue> equal(std::initializer_list<double> values) {
  std::vector<WeightedValue> weighted;
  for (const double value : values) {
    weighted.push_back({value, 1.0});
  }
  return weighted;
}

TEST(QuantileTest, EqualWeightsGiveTheUsualMedian) {
  EXPECT_EQ(weighted_quantile(equal({3, 1, 2}), 0.5), 2);
  EXPECT_EQ(weighted_quantile(equal({4, 1, 3, 2}), 0.5), 2.5);
  EXPECT_EQ(weighted_quantile(equal({7}), 0.9), 7);
  EXPECT_EQ(weighted_quantile(equal({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 0.9), 9.5);
  EXPECT_EQ(weighted_quantile(equal({1, 2, 3, 4, 5}), 0.9), 5);
}

TEST(QuantileTest, WeightsMoveTheMedian) {
  EXPECT_EQ(weighted_quantile({{1, 1}, {2, 1}, {10, 5}}, 0.5), 10);
  EXPECT_EQ(weighted_quantile({{1, 2}, {2, 1}, {10, 1}}, 0.5), 1.5);
}

// Source a has three configurations (0.1 each), source b one (0.5): over all, each a weighs a third
// of b, so that the mean is (0.1 + 0.5) / 2.
TEST(SummaryTest, SourcesWeighTheSame) {
  const Validation validation = summarise({result("a", "1", 1.1, 1), result("a", "2", 0.9, 1),
                                           result("a", "3", 1.1, 1), result("b", "4", 1.5, 1)});
  const ErrorSummary& time = validation.overall.time;
  EXPECT_NEAR(*time.mean, 0.3, 1e-12);
  EXPECT_NEAR(*time.median, 0.3, 1e-12);  // half of the weight at 0.1, half at 0.5
  EXPECT_NEAR(*time.p90, 0.5, 1e-12);
  EXPECT_EQ(time.simulated, 4U);
  EXPECT_NEAR(*validation.sources.at("a").full.time.median, 0.1, 1e-12);
}

// Forward and backward of one configuration share its weight.
TEST(SummaryTest, ConfigurationsCountOnce) {
  const Validation validation =
      summarise({result("a", "1", 1.2, 1), result("a", "1", 1.4, 1), result("a", "2", 1.0, 1)});
  EXPECT_NEAR(*validation.overall.time.mean, 0.5 * 0.3 + 0.5 * 0.0, 1e-12);
}

TEST(SummaryTest, ConfidenceMemoryAndSmallMessagesAreApart) {
  RowResult partial = result("a", "1", 2, 1);
  partial.full = false;
  RowResult memory = result("a", "2", 3, 1);
  memory.memory = true;
  RowResult small = result("a", "3", 5, 1);
  small.small = true;
  const Validation validation =
      summarise({partial, memory, small, result("a", "4", 1.1, 1), skipped("a", "5")});
  EXPECT_NEAR(*validation.overall.time.median, 0.1, 1e-12);
  EXPECT_EQ(validation.overall.time.skipped, 1U);
  EXPECT_NEAR(*validation.overall.memory.median, 2, 1e-12);
  EXPECT_NEAR(*validation.partial.time.median, 1, 1e-12);
  EXPECT_NEAR(*validation.small_messages.median, 4, 1e-12);
  EXPECT_FALSE(validation.partial.memory.median.has_value());
}

TEST(SummaryTest, BiasKeepsTheSign) {
  const Validation validation = summarise({result("a", "1", 0.8, 1), result("a", "2", 0.7, 1)});
  EXPECT_NEAR(*validation.overall.time.bias, -0.25, 1e-12);
}

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.as_object()) {
    names.push_back(name);
  }
  return names;
}

TEST(ValidationJsonTest, HasTheDocumentedNames) {
  RowResult kernel = result("k", "9", 1.3, 1);
  kernel.groups = {"gemm-a100"};
  const Json json = to_json(summarise({result("a", "1", 1.1, 1), skipped("a", "2"), kernel}));
  EXPECT_THAT(keys(json), UnorderedElementsAre("overall", "partial", "sources", "groups",
                                               "below_1_kib", "rows"));
  const Json& time = *json.find("overall")->find("time");
  EXPECT_THAT(keys(time), UnorderedElementsAre("median_abs_error", "p90_abs_error",
                                               "mean_abs_error", "bias", "simulated", "skipped"));
  EXPECT_NE(json.find("overall")->find("memory"), nullptr);
  EXPECT_NE(json.find("partial")->find("time"), nullptr);
  EXPECT_NE(json.find("sources")->find("a")->find("time"), nullptr);
  EXPECT_NEAR(
      json.find("groups")->find("gemm-a100")->find("time")->find("median_abs_error")->as_number(),
      0.3, 1e-12);
  EXPECT_TRUE(json.find("overall")->find("memory")->find("median_abs_error")->is_null());
  const Json& simulated = json.find("rows")->as_array()[0];
  EXPECT_NEAR(simulated.find("error")->as_number(), 0.1, 1e-12);
  EXPECT_TRUE(simulated.find("skipped_because")->is_null());
  const Json& other = json.find("rows")->as_array()[1];
  EXPECT_TRUE(other.find("predicted")->is_null());
  EXPECT_EQ(other.find("skipped_because")->as_string(), "vocab is not stated");
}

TEST(ValidationTest, EveryOutputHasTheBias) {
  const Validation validation = summarise({result("a", "1", 0.8, 1), result("a", "2", 0.7, 1)});
  const Json json = to_json(validation);
  EXPECT_NEAR(json.find("overall")->find("time")->find("bias")->as_number(), -0.25, 1e-12);
  EXPECT_TRUE(json.find("overall")->find("memory")->find("bias")->is_null());
  EXPECT_THAT(to_markdown(validation), HasSubstr("| mean | bias | in interval | simulated |"));
  EXPECT_THAT(to_markdown(validation), HasSubstr("| 25.0 % | -25.0 % | - | 2 | 0 |"));
  EXPECT_THAT(to_text(validation, {}), HasSubstr("-25.0 %"));
}

TEST(ErrorPlotTest, CountsRowsByBand) {
  const std::string plot = error_plot({result("a", "1", 1.05, 1), result("a", "2", 1.0, 1),
                                       result("a", "3", 0.4, 1), skipped("a", "4")});
  EXPECT_THAT(plot, HasSubstr("below -50 %  1 #"));
  EXPECT_THAT(plot, HasSubstr("0 to 10 %  2 #"));
  EXPECT_EQ(error_plot({skipped("a", "4")}), "");
}

TEST(ValidationTextTest, ListsReasonsAndWorstRows) {
  const std::string text =
      to_text(summarise({result("a", "1", 1.1, 1), skipped("a", "2"), result("a", "3", 4, 1)}),
              {.worst = 1});
  EXPECT_THAT(text, HasSubstr("vocab is not stated"));
  EXPECT_THAT(text, HasSubstr("300.0 %"));
  EXPECT_THAT(text, HasSubstr("overall"));
}

// Rows with one reason are counted together, whatever their lines.
TEST(ValidationTextTest, CountsReasonsAndAssumptions) {
  RowResult first = skipped("a", "1");
  first.skipped_because = "t.csv:2: layers: \"many\" is not a number";
  RowResult second = skipped("a", "2");
  second.skipped_because = "t.csv:3: layers: \"many\" is not a number";
  second.assumed = {"tp 1"};
  const std::string text = to_text(summarise({first, second}), {});
  EXPECT_THAT(text, HasSubstr("a          2  layers: \"many\" is not a number (t.csv:2)"));
  EXPECT_THAT(assumed_text({first, second}), HasSubstr("a          1  2-0.000000  tp 1"));
  EXPECT_EQ(assumed_text({first}), "");
}

}  // namespace
}  // namespace orrery::studies
