// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "plan/block/cost.hpp"
#include "plan/block/memory.hpp"
#include "plan/block/saved.hpp"
#include "plan/block/tensors.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// Bytes live after a list of events; every release must meet its allocation.
std::int64_t live_after(const std::vector<MemoryEvent>& events,
                        std::map<std::int32_t, std::int64_t>& live) {
  for (const MemoryEvent& event : events) {
    if (event.buffer < 0) {
      continue;  // kept for all blocks
    }
    if (event.bytes > 0) {
      EXPECT_TRUE(live.emplace(event.buffer, event.bytes).second);
    } else {
      EXPECT_EQ(live.erase(event.buffer), 1U) << event.buffer;
    }
  }
  std::int64_t sum = 0;
  for (const auto& [buffer, bytes] : live) {
    sum += bytes;
  }
  return sum;
}

BlockPlan layout_of(int tp, bool sequence_parallel, Recompute recompute) {
  BlockPlan layout;
  layout.tp = tp;
  layout.sequence_parallel = sequence_parallel;
  layout.recompute = recompute;
  return layout;
}

// Live after the forward, the block's input included: saved_activations() to the byte, beside the
// output that the next block takes over. After the backward: the gradient of the input.
void expect_blocks_balanced(const Plan& plan, bool ends = true) {
  const BlockPlan& layout = plan.blocks.front().layout;
  BlockCosts costs(plan);
  for (const int block : plan.network.chain) {
    const BlockContext context = costs.block_context(block, layout, plan.micro_batch);
    if (!ends && context.block.kind != models::BlockKind::Layer) {
      continue;
    }
    const BlockMemory memory = block_memory(context, {}, false);
    std::map<std::int32_t, std::int64_t> live;
    if (memory.input >= 0) {
      live[memory.input] = memory.boundary;
    }
    const std::int64_t kept = live_after(memory.forward, live);
    const std::int64_t output = memory.output >= 0 ? live.at(memory.output) : 0;
    EXPECT_EQ(kept - output,
              (saved_activations(context, context.layout.recompute) + kept_copies(context)).value())
        << context.block.name;
    live.erase(memory.output);
    if (memory.output_gradient >= 0) {
      live[memory.output_gradient] = memory.boundary;
    }
    live_after(memory.backward, live);
    live.erase(memory.input_gradient);
    EXPECT_TRUE(live.empty()) << context.block.name;
  }
}

TEST(BlockMemory, KeepsWhatTheFormulaSays) {
  for (const Recompute recompute :
       {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products}) {
    for (const bool fused : {false, true}) {
      for (const int tp : {1, 4}) {
        Plan plan = one_stage_plan(layout_of(tp, tp > 1, recompute));
        plan.execution.fused_attention = fused;
        expect_blocks_balanced(plan);
        plan.network = models::load_network("llama3-8b");
        plan.stage_blocks = even_stages(plan.network, 1);
        plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
        expect_blocks_balanced(plan);
      }
    }
  }
}

// Every block of a decoder gives the encoder's output a gradient.
TEST(BlockMemory, HoldsForDecodersThatReadAnEncoder) {
  for (const Recompute recompute : {Recompute::None, Recompute::Full}) {
    const Plan plan = one_stage_plan(layout_of(1, false, recompute), "t5-large");
    BlockCosts costs(plan);
    for (const int block : plan.network.chain) {
      const BlockContext context = costs.block_context(block, plan.blocks.front().layout, 1);
      const BlockMemory memory = block_memory(context, {}, false);
      std::map<std::int32_t, std::int64_t> live{{memory.input, 1}, {memory.output_gradient, 1}};
      live_after(memory.forward, live);
      live.erase(memory.output);
      live_after(memory.backward, live);
      for (const std::int32_t ends :
           {memory.input, memory.input_gradient, memory.output_gradient}) {
        live.erase(ends);
      }
      EXPECT_TRUE(live.empty()) << context.block.name;
    }
  }
}

models::Network adapted(const std::string& name, const models::AdapterSpec& adapters) {
  models::NetworkSpec spec = name.empty() ? small_spec() : models::load_network(name).spec;
  spec.adapters = adapters;
  return models::build_network(spec, "test");
}

// Frozen weights: what only their gradients would read is not kept, and all that is kept is freed.
TEST(BlockMemory, KeepsWhatAdaptersNeed) {
  for (const Recompute recompute :
       {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products}) {
    for (const models::AdapterSpec& adapters :
         {models::AdapterSpec{.rank = 16}, models::AdapterSpec{.rank = 16, .o = false},
          models::AdapterSpec{.rank = 16, .dropout = 0.1, .qkv = false}}) {
      for (const char* name : {"", "llama3-8b", "mixtral-8x7b"}) {
        Plan plan = one_stage_plan(layout_of(4, true, recompute));
        plan.network = adapted(name, adapters);
        plan.stage_blocks = even_stages(plan.network, 1);
        plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
        expect_blocks_balanced(plan);
        plan.execution.fused_attention = false;
        expect_blocks_balanced(plan);
        plan.execution.fused_attention = true;
        plan.blocks.front().layout.tp = 2;
        plan.blocks.front().layout.cp = 4;
        plan.blocks.front().layout.context = ContextParallel::Ulysses;
        expect_blocks_balanced(plan);
      }
    }
  }
}

// Where heads are exchanged for positions, fused attention keeps its result as it wrote it, the
// product behind it as it reads it.
TEST(BlockMemory, KeepsTheResultOfExchangedHeadsTwice) {
  const auto saved = [](const Plan& plan) {
    BlockCosts costs(plan);
    return costs.of(plan.network.chain[1], plan.blocks.front().layout, plan.micro_batch).saved;
  };
  for (const Recompute recompute :
       {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products}) {
    BlockPlan layout = layout_of(2, true, recompute);
    layout.cp = 4;
    for (const char* network : {"", "llama3-8b"}) {
      layout.context = ContextParallel::Ring;
      const Plan ring = one_stage_plan(layout, network);
      layout.context = ContextParallel::Ulysses;
      Plan exchanged = one_stage_plan(layout, network);
      expect_blocks_balanced(exchanged);
      if (recompute == Recompute::None) {
        const models::NetworkSpec& spec = ring.network.spec;
        const std::int64_t result =
            2 * ring.micro_batch * ring.sequence * spec.heads * spec.head_dim / 8;
        EXPECT_EQ((saved(exchanged) - saved(ring)).value(), result);
      }
      exchanged.execution.fused_attention = false;
      expect_blocks_balanced(exchanged);
    }
  }
}

// Products in 8 and 4 bits keep their inputs as they were cast.
TEST(BlockMemory, HoldsForQuantisedProducts) {
  for (const DType precision : {DType::Fp8, DType::Nvfp4}) {
    for (const Fp8Scaling scaling :
         {Fp8Scaling::Delayed, Fp8Scaling::Current, Fp8Scaling::Blocks}) {
      for (const Recompute recompute :
           {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products}) {
        for (const char* network : {"", "llama3-8b", "mixtral-8x7b", "deepseek-v3"}) {
          BlockPlan layout = layout_of(4, true, recompute);
          layout.cp = 2;
          layout.context = ContextParallel::Ulysses;
          Plan plan = one_stage_plan(layout, network);
          plan.precision = precision;
          plan.execution.fp8_scaling = scaling;
          expect_blocks_balanced(plan);
          plan.execution.fused_attention = false;
          plan.execution.weighted_activations = false;
          plan.blocks.front().layout = layout_of(1, false, recompute);
          plan.blocks.front().layout.ep = plan.network.spec.moe.experts > 0 ? 4 : 1;
          plan.dp = plan.cluster.num_gpus();
          expect_blocks_balanced(plan);
        }
      }
    }
  }
}

BlockPlan mesh_layout(TensorMesh mesh, bool keeps) {
  BlockPlan layout = layout_of(mesh == TensorMesh::TwoD ? 16 : 8, false, Recompute::None);
  layout.tensor_parallel = mesh;
  layout.tp_depth = mesh == TensorMesh::TwoAndHalfD ? 2 : 0;
  layout.tp_rows = mesh == TensorMesh::TwoAndHalfD ? 2 : 0;
  layout.keep_gathered = keeps;
  return layout;
}

// A gathered input is kept for the gradient of a weight, a gathered weight for that of an input:
// under adapters the frozen products keep no input, and what runs forward alone keeps neither.
TEST(BlockMemory, HoldsForAdaptersOnTensorMeshes) {
  for (const TensorMesh mesh : {TensorMesh::TwoD, TensorMesh::TwoAndHalfD, TensorMesh::ThreeD}) {
    for (const models::AdapterSpec& adapters :
         {models::AdapterSpec{.rank = 16}, models::AdapterSpec{.rank = 16, .qkv = false},
          models::AdapterSpec{.rank = 16, .qkv = false, .o = false, .up = false}}) {
      Plan plan = one_stage_plan(mesh_layout(mesh, true));
      plan.network = adapted("", adapters);
      plan.micro_batch = 16;
      expect_blocks_balanced(plan, false);
      BlockCosts costs(plan);
      const BlockPlan& layout = plan.blocks.front().layout;
      const auto kept = [&](int position) {
        const int block = plan.network.chain[static_cast<std::size_t>(position)];
        return kept_copies(costs.block_context(block, layout, plan.micro_batch));
      };
      EXPECT_EQ(kept(0), ByteCount());
      EXPECT_LT(kept(1), kept(2));  // the first layer, below whose first adapters nothing is read
    }
  }
}

// The gradient of a sum is that of its operands; that of a scaled result is a tensor of its own.
TEST(BlockMemory, OnlyAdditionsPassGradientsOn) {
  Plan plan = one_stage_plan(layout_of(1, false, Recompute::None), "llama3-8b");
  plan.network = adapted("llama3-8b", {.rank = 16});
  BlockCosts costs(plan);
  const BlockContext context =
      costs.block_context(plan.network.chain[2], plan.blocks.front().layout, plan.micro_batch);
  const BlockTensors tensors(context, {});
  int additions = 0;
  for (const models::Operator& op : context.block.operators) {
    const bool scaling = op.name.find("_lora_scale") != std::string::npos;
    EXPECT_FALSE(scaling && tensors.passes_through(op)) << op.name;
    additions += tensors.passes_through(op) ? 1 : 0;
  }
  EXPECT_EQ(additions, 2 + 4);  // residuals, and what adapters add to the products they adapt
}

// DTensor: a product saves its input as gathered, but a frozen one, which has no use for it.
TEST(BlockMemory, FrozenProductsKeepNoGatheredInput) {
  Plan plan = one_stage_plan(layout_of(4, true, Recompute::None));
  plan.network = adapted("", {.rank = 16, .qkv = false});
  plan.execution.regathers_inputs = false;
  BlockCosts costs(plan);
  for (const int position : {1, 2}) {
    const BlockContext context =
        costs.block_context(plan.network.chain[static_cast<std::size_t>(position)],
                            plan.blocks.front().layout, plan.micro_batch);
    const BlockMemory memory = block_memory(context, {}, false);
    std::map<std::int32_t, std::int64_t> live = {{memory.input, memory.boundary}};
    live_after(memory.forward, live);
    live.erase(memory.output);
    live[memory.output_gradient] = memory.boundary;
    live_after(memory.backward, live);
    live.erase(memory.input_gradient);
    EXPECT_TRUE(live.empty()) << context.block.name;
  }
}

std::int64_t peak_beside_live(const std::vector<MemoryEvent>& events) {
  std::map<std::int32_t, std::int64_t> live;
  std::int64_t sum = 0;
  std::int64_t peak = 0;
  for (const MemoryEvent& event : events) {
    sum += event.bytes > 0 ? event.bytes : -live[event.buffer];
    live[event.buffer] = event.bytes;
    peak = std::max(peak, sum);
  }
  return peak - sum;
}

// A cube of 2 x 2 x 2 stores an eighth of a weight and gathers it over one axis: a quarter, in the
// forward and, unless it was kept, again in the backward. The first MLP weight is 1024 x 4096 of 2
// bytes.
TEST(BlockMemory, GatheredWeightsOfMeshes) {
  const auto events = [](bool keeps) {
    Plan plan = one_stage_plan(mesh_layout(TensorMesh::ThreeD, keeps));
    plan.micro_batch = 16;
    BlockCosts costs(plan);
    const BlockContext context =
        costs.block_context(plan.network.chain[1], plan.blocks.front().layout, plan.micro_batch);
    return block_memory(context, {}, false);
  };
  constexpr std::int64_t kWeight = 2 * std::int64_t{1024} * 4096 / 4;
  const auto gathers = [](const std::vector<MemoryEvent>& list) {
    return std::count_if(list.begin(), list.end(), [](const MemoryEvent& event) {
      return event.bytes >= kWeight && event.bytes < kWeight * 101 / 100;
    });
  };
  const BlockMemory kept = events(true);
  const BlockMemory again = events(false);
  EXPECT_EQ(gathers(kept.forward), 2);  // both MLP weights
  EXPECT_EQ(gathers(again.forward), 2);
  EXPECT_EQ(gathers(kept.backward), 2);   // their gradients, before they are scattered
  EXPECT_EQ(gathers(again.backward), 4);  // and the weights again
  EXPECT_GE(peak_beside_live(again.forward), peak_beside_live(kept.forward));
}

TEST(BlockMemory, HoldsForMixturesOfExperts) {
  BlockPlan layout = layout_of(1, false, Recompute::None);
  layout.ep = 4;
  expect_blocks_balanced(one_stage_plan(layout, "deepseek-v3"));
  expect_blocks_balanced(one_stage_plan(layout, "mixtral-8x7b"));
}

// torchtitan's per-operator checkpointing of a Llama layer keeps the input and the outputs of wq,
// wv, attention, w1 and w2: 1 + 1 + g/a + 1 + f/h + 1 times sbh, of 2 bytes, for g of a heads.
TEST(BlockMemory, KeepsEverySecondProduct) {
  Plan plan = one_stage_plan(layout_of(1, false, Recompute::Products), "llama3-8b");
  BlockCosts costs(plan);
  const int layer = plan.network.chain[1];
  const auto& spec = plan.network.spec;
  const std::int64_t tokens = plan.micro_batch * plan.sequence;
  const std::int64_t expected =
      2 * tokens * (4 * spec.hidden + spec.kv_heads * spec.head_dim + spec.ffn_hidden);
  EXPECT_EQ(costs.of(layer, plan.blocks.front().layout, plan.micro_batch).saved.value(), expected);
}

std::int64_t peak_of(const Plan& plan, const MemoryFacts& facts) {
  BlockCosts costs(plan);
  const BlockContext context =
      costs.block_context(plan.network.chain.back(), plan.blocks.front().layout, 1);
  const BlockMemory memory = block_memory(context, facts, false);
  std::map<std::int32_t, std::int64_t> live;
  std::int64_t sum = 0;
  std::int64_t peak = 0;
  for (const auto* events : {&memory.forward, &memory.backward}) {
    for (const MemoryEvent& event : *events) {
      sum += event.bytes > 0 ? event.bytes : -live[event.buffer];
      live[event.buffer] = event.bytes;
      peak = std::max(peak, sum);
    }
  }
  return peak;
}

// Per logit: 2 bytes where the gradient takes the logits' place, 4 + 2 in Megatron-LM, three fp32
// copies beside each other in eager PyTorch, four with torch's loss_parallel. The rest of the head
// (norm, placeholder of the weight's gradient) is less than one byte per logit here.
TEST(BlockMemory, HoldsTheCopiesOfTheLoss) {
  Plan plan = one_stage_plan(layout_of(4, true, Recompute::None));
  plan.micro_batch = 8;
  const double logits = 2048.0 * 51200 / 4;
  MemoryFacts facts;
  EXPECT_NEAR(static_cast<double>(peak_of(plan, facts)) / logits, 6.0, 1.0);
  facts.loss = LossMemory::InLogits;
  EXPECT_NEAR(static_cast<double>(peak_of(plan, facts)) / logits, 2.0, 2.1);
  plan.execution.eager_loss = true;
  facts.loss = LossMemory::Eager;
  EXPECT_NEAR(static_cast<double>(peak_of(plan, facts)) / logits, 12.0, 1.0);
  facts.loss = LossMemory::Sharded;
  EXPECT_NEAR(static_cast<double>(peak_of(plan, facts)) / logits, 16.0, 1.0);
}

// Metrics of the training: 18 bytes a logit each, at the rate of element-wise kernels.
TEST(BlockCosts, MetricsEvaluateTheLossAgain) {
  Plan plan = one_stage_plan(layout_of(1, false, Recompute::None));
  plan.execution.fused_cross_entropy = true;
  const auto backward = [&](int evaluations) {
    plan.execution.loss_evaluations = evaluations;
    BlockCosts costs(plan);
    const int head = plan.network.chain.back();
    return to_seconds(costs.of(head, plan.blocks.front().layout, plan.micro_batch).backward.time);
  };
  const double logits = static_cast<double>(plan.micro_batch * plan.sequence) *
                        static_cast<double>(plan.network.spec.vocab);
  const double once = (backward(1) - backward(0)).value();
  const double hbm = 18 * logits / plan.cluster.gpu.hbm_bandwidth.value();
  EXPECT_GT(once, hbm);
  EXPECT_LT(once, 1.6 * hbm);
  EXPECT_NEAR((backward(2) - backward(0)).value(), 2 * once, 0.1 * once);
}

}  // namespace
}  // namespace orrery::plan
