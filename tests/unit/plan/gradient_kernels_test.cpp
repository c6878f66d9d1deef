// SPDX-License-Identifier: Apache-2.0
// Times and bytes of gradients by hand: those of unfused attention's products with their layouts,
// of lookups that run as products, and of gradients in 16 bits instead of fp32.
#include <gtest/gtest.h>

#include "tests/unit/plan/plan_fixture.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

using costmodel::GemmLayout;
using costmodel::GemmShape;

double gemm_on(const Plan& plan, const GemmShape& shape) {
  return costmodel::DeviceModel(plan.cluster.gpu, plan.profile, costmodel::Load::Sustained)
      .gemm(shape)
      .value();
}

// With queries Q, keys K, values V, weights P and the context's gradient: dP = dO V^T as the scores
// forward, dQ = dS K as the context, dK = dS^T Q and dV = P^T dO, whose first operands are
// transposed. On Hopper tf32 products run slower in another order than the forward's.
TEST(GradientKernels, ProductsOfUnfusedAttentionKnowTheirLayouts) {
  models::NetworkSpec spec = small_spec();
  spec.heads = spec.kv_heads = 4;
  spec.head_dim = 256;
  Plan plan = one_replica(spec, {}, "hgx-h100:1");
  plan.precision = DType::Tf32;
  plan.execution.fused_attention = false;
  plan.execution.softmax = Softmax::Compiled;
  plan.execution.attention_copies = false;
  const auto product = [](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    GemmShape shape{m, n, k, 4 * 4, DType::Tf32};  // sequences x heads
    shape.output_bytes = 4;
    shape.layout = layout;
    shape.batched = true;
    return shape;
  };
  const GemmShape scores = product(2048, 2048, 256, GemmLayout::TN);
  const GemmShape context = product(2048, 256, 2048, GemmLayout::NN);
  const GemmShape gradient = product(2048, 256, 2048, GemmLayout::NT);
  GemmShape forward_order = gradient;
  forward_order.layout = GemmLayout::TN;
  ASSERT_GT(gemm_on(plan, gradient), 1.1 * gemm_on(plan, forward_order));
  const double elements = 4.0 * 4 * 2048 * 2048;
  const double products =
      gemm_on(plan, scores) + gemm_on(plan, context) + 2 * gemm_on(plan, gradient);
  const double softmax =
      memory_bound(plan, 3 * 4 * elements, costmodel::MemoryKernel::Softmax).value();
  EXPECT_NEAR(time_of(plan, "attention", false), products + softmax, 1e-9);
}

// One-hot rows of 51,200 columns are written for 8,192 tokens in 16 bits; the gradient of the table
// is a product into what accumulates, or into 16 bits that a pass then adds.
TEST(GradientKernels, LookupsByProductsWriteOneHotRows) {
  Plan plan = one_replica(small_spec(), {});
  plan.execution.lookup_products = true;
  const auto elementwise = [&](double bytes) {
    return memory_bound(plan, bytes, costmodel::MemoryKernel::Elementwise).value();
  };
  const double one_hot = elementwise(8192.0 * 51200 * 2);
  const auto kernel = [&](bool forward) {
    const BlockCosts costs(plan);
    const BlockSteps steps = costs.steps_of(plan.network.chain[0], {}, plan.micro_batch);
    double time = 0;
    for (const Step& step : forward ? steps.forward : steps.backward) {
      time += step.name == "token_gather" ? step.time.value() : 0.0;
    }
    return time;
  };
  GemmShape forward{8192, 1024, 51200, 1, DType::Bf16, 2};
  forward.layout = GemmLayout::NN;
  EXPECT_NEAR(kernel(true), gemm_on(plan, forward) + one_hot, 1e-9);
  GemmShape gradient{51200, 1024, 8192, 1, DType::Bf16, 4};
  gradient.layout = GemmLayout::NT;
  EXPECT_NEAR(kernel(false), gemm_on(plan, gradient) + one_hot, 1e-9);
  plan.execution.fp32_gradients = false;
  gradient.output_bytes = 2;
  EXPECT_NEAR(kernel(false), gemm_on(plan, gradient) + one_hot, 1e-9);
  plan.execution.fp32_gradients = true;
  plan.execution.fused_grad_accumulation = false;
  const double added = elementwise(51200.0 * 1024 * (2 + 4 + 4));
  EXPECT_NEAR(kernel(false), gemm_on(plan, gradient) + one_hot + added, 1e-9);
}

// Of 4,096 x 1,024 elements; what is smaller than the operands is read and written, too.
TEST(GradientKernels, ProductsAddIntoGradientsOfTheirPrecision) {
  models::NetworkSpec spec = small_spec();
  spec.mlp_bias = false;
  Plan plan = one_replica(spec, {});
  plan.batch = plan.micro_batch = 1;
  plan.sequence = 128;  // few tokens, so that the gradient's bytes decide
  const auto kernel = [&] {
    const BlockCosts costs(plan);
    const BlockSteps steps = costs.steps_of(plan.network.chain[1], {}, plan.micro_batch);
    double time = 0;
    for (const Step& step : steps.backward) {
      const bool own = step.name == "mlp_up" && step.pass == sim::PassKind::WeightGrad;
      time += own ? step.time.value() : 0.0;
    }
    return time;
  };
  GemmShape gradient{4096, 1024, 128, 1, DType::Bf16, 4};
  gradient.layout = GemmLayout::NT;
  const double wide = gemm_on(plan, gradient);
  EXPECT_NEAR(kernel(), wide, 1e-12);
  gradient.output_bytes = 2;
  ASSERT_LT(gemm_on(plan, gradient), 0.9 * wide);
  plan.execution.fp32_gradients = false;
  EXPECT_NEAR(kernel(), gemm_on(plan, gradient), 1e-12);
}

TEST(GradientKernels, StatesReduceAndHoldGradientsOfTheirPrecision) {
  Plan plan = one_replica(small_spec(), {});
  BlockCosts costs(plan);
  const BlockPlan layout = {.zero_stage = 1};
  const Mesh mesh = mesh_of(layout, 4);
  const BlockCost& cost = costs.of(plan.network.chain[1], layout, 1);
  double elements = 0;
  for (const StateGroup& group : cost.states) {
    elements += static_cast<double>(group.elements);
  }
  for (const auto& [fp32, bytes] : {std::pair(true, 4.0), std::pair(false, 2.0)}) {
    plan.execution.fp32_gradients = fp32;
    double reduced = 0;
    for (const StateCollective& one :
         state_collectives(cost, layout, mesh, plan.execution, DType::Bf16, false, 8)) {
      reduced += one.use == StateCollective::Use::Reduce ? one.bytes : 0;
    }
    EXPECT_DOUBLE_EQ(reduced, bytes * elements);
    const StateBytes states = state_bytes(cost, layout, mesh, plan.execution, DType::Bf16, false);
    EXPECT_DOUBLE_EQ(static_cast<double>(states.gradients.value()), bytes * elements);
  }
}

// Weights of the first product, 1,024 x 4,096 elements cut by two columns, that SUMMA stores on two
// rows of ranks.
TEST(GradientKernels, BlocksScatterGradientsOfTheirPrecision) {
  BlockPlan layout;
  layout.tp = 4;
  layout.tensor_parallel = TensorMesh::TwoD;
  for (const auto& [fp32, bytes] : {std::pair(true, 4.0), std::pair(false, 2.0)}) {
    Layer layer(gpt(1024, 16), layout, 1, 4, 512);
    layer.execution().fp32_gradients = fp32;
    double scattered = 0;
    for (const Step& step : layer.steps().backward) {
      const bool own =
          step.collective && step.comm == CommKind::ReduceScatter && step.name == "w_up";
      scattered += own ? step.bytes.value() : 0.0;
    }
    EXPECT_DOUBLE_EQ(scattered, bytes * 1024 * 4096 / 2);
  }
}

}  // namespace
}  // namespace orrery::plan
