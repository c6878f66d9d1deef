// SPDX-License-Identifier: Apache-2.0
// Kernels beside the GEMMs: biases, gradient accumulation, copies between layouts, softmax outside
// its fused kernel, dense embedding gradients, and hosts that wait for every kernel.
#include "plan/block/kernels.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>

#include "plan/block/attention_kernels.hpp"
#include "plan/block/cost.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

Plan one_gpu(const models::NetworkSpec& spec = small_spec()) { return one_replica(spec, {}); }

constexpr int kEmbedding = 0;
constexpr int kLayer = 1;

BlockCost cost_of(const Plan& plan, int position) {
  BlockCosts costs(plan);
  return costs.of(plan.network.chain[static_cast<std::size_t>(position)], plan.layout_of(position),
                  plan.micro_batch);
}

double seconds(const PassCost& pass) { return pass.compute.value(); }

double elements_of_stream(const Plan& plan) {
  return static_cast<double>(plan.micro_batch * plan.sequence * plan.network.spec.hidden);
}

// What a kernel takes for its bytes alone, at most.
double at_full_bandwidth(const Plan& plan, double bytes) {
  return bytes / plan.cluster.gpu.hbm_bandwidth.value();
}

TEST(KernelsTest, BiasOutsideTheGemmReadsItsOutputAgain) {
  Plan plan = one_gpu();
  const BlockCost fused = cost_of(plan, kLayer);
  plan.execution.fused_bias = false;
  const BlockCost apart = cost_of(plan, kLayer);
  // Forward: only q, k and v have no fused kernel after them. Backward: sums of 3 + 1 + 4 + 1.
  const double stream = 2.0 * elements_of_stream(plan);
  const double forward = seconds(apart.forward) - seconds(fused.forward);
  const double backward = seconds(apart.backward) - seconds(fused.backward);
  EXPECT_GT(forward, at_full_bandwidth(plan, 6 * stream));
  EXPECT_LT(forward, 1.5 * at_full_bandwidth(plan, 6 * stream));
  EXPECT_GT(backward, at_full_bandwidth(plan, 9 * stream));
  EXPECT_LT(backward, 1.5 * at_full_bandwidth(plan, 9 * stream));
  EXPECT_EQ(apart.backward.launches, fused.backward.launches + 4);
}

TEST(KernelsTest, GradientsOfBiasesThatTheNextKernelAddsAreSums) {
  Plan plan = one_gpu();
  const BlockCost epilogue = cost_of(plan, kLayer);
  plan.execution.bias_gradient_sums = true;
  const BlockCost sums = cost_of(plan, kLayer);
  // All but the sum of q, k and v: 1 + 4 + 1.
  const double bytes = 6 * 2.0 * elements_of_stream(plan);
  const double backward = seconds(sums.backward) - seconds(epilogue.backward);
  EXPECT_GT(backward, at_full_bandwidth(plan, bytes));
  EXPECT_LT(backward, 1.5 * at_full_bandwidth(plan, bytes));
  EXPECT_EQ(sums.backward.launches, epilogue.backward.launches + 3);
  EXPECT_EQ(sums.forward.time, epilogue.forward.time);
}

TEST(KernelsTest, NetworksWithoutBiasesHaveNoBiasKernels) {
  models::NetworkSpec spec = small_spec();
  spec.attention_bias = spec.attention_output_bias = spec.mlp_bias = false;
  Plan plan = one_gpu(spec);
  const BlockCost fused = cost_of(plan, kLayer);
  plan.execution.fused_bias = false;
  EXPECT_EQ(cost_of(plan, kLayer).backward.time, fused.backward.time);
}

TEST(KernelsTest, UnfusedAccumulationPassesOverEveryWeight) {
  Plan plan = one_gpu();
  plan.execution.fp32_gradients = false;
  const BlockCost fused = cost_of(plan, kLayer);
  plan.execution.fused_grad_accumulation = false;
  const BlockCost apart = cost_of(plan, kLayer);
  const double hidden = static_cast<double>(plan.network.spec.hidden);
  const double bytes =
      12.0 * hidden * hidden * (2 + 2 * 2);  // read the new, read and write the sum
  const double more = seconds(apart.backward) - seconds(fused.backward);
  EXPECT_GT(more, at_full_bandwidth(plan, bytes));
  EXPECT_LT(more, 1.5 * at_full_bandwidth(plan, bytes) + 4 * 10e-6);
  EXPECT_EQ(apart.forward.time, fused.forward.time);
}

TEST(KernelsTest, CastGradientsAreWrittenAndReadOnceMore) {
  Plan plan = one_gpu();
  plan.execution.fused_grad_accumulation = false;
  const BlockCost direct = cost_of(plan, kLayer);
  plan.execution.cast_gradients = true;
  const BlockCost cast = cost_of(plan, kLayer);
  const double hidden = static_cast<double>(plan.network.spec.hidden);
  const double bytes = 12.0 * hidden * hidden * (4 + 4);
  const double more = seconds(cast.backward) - seconds(direct.backward);
  EXPECT_GT(more, at_full_bandwidth(plan, bytes));
  EXPECT_LT(more, 1.5 * at_full_bandwidth(plan, bytes));
  plan.execution.fp32_gradients = false;  // nothing to cast
  const BlockCost low = cost_of(plan, kLayer);
  plan.execution.cast_gradients = false;
  EXPECT_EQ(cost_of(plan, kLayer).backward.time, low.backward.time);
}

// In the projection's order values are copied, and the gradient of q, k and v is joined; queries of
// groups are copied, too. Without rotary positions nothing is.
TEST(KernelsTest, ProjectionCopiesMoveValuesAndJoinGradients) {
  const auto more = [](std::int64_t kv_heads, models::PositionKind position) {
    models::NetworkSpec spec = small_spec();
    spec.kv_heads = kv_heads;
    spec.position = position;
    Plan plan = one_gpu(spec);
    const BlockCost direct = cost_of(plan, kLayer);
    plan.execution.projection_copies = true;
    const BlockCost copied = cost_of(plan, kLayer);
    return std::tuple(copied.forward.launches - direct.forward.launches,
                      copied.backward.launches - direct.backward.launches,
                      seconds(copied.forward) - seconds(direct.forward),
                      seconds(copied.backward) - seconds(direct.backward));
  };
  const std::int64_t heads = small_spec().heads;
  const auto [forward, backward, time, joined] = more(heads, models::PositionKind::Rotary);
  EXPECT_EQ(forward, 1);
  EXPECT_EQ(backward, 1);
  const auto [grouped, back, grouped_time, narrower] = more(2, models::PositionKind::Rotary);
  EXPECT_EQ(grouped, 2);
  EXPECT_EQ(back, 1);
  EXPECT_GT(grouped_time, time);  // whole queries, and fewer values
  EXPECT_LT(narrower, joined);
  const auto [none, nor_back, no_time, nor_joined] = more(heads, models::PositionKind::Learned);
  EXPECT_EQ(none + nor_back, 0);
  EXPECT_EQ(no_time + nor_joined, 0.0);
}

TEST(KernelsTest, SoftmaxFitsItsKernelOnlyInMultiplesOfFour) {
  costmodel::AttentionShape shape;
  shape.dtype = DType::Bf16;
  shape.batch = 1;
  shape.heads = 4;
  shape.q_len = shape.kv_len = 2048;
  EXPECT_TRUE(fused_softmax_fits(shape));
  shape.heads = 2;
  EXPECT_FALSE(fused_softmax_fits(shape));
  shape.batch = 2;
  EXPECT_TRUE(fused_softmax_fits(shape));
  shape.q_len = shape.kv_len = 8192;
  EXPECT_FALSE(fused_softmax_fits(shape));
  shape.q_len = shape.kv_len = 2048;
  shape.dtype = DType::Tf32;
  EXPECT_FALSE(fused_softmax_fits(shape));  // is_kernel_available asks for 16 bits
}

// What kinds of softmax move of a score beyond a compiler's one kernel: Megatron's modules leave
// fp32 to PyTorch, whose own kernels are a scale, a mask and a softmax.
TEST(KernelsTest, SoftmaxMovesWhatItsKindDoes) {
  struct Case {
    DType precision;
    Softmax kind;
    bool causal;
    double forward;  // bytes
    double backward;
  };
  for (const Case& some : {Case{DType::Fp32, Softmax::Megatron, true, 17 - 8, 65 - 12},
                           Case{DType::Fp32, Softmax::Eager, true, 24 - 8, 20 - 12},
                           Case{DType::Bf16, Softmax::Eager, true, 12 - 4, 10 - 6},
                           Case{DType::Bf16, Softmax::Eager, false, 8 - 4, 10 - 6},
                           Case{DType::Bf16, Softmax::Megatron, true, 0, 0}}) {
    models::NetworkSpec spec = small_spec();
    spec.causal = some.causal;
    Plan plan = one_gpu(spec);
    plan.precision = some.precision;
    plan.execution.fused_attention = false;
    plan.execution.softmax = some.kind;
    const BlockCost cost = cost_of(plan, kLayer);
    plan.execution.softmax = Softmax::Compiled;
    const BlockCost least = cost_of(plan, kLayer);
    const double scores = static_cast<double>(plan.micro_batch * spec.heads) * 2048 * 2048;
    const double score = at_full_bandwidth(plan, scores);
    const double forward = (seconds(cost.forward) - seconds(least.forward)) / score;
    const double backward = (seconds(cost.backward) - seconds(least.backward)) / score;
    EXPECT_GE(forward, some.forward);
    EXPECT_LE(forward, 1.5 * some.forward);
    EXPECT_GE(backward, some.backward);
    EXPECT_LE(backward, 1.5 * some.backward);
  }
}

// Eight-way tensor parallelism leaves 2 of 16 heads: with one sequence the eager softmax runs.
TEST(KernelsTest, EagerSoftmaxTakesLongerThanTheFusedOne) {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  plan.execution.fused_attention = false;
  plan.dp = plan.pp = 1;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout = {.tp = 8};
  plan.micro_batch = 2;
  const double pair = seconds(cost_of(plan, kLayer).forward);
  plan.micro_batch = 1;
  const double single = seconds(cost_of(plan, kLayer).forward);
  const double scores = 2.0 * 2048 * 2048;  // heads x queries x keys
  EXPECT_GT(single - pair / 2, at_full_bandwidth(plan, (37 - 4) * scores) / 2);
}

TEST(KernelsTest, UnalignedHeadsLeaveTheTensorCores) {
  models::NetworkSpec aligned = small_spec();
  aligned.head_dim = 112;
  models::NetworkSpec odd = small_spec();
  odd.head_dim = 108;
  Plan wide = one_gpu(aligned);
  Plan narrow = one_gpu(odd);
  wide.execution.fused_attention = narrow.execution.fused_attention = false;
  // Fewer FLOPs, but 216 bytes a row.
  EXPECT_GT(seconds(cost_of(narrow, kLayer).forward), seconds(cost_of(wide, kLayer).forward));
}

TEST(KernelsTest, EmbeddingGradientIsAsLargeAsItsTable) {
  models::NetworkSpec large = small_spec();
  large.vocab = 4 * small_spec().vocab;
  const Plan few = one_gpu();
  const Plan many = one_gpu(large);
  EXPECT_EQ(cost_of(many, kEmbedding).forward.time, cost_of(few, kEmbedding).forward.time);
  const double rows = static_cast<double>(large.vocab - small_spec().vocab);
  const double hidden = static_cast<double>(large.hidden);
  // Fill 2, read 2, read and write the fp32 sum.
  EXPECT_GT(
      seconds(cost_of(many, kEmbedding).backward) - seconds(cost_of(few, kEmbedding).backward),
      at_full_bandwidth(many, rows * hidden * 12));
}

TEST(KernelsTest, BlockingLaunchesAddHostAndDevice) {
  Plan plan = one_gpu();
  plan.execution.host_per_block = Seconds(2e-3);
  const BlockCost queued = cost_of(plan, kLayer);
  plan.execution.blocking_launches = true;
  const BlockCost blocking = cost_of(plan, kLayer);
  EXPECT_NEAR(to_seconds(blocking.forward.time).value(), queued.forward.compute.value() + 2e-3,
              1e-6);
  EXPECT_LT(queued.forward.time, blocking.forward.time);
}

// A graph is one launch, whatever the framework's own code takes; layers with experts have none.
TEST(KernelsTest, GraphsTakeTheHostOneLaunch) {
  Plan plan = one_gpu();
  plan.execution.host_per_block = Seconds(20e-3);
  const BlockCost issued = cost_of(plan, kLayer);
  plan.execution.cuda_graphs = true;
  const BlockCost replayed = cost_of(plan, kLayer);
  EXPECT_EQ(replayed.forward.launches, 1);
  EXPECT_EQ(replayed.forward.host, plan.profile.kernel_launch);
  EXPECT_EQ(replayed.forward.device, issued.forward.device);
  EXPECT_EQ(to_seconds(issued.forward.time).value(), 20e-3);
  EXPECT_LT(replayed.forward.time, issued.forward.time);
  EXPECT_LT(replayed.backward.time, issued.backward.time);
  models::NetworkSpec spec = small_spec();
  spec.moe.experts = 4;
  spec.moe.top_k = 2;
  spec.moe.ffn_hidden = spec.ffn_hidden;
  plan = one_gpu(spec);
  const int launches = cost_of(plan, kLayer).forward.launches;
  plan.execution.cuda_graphs = true;
  EXPECT_EQ(cost_of(plan, kLayer).forward.launches, launches);
}

// Two context ranks: a causal kernel on the own half and one that sees half of the other.
TEST(KernelsTest, RingAttentionRunsAKernelForEveryPart) {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  plan.dp = plan.pp = 1;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout = {.tp = 4, .cp = 2, .context = ContextParallel::AllGather};
  const BlockCost gathered = cost_of(plan, kLayer);
  plan.blocks.front().layout.context = ContextParallel::Ring;
  const BlockCost ring = cost_of(plan, kLayer);
  // The other part's kernels and merges; what merging takes once.
  EXPECT_EQ(ring.forward.launches, gathered.forward.launches + 1 + 2 + 6);
  EXPECT_EQ(ring.backward.launches, gathered.backward.launches + 2 + 3 + 4);
  EXPECT_NEAR(ring.forward.flops.value(), gathered.forward.flops.value(),
              1e-9 * gathered.forward.flops.value());
  EXPECT_GT(seconds(ring.forward), seconds(gathered.forward));
}

models::NetworkSpec expert_spec(int experts) {
  models::NetworkSpec spec = small_spec();
  spec.moe.experts = experts;
  spec.moe.top_k = 2;
  spec.moe.ffn_hidden = 4096;
  return spec;
}

double permute_launches(int experts) {
  Plan plan = small_plan(expert_spec(experts), "dgx-a100:1");
  plan.dp = 8;
  plan.pp = 1;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout = {.ep = 8};
  return cost_of(plan, kLayer).forward.launches;
}

// The same with the experts over the eight tensor-parallel ranks.
int permute_launches_over_tp(int experts, bool by_variables = false) {
  Plan plan = small_plan(expert_spec(experts), "dgx-a100:1");
  plan.dp = 1;
  plan.pp = 1;
  plan.stage_blocks = even_stages(plan.network, 1);
  BlockPlan& layout = plan.blocks.front().layout;
  layout = {.tp = 8, .sequence_parallel = true};
  if (by_variables) {
    using enum models::Var;
    layout.variables[static_cast<std::size_t>(Axis::Tensor)] =
        VarList({Expert, Head, Ffn, Vocab, Seq});
  } else {
    layout.ep = 8;
    layout.expert_tp = 1;
  }
  return cost_of(plan, kLayer).forward.launches;
}

TEST(KernelsTest, SeveralLocalExpertsNeedTheirTokensSorted) {
  EXPECT_EQ(permute_launches(16), permute_launches(8) + 2);  // after dispatch and before return
  EXPECT_EQ(permute_launches_over_tp(16), permute_launches_over_tp(8) + 2);
  EXPECT_EQ(permute_launches_over_tp(16, true), permute_launches_over_tp(16));  // said otherwise
}

// 23 kernels forward, 8 backward, each with a launch, whatever their few bytes.
TEST(KernelsTest, RoutingIsManySmallKernels) {
  const auto layer = [](int experts) {
    Plan plan = small_plan(expert_spec(experts), "dgx-a100:1");
    plan.dp = 8;
    plan.pp = 1;
    plan.stage_blocks = even_stages(plan.network, 1);
    plan.blocks.front().layout = {.ep = 8};
    BlockCosts costs(plan);
    double router = 0;
    const BlockSteps steps = costs.steps_of(plan.network.chain[1], plan.layout_of(1), 1);
    for (const auto* pass : {&steps.forward, &steps.backward}) {
      for (const Step& step : *pass) {
        router += step.name == "top_k" ? step.time.value() : 0;
      }
    }
    return router;
  };
  const Plan plan = small_plan();
  const double launches = 31 * plan.profile.memory.launch.value();
  EXPECT_GT(layer(8), launches);
  EXPECT_LT(layer(8), 1.5 * launches);
  // Twice the experts, twice the bytes: 119 a token and expert.
  EXPECT_GT(layer(128) - layer(64), at_full_bandwidth(plan, 119.0 * 64 * 2048));
}

TEST(KernelsTest, EagerAdamPassesOverEveryStateByItself) {
  Plan plan = one_gpu();
  const double fused = simulate(plan).breakdown.optimizer.value();
  plan.execution.eager_optimizer = true;
  const double eager = simulate(plan).breakdown.optimizer.value();
  // 25 passes of 4 bytes; one kernel: gradient 4, twice moments and master copy 24, parameter 2.
  EXPECT_NEAR(eager / fused, 100.0 / 30.0, 0.05);
  // Without moments 8 passes, with one 13.
  for (const auto& [bytes, passes] : {std::pair{0, 8.0}, std::pair{4, 13.0}}) {
    plan.execution.optimizer_state_bytes = bytes;
    EXPECT_NEAR(simulate(plan).breakdown.optimizer.value() / eager, passes / 25.0, 0.02) << bytes;
  }
}

}  // namespace
}  // namespace orrery::plan
