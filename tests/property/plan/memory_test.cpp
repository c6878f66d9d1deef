// SPDX-License-Identifier: Apache-2.0
// Memory laws: more work never needs less memory, sharding and recomputation never more, states
// add up over the ranks.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/block/cost.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stages.hpp"
#include "tests/property/plan/plan_generator.hpp"

namespace orrery::plan::testing {
namespace {

std::vector<StageMemory> memory_of(const Plan& plan) { return Simulator(plan).memory(plan); }

std::int64_t peak(const Plan& plan) {
  std::int64_t most = 0;
  for (const StageMemory& stage : memory_of(plan)) {
    most = std::max(most, stage.allocated().value());
  }
  return most;
}

Plan rebuilt(Plan plan, models::NetworkSpec spec) {
  plan.network = models::build_network(spec, "grown");
  plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
  plan.stage_blocks = even_stages(plan.network, plan.pp * plan.chunks);
  return plan;
}

// Megatron-LM's kernel of the softmax takes batch x heads in fours, and PyTorch's keep more: fours
// of sequences, so that all sizes of a plan run the same kernels.
Plan plan_of_one_softmax() {
  Plan plan = any_plan();
  if (!plan.execution.fused_attention) {
    plan.micro_batch *= 4;
    plan.batch *= 4;
  }
  return plan;
}

TEST(MemoryProperty, GrowsWithTheWork) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = plan_of_one_softmax();
    const std::int64_t before = peak(plan);
    Plan more = plan;
    more.micro_batch *= 2;
    more.batch *= 2;
    RC_ASSERT(peak(more) > before);
    more = plan;
    more.sequence *= 2;
    RC_ASSERT(peak(more) > before);
    more = plan;
    more.batch *= 2;  // more micro-batches
    RC_ASSERT(peak(more) >= before);
    models::NetworkSpec spec = plan.network.spec;
    spec.layers += plan.pp * plan.chunks;
    RC_ASSERT(peak(rebuilt(plan, spec)) > before);
    spec = plan.network.spec;
    spec.hidden *= 2;
    spec.head_dim *= 2;
    spec.ffn_hidden *= 2;
    spec.moe.ffn_hidden *= 2;
    RC_ASSERT(peak(rebuilt(plan, spec)) > before);
  }));
}

TEST(MemoryProperty, LargerMicroBatchesOfTheSameBatchNeedNoLess) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = plan_of_one_softmax();
    plan.batch = plan.micro_batch * plan.dp * plan.pp * 4;
    const std::int64_t before = peak(plan);
    plan.micro_batch *= 2;
    RC_ASSERT(peak(plan) >= before);
  }));
}

TEST(MemoryProperty, ShrinksWithTheZeroStage) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = any_plan();
    std::int64_t before = 0;
    for (int stage = 0; stage <= 3; ++stage) {
      plan.blocks.front().layout.zero_stage = stage;
      std::int64_t states = 0;
      for (const StageMemory& memory : memory_of(plan)) {
        states =
            std::max(states, (memory.parameters + memory.gradients + memory.optimizer).value());
      }
      RC_ASSERT(stage == 0 || states <= before);
      before = states;
    }
  }));
}

// What is gathered at once never exceeds the whole parameters of the stage.
TEST(MemoryProperty, GatheredParametersAreAtMostTheStages) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = any_plan();
    BlockPlan& layout = plan.blocks.front().layout;
    layout.zero_stage = 2;
    const std::vector<StageMemory> whole = memory_of(plan);
    layout.zero_stage = 3;
    const std::vector<StageMemory> sharded = memory_of(plan);
    for (std::size_t stage = 0; stage < whole.size(); ++stage) {
      const ByteCount gathered = sharded[stage].workspace - whole[stage].workspace;
      RC_ASSERT((gathered > ByteCount()) == (plan.dp * layout.cp > 1));
      RC_ASSERT(gathered <= whole[stage].parameters);
      RC_ASSERT(sharded[stage].activations == whole[stage].activations);
    }
  }));
}

TEST(MemoryProperty, ShrinksWithRecomputation) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = any_plan();
    plan.blocks.front().layout.recompute = Recompute::None;
    const std::int64_t none = peak(plan);
    plan.blocks.front().layout.recompute = Recompute::Selective;
    const std::int64_t selective = peak(plan);
    plan.blocks.front().layout.recompute = Recompute::Full;
    RC_ASSERT(selective <= none);
    RC_ASSERT(peak(plan) <= selective);
  }));
}

// On a larger cluster with the same dp and pp.
TEST(MemoryProperty, ShrinksWithTensorAndContextParallelism) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = plan_of_one_softmax();
    BlockPlan& layout = plan.blocks.front().layout;
    layout.context = ContextParallel::Ring;
    const bool tensor = coin();
    std::int64_t before = -1;
    for (const int degree : {1, 2, 4, 8}) {
      (tensor ? layout.tp : layout.cp) = degree;
      plan.cluster.num_nodes = layout.tp * layout.cp * plan.dp * plan.pp;
      plan.cluster.node.gpus = 1;
      plan.cluster.node.scale_out.nics = 1;
      const std::int64_t now = peak(plan);
      RC_ASSERT(before < 0 || now <= before);
      before = now;
    }
  }));
}

// The mesh of every consistent plan has the ranks of its stage, whatever the sharding degree.
TEST(MemoryProperty, MeshHasTheRanksOfTheStage) {
  models::NetworkSpec spec;
  spec.name = "experts";
  spec.layers = 1;
  spec.heads = spec.kv_heads = 8;
  spec.head_dim = 8;
  spec.hidden = 64;
  spec.ffn_hidden = 256;
  spec.vocab = 1000;
  spec.sequence = 3072;
  spec.moe = {.experts = 12, .top_k = 2, .ffn_hidden = 64};
  Plan plan;
  plan.network = models::build_network(spec, "test");
  plan.cluster = machines().front().cluster;
  plan.sequence = 3072;
  plan.stage_blocks = even_stages(plan.network, 1);
  EXPECT_TRUE(rc::check([&] {
    BlockPlan layout;
    layout.cp = *rc::gen::inRange(1, 5);
    layout.ep = pick({1, 2, 3, 4});
    layout.zero_stage = 3;
    plan.dp = layout.ep * *rc::gen::inRange(1, 13);
    plan.batch = plan.dp;
    const int ranks = plan.dp * layout.cp;
    plan.cluster.node.gpus = 1;
    plan.cluster.node.scale_out.nics = 1;
    plan.cluster.num_nodes = ranks;
    std::vector<int> divisors;
    for (int degree = 1; degree <= ranks; ++degree) {
      if (ranks % degree == 0) {
        divisors.push_back(degree);
      }
    }
    layout.shard_degree = *rc::gen::elementOf(divisors);
    plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
    try {
      check_plan(plan, "generated");
    } catch (const Error&) {
      return;
    }
    const Mesh mesh = mesh_of(layout, plan.dp);
    RC_ASSERT(mesh.num_ranks() == ranks);
    RC_ASSERT(mesh.of(Axis::Replica) * layout.shard_degree == ranks);
  }));
}

// Parameters, gradients and optimizer states over all ranks, divided by their copies, are those of
// the network; shards that do not divide round up by less than one element a shard.
TEST(MemoryProperty, StatesAddUpOverTheRanks) {
  EXPECT_TRUE(rc::check([] {
    models::NetworkSpec spec = any_spec();
    spec.hidden += 64 * *rc::gen::inRange<std::int64_t>(0, 2);  // remainders
    const Plan plan = any_plan(spec, any_machine());
    const BlockPlan& layout = plan.blocks.front().layout;
    const Mesh mesh = mesh_of(layout, plan.dp);
    const BlockRules rules = rules_of(layout, true);
    for (const models::Block& block : plan.network.blocks) {
      BlockCost cost;
      cost.states = state_groups(block, rules, mesh);
      const StateBytes bytes =
          state_bytes(cost, layout, mesh, plan.execution, plan.precision, false);
      std::int64_t all = 0;
      std::int64_t trained = 0;
      std::int64_t shards = 0;
      for (const StateGroup& group : cost.states) {
        all += group.elements;
        trained += group.frozen ? 0 : group.elements;
        shards += std::int64_t{1};
      }
      const std::int64_t ranks = std::int64_t{layout.cp} * plan.dp;
      const int grad = plan.execution.fp32_gradients ? 4 : 2;
      const auto check = [&](std::int64_t held, std::int64_t per_element, bool sharded,
                             std::int64_t elements) {
        RC_ASSERT(held % per_element == 0);
        const std::int64_t local = held / per_element;
        if (!sharded) {
          RC_ASSERT(local == elements);
        } else {
          // Experts are already spread over ep ranks and sharded over the others.
          RC_ASSERT(local * ranks >= elements);
          RC_ASSERT(local <= elements);
          if (layout.ep == 1) {
            RC_ASSERT(local * ranks < elements + shards * ranks);
          }
        }
      };
      check(bytes.parameters.value(), 2, layout.zero_stage >= 3, all);
      check(bytes.gradients.value(), grad, layout.zero_stage >= 2, trained);
      check(bytes.optimizer.value(), 12, layout.zero_stage >= 1, trained);
    }
  }));
}

}  // namespace
}  // namespace orrery::plan::testing
