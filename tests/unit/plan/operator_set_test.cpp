// SPDX-License-Identifier: Apache-2.0
// Keep, recompute or offload, tensor by tensor: what groups of operators leave for the backward
// against sums by hand over the operators of a GPT and of a LLaMA block, the replay of the
// allocator against the formula, times between the extremes, and what a plan must not ask for.
#include "plan/operator_set.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"
#include "plan/block/cost.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/balanced_replay.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::HasSubstr;

OperatorSet set_of(std::initializer_list<OperatorGroup> groups) {
  OperatorSet set;
  for (const OperatorGroup group : groups) {
    set.add(group);
  }
  return set;
}

OperatorSet everything() {
  OperatorSet set;
  for (int index = 0; index < kNumOperatorGroups; ++index) {
    set.add(static_cast<OperatorGroup>(index));
  }
  return set;
}

Plan one_stage(const std::string& network, int tp = 1, bool sequence_parallel = false) {
  Plan plan = small_plan();
  plan.network = models::load_network(network);
  plan.pp = 1;
  plan.dp = plan.cluster.num_gpus() / tp;
  plan.stage_blocks = even_stages(plan.network, 1);
  BlockPlan layout;
  layout.tp = tp;
  layout.sequence_parallel = sequence_parallel;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  return plan;
}

void recompute(Plan& plan, OperatorSet set) {
  plan.blocks.front().layout.recompute = Recompute::Operators;
  plan.blocks.front().layout.recomputed = set;
}

// With what each group saves.
BlockCost layer_cost(const Plan& plan) {
  BlockCosts costs(plan);
  BlockPlan layout = plan.blocks.front().layout;
  layout.offload.activations_of = set_of({OperatorGroup::Norms});
  return costs.of(plan.network.chain[1], layout, plan.micro_batch);
}

// Table B2 in units of tokens x 2 bytes: two norms' inputs and outputs 4h, q, k and v, context h
// with its log-sum-exp, gate and up 2f, their product f.
TEST(OperatorSet, SavedTensorsOfALlamaLayerByGroup) {
  const Plan plan = one_stage("llama3-8b");
  const BlockCost cost = layer_cost(plan);
  const auto& spec = plan.network.spec;
  const std::int64_t unit = 2 * plan.micro_batch * plan.sequence;
  const auto saved = [&](OperatorGroup group) {
    return (*cost.saved_by_group)[static_cast<std::size_t>(group)].value();
  };
  const std::int64_t kv = spec.kv_heads * spec.head_dim;
  EXPECT_EQ(saved(OperatorGroup::Norms), unit * 2 * spec.hidden);
  EXPECT_EQ(saved(OperatorGroup::MlpUp), unit * 2 * spec.ffn_hidden);
  EXPECT_EQ(saved(OperatorGroup::MlpActivation), unit * spec.ffn_hidden);
  EXPECT_EQ(saved(OperatorGroup::Attention), unit * spec.hidden + unit * 2 * spec.heads);
  EXPECT_EQ(saved(OperatorGroup::Residuals), unit * 2 * spec.hidden);
  EXPECT_EQ(saved(OperatorGroup::Qkv) + saved(OperatorGroup::Rotary),
            unit * (spec.hidden + 2 * kv));
  ByteCount sum;
  for (const ByteCount bytes : *cost.saved_by_group) {
    sum += bytes;
  }
  EXPECT_EQ(sum, cost.saved);
}

// What each group saves is made where some of it leaves the device, also of costs known before.
TEST(OperatorSet, GroupsAreKnownWhereTensorsLeave) {
  Plan plan = one_stage("gpt3-1.3b");
  BlockCosts costs(plan);
  BlockPlan layout = plan.blocks.front().layout;
  const BlockCost& cost = costs.of(plan.network.chain[1], layout, plan.micro_batch);
  EXPECT_FALSE(cost.saved_by_group.has_value());
  layout.offload.activations_of = set_of({OperatorGroup::Norms});
  EXPECT_EQ(&costs.of(plan.network.chain[1], layout, plan.micro_batch), &cost);
  EXPECT_EQ(cost.saved_by_group, layer_cost(plan).saved_by_group);
  plan.network.blocks[static_cast<std::size_t>(plan.network.chain[1])].frozen = true;
  EXPECT_EQ(layer_cost(plan).saved_by_group, SavedByGroup{});
}

TEST(OperatorSet, RecomputingAGroupDropsWhatItMakes) {
  Plan plan = one_stage("llama3-8b");
  const BlockCost all = layer_cost(plan);
  for (const OperatorGroup group :
       {OperatorGroup::Norms, OperatorGroup::MlpActivation, OperatorGroup::Attention}) {
    recompute(plan, set_of({group}));
    const BlockCost some = layer_cost(plan);
    EXPECT_EQ(all.saved - some.saved, (*all.saved_by_group)[static_cast<std::size_t>(group)])
        << to_text(group);
    EXPECT_EQ(some.working, all.saved - some.saved);
    EXPECT_GT(some.recompute.time.ps, 0);
    EXPECT_EQ(some.backward.time.ps - some.recompute.time.ps, all.backward.time.ps);
  }
}

// Everything but the input goes, and only operators behind which nothing is read stay away.
TEST(OperatorSet, AllGroupsAreFullRecomputation) {
  Plan plan = one_stage("llama3-8b");
  recompute(plan, everything());
  const BlockCost operators = layer_cost(plan);
  plan.blocks.front().layout.recompute = Recompute::Full;
  const BlockCost full = layer_cost(plan);
  EXPECT_EQ(operators.saved, full.saved);
  EXPECT_LT(operators.recompute.time, full.recompute.time);
  EXPECT_GT(operators.recompute.flops.value(), 0.6 * full.recompute.flops.value());
}

// The core alone is Megatron's selective recomputation, which checkpoints it whatever its kernel:
// of a fused one the log-sum-exp of each row is not kept, and its result only where others read it.
TEST(OperatorSet, TheCoreIsSelectiveRecomputation) {
  for (const bool fused : {false, true}) {
    for (const int cp : {1, 4}) {
      Plan plan = one_stage("gpt3-1.3b", 4, true);
      plan.execution.fused_attention = fused;
      BlockPlan& layout = plan.blocks.front().layout;
      layout.cp = cp;
      layout.context = ContextParallel::Ulysses;
      plan.dp /= cp;
      const BlockCost kept = layer_cost(plan);
      recompute(plan, set_of({OperatorGroup::AttentionCore}));
      const BlockCost core = layer_cost(plan);
      layout.recompute = Recompute::Selective;
      const BlockCost selective = layer_cost(plan);
      EXPECT_EQ(core.saved, selective.saved) << fused << cp;
      EXPECT_EQ(core.recompute.time, selective.recompute.time) << fused << cp;
      const models::NetworkSpec& spec = plan.network.spec;
      const std::int64_t rows = plan.micro_batch * plan.sequence * spec.heads / 4 / cp;
      const std::int64_t result = cp > 1 ? rows * spec.head_dim * 2 : 0;
      if (fused) {
        EXPECT_EQ((kept.saved - selective.saved).value(), 4 * rows + result) << cp;
      }
    }
  }
}

TEST(OperatorSet, TheReplayHoldsWhatTheFormulaSays) {
  for (const char* network : {"llama3-8b", "gpt3-1.3b", "mixtral-8x7b"}) {
    for (const int tp : {1, 4}) {
      for (const bool fused : {true, false}) {
        Plan plan = one_stage(network, tp, tp > 1);
        plan.execution.fused_attention = fused;
        for (int index = 0; index < kNumOperatorGroups; ++index) {
          recompute(plan, set_of({static_cast<OperatorGroup>(index)}));
          expect_balanced(plan);
        }
        recompute(plan, set_of({OperatorGroup::Norms, OperatorGroup::MlpActivation,
                                OperatorGroup::MlpUp}));
        expect_balanced(plan);
        recompute(plan, everything());
        expect_balanced(plan);
      }
    }
  }
}

// A frozen block keeps nothing, whatever its layout would have recomputed.
TEST(OperatorSet, FrozenBlocksHoldNothing) {
  Plan plan = one_stage("llama3-8b");
  recompute(plan, set_of({OperatorGroup::Norms, OperatorGroup::Qkv, OperatorGroup::AttentionCore}));
  plan.network.blocks[static_cast<std::size_t>(plan.network.chain[1])].frozen = true;
  BlockCosts costs(plan);
  const BlockMemory memory = block_memory(
      costs.block_context(plan.network.chain[1], plan.blocks.front().layout, plan.micro_batch), {},
      false);
  std::set<std::int32_t> live = {memory.input};
  for (const MemoryEvent& event : memory.forward) {
    if (event.bytes > 0) {
      live.insert(event.buffer);
    } else {
      live.erase(event.buffer);
    }
  }
  EXPECT_EQ(live, std::set<std::int32_t>{memory.output});
}

// A cast input goes with the operator that makes the tensor, and is not kept where that or the
// product runs again: the 16-bit tensor is made anew.
TEST(OperatorSet, CastInputsGoWithTheirMakers) {
  Plan plan = one_stage("llama3-8b");
  plan.cluster = topologies::load_cluster("hgx-h100:2");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.precision = DType::Fp8;
  plan.execution.fp8_scaling = Fp8Scaling::Current;
  const BlockCost all = layer_cost(plan);
  const auto& spec = plan.network.spec;
  const std::int64_t tokens = plan.micro_batch * plan.sequence;
  const auto saved = [&](OperatorGroup group) {
    return (*all.saved_by_group)[static_cast<std::size_t>(group)];
  };
  EXPECT_EQ(saved(OperatorGroup::Norms).value(), tokens * 2 * spec.hidden);
  EXPECT_EQ(saved(OperatorGroup::MlpActivation).value(), tokens * spec.ffn_hidden);
  for (const OperatorGroup group : {OperatorGroup::Norms, OperatorGroup::MlpActivation}) {
    recompute(plan, set_of({group}));
    EXPECT_EQ(all.saved - layer_cost(plan).saved, saved(group)) << to_text(group);
  }
  recompute(plan, set_of({OperatorGroup::MlpDown}));  // reads its input in 16 bits
  EXPECT_EQ((layer_cost(plan).saved - all.saved).value(), tokens * spec.ffn_hidden);
  for (int index = 0; index < kNumOperatorGroups; ++index) {
    recompute(plan, set_of({static_cast<OperatorGroup>(index)}));
    expect_balanced(plan);
  }
}

// A result that heads are exchanged from is kept twice, unless attention runs again.
TEST(OperatorSet, TheReplayHoldsExchangedHeads) {
  for (int index = 0; index < kNumOperatorGroups; ++index) {
    Plan plan = one_stage("llama3-8b", 4);
    plan.blocks.front().layout = {.cp = 4, .context = ContextParallel::Ulysses};
    plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
    recompute(plan, set_of({static_cast<OperatorGroup>(index)}));
    expect_balanced(plan);
  }
}

TEST(OperatorSet, OffloadedTensorsAreThoseOfTheirOperators) {
  Plan plan = one_stage("gpt3-1.3b");
  const ByteCount before = Simulator(plan).memory(plan).front().activations;
  const ByteCount norms =
      (*layer_cost(plan).saved_by_group)[static_cast<std::size_t>(OperatorGroup::Norms)];
  Offload& offload = plan.blocks.front().layout.offload;
  offload.activations = 1.0;
  offload.activations_of = set_of({OperatorGroup::Norms});
  const StageMemory after = Simulator(plan).memory(plan).front();
  EXPECT_EQ(after.host.value(), norms.value() * plan.network.spec.layers);
  EXPECT_EQ((after.activations + after.host).value(), before.value());
}

TEST(OperatorSet, PlansKeepTheirChoice) {
  Plan plan = one_stage("gpt3-1.3b");
  recompute(plan, set_of({OperatorGroup::Norms, OperatorGroup::AttentionCore}));
  plan.blocks.front().layout.offload.activations = 0.5;
  plan.blocks.front().layout.offload.activations_of = set_of({OperatorGroup::MlpUp});
  EXPECT_EQ(read_plan(to_json(plan), "again").blocks, plan.blocks);
  EXPECT_EQ(recompute_text(plan.blocks.front().layout), "norms+attention-core");
}

std::string problem_after(const std::function<void(Plan&)>& change) {
  Plan plan = one_stage("gpt3-1.3b");
  change(plan);
  return problem(plan);
}

TEST(OperatorSet, BadInput) {
  EXPECT_THAT(problem_after([](Plan& plan) {
                recompute(plan, set_of({OperatorGroup::Norms}));
                plan.blocks.front().layout.offload.activations = 1;
                plan.blocks.front().layout.offload.activations_of = set_of({OperatorGroup::Norms});
              }),
              HasSubstr("those of norms are recomputed"));
  EXPECT_THAT(problem_after([](Plan& plan) {
                plan.blocks.front().layout.recompute = Recompute::Full;
                plan.blocks.front().layout.offload.activations = 1;
                plan.blocks.front().layout.offload.activations_of = set_of({OperatorGroup::Norms});
              }),
              HasSubstr("not kept under recompute full"));
  BlockPlan layout;
  EXPECT_THROW(set_recompute("norms+mlp-activaton", "--fix", layout), Error);
  set_recompute("norms+mlp-activation", "--fix", layout);
  EXPECT_EQ(layout.recompute, Recompute::Operators);
  EXPECT_EQ(layout.recomputed, set_of({OperatorGroup::Norms, OperatorGroup::MlpActivation}));
  set_recompute("full", "--fix", layout);
  EXPECT_EQ(layout.recompute, Recompute::Full);
  EXPECT_TRUE(layout.recomputed.empty());
}

}  // namespace
}  // namespace orrery::plan
