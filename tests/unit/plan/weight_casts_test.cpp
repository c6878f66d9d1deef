// SPDX-License-Identifier: Apache-2.0
// What a step in mixed precision does once with its weights: casts to fp8 in the first forward, and
// copies of the master weights after the update.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "plan/block/quantised_casts.hpp"
#include "plan/document/idle_fields.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/pass_costs.hpp"
#include "plan/stage/step_end.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using costmodel::MemoryKernel;

Plan fp8_weights_plan() {
  Plan plan = small_plan(small_spec(), "hgx-h100:2");
  plan.precision = DType::Fp8;
  check_plan(plan, "test");
  return plan;
}

StageCost first_stage(const Plan& plan) {
  BlockCosts costs(plan);
  return simulate_stage(stage_contents(plan).front(), plan, costs);
}

// Of a layer on one of 4 tensor ranks: 4 h^2 of attention and 8 h^2 behind it.
constexpr double kWeights = 12.0 * 1024 * 1024 / 4;

// The first of two stages has the embedding beside its layers.
SimTime of_layers(const Plan& plan, Seconds layer) {
  return to_sim_time(layer) * (plan.stage_blocks.front() - 1);
}

TEST(WeightCasts, ParametersIn16BitsAreCastAndTransposed) {
  const Plan plan = fp8_weights_plan();
  EXPECT_EQ(first_stage(plan).weight_casts.ps,
            of_layers(plan, memory_bound(plan, 4 * kWeights, MemoryKernel::CastTranspose)).ps);
}

TEST(WeightCasts, CurrentScalesAreFoundFirst) {
  Plan plan = fp8_weights_plan();
  plan.execution.fp8_scaling = Fp8Scaling::Current;
  EXPECT_EQ(first_stage(plan).weight_casts.ps,
            of_layers(plan, memory_bound(plan, 2 * kWeights, MemoryKernel::Cast) +
                                memory_bound(plan, 4 * kWeights, MemoryKernel::CastTranspose))
                .ps);
}

TEST(WeightCasts, OfParametersGatheredIn8BitsTheTransposesAlone) {
  Plan plan = fp8_weights_plan();
  plan.execution.quantised_gather = true;
  EXPECT_EQ(first_stage(plan).weight_casts.ps,
            of_layers(plan, memory_bound(plan, 2 * kWeights, MemoryKernel::Cast)).ps);
  plan.cluster.gpu.any_fp8_layout = true;
  EXPECT_EQ(first_stage(plan).weight_casts.ps, 0);
  plan.execution.fp8_scaling = Fp8Scaling::Blocks;  // gathered in 16 bits
  EXPECT_EQ(first_stage(plan).weight_casts.ps,
            of_layers(plan, memory_bound(plan, 4 * kWeights, MemoryKernel::CastTranspose)).ps);
}

TEST(WeightCasts, NotWhereEveryPassCastsThemOrNothingIsInFp8) {
  Plan plan = fp8_weights_plan();
  plan.execution.casts_weights = true;
  EXPECT_EQ(first_stage(plan).weight_casts.ps, 0);
  plan.execution.casts_weights = false;
  plan.precision = DType::Bf16;
  EXPECT_EQ(first_stage(plan).weight_casts.ps, 0);
}

// Rows and columns of a byte beside parameters of two, or in their place; on a GPU whose products
// read any layout rows alone. Shards of parameters are cast for every pass.
TEST(WeightCasts, StayWhereTheyLastAStep) {
  Plan plan = fp8_weights_plan();
  const auto parameters = [&] { return first_stage(plan).states.held_parameters().value(); };
  plan.execution.casts_weights = true;
  const std::int64_t alone = parameters();
  const auto weights = static_cast<std::int64_t>(kWeights) * (plan.stage_blocks.front() - 1);
  plan.execution.casts_weights = false;
  EXPECT_EQ(parameters() - alone, 2 * weights);
  plan.execution.quantised_gather = true;
  EXPECT_EQ(parameters(), alone);
  plan.blocks.front().layout.zero_stage = 0;  // nothing is gathered
  EXPECT_EQ(parameters() - alone, 2 * weights);
  plan.blocks.front().layout.zero_stage = 1;
  plan.cluster.gpu.any_fp8_layout = true;
  EXPECT_EQ(alone - parameters(), weights);
  plan.execution.quantised_gather = false;
  EXPECT_EQ(parameters() - alone, weights);
  plan.blocks.front().layout.zero_stage = 3;
  const std::int64_t shards = parameters();
  plan.execution.casts_weights = true;
  EXPECT_EQ(parameters(), shards);
}

// Parameters that live on the host arrive in 16 bits for every pass: both passes cast them, the
// step does not, and nothing of it stays on the device.
TEST(WeightCasts, OfParametersOnTheHostAreMadeInEveryPass) {
  Plan plan = fp8_weights_plan();
  plan.cluster.node.host_link_per_gpu = BytesPerSecond(1e15);  // copies take no time
  plan.cluster.node.host_memory_bandwidth = BytesPerSecond(1e18);
  Offload& offload = plan.blocks.front().layout.offload;
  offload.optimizer = Tier::Host;
  check_plan(plan, "test");
  const StageCost there = first_stage(plan);
  EXPECT_GT(there.weight_casts.ps, 0);
  EXPECT_GT(there.states.cast_weights.value(), 0);
  offload.parameters = Tier::Host;
  check_plan(plan, "test");
  const StageCost away = first_stage(plan);
  EXPECT_EQ(away.weight_casts.ps, 0);
  EXPECT_EQ(away.states.cast_weights.value(), 0);
  EXPECT_EQ(away.states.held_parameters().value(), 0);
  const Seconds casts = memory_bound(plan, 4 * kWeights, MemoryKernel::CastTranspose);
  const double layers = plan.stage_blocks.front() - 1;
  const auto longer = [](SimTime one, SimTime other) { return to_seconds(one - other).value(); };
  const Seconds rows = memory_bound(plan, 3 * kWeights, MemoryKernel::Cast);
  EXPECT_NEAR(longer(away.forward, there.forward) / (rows * layers).value(), 1, 0.02);
  EXPECT_NEAR(longer(away.backward, there.backward) / (casts * layers).value(), 1, 0.02);
  BlockCosts costs(plan);
  BlockCost layer = costs.of(1, plan.blocks.front().layout, 1, {});
  layer.quantised.transposed = layer.quantised.again =
      0;  // as of frozen weights below the first trained one
  const PassCasts frozen = weight_casts_of_passes(layer, plan.blocks.front().layout,
                                                  mesh_of(plan.blocks.front().layout, plan.dp),
                                                  plan.precision, costs.device(), plan.execution);
  EXPECT_GT(frozen.forward, Seconds());
  EXPECT_EQ(frozen.backward, Seconds());
  // On memory that is half as fast.
  const BlockPlan& layout = plan.blocks.front().layout;
  const auto copies = [&](const BlockCosts& priced) {
    const StateTraffic traffic =
        state_traffic(layer, layout, mesh_of(layout, plan.dp), priced, false);
    return std::pair(traffic.copy_forward, traffic.copy_backward);
  };
  layer.quantised = costs.of(1, layout, 1, {}).quantised;
  const auto [forward, backward] = copies(costs);
  CostFactors slower;
  slower.shared[static_cast<std::size_t>(CostClass::MemoryBound)] = std::log(2.0);
  BlockCosts slowed(plan);
  slowed.set_factors(slower);
  EXPECT_GT(backward, Seconds());
  EXPECT_NEAR(copies(slowed).first / forward, 2, 0.01);
  EXPECT_NEAR(copies(slowed).second / backward, 2, 0.01);
  plan.execution.casts_weights = true;  // by the products, with or without
  const StageCost each = first_stage(plan);
  offload.parameters = Tier::Device;
  EXPECT_NEAR(to_seconds(each.forward) / to_seconds(first_stage(plan).forward), 1, 1e-3);
}

// ZeRO-3 gathers weights for every pass and keeps none: in 16 bits both passes cast them, the
// backward with their transposes, in 8 bits every rank casts its shard before each gather and the
// backward transposes.
TEST(WeightCasts, OfGatheredParametersAreMadeInEveryPass) {
  Plan plan = fp8_weights_plan();
  BlockPlan& layout = plan.blocks.front().layout;
  layout.zero_stage = 3;
  check_plan(plan, "test");
  BlockCosts costs(plan);
  const BlockCost& layer = costs.of(1, layout, 1, {});
  const Mesh mesh = mesh_of(layout, plan.dp);
  ASSERT_EQ(static_cast<double>(layer.quantised.weights), kWeights);
  const auto casts = [&] {
    return weight_casts_of_passes(layer, layout, mesh, plan.precision, costs.device(),
                                  plan.execution);
  };
  const Seconds whole = memory_bound(plan, 4 * kWeights, MemoryKernel::CastTranspose);
  EXPECT_EQ(first_stage(plan).weight_casts.ps, 0);
  EXPECT_EQ(casts().forward, memory_bound(plan, 3 * kWeights, MemoryKernel::Cast));  // no columns
  EXPECT_EQ(casts().backward, whole);
  plan.execution.quantised_gather = true;
  const double shard = kWeights / plan.dp;
  EXPECT_EQ(casts().forward, memory_bound(plan, 3 * shard, MemoryKernel::Cast));
  EXPECT_EQ(casts().backward, memory_bound(plan, 3 * shard, MemoryKernel::Cast) +
                                  memory_bound(plan, 2 * kWeights, MemoryKernel::Cast));
  // torchao copies a weight into columns with its product.
  plan.execution.fp8_scaling = Fp8Scaling::Current;
  plan.execution.cast_transposes = false;
  EXPECT_EQ(casts().backward, casts().forward);
  EXPECT_EQ(casts().forward, memory_bound(plan, 5 * shard, MemoryKernel::Cast));
  plan.execution.casts_weights = true;
  EXPECT_EQ(casts().forward, Seconds());
  plan.execution.casts_weights = false;
  plan.dp = 1;  // nobody to gather from: once a step
  const Mesh alone = mesh_of(layout, 1);
  EXPECT_EQ(
      weight_casts_of_passes(layer, layout, alone, plan.precision, costs.device(), plan.execution)
          .forward,
      Seconds());
  EXPECT_GT(
      weight_casts_of_step(layer, layout, alone, plan.precision, costs.device(), plan.execution),
      Seconds());
}

// What is gathered in 8 bits is read so: half the bytes, and columns where products need them.
TEST(WeightCasts, GatheredIn8BitsTakeAByteEach) {
  Plan plan = fp8_weights_plan();
  BlockPlan& layout = plan.blocks.front().layout;
  layout.zero_stage = 3;
  const auto gathered = [&] {
    BlockCosts costs(plan);
    return static_cast<double>(state_bytes(costs.of(1, layout, 1, {}), layout,
                                           mesh_of(layout, plan.dp), plan.execution, plan.precision,
                                           true, plan.cluster.node.gpus)
                                   .gathered.value());
  };
  const double plain = gathered();
  plan.execution.quantised_gather = true;
  EXPECT_EQ(gathered(), plain);  // a byte of rows and one of columns
  plan.cluster.gpu.any_fp8_layout = true;
  EXPECT_EQ(gathered(), plain - kWeights);
  plan.precision = DType::Bf16;  // ZeRO++ makes 16 bits of its integers
  EXPECT_EQ(gathered(), plain);
}

// ZeRO++'s second shard serves gathers inside a node: where all ranks are there it is the first.
TEST(SecondShard, IsThatOfTheNode) {
  Plan plan = small_plan(small_spec(), "hgx-h100:2");
  BlockPlan& layout = plan.blocks.front().layout;
  layout.zero_stage = 3;
  layout.tp = 1;
  const auto parameters = [&](int dp, bool second) {
    plan.execution.hierarchical_gather = second;
    BlockCosts costs(plan);
    return state_bytes(costs.of(1, layout, 1, {}), layout, mesh_of(layout, dp), plan.execution,
                       plan.precision, true, plan.cluster.node.gpus)
        .parameters.value();
  };
  EXPECT_EQ(parameters(8, true), parameters(8, false));
  EXPECT_EQ(parameters(16, true), 3 * parameters(16, false));  // a sixteenth and an eighth
  plan.pp = 1;
  plan.stage_blocks = {static_cast<int>(plan.network.chain.size())};
  plan.execution.hierarchical_gather = true;
  plan.dp = 16;
  EXPECT_EQ(idle_text(idle_fields(plan)), "");
  plan.dp = 8;
  EXPECT_EQ(idle_text(idle_fields(plan)),
            "execution.hierarchical_gather (needs zero_stage = 3 over data-parallel ranks of "
            "several nodes; inside a node the shard is that of every gather)");
}

// Below the first adapters no input gradient reads the frozen weights; what runs again does, and so
// casts them once more.
TEST(WeightCasts, OfParametersOnTheHostAreMadeForWhatRunsAgain) {
  Plan plan = fp8_weights_plan();
  models::NetworkSpec spec = small_spec();
  spec.adapters = {.rank = 16, .qkv = false, .o = false, .up = false};
  plan.network = models::build_network(spec, "test");
  BlockPlan& layout = plan.blocks.front().layout;
  layout.offload.optimizer = layout.offload.parameters = Tier::Host;
  // Of the first layer: attention's 4 h^2 and the feed-forward layer's 8 h^2, in rows alone.
  const auto expect_twelfths = [&](double expected, Recompute recompute,
                                   std::string_view set = "norms") {
    layout.recompute = recompute;
    layout.recomputed = parse_operator_set(set, "test");
    BlockCosts costs(plan);
    const BlockCost& first = costs.of(plan.network.chain[1], layout, 1, {});
    const auto weights = static_cast<double>(first.quantised.weights);
    EXPECT_EQ(static_cast<double>(first.quantised.again) * 12, expected * weights);
    const PassCasts casts = weight_casts_of_passes(first, layout, mesh_of(layout, plan.dp),
                                                   plan.precision, costs.device(), plan.execution);
    EXPECT_GT(casts.forward, Seconds());
    EXPECT_EQ(casts.backward > Seconds(), expected > 0);
    EXPECT_EQ(casts.backward == casts.forward, expected == 12);
  };
  expect_twelfths(0, Recompute::None);
  expect_twelfths(0, Recompute::Selective);
  expect_twelfths(12, Recompute::Full);
  expect_twelfths(4, Recompute::Operators, "mlp-up+mlp-activation");
  expect_twelfths(8, Recompute::Products);  // what the product up makes is kept
}

// ZeRO-0 gathers nothing: parameters in 16 bits are cast and transposed.
TEST(WeightCasts, OfParametersThatNothingGathersAreAsWithoutTheFlag) {
  Plan plan = fp8_weights_plan();
  plan.blocks.front().layout.zero_stage = 0;
  const StageCost without = first_stage(plan);
  plan.execution.quantised_gather = true;
  EXPECT_EQ(first_stage(plan).weight_casts.ps, without.weight_casts.ps);
  EXPECT_EQ(first_stage(plan).states.held_parameters(), without.states.held_parameters());
}

// A shard in 16 bits or in fp32 that no master copy stands behind is what the optimizer updates.
TEST(WeightCasts, ReplaceNoParametersThatTheOptimizerNeeds) {
  Plan plan = fp8_weights_plan();
  const auto replaced = [&] { return first_stage(plan).states.replaced.value(); };
  EXPECT_EQ(replaced(), 0);
  plan.execution.quantised_gather = true;
  EXPECT_EQ(replaced(), 2 * static_cast<std::int64_t>(kWeights) * (plan.stage_blocks.front() - 1));
  plan.execution.fp32_parameters = true;
  EXPECT_EQ(replaced(), 0);
  plan.execution.fp32_parameters = false;
  plan.execution.master_weights = false;
  EXPECT_EQ(replaced(), 0);
  plan.execution.master_weights = true;
  plan.blocks.front().layout.offload.parameters = Tier::Host;
  EXPECT_EQ(replaced(), 0);
}

// Meshes store a part of what a product reads.
TEST(WeightCasts, StayAsTheyAreStored) {
  Plan plan = fp8_weights_plan();
  plan.cluster.gpu.any_fp8_layout = true;
  plan.blocks.front().layout.tensor_parallel = TensorMesh::TwoD;
  plan.micro_batch = 4;
  check_plan(plan, "test");
  const auto layers = plan.stage_blocks.front() - 1;
  EXPECT_EQ(first_stage(plan).states.cast_weights.value(),
            static_cast<std::int64_t>(kWeights) * layers);
}

TEST(WeightCasts, LengthenTheFirstForwardAlone) {
  Plan plan = fp8_weights_plan();
  plan.execution.overlap_param_gather = false;
  BlockCosts costs(plan);
  std::vector<StageCost> stages;
  for (const StageContent& content : stage_contents(plan)) {
    stages.push_back(simulate_stage(content, plan, costs));
  }
  const sim::PipelineCosts passes = pipeline_costs(plan, costs, stages, {SimTime{}}, {});
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    EXPECT_EQ(passes.first_forward_extra[stage].ps, stages[stage].weight_casts.ps);
    EXPECT_EQ(passes.forward[stage].ps, stages[stage].forward.ps);
  }
}

// Every micro-batch updates the weights, and so casts them.
TEST(WeightCasts, FollowEveryUpdateOfAnAsynchronousPipeline) {
  Plan plan = fp8_weights_plan();
  plan.schedule = "pipedream";
  plan.blocks.front().layout.zero_stage = 0;
  const Seconds once = simulate(plan).iteration_time;
  plan.execution.casts_weights = true;
  EXPECT_NEAR(simulate(plan).iteration_time / once, 1, 0.008);  // 1.017 without
}

// Gradient 4, moments 16, master copy 8 and parameter 2, and the master copy once more.
TEST(MasterCopies, AreReadOnceMore) {
  Plan plan = small_plan();
  const BlockCosts costs(plan);
  const std::int64_t parameters = 1 << 28;
  const auto bytes = [&](int each) { return static_cast<double>(parameters) * each; };
  const auto time = [&] { return optimizer_time(plan, parameters, ByteCount(), costs).value(); };
  const double update = time();
  plan.execution.copies_master = true;
  EXPECT_NEAR(time() - update,
              (memory_bound(plan, bytes(34), MemoryKernel::Optimizer) -
               memory_bound(plan, bytes(30), MemoryKernel::Optimizer))
                  .value(),
              1e-9);
}

}  // namespace
}  // namespace orrery::plan
