// SPDX-License-Identifier: Apache-2.0
// Cells that say different things of one run.
#include "studies/rows/contradictions.hpp"

#include <gmock/gmock.h>

#include "studies/validation/predictions.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::predicted;

TEST(Contradictions, OfABatchAndItsMicroBatches) {
  const RowResult row = predicted({{"global_batch", "32"}});
  EXPECT_THAT(row.assumed,
              ElementsAre("global_batch 32, not micro_batch 1 x num_microbatches 8 x dp 2 = 16"));
  EXPECT_EQ(row.predicted, predicted({{"global_batch", "32"}, {"num_microbatches", ""}}).predicted);
  EXPECT_THAT(predicted({{"global_batch", ""}}).assumed, IsEmpty());
  // Rounded up to whole micro-batches.
  EXPECT_THAT(predicted({{"global_batch", "15"}}).assumed, ElementsAre("global_batch 15 as 16"));
}

TEST(Contradictions, OfDegreesAndGpus) {
  EXPECT_THAT(predicted({{"dp", "3"}}).assumed, Contains("dp 3 as 2"));
  EXPECT_THAT(predicted({{"dp", "4"}}).assumed, Contains("dp 4 as 2"));
  EXPECT_EQ(predicted({{"dp", "4"}}).predicted, predicted({}).predicted);
  EXPECT_EQ(predicted({{"gpus", "6"}}).skipped_because, "tp x cp x pp = 4 does not divide 6 GPUs");
}

// The script of the recipe hides what its yaml file, and so the row, does not.
TEST(Contradictions, OfAnOverlapAndTheRecipe) {
  const auto lines = [](const std::string& network, const std::string& overlap) {
    return predicted({{"framework", "NeMo/Megatron-Core"},
                      {"source", "NVIDIA DGX Cloud Benchmarking recipes 25.03"},
                      {"model_name", network},
                      {"overlap", overlap}})
        .assumed;
  };
  const auto of_recipe = Contains(::testing::HasSubstr("the script of recipe 25.03 hides"));
  EXPECT_THAT(lines("nemotron4-340b", "p2p batched (not overlapped); no TP GEMM overlap"),
              of_recipe);
  EXPECT_THAT(lines("nemotron4-340b", "p2p overlap; TP GEMM overlap"), Not(of_recipe));
  EXPECT_THAT(lines("llama3.1-8b", "no TP GEMM overlap"), Not(of_recipe));
}

TEST(Contradictions, OfParametersAndWidths) {
  EXPECT_THAT(predicted({{"params_b", "1.3"}}).assumed, IsEmpty());
  EXPECT_THAT(predicted({{"params_b", "1.2B"}}).assumed, IsEmpty());  // without embeddings
  EXPECT_THAT(predicted({{"params_b", "13"}}).assumed,
              ElementsAre("the 1.32 B parameters of the widths, not params_b 13"));
  // A mixture of experts may count what a token uses.
  const testing::Changes mixture = {
      {"model_family", "mixtral"}, {"experts", "8"}, {"top_k", "2"},
      {"ffn_hidden", "8192"},      {"dp", "2"},      {"params_b", "3.3"}};
  EXPECT_THAT(predicted(mixture).assumed, Not(Contains(::testing::HasSubstr("params_b"))))
      << predicted(mixture).skipped_because;
}

}  // namespace
}  // namespace orrery::studies
