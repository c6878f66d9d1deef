// SPDX-License-Identifier: Apache-2.0
// Pipelines whose micro-batches have sequences of different length.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plan/block/memory_facts.hpp"
#include "plan/packs.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

// 16 GPUs: tp 4, and stages and replicas as stated.
Plan pipeline(const std::string& schedule, int pp, int dp, int chunks = 1) {
  models::NetworkSpec spec = small_spec();
  spec.max_positions = 32768;
  Plan plan = small_plan(spec);
  plan.schedule = schedule;
  plan.pp = pp;
  plan.dp = dp;
  plan.chunks = chunks;
  plan.stage_blocks = even_stages(plan.network, pp * chunks);
  plan.blocks.front().layout.tp = 16 / (pp * dp);
  return plan;
}

Plan with_packs(Plan plan, std::vector<std::vector<Pack>> packs) {
  plan.packs = std::move(packs);
  plan.batch = 0;
  plan.sequence = 1;
  plan.micro_batch = 1;
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      plan.batch += static_cast<std::int64_t>(pack.sequences.size());
      plan.sequence =
          std::max(plan.sequence, *std::max_element(pack.sequences.begin(), pack.sequences.end()));
    }
  }
  return plan;
}

Plan of_one_length(Plan plan, std::int64_t sequence, std::int64_t micro_batch, int count) {
  plan.sequence = sequence;
  plan.micro_batch = micro_batch;
  plan.batch = micro_batch * plan.dp * count;
  return plan;
}

Pack whole(std::vector<std::int64_t> sequences) { return {1, std::move(sequences)}; }
Pack padded(std::vector<std::int64_t> sequences) { return {1, std::move(sequences), true}; }
Pack sliced(std::vector<std::int64_t> slices) {
  return {1, {std::accumulate(slices.begin(), slices.end(), std::int64_t{0})}, false, slices};
}

void expect_equal(const Plan& packed, const Plan& plain) {
  ASSERT_EQ(problem(packed), "");
  ASSERT_EQ(problem(plain), "");
  const Simulation one = simulate(packed, {.record_spans = true, .interval_draws = 4});
  const Simulation other = simulate(plain, {.record_spans = true, .interval_draws = 4});
  EXPECT_EQ(one.iteration_time, other.iteration_time) << plain.schedule;
  EXPECT_EQ(one.interval_low, other.interval_low);
  EXPECT_EQ(one.interval_high, other.interval_high);
  EXPECT_EQ(one.pipeline.makespan, other.pipeline.makespan);
  EXPECT_EQ(one.bubble_fraction, other.bubble_fraction);
  EXPECT_NEAR(one.mfu_fraction, other.mfu_fraction, 1e-12);
  EXPECT_NEAR(one.hfu_fraction, other.hfu_fraction, 1e-12);
  EXPECT_NEAR(one.tokens_per_second_per_gpu, other.tokens_per_second_per_gpu, 1e-6);
  EXPECT_NEAR(one.breakdown.compute.value(), other.breakdown.compute.value(), 1e-12);
  EXPECT_NEAR(one.breakdown.recompute.value(), other.breakdown.recompute.value(), 1e-12);
  EXPECT_EQ(one.breakdown.exposed_communication.size(),
            other.breakdown.exposed_communication.size());
  for (std::size_t device = 0; device < one.memory.size(); ++device) {
    EXPECT_EQ(one.memory[device].total(), other.memory[device].total()) << plain.schedule;
    EXPECT_EQ(one.memory[device].activations, other.memory[device].activations);
  }
  const std::vector<MemoryPeak> replayed = replay_memory(packed, {}, 1);
  const std::vector<MemoryPeak> expected = replay_memory(plain, {}, 1);
  ASSERT_EQ(replayed.size(), expected.size());
  for (std::size_t device = 0; device < expected.size(); ++device) {
    EXPECT_EQ(replayed[device].allocated, expected[device].allocated) << plain.schedule;
    EXPECT_EQ(replayed[device].reserved, expected[device].reserved);
  }
}

TEST(PackedPipeline, OfEqualLengthsIsThePlanOfThatLength) {
  for (const auto& [schedule, chunks] :
       {std::pair("1f1b", 1), std::pair("dynapipe", 1), std::pair("gpipe", 1),
        std::pair("infinipipe", 1), std::pair("interleaved", 2), std::pair("breadth-first", 2),
        std::pair("hanayo", 2), std::pair("tessel", 1)}) {
    const Plan plan = pipeline(schedule, 4, 2, chunks);
    const std::vector<Pack> both(2, padded({1536, 1536}));
    expect_equal(with_packs(plan, std::vector<std::vector<Pack>>(8, both)),
                 of_one_length(plan, 1536, 2, 8));
  }
}

TEST(PackedPipeline, OfEqualLengthsWithEveryKindOfPass) {
  Plan plan = pipeline("1f1b", 2, 2);
  const std::vector<std::vector<Pack>> packs(4, std::vector<Pack>(2, whole({2048})));
  for (const int zero : {0, 1, 2, 3}) {
    plan.blocks.front().layout.zero_stage = zero;
    expect_equal(with_packs(plan, packs), of_one_length(plan, 2048, 1, 4));
  }
  plan.blocks.front().layout.zero_stage = 1;
  plan.blocks.front().layout.recompute = Recompute::Full;
  plan.blocks.front().layout.sequence_parallel = true;
  expect_equal(with_packs(plan, packs), of_one_length(plan, 2048, 1, 4));
  plan.execution.overlap_p2p = false;
  expect_equal(with_packs(plan, packs), of_one_length(plan, 2048, 1, 4));
  plan.execution.serial_exchanges = true;
  plan.execution.overlap_grad_reduce = plan.execution.overlap_param_gather = false;
  expect_equal(with_packs(plan, packs), of_one_length(plan, 2048, 1, 4));
}

// Every pass, transfer and activation is that of a plan of one length.
TEST(PackedPipeline, AMicroBatchCostsWhatAPlanOfItsLengthDoes) {
  Plan plan = pipeline("gpipe", 4, 1);
  plan.blocks.front().layout.zero_stage = 0;
  const std::vector<Pack> packs = {whole({512}), padded({4096, 3000}), whole({16384})};
  const Simulation run =
      simulate(with_packs(plan, {{packs[0]}, {packs[1]}, {packs[2]}}), {.record_spans = true});
  std::vector<std::int64_t> activations(4, 0);
  std::size_t unit = 0;
  for (const auto& [sequence, samples] :
       {std::pair(512, 1), std::pair(4096, 2), std::pair(16384, 1)}) {
    // Of three micro-batches, too: whether messages wait for their link depends on it.
    const Simulation alone =
        simulate(of_one_length(plan, sequence, samples, 3), {.record_spans = true});
    for (std::size_t stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(run.passes.unit_forward[3 * stage + unit], alone.passes.forward[stage]);
      EXPECT_EQ(run.passes.unit_backward[3 * stage + unit], alone.passes.backward[stage]);
      if (stage < 3) {
        EXPECT_EQ(run.passes.send_forward_of(stage, unit), alone.passes.send_forward[stage]);
        EXPECT_EQ(run.passes.send_backward_of(stage, unit), alone.passes.send_backward[stage]);
      }
      activations[stage] += alone.memory[stage].activations.value() / 3;
    }
    ++unit;
  }
  for (std::size_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(run.memory[stage].activations.value(), activations[stage]);
  }
  EXPECT_GT(run.passes.unit_send_forward[2], run.passes.unit_send_forward[0]);
}

// Without a pipeline the passes follow one another.
TEST(PackedPipeline, OneStageTakesTheSum) {
  Plan plan = pipeline("1f1b", 1, 1);
  plan.blocks.front().layout.zero_stage = 0;
  SimTime sum;
  for (const int sequence : {1024, 8192, 2048}) {
    sum += simulate(of_one_length(plan, sequence, 1, 1)).pipeline.makespan;
  }
  const Simulation run =
      simulate(with_packs(plan, {{whole({1024})}, {whole({8192})}, {whole({2048})}}));
  EXPECT_EQ(run.pipeline.makespan, sum);
}

// Sequences behind one another see themselves alone; padding is computed, and no token of it
// counts.
TEST(PackedPipeline, PaddedAndJoinedSequencesDiffer) {
  const Plan plan = pipeline("dynapipe", 2, 1);
  const auto run = [&](const Pack& pack) {
    return simulate(with_packs(plan, std::vector<std::vector<Pack>>(4, {pack})));
  };
  const Simulation joined = run(whole({4096, 1024, 1024}));
  const Simulation long_one = run(whole({6144}));
  const Simulation padding = run(padded({4096, 1024, 1024}));
  EXPECT_LT(joined.iteration_time, long_one.iteration_time);
  EXPECT_EQ(joined.memory.front().activations, long_one.memory.front().activations);
  EXPECT_LT(joined.iteration_time, padding.iteration_time);
  EXPECT_LT(joined.memory.front().activations, padding.memory.front().activations);
  EXPECT_GT(joined.tokens_per_second_per_gpu, padding.tokens_per_second_per_gpu);
  EXPECT_NEAR(joined.tokens_per_second_per_gpu * joined.iteration_time.value(), 4.0 * 6144 / 16,
              1e-6);
  EXPECT_NEAR(padding.tokens_per_second_per_gpu * padding.iteration_time.value(), 4.0 * 6144 / 16,
              1e-6);
}

// Replicas meet when the last one has its gradients.
TEST(PackedPipeline, TheSlowestReplicaCounts) {
  const Plan plan = pipeline("1f1b", 2, 2);
  const Pack large = padded({8192});
  const Pack small = padded({512});
  const auto time = [&](std::vector<std::vector<Pack>> packs) {
    return simulate(with_packs(plan, std::move(packs))).iteration_time;
  };
  const Seconds both = time({{large, large}, {large, large}, {small, small}});
  EXPECT_EQ(time({{large, small}, {large, small}, {small, small}}), both);
  EXPECT_EQ(time({{large, small}, {large, small}, {small}}), both);
  EXPECT_EQ(time({{small, large}, {small, large}, {small, small}}), both);
  EXPECT_LT(time({{large, small}, {small, large}, {small, small}}), both);
  const Simulation uneven = simulate(with_packs(plan, {{large, small}, {small, small}}));
  const Simulation full = simulate(with_packs(plan, {{large, large}, {small, small}}));
  EXPECT_EQ(uneven.memory.front().total(), full.memory.front().total());
  EXPECT_EQ(
      replay_memory(with_packs(plan, {{small, large}, {small, small}}), {}, 1).front().allocated,
      replay_memory(with_packs(plan, {{large, large}, {small, small}}), {}, 1).front().allocated);
}

// Slices of one sequence are those of a plan of such sequences, beside micro-batches that are not
// cut.
TEST(PackedPipeline, SequencesTravelInSlices) {
  Plan plan = pipeline("infinipipe", 4, 1);
  Plan sequences = of_one_length(plan, 8192, 1, 3);
  sequences.slices = 4;
  const Pack cut = sliced({2048, 2048, 2048, 2048});
  expect_equal(with_packs(plan, {{cut}, {cut}, {cut}}), sequences);
  const Simulation run =
      simulate(with_packs(plan, {{sliced({3072, 2048, 1024, 2048})}, {whole({1024, 512})}}),
               {.record_spans = true});
  EXPECT_EQ(run.order.micro_batches, 5);
  EXPECT_EQ(run.pipeline.spans.front().size(), 10U);
  const Simulation alone =
      simulate(with_packs(plan, {{sliced({3072, 2048, 1024, 2048})}}), {.record_spans = true});
  EXPECT_EQ(run.passes.unit_forward[2], alone.passes.unit_forward[2]);
  EXPECT_GT(run.pipeline.makespan, alone.pipeline.makespan);
}

// A cap counts micro-batches as large as the largest: two of half its length weigh as one.
TEST(PackedPipeline, DynaPipeAdmitsWhatFitsUnderItsCap) {
  Plan plan = pipeline("dynapipe", 4, 1);
  plan.blocks.front().layout.tp = 4;
  const Pack large = whole({8192});
  const Pack small = whole({2048});
  std::vector<std::vector<Pack>> packs = {{large}, {small}, {small}, {small}, {small}, {large}};
  const auto activations = [&](double cap) {
    Plan capped = with_packs(plan, packs);
    capped.activation_cap = cap;
    return simulate(capped, {.record_spans = true});
  };
  const Simulation one = activations(1);
  const Simulation more = activations(4);
  plan.activation_cap = 1;
  const Simulation largest = simulate(of_one_length(plan, 8192, 1, 1));
  EXPECT_EQ(one.memory.front().activations, largest.memory.front().activations);
  EXPECT_GT(more.memory.front().activations, one.memory.front().activations);
  EXPECT_LT(more.iteration_time, one.iteration_time);
  EXPECT_GE(one.pipeline.devices.front().peak_chunks, 4);  // small ones
}

TEST(PackedPipeline, TravelsWithThePlan) {
  const Plan plan =
      with_packs(pipeline("infinipipe", 2, 2),
                 {{sliced({4096, 2048}), padded({512, 300})}, {whole({700, 900}), whole({64})}});
  ASSERT_EQ(problem(plan), "");
  const Plan again = read_plan(to_json(plan), "again");
  EXPECT_EQ(again.packs, plan.packs);
  EXPECT_EQ(simulate(again).iteration_time, simulate(plan).iteration_time);
}

Json packed_document(const std::string& pack) {
  Json json = to_json(with_packs(pipeline("infinipipe", 2, 2), {{whole({64}), whole({64})}}));
  const Json packs = parse_json("[[" + pack + ", {\"sequences\": [64]}]]", "packs");
  json.find("parallelism")->set("packs", packs);
  return json;
}

std::string packs_error(const std::string& pack) {
  try {
    read_plan(packed_document(pack), "plan.json");
  } catch (const Error& error) {
    return error.kind() == ErrorKind::BadInput ? error.what() : "not bad input";
  }
  return "";
}

TEST(PackedPipeline, DocumentsSayWhatIsWrong) {
  EXPECT_EQ(packs_error(R"({"sequences": [64]})"), "");
  EXPECT_THAT(packs_error(R"({"sequences": [0]})"),
              HasSubstr("/parallelism/packs/0/0/sequences/0"));
  EXPECT_THAT(packs_error(R"({"sequences": []})"), HasSubstr("a pack has between 1 and"));
  EXPECT_THAT(packs_error(R"({"sequences": [64, 64]})"), HasSubstr("set batch to 3"));
  EXPECT_THAT(packs_error(R"({"sequences": [65]})"), HasSubstr("set sequence to 65"));
  EXPECT_THAT(packs_error(R"({"sequences": [64], "slices": [32, 16]})"),
              HasSubstr("the slices have 48 tokens, but the sequence has 64"));
  EXPECT_THAT(packs_error(R"({"sequences": [64], "slices": 5})"), HasSubstr("not divisible by 5"));
  EXPECT_THAT(packs_error(R"({"sequences": [32, 32], "slices": 2})"),
              HasSubstr("cut one sequence"));
  EXPECT_THAT(packs_error(R"({"sequences": [16777216], "slices": 16777216})"),
              HasSubstr("packs up to this one have 16777216 slices, more than 16666666"));
  EXPECT_THAT(packs_error(R"({"sequences": [64], "pading": true})"), HasSubstr("padded"));
  EXPECT_THAT(packs_error(R"({"group": 2, "sequences": [64]})"), HasSubstr("leave out group"));
}

// Slices count as micro-batches do.
TEST(PackedPipeline, RefusesMorePassesThanAPlanHas) {
  const Pack fine = sliced(std::vector<std::int64_t>(3'000'000, 1));
  Plan plan = with_packs(pipeline("infinipipe", 2, 2), {{fine, fine}, {fine, fine}, {fine, fine}});
  plan.network.spec.max_positions = 3'000'000;
  EXPECT_THAT(problem(plan),
              HasSubstr("pp x chunks x micro-batches x slices = 2 x 1 x 3 x 3000000"));
}

// Of which a replay would take minutes.
TEST(PackedPipeline, ReplaysNoMoreThanAMillionPassesOfBlocks) {
  const std::vector<Pack> row(2, whole({64}));
  const Plan base = pipeline("1f1b", 1, 2);
  const auto blocks = static_cast<std::size_t>(base.network.chain.size());
  const Plan few = with_packs(base, std::vector<std::vector<Pack>>(100, row));
  EXPECT_FALSE(replay_memory(few, {}, 1).empty());
  const Plan many = with_packs(base, std::vector<std::vector<Pack>>(500'000 / blocks + 1, row));
  EXPECT_TRUE(replay_memory(many, {}, 1).empty());
}

// Plans of one network in turn: what one simulator keeps of packs changes nothing, draws neither.
TEST(PackedPipeline, OneSimulatorKeepsWhatPacksCost) {
  const std::vector<std::vector<Pack>> packs = {{padded({700, 300}), whole({512, 100})},
                                                {padded({2048}), padded({700, 300})},
                                                {padded({300}), whole({512, 100})}};
  const Plan first = with_packs(pipeline("dynapipe", 2, 2), packs);
  Plan second = with_packs(pipeline("1f1b", 4, 2), packs);
  second.blocks.front().layout.zero_stage = 1;
  Plan third = first;
  third.blocks.front().layout.recompute = Recompute::Full;
  third.packs.pop_back();
  third.batch -= 3;
  Simulator simulator(first);
  for (const Plan& plan : {first, second, third, first}) {
    const Simulation kept = simulator.run(plan, {.interval_draws = 4});
    const Simulation alone = simulate(plan, {.interval_draws = 4});
    EXPECT_EQ(kept.iteration_time, alone.iteration_time);
    EXPECT_EQ(kept.interval_low, alone.interval_low);
    EXPECT_EQ(kept.interval_high, alone.interval_high);
    EXPECT_EQ(kept.hfu_fraction, alone.hfu_fraction);
    EXPECT_EQ(kept.memory.front().total(), alone.memory.front().total());
  }
}

// On cards that hold all of the replay, and less and less of it.
TEST(PackedPipeline, AReplayMayStopWhereItDoesNotFit) {
  Plan plan = with_packs(pipeline("dynapipe", 2, 2), {{padded({8192}), padded({4096, 4000})},
                                                      {padded({512}), whole({2048, 1024})}});
  ByteCount most;
  for (const MemoryPeak& peak : replay_memory(plan)) {
    most = std::max(most, peak.device());
  }
  int fitting = 0;
  constexpr int kCards = 6;
  for (int card = 0; card < kCards; ++card) {
    plan.cluster.gpu.memory = ByteCount(most.value() * (20 - 3 * card) / 20);
    const bool fits = replayed_verdict(plan, replay_memory(plan)).fits;
    EXPECT_EQ(replay_fits(plan, 1), fits) << card;
    EXPECT_EQ(replay_fits(plan, 2), fits) << card;
    fitting += fits ? 1 : 0;
  }
  EXPECT_GT(fitting, 0);
  EXPECT_LT(fitting, kCards);
}

TEST(PackedPipeline, SaysWhatItAsksFor) {
  const std::vector<std::vector<Pack>> equal(4, std::vector<Pack>(2, whole({2048})));
  const std::vector<std::vector<Pack>> unequal(4, {whole({2048}), whole({1024})});
  EXPECT_THAT(problem(with_packs(pipeline("zb-h1", 2, 2), equal)),
              HasSubstr("set the schedule to \"dynapipe\""));
  EXPECT_THAT(
      problem(with_packs(pipeline("dynapipe", 2, 2), {{sliced({1024, 1024}), whole({64})}})),
      HasSubstr("set the schedule to \"infinipipe\""));
  Plan plan = with_packs(pipeline("1f1b", 2, 2), unequal);
  EXPECT_EQ(problem(plan), "");
  plan.blocks.front().layout.zero_stage = 2;
  EXPECT_THAT(problem(plan), HasSubstr("set zero_stage to 1"));
  plan.packs = equal;
  EXPECT_EQ(problem(plan), "");
  plan.micro_batch = 2;
  EXPECT_THAT(problem(plan), HasSubstr("set micro_batch to 1"));
  EXPECT_THAT(problem(with_packs(pipeline("1f1b", 2, 2), {{whole({64})}, {whole({64})}})),
              HasSubstr("micro-batch 0 has 1 packs"));
  EXPECT_THAT(problem(with_packs(pipeline("1f1b", 2, 2),
                                 {{whole({64}), whole({64})}, {whole({64})}, equal[0]})),
              HasSubstr("micro-batch 2 has 2 packs"));
  plan = with_packs(pipeline("1f1b", 2, 2), {{whole({64, 65}), whole({64})}});
  plan.execution.fused_attention = false;
  EXPECT_THAT(problem(plan), HasSubstr("set fused_attention to true"));
  plan.packs = {{padded({64, 65}), whole({64})}};
  EXPECT_EQ(problem(plan), "");
  plan.network.spec.max_positions = 64;
  EXPECT_THAT(problem(plan), HasSubstr("64"));
}

}  // namespace
}  // namespace orrery::plan
