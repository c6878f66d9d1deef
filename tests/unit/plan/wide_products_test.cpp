// SPDX-License-Identifier: Apache-2.0
// Products in 32 bits: what they write, and which layouts Hopper reads.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "plan/block/cost.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// Results are as long as their type, in products of weights and of heads.
TEST(WideProducts, ResultsAreAsLongAsTheirType) {
  Plan plan = one_replica(small_spec(), {});
  plan.precision = DType::Tf32;
  plan.execution.fused_attention = false;
  const models::NetworkSpec& spec = plan.network.spec;
  const BlockCosts costs(plan);
  const costmodel::DeviceModel& device = costs.device();
  const auto product = [&](costmodel::GemmShape shape) {
    shape.dtype = DType::Tf32;
    shape.output_bytes = 4;
    return device.gemm(shape).value();
  };
  const std::int64_t tokens = plan.micro_batch * plan.sequence;
  EXPECT_DOUBLE_EQ(time_of(plan, "attention_projection", true),
                   product({.m = tokens, .n = spec.hidden, .k = spec.hidden}));
  costmodel::GemmShape scores{.m = plan.sequence, .n = plan.sequence, .k = spec.head_dim};
  scores.groups = plan.micro_batch * spec.heads;
  scores.batched = true;
  costmodel::GemmShape values = scores;
  std::swap(values.n, values.k);
  values.layout = costmodel::GemmLayout::NN;
  const double softmax = 17.0 * static_cast<double>(scores.groups * scores.m * scores.m);
  EXPECT_DOUBLE_EQ(
      time_of(plan, "attention", true),
      product(scores) + product(values) +
          device.memory_bound(Bytes(softmax), costmodel::MemoryKernel::Softmax).value());
}

// Of the six products of attention outside a fused kernel two have both operands along the inner
// dimension, which is all that Hopper's products in tf32 read.
TEST(WideProducts, UnfusedAttentionInTf32PaysForLayoutsOnHopper) {
  Plan hopper = one_replica(small_spec(), {}, "hgx-h100:1");
  hopper.precision = DType::Tf32;
  hopper.execution.fused_attention = false;
  Plan other = hopper;
  other.cluster.gpu.compute_capability = 8;
  for (const bool forward : {true, false}) {
    EXPECT_GT(time_of(hopper, "attention", forward), time_of(other, "attention", forward));
  }
  hopper.precision = other.precision = DType::Bf16;
  EXPECT_DOUBLE_EQ(time_of(hopper, "attention", false), time_of(other, "attention", false));
}

}  // namespace
}  // namespace orrery::plan
