// SPDX-License-Identifier: Apache-2.0
// Steps of recommendation networks under NestPipe's two pipelines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/recommender/pipeline.hpp"

namespace orrery::plan {
namespace {

std::string pooled_document(int pooling, const std::string& schedule) {
  return R"({"schema": "orrery-recommender", "version": 1, "name": "dlrm", "batch": 65536,
    "cluster": "dgx-a100:2", "precision": "fp32", "dense": {"features": 13,
    "bottom": [512, 256, 128], "top": [8192, 8192, 1]}, "tables": [{"name": "t", "rows": 1000000,
    "dim": 128, "count": 32, "sharding": "table", "pooling": )" +
         std::to_string(pooling) + "}]" + schedule + "}";
}

Recommender network_of(int pooling, const std::string& schedule) {
  return read_recommender(parse_json(pooled_document(pooling, schedule), "test"), "test");
}

Recommender nested(int pooling, int micro_batches) {
  return network_of(
      pooling, R"(, "schedule": "nestpipe", "micro_batches": )" + std::to_string(micro_batches));
}

// Whole batches: preparation is hidden, the exchanges are not.
TEST(NestedStep, HidesPreparationAndWithMicroBatchesExchanges) {
  const RecommenderCost one = simulate_recommender(nested(4, 1));
  EXPECT_GT(one.shared_rows, Seconds());
  const Seconds late = std::max(Seconds(), one.dense_reduction - one.dense_backward);
  const Seconds in_turn = one.exchange_forward + one.dense_forward + one.dense_backward + late +
                          one.exchange_backward + one.update + one.shared_rows;
  EXPECT_NEAR(one.nested / in_turn, 1.0, 0.01);
  EXPECT_LT(one.nested, one.step);
  EXPECT_EQ(one.iteration(), one.nested);
  // Of four micro-batches one exchange each way is exposed.
  const RecommenderCost four = simulate_recommender(nested(4, 4));
  const Seconds exchanges = one.exchange_forward + one.exchange_backward;
  EXPECT_LT(four.nested, one.nested);
  EXPECT_GT(four.nested, one.nested - exchanges);
}

TEST(NestedStep, IsNoShorterThanTheSlowestPreparation) {
  const RecommenderCost cost = simulate_recommender(nested(4000, 4));
  EXPECT_GE(cost.nested, cost.lookup * 0.999);
  EXPECT_LT(cost.nested, cost.step);
}

TEST(NestedStep, HoldsTwoBuffersOfRows) {
  const RecommenderCost plain = simulate_recommender(network_of(4, ""));
  const RecommenderCost two = simulate_recommender(nested(4, 4));
  // At most every lookup's row, in both buffers.
  const Bytes both = two.buffer_bytes - plain.buffer_bytes;
  EXPECT_GT(both, Bytes());
  EXPECT_LE(both, Bytes(2.0 * 65536 * 4 * 32 * 128 * 4 / 16));
  EXPECT_EQ(two.fullest_bytes, plain.fullest_bytes + both);
  EXPECT_EQ(plain.nested, Seconds());
  EXPECT_EQ(plain.iteration(), plain.step);
}

TEST(NestedStep, IsRepeatedByTheDocument) {
  const Recommender network = nested(4, 4);
  const Recommender again = read_recommender(to_json(network), "again");
  EXPECT_EQ(simulate_recommender(again).nested, simulate_recommender(network).nested);
}

TEST(NestedStep, BadNumbersNameTheSmallestChange) {
  const auto problem = [](int micro_batches, const std::string& schedule) -> std::string {
    try {
      network_of(4, schedule + R"(, "micro_batches": )" + std::to_string(micro_batches));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(problem(2, ""), testing::HasSubstr("nestpipe"));
  EXPECT_THAT(problem(3, R"(, "schedule": "nestpipe")"), testing::HasSubstr("set batch to 65520"));
}

}  // namespace
}  // namespace orrery::plan
