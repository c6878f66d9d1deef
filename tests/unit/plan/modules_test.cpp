// SPDX-License-Identifier: Apache-2.0
// Networks with an encoder: frozen blocks cost and keep nothing backward, `diffusionpipe` fills
// idle times with them, `dip` gives each module stages of its own.
#include "plan/modules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "plan/flat/flat.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

Plan pipeline_of_modules(const std::string& schedule, bool frozen, int chunks = 1) {
  Plan plan = in_pipeline(small_plan(with_encoder(frozen)), schedule,
                          {.micro_batches = 8, .chunks = chunks});
  plan.stage_blocks = cut_stages(plan.network, plan.sequence, 4, chunks, module_cut(plan));
  return plan;
}

TEST(Encoders, AreModulesOfTheirOwnTokens) {
  const models::Network network = models::build_network(with_encoder(true), "test");
  EXPECT_EQ(encoder_positions(network), 9);  // its embedding and 8 layers
  EXPECT_TRUE(encoder_is_frozen(network));
  const models::Network trained = models::build_network(with_encoder(false), "test");
  EXPECT_FALSE(encoder_is_frozen(trained));
  EXPECT_EQ(frozen_positions(network), 9);
  EXPECT_EQ(frozen_positions(trained), 0);
  EXPECT_EQ(models::num_parameters(network), models::num_parameters(trained));
  // A frozen encoder has a forward of three passes, 12 h^2 a token and layer and attention; pixels
  // have no gradient in any case, and its features have none for the projection to make.
  const models::Workload work{3, 2048};
  const double tokens = 3.0 * 4 * 256;
  const double layers = 8 * tokens * (24.0 * 512 * 512 + 4.0 * 256 * 512);
  const double patches = tokens * 2 * 3 * 14 * 14 * 512;
  const double projection = tokens * 2 * 512 * 1024;
  const double difference =
      (models::model_flops(trained, work) - models::model_flops(network, work)).value();
  EXPECT_NEAR(difference, 2 * layers + patches + projection, 1e-9 * difference);
  const Json document = models::to_json(network.spec);
  EXPECT_EQ(models::read_network_spec(document, "again"), network.spec);
}

TEST(Encoders, FrozenOnesKeepParametersAlone) {
  const Plan plan = pipeline_of_modules("1f1b", true);
  BlockCosts costs(plan);
  const BlockPlan& layout = plan.blocks.front().layout;
  const int layer = plan.network.chain[1];
  const BlockCost& frozen = costs.of(layer, layout, plan.micro_batch_of(layout, layer));
  EXPECT_EQ(plan.micro_batch_of(layout, layer), 4);
  EXPECT_GT(frozen.forward.time, SimTime{});
  EXPECT_EQ(frozen.backward.time, SimTime{});
  EXPECT_EQ(frozen.saved, ByteCount());
  const StageCost stage = add_up_stage({{layer, layout, 8}}, plan, costs);
  EXPECT_GT(stage.states.parameters, ByteCount());
  EXPECT_EQ(stage.states.gradients + stage.states.optimizer, ByteCount());
  EXPECT_EQ(stage.states.local_parameters, 0);
  // The same block trained: a forward as long, and everything else.
  const Plan trained_plan = pipeline_of_modules("1f1b", false);
  BlockCosts trained_costs(trained_plan);
  const BlockCost& trained = trained_costs.of(layer, layout, 4);
  EXPECT_EQ(trained.forward.time, frozen.forward.time);
  EXPECT_GT(trained.backward.time, trained.forward.time);
  EXPECT_GT(trained.saved, ByteCount());
  EXPECT_LT(simulate(plan).iteration_time, simulate(trained_plan).iteration_time);
}

// As fast as the decoder alone but for the frozen work that no idle time holds, and the same work.
TEST(FrozenParts, FillIdleTimesOfTheBackbone) {
  const Plan filled = pipeline_of_modules("diffusionpipe", true);
  ASSERT_EQ(problem(filled), "");
  EXPECT_EQ(filled.stage_blocks, (std::vector<int>{12, 2, 2, 3}));
  EXPECT_THAT(*why_not_flat(filled), HasSubstr("frozen layers run beside its stages"));
  const std::vector<StageContent> contents = stage_contents(filled);
  ASSERT_EQ(contents.size(), 8u);
  EXPECT_EQ(contents[4].size(), 2u);
  EXPECT_EQ(contents[4], contents[7]);
  const Plan plain = pipeline_of_modules("1f1b", true);
  const Simulation with = Simulator(filled).run(filled, {.record_spans = true});
  const Simulation without = simulate(plain);
  EXPECT_LT(with.iteration_time, without.iteration_time);
  EXPECT_LT(with.bubble_fraction, without.bubble_fraction);
  // Devices run whole micro-batches, one portion a layer, those with less to do more of them.
  std::vector<int> portions(4, 0);
  for (std::size_t device = 0; device < 4; ++device) {
    for (const sim::Pass& pass : with.order.passes[device]) {
      portions[device] += pass.virtual_stage >= 4 ? 1 : 0;
    }
  }
  EXPECT_EQ(std::accumulate(portions.begin(), portions.end(), 0), 8 * 8);
  for (const int count : portions) {
    EXPECT_TRUE(count >= 8 && count % 8 == 0) << count;
  }
  // The backbone is never delayed: its last gradient is where 1F1B alone has it.
  Plan alone = plain;
  alone.network = models::build_network(
      [] {
        models::NetworkSpec spec = with_encoder(true);
        spec.encoder.tokens = 1;  // hardly anything
        return spec;
      }(),
      "test");
  const Simulation backbone = simulate(alone);
  EXPECT_LT(to_seconds(with.pipeline.last_backward_end[0]), backbone.iteration_time * 1.05);
}

TEST(FrozenParts, AreCopiedToEveryDevice) {
  const Plan filled = pipeline_of_modules("diffusionpipe", true);
  const Plan plain = pipeline_of_modules("1f1b", true);
  BlockCosts costs(filled);
  const StageCost copy = add_up_stage(stage_contents(filled)[5], filled, costs);
  const std::vector<StageMemory> with = Simulator(filled).memory(filled);
  const std::vector<StageMemory> without = Simulator(plain).memory(plain);
  // The last stages of both plans have the same two layers and head.
  EXPECT_EQ(plain.stage_blocks.back(), 5);
  EXPECT_GE(with[3].parameters, copy.states.parameters);
  const auto sum = [](const std::vector<StageMemory>& memory, ByteCount StageMemory::*part) {
    ByteCount total;
    for (const StageMemory& stage : memory) {
      total += stage.*part;
    }
    return total;
  };
  EXPECT_EQ(sum(with, &StageMemory::parameters),
            sum(without, &StageMemory::parameters) + copy.states.parameters * 3);
  EXPECT_EQ(sum(with, &StageMemory::optimizer), sum(without, &StageMemory::optimizer));
  // The replay agrees on parameters, optimizer, activations and features.
  const std::vector<MemoryPeak> replayed = replay_memory(filled);
  for (std::size_t device = 0; device < 4; ++device) {
    const double counted = static_cast<double>(with[device].allocated().value());
    EXPECT_NEAR(static_cast<double>(replayed[device].allocated.value()), counted, 0.12 * counted)
        << device;
  }
}

Plan cascade(int pp = 4) {
  const std::string schedule = pp > 1 ? "diffusionpipe-cascaded" : "1f1b";
  const int chunks = pp > 1 ? 2 : 1;
  Plan plan = in_pipeline(small_plan(with_cascade()), schedule,
                          {.pp = pp, .dp = 16 / pp, .tp = 1, .micro_batches = 8, .chunks = chunks});
  plan.stage_blocks = cut_stages(plan.network, plan.sequence, pp, chunks, module_cut(plan));
  return plan;
}

// Parameters and FLOPs are those of two networks behind one encoder, each with its own tokens.
TEST(Cascades, HaveASecondBackbone) {
  const models::Network network = models::build_network(with_cascade(), "test");
  models::NetworkSpec of_first = with_encoder(true);
  const models::Network first = models::build_network(of_first, "test");
  of_first.layers = 6;
  of_first.hidden = 512;
  of_first.heads = of_first.kv_heads = 8;
  of_first.head_dim = 64;
  of_first.ffn_hidden = 2048;
  of_first.sequence = 1024;
  const models::Network second = models::build_network(of_first, "test");
  EXPECT_EQ(frozen_positions(network), 9);
  EXPECT_EQ(second_backbone(first), static_cast<int>(first.chain.size()));
  EXPECT_EQ(second_backbone(network), second_backbone(first));
  EXPECT_EQ(network.chain.size(), first.chain.size() + 8);

  const models::Block& layer = models::block_named(network, "encoder");
  const models::Block& embedding = models::block_named(network, "encoder_embedding");
  const models::Workload work{2, 2048};
  EXPECT_EQ(models::num_parameters(network),
            models::num_parameters(first) + models::num_parameters(second) -
                (8 * models::num_parameters(layer) + models::num_parameters(embedding)));
  const double shared = 8 * models::forward_flops(layer, work, false).value() +
                        models::forward_flops(embedding, work, false).value();
  const double both = models::model_flops(first, work).value() +
                      models::model_flops(second, {2, 1024}).value() - shared;
  EXPECT_NEAR(models::model_flops(network, work).value(), both, 1e-9 * both);
  EXPECT_EQ(models::read_network_spec(models::to_json(network.spec), "again"), network.spec);
}

TEST(Cascades, AreCheckedAgainstTheEncoder) {
  const auto refusal = [](auto change) -> std::string {
    models::NetworkSpec spec = with_cascade();
    change(spec);
    try {
      (void)models::build_network(spec, "test");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using Spec = models::NetworkSpec;
  EXPECT_THAT(refusal([](Spec& spec) { spec.encoder.frozen = false; }),
              HasSubstr("\"encoder\" with \"frozen\": true"));
  EXPECT_THAT(refusal([](Spec& spec) { spec.encoder = {}; }), HasSubstr("\"encoder\""));
  EXPECT_THAT(refusal([](Spec& spec) { spec.cascade.layers = 0; }),
              HasSubstr("set cascade.layers"));
  EXPECT_THAT(refusal([](Spec& spec) { spec.cascade.heads = 7; }),
              HasSubstr("cascade.hidden 512 is not divisible by 7 heads"));
  EXPECT_THAT(refusal([](Spec& spec) { spec.cascade.tokens = 0; }), HasSubstr("tokens"));
  EXPECT_THAT(refusal([](Spec& spec) { spec.adapters.rank = 8; }), HasSubstr("adapters"));
}

// Stages of the first backbone are on devices 0 to 3, of the second on 3 to 0; each has all
// micro-batches and a loss of its own, and nothing travels from one to the other.
TEST(Cascades, RunInOppositeDirections) {
  const Plan plan = cascade();
  ASSERT_EQ(problem(plan), "");
  EXPECT_EQ(plan.stage_blocks, (std::vector<int>{12, 2, 2, 3, 3, 2, 1, 2}));
  const std::vector<StageContent> contents = stage_contents(plan);
  ASSERT_EQ(contents.size(), 12U);  // and a copy of the encoder on every device
  EXPECT_EQ(kind_of(contents[3].back(), plan.network), models::BlockKind::Head);
  EXPECT_EQ(kind_of(contents[4].front(), plan.network), models::BlockKind::Embedding);
  EXPECT_EQ(kind_of(contents[7].back(), plan.network), models::BlockKind::Head);
  EXPECT_EQ(contents[8], contents[11]);
  Simulator simulator(plan);
  const Simulation result = simulator.run(plan, {.record_spans = true});
  EXPECT_EQ(result.order.device_of,
            (std::vector<std::uint16_t>{0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3}));
  std::vector<int> runs(12, 0);
  for (const auto& list : result.order.passes) {
    for (const sim::Pass& pass : list) {
      runs[pass.virtual_stage] += pass.kind == sim::PassKind::Forward ? 1 : 0;
    }
  }
  EXPECT_EQ(std::vector<int>(runs.begin(), runs.begin() + 8), std::vector<int>(8, 8));
  EXPECT_EQ(std::accumulate(runs.begin() + 8, runs.end(), 0), 8 * 8);
  EXPECT_GT(result.passes.send_forward[2], SimTime{});
  EXPECT_EQ(result.passes.send_forward[3], SimTime{});
  EXPECT_GT(result.passes.send_forward[4], SimTime{});
  EXPECT_LT(result.passes.forward[5], result.passes.forward[1]);  // a narrower backbone
  EXPECT_LE(simulator.work_bound(plan), result.iteration_time);
  EXPECT_EQ(simulate(read_plan(to_json(plan), "again")).iteration_time, result.iteration_time);
}

// A device holds the states of a stage of each, which are parameters of their own: as many in all
// as without a pipeline, but for the copies of the encoder.
TEST(Cascades, HoldEveryParameterOnce) {
  Plan plan = cascade();
  Plan whole = cascade(1);
  plan.blocks.front().layout.zero_stage = whole.blocks.front().layout.zero_stage = 0;
  ASSERT_EQ(problem(whole), "");
  const auto sum = [](const Plan& of, ByteCount StageMemory::*part) {
    ByteCount total;
    for (const StageMemory& stage : Simulator(of).memory(of)) {
      total += stage.*part;
    }
    return total;
  };
  EXPECT_EQ(sum(plan, &StageMemory::optimizer), sum(whole, &StageMemory::optimizer));
  BlockCosts costs(plan);
  const StageCost copy = add_up_stage(stage_contents(plan)[8], plan, costs);
  EXPECT_EQ(sum(plan, &StageMemory::parameters),
            sum(whole, &StageMemory::parameters) + copy.states.parameters * 3);
  const std::vector<StageMemory> counted = Simulator(plan).memory(plan);
  const std::vector<MemoryPeak> replayed = replay_memory(plan);
  for (std::size_t device = 0; device < 4; ++device) {
    const double bytes = static_cast<double>(counted[device].allocated().value());
    EXPECT_NEAR(static_cast<double>(replayed[device].allocated.value()), bytes, 0.12 * bytes)
        << device;
  }
}

TEST(Cascades, OneErrorSaysWhatIsWrong) {
  Plan plan = cascade();
  plan.schedule = "interleaved";
  EXPECT_THAT(problem(plan), HasSubstr("set the schedule to \"diffusionpipe-cascaded\", or"));
  plan.schedule = "dip";  // the encoder on stages of its own, as it asks for
  plan.stage_blocks = {3, 2, 2, 2, 5, 4, 4, 5};
  ASSERT_EQ(encoder_segments(plan), 1);
  EXPECT_THAT(problem(plan), HasSubstr("two trained backbones"));
  plan = cascade();
  plan.chunks = 1;
  plan.stage_blocks = {13, 2, 2, 10};
  plan.schedule = "1f1b";
  EXPECT_THAT(problem(plan), HasSubstr("to \"diffusionpipe-cascaded\" with 2 chunks, or"));
  plan = pipeline_of_modules("diffusionpipe", true);
  plan.schedule = "diffusionpipe-cascaded";
  plan.chunks = 2;
  plan.stage_blocks = {10, 1, 1, 2, 1, 1, 1, 2};
  EXPECT_THAT(problem(plan), HasSubstr("give the network a \"cascade\""));
  plan = cascade();
  plan.stage_blocks[3] -= 1;
  plan.stage_blocks[4] += 1;
  EXPECT_THAT(problem(plan), HasSubstr("sum to the 19 blocks"));
  plan = cascade();
  plan.chunks = 1;
  plan.stage_blocks = {13, 2, 2, 10};
  EXPECT_THAT(problem(plan), HasSubstr("set chunks to 2"));
}

// Ranks divide the second backbone by the rules that hold for the first.
TEST(Cascades, AreDividedAsTheFirstBackbone) {
  const auto refusal = [](auto change) -> std::string {
    Plan plan = cascade(1);
    models::NetworkSpec spec = plan.network.spec;
    BlockPlan& layout = plan.blocks.front().layout;
    layout.tp = 1;
    layout.cp = 1;
    change(spec.cascade, layout);
    plan.network = models::build_network(spec, "test");
    plan.dp = plan.cluster.num_gpus() / (layout.tp * layout.cp);
    plan.batch = std::int64_t{8} * plan.dp;
    return problem(plan);
  };
  using Spec = models::CascadeSpec;
  EXPECT_EQ(refusal([](Spec& /*spec*/, BlockPlan& layout) { layout.cp = 2; }), "");
  EXPECT_EQ(refusal([](Spec& /*spec*/, BlockPlan& layout) { layout.tp = 2; }), "");
  EXPECT_THAT(refusal([](Spec& spec, BlockPlan& layout) {
                layout.tp = 2;
                spec.ffn_hidden = 2049;
              }),
              HasSubstr("cascade.ffn_hidden = 2049 is not divisible by tp = 2"));
  EXPECT_THAT(refusal([](Spec& spec, BlockPlan& layout) {
                layout.tp = 2;
                layout.sequence_parallel = true;
                spec.tokens = 1023;
              }),
              HasSubstr("cascade.tokens = 1023 is not divisible by tp x cp (sequence_parallel)"));
  EXPECT_THAT(refusal([](Spec& spec, BlockPlan& layout) {
                layout.cp = 2;
                spec.tokens = 1022;
              }),
              HasSubstr("cascade.tokens = 1022 is not divisible by 2 x cp (zigzag) = 4"));
  EXPECT_THAT(refusal([](Spec& spec, BlockPlan& layout) {
                layout.cp = 2;
                layout.context = ContextParallel::AllGather;
                layout.zigzag = false;
                spec.tokens = 1;
              }),
              HasSubstr("cascade.tokens = 1 is not divisible by cp = 2"));
  EXPECT_THAT(refusal([](Spec& spec, BlockPlan& layout) {
                layout.cp = 2;
                layout.context = ContextParallel::Ulysses;
                spec.heads = 1;
              }),
              HasSubstr("cascade.heads = 1 is not divisible by tp x cp (Ulysses) = 2"));
}

TEST(Modules, HaveStagesAndMicroBatchesOfTheirOwn) {
  Plan plan = pipeline_of_modules("dip", false, 2);
  ASSERT_EQ(problem(plan), "");
  EXPECT_THAT(*why_not_flat(plan), HasSubstr("an encoder has stages of its own"));
  EXPECT_EQ(encoder_segments(plan), 1);
  EXPECT_EQ(std::accumulate(plan.stage_blocks.begin(), plan.stage_blocks.begin() + 4, 0), 9);
  for (const int parts : {1, 2, 4}) {
    plan.encoder_parts = parts;
    ASSERT_EQ(problem(plan), "");
    Simulator simulator(plan);
    const Simulation result = simulator.run(plan, {.record_spans = true});
    std::vector<std::int64_t> runs(8, 0);
    for (const auto& list : result.order.passes) {
      for (const sim::Pass& pass : list) {
        runs[pass.virtual_stage] += pass.kind == sim::PassKind::Forward ? 1 : 0;
      }
    }
    EXPECT_EQ(runs[0], 8 * parts);
    EXPECT_EQ(runs[4], 8);
    EXPECT_LE(simulator.lower_bound(plan), simulator.list_bound(plan));
    EXPECT_LE(simulator.list_bound(plan), result.iteration_time);
    EXPECT_LE(simulator.work_bound(plan), result.iteration_time);
    const Plan again = read_plan(to_json(plan), "again");
    EXPECT_EQ(simulate(again).iteration_time, result.iteration_time);
  }
  // An encoder and a decoder of much the same layers interleave as fast as one chain does at least.
  plan.encoder_parts = 1;
  Plan one_chain = pipeline_of_modules("1f1b", false);
  EXPECT_LT(simulate(plan).iteration_time, simulate(one_chain).iteration_time);
}

TEST(Modules, OneErrorSaysWhatIsMissing) {
  Plan plan = small_plan();
  plan.schedule = "diffusionpipe";
  EXPECT_THAT(problem(plan), HasSubstr("give the network an \"encoder\" with \"frozen\": true"));
  plan.schedule = "dip";
  plan.chunks = 2;
  plan.stage_blocks = even_stages(plan.network, 4);
  EXPECT_THAT(problem(plan), HasSubstr("has one module: give the network an \"encoder\""));
  EXPECT_THAT(problem(pipeline_of_modules("diffusionpipe", false)),
              HasSubstr("set encoder.frozen to true"));
  plan = pipeline_of_modules("dip", false, 2);
  plan.encoder_parts = 3;
  EXPECT_THAT(problem(plan), HasSubstr("set encoder_parts to 1"));
  plan = pipeline_of_modules("dip", false, 2);
  plan.stage_blocks[3] += 1;
  plan.stage_blocks[4] -= 1;
  EXPECT_THAT(problem(plan), HasSubstr("sum to the 9 blocks of the encoder"));
  plan = pipeline_of_modules("1f1b", false);
  plan.encoder_parts = 2;
  EXPECT_THAT(problem(plan), HasSubstr("set encoder_parts to 1"));
}

}  // namespace
}  // namespace orrery::plan
