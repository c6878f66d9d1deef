// SPDX-License-Identifier: Apache-2.0
#include "plan/replay/memory_replay.hpp"

#include <gtest/gtest.h>

#include "plan/simulation/simulate.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

// States and saved activations are counted alike; the replay adds what lives shortly.
TEST(MemoryReplay, LiesALittleAboveTheCategories) {
  const Plan plan = small_plan();
  const std::vector<MemoryPeak> peaks = replay_memory(plan);
  const std::vector<StageMemory> stages = Simulator(plan).memory(plan);
  ASSERT_EQ(peaks.size(), stages.size());
  for (std::size_t device = 0; device < peaks.size(); ++device) {
    const StageMemory& stage = stages[device];
    const ByteCount states = stage.parameters + stage.gradients + stage.optimizer;
    EXPECT_GT(peaks[device].allocated, states + stage.activations);
    EXPECT_LT(peaks[device].allocated.value(),
              1.1 * static_cast<double>(stage.allocated().value()));
    EXPECT_GE(peaks[device].reserved, peaks[device].allocated);
    EXPECT_GT(peaks[device].device(), peaks[device].reserved);
  }
}

// NVIDIA/TransformerEngine get_dummy_wgrad: one 16-bit tensor per shape of a linear layer. Layers
// of one kind share it, so all layers together cost as much as one: 2 x 12 h^2 / tp bytes, against
// a placeholder of at most a third of that at a time.
TEST(MemoryReplay, CachedPlaceholdersCountOnceAShape) {
  Plan plan = small_plan();
  const ByteCount plain = replay_memory(plan).front().allocated;
  MemoryFacts facts;
  facts.weight_gradient = WeightGradient::Cached;
  const ByteCount cached = replay_memory(plan, facts).front().allocated;
  const double expected = 2.0 * 12 * 1024 * 1024 / 4;
  EXPECT_LE(static_cast<double>((cached - plain).value()), expected);
  EXPECT_GE(static_cast<double>((cached - plain).value()), 0.4 * expected);
}

// Two moments of 8 bits beside the master copy, which a plan without moments has, too.
TEST(MemoryReplay, NarrowMomentsTakeTheirBytes) {
  Plan plan = small_plan();
  const auto allocated = [&](int state_bytes) {
    plan.execution.optimizer_state_bytes = state_bytes;
    return static_cast<double>(replay_memory(plan).front().allocated.value());
  };
  const double none = allocated(0);
  const double moments = allocated(8) - none;
  ASSERT_GT(moments, 0);
  EXPECT_NEAR((allocated(2) - none) / moments, 0.25, 0.01);
  EXPECT_NEAR((allocated(4) - none) / moments, 0.5, 0.01);
}

// DeepSpeed keeps a stage's output until its backward: one boundary per micro-batch in flight, two
// on the first of two stages.
TEST(MemoryReplay, KeptOutputsAddABoundaryPerMicroBatch) {
  Plan plan = small_plan();
  MemoryFacts facts;
  facts.held_gradients = false;
  const ByteCount plain = replay_memory(plan, facts).front().allocated;
  facts.keeps_stage_outputs = true;
  const ByteCount kept = replay_memory(plan, facts).front().allocated;
  EXPECT_EQ((kept - plain).value(), 2 * 2048 * 1024 * 2);
}

// Fully sharded: the peak falls with the number of ranks, down to what activations need.
TEST(MemoryReplay, ShardedStatesShrink) {
  BlockPlan layout;
  layout.zero_stage = 3;
  layout.recompute = Recompute::Full;
  MemoryFacts facts;
  facts.frees_sharded_gradients = true;
  facts.gathers_into_copy = true;
  facts.ends_form_root = true;
  facts.copies_into_buffer = false;
  std::int64_t previous = 0;
  for (const char* cluster : {"dgx-a100:4", "dgx-a100:1"}) {
    Plan plan = small_plan(small_spec(), cluster);
    plan.pp = 1;
    plan.dp = plan.cluster.num_gpus();
    plan.stage_blocks = even_stages(plan.network, 1);
    plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
    const std::int64_t peak = replay_memory(plan, facts).front().allocated.value();
    EXPECT_GT(peak, previous);
    previous = peak;
  }
}

// Embedding and head with one table gather it once; with one each, two of them are whole at once
// where units stay so.
TEST(MemoryReplay, ATableInCommonIsGatheredOnce) {
  BlockPlan layout;
  layout.zero_stage = 3;
  layout.recompute = Recompute::Full;
  MemoryFacts facts;
  facts.copies_into_buffer = false;
  const auto peak = [&](bool tied, bool root) {
    models::NetworkSpec spec = small_spec();
    spec.tied_embeddings = tied;
    Plan plan = small_plan(spec, "dgx-a100:8");
    plan.pp = 1;
    plan.dp = plan.cluster.num_gpus();
    plan.stage_blocks = even_stages(plan.network, 1);
    plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
    plan.execution.reshard_after_forward = false;
    facts.ends_form_root = root;
    return static_cast<double>(replay_memory(plan, facts).front().allocated.value());
  };
  const double table = 2.0 * 51200 * 1024;
  for (const bool root : {true, false}) {
    EXPECT_NEAR(peak(false, root) - peak(true, root), table, 0.2 * table) << root;
  }
}

// Every version of the parameters that an asynchronous schedule keeps is there.
TEST(MemoryReplay, HoldsTheVersionsOfParameters) {
  for (const char* schedule : {"pipedream", "pipedream-2bw", "xpipe"}) {
    Plan plan = in_pipeline(small_plan(), schedule);
    plan.blocks.front().layout.zero_stage = 0;
    const std::vector<MemoryPeak> peaks = replay_memory(plan);
    const std::vector<StageMemory> stages = Simulator(plan).memory(plan);
    for (std::size_t device = 0; device < peaks.size(); ++device) {
      const StageMemory& stage = stages[device];
      EXPECT_GT(peaks[device].allocated,
                stage.parameters + stage.gradients + stage.optimizer + stage.activations)
          << schedule << " " << device;
    }
  }
}

// Micro-batches beyond the pipeline's steady state change nothing.
TEST(MemoryReplay, IsIndependentOfTheNumberOfMicroBatches) {
  Plan plan = small_plan();
  const MemoryPeak few = replay_memory(plan).front();
  plan.batch *= 4;
  const MemoryPeak many = replay_memory(plan).front();
  EXPECT_EQ(few.allocated, many.allocated);
  EXPECT_EQ(few.reserved, many.reserved);
}

// GPipe has no steady state: all its micro-batches are there at once.
TEST(MemoryReplay, HoldsAllMicroBatchesOfGPipe) {
  Plan plan = small_plan();
  plan.schedule = "gpipe";
  plan.batch *= 4;
  const MemoryPeak few = replay_memory(plan).front();
  plan.batch *= 4;
  const MemoryPeak many = replay_memory(plan).front();
  const auto activations = [&] {
    return Simulator(plan).memory(plan).front().activations.value() * 3 / 4;
  };
  EXPECT_GT((many.allocated - few.allocated).value(), 9 * activations() / 10);
}

// 4 MiB, 512 KiB and 4,800 KiB per connection; ring and two trees; twice the channels of the
// search inside a node, twice the adapters between nodes.
TEST(MemoryReplay, CountsTheBuffersOfCommunicators) {
  Plan plan = small_plan();
  plan.blocks.front().layout.tp = 2;
  plan.dp = 1;
  plan.pp = 1;
  const std::int64_t connection = (4LL << 20) + (512 << 10) + (4800 << 10);
  const std::int64_t channels = 2 * plan.cluster.node.scale_up.nccl_channels;
  EXPECT_EQ(communicator_bytes(plan).value(), 3 * channels * connection);
  plan.dp = plan.cluster.node.gpus;  // with tp beyond a node
  const std::int64_t adapters = 2 * plan.cluster.node.scale_out.nics;
  EXPECT_EQ(communicator_bytes(plan).value(), 3 * (channels + adapters) * connection);
  const MemoryPeak peak = replay_memory(small_plan()).front();
  EXPECT_EQ(peak.outside, context_bytes() + communicator_bytes(small_plan()));
}

Plan replicated_plan() {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  plan.pp = 1;
  plan.dp = 8;
  plan.batch = 32;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout.tp = 1;
  return plan;
}

// Eight layers of which two at a time keep their saved tensors on the device.
TEST(MemoryReplay, OffloadedActivationsLeave) {
  Plan plan = replicated_plan();
  const double saved =
      static_cast<double>(Simulator(plan).memory(plan).front().activations.value());
  const auto peak = [&](double share) {
    plan.blocks.front().layout.offload.activations = share;
    return static_cast<double>(replay_memory(plan).front().allocated.value());
  };
  const double whole = peak(0);
  const double half = peak(0.5);
  const double none = peak(1);
  EXPECT_NEAR(whole - half, 0.5 * saved * 6 / 8, 0.1 * saved);
  EXPECT_NEAR(whole - none, saved * 6 / 8, 0.15 * saved);
}

// Only the tensors of the operators named leave, as the formula counts them.
TEST(MemoryReplay, OffloadedActivationsOfOperatorsLeave) {
  Plan plan = replicated_plan();
  const auto whole = static_cast<double>(replay_memory(plan).front().allocated.value());
  Offload& offload = plan.blocks.front().layout.offload;
  offload.activations = 1;
  for (const OperatorGroup group :
       {OperatorGroup::MlpUp, OperatorGroup::Qkv, OperatorGroup::Norms}) {
    offload.activations_of = OperatorSet();
    offload.activations_of.add(group);
    const auto host = static_cast<double>(Simulator(plan).memory(plan).front().host.value());
    const auto left = static_cast<double>(replay_memory(plan).front().allocated.value());
    ASSERT_GT(host, 0);
    EXPECT_GE(whole - left, host * 6 / 8) << to_text(group);  // two blocks are on the device,
    EXPECT_LE(whole - left, host) << to_text(group);          // or one where the peak is elsewhere
  }
}

Plan plan_with_states_on_the_host() {
  Plan plan = small_plan();
  BlockPlan layout;
  layout.zero_stage = 3;
  layout.recompute = Recompute::Full;
  layout.offload.optimizer = Tier::Host;
  layout.offload.gradients = Tier::Host;
  plan.pp = 1;
  plan.dp = 16;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  return plan;
}

double allocated(const Plan& plan) {
  return static_cast<double>(replay_memory(plan).front().allocated.value());
}

// Units that are whole at a time, the one that runs among them: each more is a layer of 12 h^2
// parameters, until all of them are.
TEST(MemoryReplay, GathersInFlightAreBuffers) {
  Plan plan = small_plan();
  BlockPlan layout;
  layout.zero_stage = 3;
  layout.recompute = Recompute::Full;
  plan.pp = 1;
  plan.dp = 16;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  const auto with = [&](int in_flight) {
    plan.execution.gathers_in_flight = in_flight;
    return allocated(plan);
  };
  const double layer = 2.0 * 12 * 1024 * 1024;
  for (const int in_flight : {1, 2, 3, 4}) {
    EXPECT_NEAR(with(in_flight + 1) - with(in_flight), layer, 0.01 * layer) << in_flight;
  }
  EXPECT_EQ(with(0), with(100));
  EXPECT_GT(with(0), with(5));
}

// Without resharding after the forward every unit waits for the backward, once for all
// micro-batches in flight.
TEST(MemoryReplay, UnitsThatAreNotReshardedStay) {
  Plan plan = small_plan();
  for (BlockRun& run : plan.blocks) {
    run.layout.zero_stage = 3;
    run.layout.recompute = Recompute::Full;
  }
  const auto gathered = [&] {
    plan.execution.reshard_after_forward = true;
    const double one = allocated(plan);
    plan.execution.reshard_after_forward = false;
    return allocated(plan) - one;
  };
  // The first stage's layers and embedding, of which two layers were there before, one read and one
  // on its way.
  const double layer = 2.0 * 12 * 1024 * 1024 / plan.blocks.front().layout.tp;
  const double table = 2.0 * 51200 * 1024 / plan.blocks.front().layout.tp;
  const double all = layer * (plan.stage_blocks.front() - 1) + table;
  EXPECT_GT(gathered(), all - 2 * layer);
  EXPECT_LT(gathered(), all);
  const double some = gathered();
  plan.batch *= 4;
  EXPECT_EQ(gathered(), some);
}

// Parameters on the host: the shards of all layers are gone, those of one or two layers have
// buffers beside the ones that are gathered.
TEST(MemoryReplay, FetchedShardsHaveBuffers) {
  Plan plan = plan_with_states_on_the_host();
  const double resident = allocated(plan);
  plan.blocks.front().layout.offload.parameters = Tier::Host;
  const double saved = resident - allocated(plan);
  const double shards = 2.0 * static_cast<double>(models::num_parameters(plan.network)) / 16;
  const double largest = 2.0 * 51200 * 1024 / 16;  // the embedding's
  EXPECT_LT(saved, shards);
  EXPECT_GT(saved, shards - 2.1 * largest);
}

// ZeRO++: what is gathered ahead is half as large in 8 bits; whole gradients pass through 4-bit
// buffers, one to send and one to receive, together half of them.
TEST(MemoryReplay, QuantisedExchangesHaveTheirBuffers) {
  Plan plan = plan_with_states_on_the_host();
  plan.blocks.front().layout.offload = {};
  const double plain = allocated(plan);
  plan.execution.quantised_gather = true;
  EXPECT_LT(allocated(plan), plain);
  plan.execution.quantised_gather = false;
  plan.execution.fp32_gradients = false;
  const double low = allocated(plan);
  plan.execution.quantised_reduce = true;
  const double more = allocated(plan) - low;
  EXPECT_GE(more, 0);
  EXPECT_LE(more, 1.01 * 51200 * 1024 * 1.5);
  plan.execution.quantised_reduce = false;
  plan.execution.hierarchical_gather = true;  // a second shard, of the ranks of a node
  const double second = 2.0 * static_cast<double>(models::num_parameters(plan.network)) / 8;
  EXPECT_NEAR(allocated(plan) - low, second, 0.05 * second);
}

TEST(MemoryReplay, ParametersWithScalesOfBlocksAreGatheredIn16Bits) {
  Plan plan = plan_with_states_on_the_host();
  plan.blocks.front().layout.offload = {};
  plan.cluster = topologies::load_cluster("hgx-h100:2");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.precision = DType::Fp8;
  plan.execution.fp8_scaling = Fp8Scaling::Blocks;
  const double plain = allocated(plan);
  plan.execution.quantised_gather = true;
  EXPECT_EQ(allocated(plan), plain);
}

// The last stage keeps 2 bytes a logit of every micro-batch to the end of the step; the first one
// has none.
TEST(MemoryReplay, LogitsOfAllMicroBatchesStayWithTheLastStage) {
  Plan plan = small_plan();
  MemoryFacts facts;
  facts.keeps_last_outputs = true;
  const auto peaks = [&](std::int64_t micro_batches) {
    plan.batch = micro_batches * plan.micro_batch * plan.dp;
    return replay_memory(plan, facts);
  };
  const std::vector<MemoryPeak> few = peaks(24);
  const std::vector<MemoryPeak> many = peaks(40);
  const std::int64_t tokens = plan.micro_batch * plan.sequence;
  const std::int64_t logits = 2 * tokens * 51200 / plan.blocks.front().layout.tp;
  EXPECT_EQ((many.back().allocated - few.back().allocated).value(), 16 * logits);
  EXPECT_EQ(many.front().allocated, few.front().allocated);
  facts.keeps_last_outputs = false;
  EXPECT_EQ(peaks(24).back().allocated, peaks(40).back().allocated);
}

}  // namespace
}  // namespace orrery::plan
