// SPDX-License-Identifier: Apache-2.0
// What rows of training in fp8 mean for casts: who runs them, and how often.
#include <gtest/gtest.h>

#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::row_of;

plan::Execution execution(const std::string& framework, const std::string& precision,
                          const std::string& detail) {
  const Measurement row =
      row_of({{"framework", framework}, {"precision", precision}, {"precision_detail", detail}});
  return row_execution(row, *find_framework(row.framework));
}

TEST(Fp8RowsTest, LayersOfTransformerEngineCastInTheirNorms) {
  const plan::Execution known = execution("NeMo", "fp8", "TransformerEngine hybrid");
  EXPECT_TRUE(known.cast_transposes && known.norms_cast);
  EXPECT_FALSE(known.casts_weights || known.dynamic_scaling);
  EXPECT_TRUE(execution("Megatron-Bridge", "fp8", "current scaling").dynamic_scaling);
  EXPECT_FALSE(execution("Megatron-Bridge", "mxfp8", "").norms_cast);
}

TEST(Fp8RowsTest, ComposerCastsWeightsForEveryMicroBatch) {
  const plan::Execution composer = execution("Composer", "fp8", "TransformerEngine");
  EXPECT_TRUE(composer.cast_transposes && composer.casts_weights);
  EXPECT_FALSE(composer.norms_cast);
}

TEST(Fp8RowsTest, TorchaoCastsShardsWhereFsdpGathersInFp8) {
  const plan::Execution compiled = execution("torchtitan", "fp8", "torchao float8");
  EXPECT_TRUE(compiled.casts_weights && compiled.dynamic_scaling);
  EXPECT_FALSE(compiled.cast_transposes);
  EXPECT_FALSE(execution("torchtitan", "fp8", "torchao float8, fp8 all-gather").casts_weights);
}

}  // namespace
}  // namespace orrery::studies
