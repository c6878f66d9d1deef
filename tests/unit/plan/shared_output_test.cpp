// SPDX-License-Identifier: Apache-2.0
// What shards of input and output layers cost beside their products.
#include "plan/stage/shared_output.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "plan/block/memory_facts.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr double kHiddenElements = 2048.0 * 1024;
constexpr double kLogits = 2048.0 * 51200 / 8;

Plan shared(const std::string& schedule) {
  const Plan plan = in_pipeline(small_plan(small_spec(), "dgx-a100:1"), schedule,
                                {.pp = 8, .dp = 1, .tp = 1, .micro_batches = 32});
  check_plan(plan, "test");
  return plan;
}

// One barrier moves more bytes than two. The collectives that run beside the passes take
// multiprocessors.
TEST(SharedOutput, KernelsAndCollectivesBesideThem) {
  const Plan two = shared("vocab-1");
  const Plan one = shared("vocab-2");
  const BlockCosts costs(two);
  const ShardTimes a = shared_output_times(two, 2, costs);
  const ShardTimes b = shared_output_times(one, 1, costs);
  const auto seconds = [&](double bytes) {
    return costs.device().memory_bound(Bytes(bytes), costmodel::MemoryKernel::Elementwise).value();
  };
  EXPECT_EQ(a.backward.value(), seconds(8 * kLogits));
  EXPECT_EQ(b.backward.value(), seconds(8 * kLogits + 2 * kHiddenElements));
  EXPECT_NEAR((b.forward - a.forward).value(),
              seconds(6 * kLogits + 30 * kHiddenElements) - seconds(14 * kHiddenElements), 1e-12);
  const double taken = a.forward.value() - seconds(14 * kHiddenElements);
  EXPECT_GT(taken, 0);
  Plan free = two;
  free.profile.collective_sms = 0;
  EXPECT_NEAR(shared_output_times(free, 2, BlockCosts(free)).forward.value(),
              seconds(14 * kHiddenElements), 1e-12);
  EXPECT_LT(simulate(free).iteration_time.value(), simulate(two).iteration_time.value());
  const ShardTimes input = shared_input_times(two, 2, costs);
  const ShardTimes in_line = shared_input_times(two, 0, costs);
  const double demand = collective_demand(costs.device());
  EXPECT_NEAR(input.forward.value(), in_line.forward.value() * demand, 1e-12);
  EXPECT_NEAR(input.backward.value(), in_line.backward.value() * demand, 1e-12);
}

// The input layer's; those of the output layer are between its passes.
TEST(SharedOutput, CollectivesOfAllTogetherAreInLine) {
  const Plan plan = shared("interlaced");
  const BlockCosts costs(plan);
  const ShardTimes times = shared_input_times(plan, 0, costs);
  const auto group = costmodel::make_group(8, 1, 8);
  const Bytes stream(2.0 * kHiddenElements);
  EXPECT_EQ(times.forward, costs.collectives().time(sim::CommKind::AllReduce, stream, group));
  EXPECT_EQ(times.backward, costs.collectives().time(sim::CommKind::Broadcast, stream, group));
  EXPECT_EQ(shared_output_times(plan, 0, costs).forward, Seconds());
}

// An embedding below the first adapters takes no gradient.
TEST(SharedOutput, FrozenInputLayersGetNoGradient) {
  for (const char* schedule : {"vocab-2", "interlaced"}) {
    const Plan trained = shared(schedule);
    Plan plan = trained;
    plan.network.spec.adapters.rank = 16;
    plan.network = models::build_network(plan.network.spec, "test");
    const BlockCosts costs(plan);
    const ShardTimes times = shared_input_times(plan, 0, costs);
    EXPECT_EQ(times.backward, Seconds());
    EXPECT_EQ(times.forward, shared_input_times(trained, 0, BlockCosts(trained)).forward);
    EXPECT_GT(shared_input_times(trained, 0, BlockCosts(trained)).backward, Seconds());
    EXPECT_EQ(times.collectives, times.forward);
  }
}

// The first stage waits for the sum of all look-ups, and all for its gradient, beside the passes
// or, where all run together, in them.
TEST(SharedOutput, InputLayersHavePassesOfTheirOwn) {
  for (const char* schedule : {"vocab-1", "vocab-2", "interlaced"}) {
    const Plan plan = shared(schedule);
    const std::vector<StageContent> contents = stage_contents(plan);
    ASSERT_EQ(contents.size(), 3U * 8);
    EXPECT_EQ(plan.network.blocks[static_cast<std::size_t>(contents[8].front().block)].kind,
              models::BlockKind::Head);
    EXPECT_EQ(plan.network.blocks[static_cast<std::size_t>(contents[16].front().block)].kind,
              models::BlockKind::Embedding);
    const Simulation run = simulate(plan, {.record_spans = true});
    ASSERT_EQ(run.order.num_virtual_stages, 3 * 8);
    EXPECT_GT(run.passes.forward[16], SimTime{});
    EXPECT_GT(run.passes.backward[16], SimTime{});
    EXPECT_LT(run.passes.backward[16], run.passes.backward[8]);
    const BlockCosts costs(plan);
    const ShardTimes whole = shared_input_times(plan, 0, costs);
    const bool together = std::string(schedule) == "interlaced";
    for (std::size_t edge = 0; edge < run.order.edges.size(); ++edge) {
      const sim::Edge& of = run.order.edges[edge];
      if (of.from < 16 && of.to < 16) {
        continue;
      }
      EXPECT_TRUE(of.from >= 16 ? of.to == 0 : of.from == 0);
      const Seconds moved = of.from >= 16 ? whole.forward : whole.backward;
      EXPECT_EQ(run.passes.edge_latency[edge], together ? SimTime{} : to_sim_time(moved));
    }
  }
}

// They run before all forwards, beside which the parameters of later stages arrive.
TEST(SharedOutput, LookUpsWaitForTheirTable) {
  Plan plan = in_pipeline(small_plan(small_spec(), "dgx-a100:2"), "vocab-1",
                          {.pp = 8, .dp = 2, .tp = 1, .micro_batches = 32});
  for (BlockRun& run : plan.blocks) {
    run.layout.zero_stage = 1;
  }
  plan.execution.overlap_param_gather = true;
  const Simulation simulation = simulate(plan, {.record_spans = true});
  const std::vector<SimTime>& extra = simulation.passes.first_forward_extra;
  ASSERT_EQ(extra.size(), 24U);  // stages, shards of the head, of the embedding
  for (std::size_t stage = 16; stage < extra.size(); ++stage) {
    EXPECT_GT(extra[stage], SimTime{}) << stage;
  }
}

// Collectives between shards are no tensor parallelism's, whatever the ranks of a stage.
TEST(SharedOutput, ReportsNameTheCollectivesOfShards) {
  for (const char* schedule : {"vocab-1", "vocab-2", "interlaced"}) {
    const Plan plan = shared(schedule);
    const TimeBreakdown breakdown = simulate(plan).breakdown;
    EXPECT_FALSE(breakdown.exposed_communication.contains("tp")) << schedule;
    const BlockCosts costs(plan);
    const int barriers = schedule_traits(plan).output_barriers;
    const Seconds each = shared_output_times(plan, barriers, costs).collectives +
                         shared_input_times(plan, barriers, costs).collectives;
    EXPECT_NEAR(breakdown.exposed_communication.at("vp").value(), (each * 32.0).value(), 1e-9)
        << schedule;
  }
  const TimeBreakdown plain = simulate(shared("1f1b")).breakdown;
  EXPECT_FALSE(plain.exposed_communication.contains("vp"));
}

// On V-Half all stop for the output layer, too: nothing of the layers runs between its passes, and
// a device holds about a third of the activations of 1F1B.
TEST(SharedOutput, InterlacedOnTwoChunks) {
  const auto plan_of = [](int chunks) {
    Plan plan = in_pipeline(small_plan(small_spec(), "dgx-a100:1"), "interlaced",
                            {.pp = 4, .dp = 1, .tp = 2, .micro_batches = 32, .chunks = chunks});
    check_plan(plan, "test");
    return plan;
  };
  const Simulation one = simulate(plan_of(1));
  const Simulation two = simulate(plan_of(2), {.record_spans = true});
  ASSERT_EQ(two.order.num_virtual_stages, 8 + 4 + 4);
  EXPECT_LT(two.memory.front().activations * 3, one.memory.front().activations * 2);
  std::vector<SimTime> met(32);  // when the last device has run S
  std::vector<SimTime> began(32, SimTime{std::numeric_limits<std::int64_t>::max()});  // T
  for (const auto& spans : two.pipeline.spans) {
    for (const sim::PassSpan& span : spans) {
      if (span.pass.virtual_stage >= 8 && span.pass.virtual_stage < 12) {
        if (span.pass.kind == sim::PassKind::Forward) {
          met[span.pass.micro_batch] = std::max(met[span.pass.micro_batch], span.end);
        } else {
          began[span.pass.micro_batch] = std::min(began[span.pass.micro_batch], span.start);
        }
      }
    }
  }
  for (std::size_t unit = 0; unit < met.size(); ++unit) {
    EXPECT_GE(began[unit], met[unit]);
    for (const auto& spans : two.pipeline.spans) {
      for (const sim::PassSpan& span : spans) {
        EXPECT_TRUE(span.pass.virtual_stage >= 8 || span.end <= met[unit] ||
                    span.start >= began[unit])
            << unit;
      }
    }
  }
}

// Tied tables are on a device once.
TEST(SharedOutput, ShardsOfTiedTablesAreOne) {
  const auto parameters = [](bool tied) {
    models::NetworkSpec spec = small_spec();
    spec.tied_embeddings = tied;
    return simulate(in_pipeline(small_plan(spec, "dgx-a100:1"), "vocab-1",
                                {.pp = 8, .dp = 1, .tp = 1, .micro_batches = 32}))
        .memory.front()
        .parameters;
  };
  EXPECT_EQ(parameters(false), parameters(true) + ByteCount(2LL * 51200 / 8 * 1024));
}

// What the shard of the head adds to the gradient of a tied table comes last, and is reduced then.
TEST(SharedOutput, TiedTablesAreReducedOnceBothGradientsAreThere) {
  const auto exposed = [](bool tied) {
    models::NetworkSpec spec = small_spec();
    spec.tied_embeddings = tied;
    return simulate(in_pipeline(small_plan(spec, "dgx-a100:2"), "vocab-2",
                                {.pp = 1, .dp = 16, .tp = 1, .micro_batches = 1}))
        .breakdown.exposed_communication.at("dp");
  };
  EXPECT_GT(exposed(true).value(), 0.9 * exposed(false).value());
}

TEST(SharedOutput, HiddenStatesTravelInFp32UnlessAllMeet) {
  const Bytes boundary(2.0 * kHiddenElements);
  EXPECT_DOUBLE_EQ(hidden_broadcast_bytes(shared("vocab-1"), boundary).value(),
                   4.0 * 2048 * (1024 + 1));
  EXPECT_EQ(hidden_broadcast_bytes(shared("interlaced"), boundary), boundary);
}

// Eight devices, eight slices of a quarter KiB tokens.
Plan sliced_shared(const std::string& schedule) {
  models::NetworkSpec spec = small_spec();
  spec.tied_embeddings = false;
  Plan plan = in_pipeline(small_plan(spec, "dgx-a100:1"), schedule,
                          {.pp = 8, .dp = 1, .tp = 1, .micro_batches = 8});
  plan.slices = 8;
  check_plan(plan, "test");
  return plan;
}

// The kernels of vocab-2's shards for an eighth of the tokens; statistics of as many.
TEST(SharedOutput, ShardsOfSlicesTakeTheirTokens) {
  const Plan plan = sliced_shared("slimpipe-vocab");
  const BlockCosts costs(plan);
  const Slice slice = slices_of(plan).front();
  const auto seconds = [&](double bytes) {
    return costs.device().memory_bound(Bytes(bytes), costmodel::MemoryKernel::Elementwise).value();
  };
  EXPECT_EQ(shared_output_times(plan, 1, costs, slice).backward.value(),
            seconds((8 * kLogits + 2 * kHiddenElements) / 8));
  const Simulation run = simulate(plan, {.record_spans = true});
  ASSERT_EQ(run.order.num_virtual_stages, 24);
  ASSERT_EQ(run.passes.unit_forward.size(), 24U * 64);
  const auto group = costmodel::make_group(8, 1, 8);
  const SimTime statistics =
      to_sim_time(costs.collectives().time(sim::CommKind::AllReduce, Bytes(256.0 * 8), group));
  EXPECT_NE(std::find(run.passes.edge_latency.begin(), run.passes.edge_latency.end(), statistics),
            run.passes.edge_latency.end());
  // Shards on all devices take the same, whatever the slice.
  for (std::size_t unit = 8 * 64; unit < 16 * 64; ++unit) {
    EXPECT_EQ(run.passes.unit_forward[unit], run.passes.unit_forward[8 * 64]);
  }
}

// The vocabulary is 50 times the hidden size, so a last device that holds all of it is slow and
// full.
TEST(SharedOutput, SlicesRunFasterWithShardsOfTheHead) {
  const Plan plan = sliced_shared("slimpipe-vocab");
  const Simulation cut = simulate(plan);
  const Simulation whole = simulate(sliced_shared("slimpipe"));
  EXPECT_LT(cut.iteration_time.value(), 0.8 * whole.iteration_time.value());
  EXPECT_EQ(cut.memory.front().parameters, cut.memory.back().parameters);
  EXPECT_LT(cut.memory.back().parameters, whole.memory.back().parameters);
  EXPECT_LT(cut.memory.back().ends.value() * 2, whole.memory.back().ends.value());
  Simulator simulator(plan);
  EXPECT_LE(simulator.work_bound(plan), cut.iteration_time);
  EXPECT_LE(simulator.lower_bound(plan), cut.iteration_time);
  EXPECT_LE(simulator.list_bound(plan), cut.iteration_time);
  const std::vector<MemoryPeak> replayed = replay_memory(plan, {});
  for (std::size_t d = 0; d < 8; ++d) {
    EXPECT_NEAR(static_cast<double>(replayed[d].allocated.value()),
                static_cast<double>(cut.memory[d].allocated().value()),
                0.1 * static_cast<double>(cut.memory[d].allocated().value()))
        << d;
  }
}

TEST(SharedOutput, SlicesNeedOneLayout) {
  Plan plan = sliced_shared("slimpipe-vocab");
  BlockRun head = plan.blocks.front();
  head.count = 1;
  head.layout.zero_stage = 0;
  plan.blocks.front().count -= 1;
  plan.blocks.push_back(head);
  EXPECT_NE(problem(plan).find("give all blocks one layout"), std::string::npos);
}

// One tensor rank has the whole stream, on every stage.
TEST(SharedOutput, StagesAreNoSequenceParallelRanks) {
  for (const char* schedule : {"vocab-1", "vocab-2", "interlaced"}) {
    Plan plan = shared(schedule);
    const Simulation whole = simulate(plan);
    plan.blocks.front().layout.sequence_parallel = true;
    const Simulation named = simulate(plan);
    EXPECT_EQ(named.iteration_time, whole.iteration_time) << schedule;
    EXPECT_EQ(named.memory.front().total(), whole.memory.front().total()) << schedule;
  }
}

// Tensor ranks cut the vocabulary once more, and wait for one another in the passes.
TEST(SharedOutput, TensorRanksExchangeWithinTheirStage) {
  const auto plan_of = [](int tp, bool scattered) {
    Plan plan = in_pipeline(small_plan(small_spec(), "dgx-a100:1"), "vocab-1",
                            {.pp = 8 / tp, .dp = 1, .tp = tp, .micro_batches = 32});
    plan.blocks.front().layout.sequence_parallel = scattered;
    check_plan(plan, "test");
    return plan;
  };
  const auto group = costmodel::make_group(4, 1, 8);
  const Bytes hidden(2.0 * kHiddenElements);
  const Bytes statistics(8.0 * 2048);
  for (const bool scattered : {false, true}) {
    const Plan plan = plan_of(4, scattered);
    const BlockCosts costs(plan);
    const auto time = [&](sim::CommKind kind, Bytes bytes) {
      return costs.collectives().time(kind, bytes, group).value();
    };
    const sim::CommKind sum = scattered ? sim::CommKind::ReduceScatter : sim::CommKind::AllReduce;
    const double gather = scattered ? time(sim::CommKind::AllGather, hidden) : 0.0;
    const ShardTimes output = shared_output_times(plan, 2, costs);
    EXPECT_NEAR(output.tensor_forward.value(), gather + time(sim::CommKind::AllReduce, statistics),
                1e-12);
    EXPECT_NEAR(output.tensor_backward.value(), time(sum, hidden), 1e-12);
    const ShardTimes input = shared_input_times(plan, 2, costs);
    EXPECT_NEAR(input.tensor_forward.value(), time(sum, hidden), 1e-12);
    EXPECT_NEAR(input.tensor_backward.value(), gather, 1e-12);
    EXPECT_GT(output.forward, output.tensor_forward);
    EXPECT_GT(simulate(plan).breakdown.exposed_communication.at("tp"),
              (output.tensor_backward + input.tensor_forward) * 32.0);
  }
  const Plan alone = plan_of(1, false);
  EXPECT_EQ(shared_output_times(alone, 2, BlockCosts(alone)).tensor_backward, Seconds());
  for (const ShardCollective& one : shard_collectives(alone, models::BlockKind::Head)) {
    EXPECT_FALSE(one.of_tensor_ranks);
  }
}

// A stage alone shares with nobody, so that its head and embedding take what they take elsewhere.
TEST(SharedOutput, OneStageWaitsForItsTensorRanks) {
  const auto simulated = [](const std::string& schedule) {
    Plan plan = in_pipeline(small_plan(small_spec(), "dgx-a100:1"), schedule,
                            {.pp = 1, .dp = 1, .tp = 8, .micro_batches = 8});
    plan.execution.overlap_tp = false;
    return simulate(plan);
  };
  const Simulation plain = simulated("1f1b");
  for (const char* schedule : {"vocab-1", "vocab-2", "interlaced"}) {
    const Simulation shared = simulated(schedule);
    EXPECT_NEAR(shared.breakdown.exposed_communication.at("tp").value(),
                plain.breakdown.exposed_communication.at("tp").value(),
                0.02 * plain.breakdown.exposed_communication.at("tp").value())
        << schedule;
    EXPECT_NEAR(shared.iteration_time.value(), plain.iteration_time.value(),
                0.01 * plain.iteration_time.value())
        << schedule;
  }
}

}  // namespace
}  // namespace orrery::plan
