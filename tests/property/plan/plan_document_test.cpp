// SPDX-License-Identifier: Apache-2.0
// Round trips: plan -> document -> plan and plan -> Megatron-LM arguments -> plan.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.hpp"
#include "plan/block_rules.hpp"
#include "plan/exporter.hpp"
#include "plan/importer.hpp"
#include "plan/launch_script/shell_words.hpp"
#include "plan/stages.hpp"
#include "tests/property/drawing.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

models::NetworkSpec any_spec() {
  models::NetworkSpec spec = small_spec();
  spec.layers = *rc::gen::inRange<std::int64_t>(4, 13);
  spec.kv_heads = pick<std::int64_t>({16, 8});
  spec.vocab = pick<std::int64_t>({51200, 50257, 32000});
  spec.tied_embeddings = coin();
  spec.norm = pick({models::NormKind::LayerNorm, models::NormKind::RmsNorm});
  spec.position = pick(
      {models::PositionKind::Learned, models::PositionKind::Rotary, models::PositionKind::None});
  spec.activation =
      pick({models::Activation::Gelu, models::Activation::SwiGlu, models::Activation::SquaredRelu});
  spec.mlp_bias = coin();
  spec.attention_output_bias = spec.mlp_bias;
  spec.attention_bias = spec.mlp_bias || coin();
  spec.hidden_dropout = pick({0.0, 0.1});
  spec.attention_dropout = pick({0.0, 0.1});
  spec.qk_norm = coin();
  spec.max_positions = pick<std::int64_t>({0, 4096});
  if (spec.norm == models::NormKind::RmsNorm && spec.activation == models::Activation::SwiGlu) {
    spec.family = models::Family::Llama;
  }
  if (coin()) {
    spec.moe = {.experts = 8, .top_k = *rc::gen::inRange<std::int64_t>(1, 4), .ffn_hidden = 2048};
    spec.moe.shared_ffn_hidden = pick<std::int64_t>({0, 1024});
    spec.moe.first_dense_layers = *rc::gen::inRange<std::int64_t>(0, 3);
    spec.moe.layer_frequency =
        spec.moe.first_dense_layers == 0 ? *rc::gen::inRange<std::int64_t>(1, 4) : 1;
    spec.moe.capacity_factor = pick({0.0, 1.25});
  }
  return spec;
}

std::vector<int> any_stages(int blocks, int stages) {
  std::vector<int> counts(static_cast<std::size_t>(stages), 1);
  for (int left = blocks - stages; left > 0; --left) {
    ++counts[*rc::gen::inRange<std::size_t>(0, counts.size())];
  }
  return counts;
}

// A plan Megatron-LM can express, in canonical form: fields without effect have their default.
Plan any_plan() {
  Plan plan = small_plan(any_spec());
  BlockPlan& layout = plan.blocks.front().layout;
  layout.tp = pick({1, 2, 4});
  layout.cp = pick({1, 2});
  plan.pp = pick({1, 2});
  plan.dp = 16 / layout.tp / layout.cp / plan.pp;
  plan.chunks = plan.pp == 1 ? 1 : pick({1, 2});
  plan.schedule = plan.chunks > 1 ? "interleaved" : "1f1b";
  plan.micro_batch = pick<std::int64_t>({1, 2});
  plan.batch = plan.micro_batch * plan.dp * plan.pp * *rc::gen::inRange<std::int64_t>(1, 9);
  const auto length = static_cast<int>(plan.network.chain.size());
  plan.stage_blocks = coin() ? even_stages(plan.network, plan.pp * plan.chunks)
                             : any_stages(length, plan.pp * plan.chunks);
  layout.sequence_parallel = layout.tp > 1 && coin();
  layout.context =
      layout.cp == 1
          ? ContextParallel::Ring
          : pick({ContextParallel::Ring, ContextParallel::AllGather, ContextParallel::Ulysses});
  layout.zero_stage = *rc::gen::inRange(0, 4);
  int replicas = 1;  // that experts are spread over
  if (plan.network.spec.moe.experts > 0) {
    layout.expert_tp = layout.tp > 1 && coin() ? pick({1, layout.tp % 4 == 0 ? 2 : 1}) : 0;
    if (coin()) {
      layout.expert_cp = layout.cp > 1 ? 1 : 0;
      const int inside = expert_ranks_inside(layout);
      replicas = plan.dp % 2 == 0 && inside < 8 ? pick({1, 2}) : 1;
      layout.ep = inside * replicas;
      layout.expert_cp = layout.ep > 1 ? layout.expert_cp : 0;
    } else {
      layout.expert_tp = 0;
    }
  }
  // Megatron-LM asks for it.
  layout.sequence_parallel = layout.sequence_parallel || (layout.tp > 1 && layout.ep > 1);
  const int inner = layout.cp * replicas;  // a ZeRO group holds whole context and expert groups
  const int outer = plan.dp / replicas;
  const bool halves = layout.zero_stage > 0 && outer % 2 == 0 && coin();
  layout.shard_degree = halves ? inner * outer / 2 : 0;
  layout.recompute = pick({Recompute::None, Recompute::Selective, Recompute::Full});
  plan.blocks.front().count = length;
  Execution& execution = plan.execution;
  execution.fused_attention = coin();
  execution.fused_kernels = coin();
  execution.fused_cross_entropy = coin();
  execution.overlap_grad_reduce = coin();
  execution.overlap_param_gather = layout.zero_stage == 0 || coin();
  execution.overlap_p2p = coin();
  execution.overlap_tp = coin();
  execution.stream_tp = layout.sequence_parallel && coin();
  plan.precision = pick({DType::Bf16, DType::Fp16});
  execution.fp32_gradients = coin();
  execution.bucket_bytes = pick<std::int64_t>({0, 160'000'000});
  execution.optimizer_state_bytes = pick({8, 4});
  check_plan(plan, "generated");
  return plan;
}

TEST(PlanDocumentProperty, DocumentReadsBackEqual) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = any_plan();
    plan.blocks.front().layout.ep_inside =
        pick({ExpertsInside::Data, ExpertsInside::Context, ExpertsInside::Tensor});
    plan.memory_reserve = ByteCount(*rc::gen::inRange<std::int64_t>(0, 1LL << 36));
    const std::string text = to_json(plan).dump();
    const Plan read = read_plan(parse_json(text, "p"), "p");
    RC_ASSERT(to_json(read).dump() == text);
    RC_ASSERT(read.blocks == plan.blocks);
    RC_ASSERT(read.execution == plan.execution);
    RC_ASSERT(read.network.spec == plan.network.spec);
    RC_ASSERT(read.network.chain == plan.network.chain);
    RC_ASSERT(costmodel::to_json(read.profile) == costmodel::to_json(plan.profile));
  }));
}

TEST(PlanDocumentProperty, MegatronArgumentsReadBackEqual) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = any_plan();
    // Megatron-LM overlaps messages of model chunks alone.
    plan.execution.overlap_p2p &= plan.chunks > 1 || plan.pp == 1;
    // Its layers are TransformerEngine's, whose experts have kernels of their own.
    plan.execution.expert_kernels = plan.network.spec.moe.experts > 0;
    plan.execution.eager_expert_bias = plan.execution.expert_kernels && plan.network.spec.mlp_bias;
    const std::string text = find_exporter("megatron").write(plan);
    Plan read = find_importer("megatron").read(text, "run.sh", plan.cluster);
    read.network.spec.name = plan.network.spec.name;
    read.network.spec.source = plan.network.spec.source;
    RC_ASSERT(models::to_json(read.network.spec).dump() ==
              models::to_json(plan.network.spec).dump());
    read.network = plan.network;
    RC_ASSERT(to_json(read).dump() == to_json(plan).dump());
  }));
}

TEST(PlanDocumentProperty, ShellReaderIsTotal) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<std::string> pieces = {
        "$",  "${", "}",  "(", ")",   "((",  "))", "\"",  "'",   "`",     "\\",
        "\n", " ",  "A",  "=", "+=",  "A=(", ":-", "[@]", "if ", "then ", "fi\n",
        "&&", "|",  "<<", ">", "--x", "1",   "*",  "#",   ";",   "\x1a"};
    std::string text;
    for (const std::size_t piece : *rc::gen::container<std::vector<std::size_t>>(
             rc::gen::inRange<std::size_t>(0, pieces.size()))) {
      text += pieces[piece];
    }
    try {
      for (const ShellCommand& command : read_shell(text, "x.sh")) {
        RC_ASSERT(!command.words.empty());
      }
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::BadInput);
    }
  }));
}

TEST(PlanDocumentProperty, DamagedDocumentsAreErrorsOrPlans) {
  const std::string text = to_json(small_plan()).dump();
  EXPECT_TRUE(rc::check([&text] {
    std::string damaged = text;
    const auto at = *rc::gen::inRange<std::size_t>(0, damaged.size());
    damaged[at] = *rc::gen::arbitrary<char>();
    try {
      const Plan plan = read_plan(parse_json(damaged, "p"), "p");
      check_plan(plan, "p");
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::BadInput);
    }
  }));
}

}  // namespace
}  // namespace orrery::plan
