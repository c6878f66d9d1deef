// SPDX-License-Identifier: Apache-2.0
// Of gathered inputs the backward either gathers again or finds a copy (keep_gathered, or without
// regathers_inputs): what it does not move, it holds, whatever is recomputed.
#include "plan/block/gathered.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/stages.hpp"
#include "tests/unit/plan/balanced_replay.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr int kTensorRanks = 4;
constexpr double kStream = 2.0 * 2048 * 4096;  // a sample of Llama-3-8B, in 16 bits

// What a layer gathers behind its forward, holds for its backward by the formula, and at most in
// the replay of its allocations.
struct GatherBill {
  double gathered = 0;
  double held = 0;
  std::int64_t peak = 0;
};

std::int64_t highest(const BlockMemory& memory) {
  std::map<std::int32_t, std::int64_t> live{{memory.input, memory.boundary},
                                            {memory.output_gradient, memory.boundary}};
  std::int64_t sum = 2 * memory.boundary;
  std::int64_t peak = 0;
  for (const std::vector<MemoryEvent>* events : {&memory.forward, &memory.backward}) {
    for (const MemoryEvent& event : *events) {
      std::int64_t& bytes = live[event.buffer];
      sum += event.bytes > 0 ? event.bytes : -bytes;
      bytes = event.bytes;
      peak = std::max(peak, sum);
    }
  }
  return peak;
}

enum class Waits : std::uint8_t { None, Inputs, All };

GatherBill bill_of(Plan plan, Waits waits) {
  BlockPlan& layout = plan.blocks.front().layout;
  layout.keep_gathered = waits == Waits::All;
  plan.execution.regathers_inputs = waits != Waits::Inputs;
  expect_balanced(plan);
  BlockCosts costs(plan);
  const int block = plan.network.chain[2];
  const BlockSteps steps = costs.steps_of(block, layout, plan.micro_batch);
  GatherBill bill;
  for (const std::vector<Step>* list : {&steps.recompute, &steps.backward}) {
    for (const Step& step : *list) {
      const bool gather = step.collective && step.comm == sim::CommKind::AllGather;
      bill.gathered += gather ? step.bytes.value() : 0;
    }
  }
  const BlockCost& cost = costs.of(block, layout, plan.micro_batch);
  bill.held = static_cast<double>((cost.saved + cost.working).value());
  bill.peak =
      highest(block_memory(costs.block_context(block, layout, plan.micro_batch), {}, false));
  return bill;
}

// Bytes that the backward no longer gathers; what it holds instead must be the others' shares.
double saved_gathers(const Plan& plan, Waits waits = Waits::All) {
  const GatherBill again = bill_of(plan, Waits::None);
  const GatherBill kept = bill_of(plan, waits);
  const double less = again.gathered - kept.gathered;
  EXPECT_EQ(kept.held - again.held, less * (kTensorRanks - 1) / kTensorRanks);
  if (less > kStream) {  // of one copy both hold the whole at the peak
    EXPECT_GT(kept.peak, again.peak);
  } else if (less == 0) {
    EXPECT_EQ(kept.peak, again.peak);
  }
  return less;
}

Plan gathering_plan(Recompute recompute, bool adapters) {
  BlockPlan layout;
  layout.tp = kTensorRanks;
  layout.sequence_parallel = true;
  layout.recompute = recompute;
  Plan plan = one_stage_plan(layout, "llama3-8b");
  if (adapters) {
    models::NetworkSpec spec = plan.network.spec;
    spec.adapters.rank = 16;
    plan.network = models::build_network(spec, "test");
    plan.stage_blocks = even_stages(plan.network, 1);
    plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
  }
  return plan;
}

TEST(GatheredCopies, TakeMemoryForTheTimeTheySave) {
  for (const bool adapters : {false, true}) {
    for (const Recompute recompute :
         {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products}) {
      SCOPED_TRACE(to_text(recompute));
      const Plan plan = gathering_plan(recompute, adapters);
      // Of attention and of the feed-forward layer; the input of a product whose result
      // per-operator checkpointing keeps, as that of one adapter here, is gathered by the backward.
      const bool one = adapters && recompute == Recompute::Products;
      const double less = saved_gathers(plan);
      EXPECT_GE(less, (one ? 1 : 2) * kStream);
      EXPECT_EQ(saved_gathers(plan, Waits::Inputs), less);  // the ranks cut no weight
    }
  }
}

// What is made anew from a recomputed norm is gathered anew; a product that runs again gathers by
// itself, and its backward finds that copy.
TEST(GatheredCopies, FollowWhatRunsAgain) {
  for (const bool adapters : {false, true}) {
    Plan plan = gathering_plan(Recompute::Operators, adapters);
    const auto less = [&](std::string_view set) {
      SCOPED_TRACE(set);
      plan.blocks.front().layout.recomputed = parse_operator_set(set, "test");
      const double all = saved_gathers(plan);
      EXPECT_EQ(saved_gathers(plan, Waits::Inputs), all);
      return all;
    };
    const double all = less("mlp-activation");
    EXPECT_EQ(less("norms"), all - 2 * kStream);
    EXPECT_EQ(less("norms+mlp-up"), all - kStream);
    for (const std::string_view set : {"mlp-up", "attention", "attention-core", "rotary"}) {
      less(set);
    }
  }
}

// Copies of what ranks gather in 8 bits take 8 bits, whether the part that they take the place of
// is kept as it was cast or in 16 bits.
TEST(GatheredCopies, TakeTheBytesThatWereGathered) {
  Plan plan = gathering_plan(Recompute::None, false);
  plan.blocks.front().layout.keep_gathered = true;
  const auto copies = [&] {
    expect_balanced(plan);
    BlockCosts costs(plan);
    return static_cast<double>(
        kept_copies(costs.block_context(plan.network.chain[2], plan.blocks.front().layout, 1))
            .value());
  };
  const double parts = 2 * kStream / kTensorRanks;
  EXPECT_EQ(copies(), 2 * kStream - parts);
  plan.precision = DType::Fp8;
  EXPECT_EQ(copies(), kStream - parts / 2);
  plan.execution.fp8_inputs = false;
  EXPECT_EQ(copies(), kStream - parts);
  plan.execution.fp8_gathers = false;
  EXPECT_EQ(copies(), 2 * kStream - parts);
}

// Keys and values that context ranks gather are gathered again in any case: nothing counts them.
TEST(GatheredCopies, AreOfProductsAlone) {
  BlockPlan layout;
  layout.cp = 4;
  layout.context = ContextParallel::AllGather;
  const Plan plan = one_stage_plan(layout, "llama3-8b");
  EXPECT_GT(bill_of(plan, Waits::None).gathered, 0);
  EXPECT_EQ(saved_gathers(plan), 0);
}

// Meshes gather weights, too, which wait with keep_gathered alone.
TEST(GatheredCopies, HoldOnMeshes) {
  for (const TensorMesh mesh : {TensorMesh::TwoD, TensorMesh::ThreeD}) {
    for (const Recompute recompute :
         {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products}) {
      BlockPlan layout;
      layout.tp = mesh == TensorMesh::TwoD ? 4 : 8;
      layout.tensor_parallel = mesh;
      layout.recompute = recompute;
      Plan plan = one_stage_plan(layout);
      plan.micro_batch = 16;
      const GatherBill again = bill_of(plan, Waits::None);
      const GatherBill inputs = bill_of(plan, Waits::Inputs);
      const GatherBill kept = bill_of(plan, Waits::All);
      EXPECT_LT(kept.gathered, inputs.gathered);
      EXPECT_LT(inputs.gathered, again.gathered);
      EXPECT_GT(kept.held, inputs.held);
      EXPECT_GT(inputs.held, again.held);
    }
  }
}

}  // namespace
}  // namespace orrery::plan
