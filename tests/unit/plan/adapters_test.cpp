// SPDX-License-Identifier: Apache-2.0
// Frozen base weights under low-rank adapters: no gradient of them is computed, reduced or stored,
// and what only such a gradient reads is not kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/block/states.hpp"
#include "plan/document/idle_fields.hpp"
#include "plan/exporter.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/token_table.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

models::NetworkSpec adapted_spec(std::int64_t rank = 16) {
  models::NetworkSpec spec = small_spec();
  spec.adapters.rank = rank;
  return spec;
}

// tp 1 on a stage for every layer of the small network's, of 8.
Plan whole_plan(const models::NetworkSpec& spec, int zero) {
  Plan plan = small_plan(spec);
  plan.pp = 1;
  plan.dp = 16;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout.tp = 1;
  plan.blocks.front().layout.zero_stage = zero;
  check_plan(plan, "test");
  return plan;
}

// 2 bytes of every parameter, gradients and fp32 states of the adapters alone; ZeRO-3 shards all.
TEST(AdapterStates, AreThoseOfTheAdapters) {
  for (const int zero : {0, 1, 2, 3}) {
    const Plan plan = whole_plan(adapted_spec(), zero);
    const StageMemory memory = Simulator(plan).memory(plan).front();
    const std::int64_t trained = models::num_trained_parameters(plan.network);
    const std::int64_t all = models::num_parameters(plan.network);
    EXPECT_EQ(trained, 8 * 16 * ((1024 + 3072) + 2 * 1024 + (1024 + 4096) + (4096 + 1024)));
    const auto held = [&](std::int64_t elements, int from_stage) {
      return zero >= from_stage ? elements / 16 : elements;
    };
    EXPECT_EQ(memory.parameters.value(), 2 * held(all, 3)) << zero;
    EXPECT_EQ(memory.gradients.value(), 4 * held(trained, 2)) << zero;
    EXPECT_EQ(memory.optimizer.value(), 12 * held(trained, 1)) << zero;
  }
}

// Frameworks that keep fp32 parameters do so for the optimizer.
TEST(AdapterStates, FrozenWeightsHaveThePrecisionOfAPass) {
  Plan plan = whole_plan(adapted_spec(), 0);
  plan.execution.fp32_parameters = true;
  const std::int64_t trained = models::num_trained_parameters(plan.network);
  const std::int64_t all = models::num_parameters(plan.network);
  EXPECT_EQ(Simulator(plan).memory(plan).front().parameters.value(),
            2 * (all - trained) + 4 * trained);
}

struct ReducedAndGathered {
  double reduced = 0;
  double gathered = 0;
  double gathered_again = 0;
};

ReducedAndGathered volumes(const Plan& plan, int block) {
  BlockCosts costs(plan);
  const BlockPlan& layout = plan.blocks.front().layout;
  ReducedAndGathered volumes;
  for (const StateCollective& one :
       state_collectives(costs.of(block, layout, plan.micro_batch), layout,
                         mesh_of(layout, plan.dp), plan.execution, plan.precision, false, 8)) {
    double& sum = one.use == StateCollective::Use::Reduce   ? volumes.reduced
                  : one.use == StateCollective::Use::Gather ? volumes.gathered
                                                            : volumes.gathered_again;
    sum += one.bytes;
  }
  return volumes;
}

TEST(AdapterStates, AreReducedAloneAndGatheredWithTheRest) {
  const double adapters = 16.0 * ((1024 + 3072) + 2 * 1024 + (1024 + 4096) + (4096 + 1024));
  const double base = 12.0 * 1024 * 1024 + 13.0 * 1024;
  const Plan ddp = whole_plan(adapted_spec(), 0);
  const int layer = ddp.network.chain[2];
  EXPECT_EQ(volumes(ddp, layer).reduced, 4 * adapters);
  EXPECT_EQ(volumes(ddp, layer).gathered, 0);
  const ReducedAndGathered optimizer = volumes(whole_plan(adapted_spec(), 1), layer);
  EXPECT_EQ(optimizer.reduced, 4 * adapters);
  EXPECT_EQ(optimizer.gathered, 2 * adapters);
  const ReducedAndGathered all = volumes(whole_plan(adapted_spec(), 3), layer);
  EXPECT_EQ(all.reduced, 4 * adapters);
  EXPECT_EQ(all.gathered, 2 * (adapters + base));
  EXPECT_EQ(all.gathered_again, all.gathered);
  // The embedding has no backward: nothing is gathered for it.
  const ReducedAndGathered embedding =
      volumes(whole_plan(adapted_spec(), 3), ddp.network.chain.front());
  EXPECT_GT(embedding.gathered, 0);
  EXPECT_EQ(embedding.gathered_again, 0);
  EXPECT_EQ(embedding.reduced, 0);
}

TEST(AdapterPasses, HaveNoWeightGradientOfFrozenProducts) {
  const Plan plan = whole_plan(adapted_spec(), 0);
  BlockCosts costs(plan);
  const auto steps = [&](int block) {
    return costs.steps_of(block, plan.blocks.front().layout, plan.micro_batch);
  };
  const BlockSteps layer = steps(plan.network.chain[2]);
  for (const Step& step : layer.backward) {
    const bool adapter = step.name.find("lora") != std::string_view::npos;
    EXPECT_TRUE(step.pass != sim::PassKind::WeightGrad || adapter) << step.name;
  }
  EXPECT_TRUE(steps(plan.network.chain.front()).backward.empty());
  // The first layer has gradients down to the adapters of q, k and v, not of their input.
  for (const Step& step : steps(plan.network.chain[1]).backward) {
    EXPECT_NE(step.name, "attention_norm");
    EXPECT_NE(step.name, "qkv");
    EXPECT_TRUE(step.name != "qkv_lora_a" || step.pass == sim::PassKind::WeightGrad);
  }
}

TEST(AdapterPasses, TakeTwoThirdsOfTheTimeAndLittleMemory) {
  const Plan full = whole_plan(small_spec(), 0);
  const Plan adapted = whole_plan(adapted_spec(), 0);
  const double time =
      simulate(adapted).iteration_time.value() / simulate(full).iteration_time.value();
  EXPECT_GT(time, 0.55);
  EXPECT_LT(time, 0.95);  // small layers: kernels of adapters take as long as larger ones
  EXPECT_LT(Simulator(adapted).memory(adapted).front().allocated(),
            Simulator(full).memory(full).front().allocated());
}

TEST(AdapterPasses, KeepAdaptersIn16Bits) {
  Plan plan = small_plan(adapted_spec(), "hgx-h100:2");
  const auto time = [&](DType precision, std::string_view name) {
    plan.precision = precision;
    return time_of(plan, name, true);
  };
  EXPECT_EQ(time(DType::Fp8, "mlp_up_lora_a"), time(DType::Bf16, "mlp_up_lora_a"));
  EXPECT_NE(time(DType::Fp8, "mlp_up"), time(DType::Bf16, "mlp_up"));
}

// Columns of an input are read by the weight gradient, those of a weight by the input gradient: the
// first layer's q, k and v have neither.
TEST(AdapterPasses, TransposeOnlyWhatAGradientReads) {
  Plan plan = small_plan(adapted_spec(), "hgx-h100:2");
  Plan full = small_plan(small_spec(), "hgx-h100:2");
  plan.precision = full.precision = DType::Fp8;
  const double elements = static_cast<double>(plan.micro_batch * plan.sequence) * 4096 / 4;
  EXPECT_NEAR(time_of(full, "mlp_down", true) - time_of(plan, "mlp_down", true),
              (memory_bound(full, 4 * elements, costmodel::MemoryKernel::CastTranspose) -
               memory_bound(full, 3 * elements, costmodel::MemoryKernel::Cast))
                  .value(),
              1e-9);
  BlockCosts costs(plan);
  const auto products = [&](std::size_t position) {
    return costs.of(plan.network.chain[position], plan.blocks.front().layout, 1).quantised;
  };
  EXPECT_EQ(products(1).weights - products(1).transposed, 3 * 1024 * 1024 / 4);
  EXPECT_EQ(products(2).weights, products(2).transposed);
}

// A tied table is a frozen weight of both ends: nothing is summed over the stages.
TEST(AdapterPasses, DoNotSumTiedTables) {
  Plan plan = small_plan(adapted_spec());
  ASSERT_TRUE(plan.network.spec.tied_embeddings);
  BlockCosts costs(plan);
  EXPECT_EQ(tied_embedding_time(plan, devices_with_table(plan, {}, stage_contents(plan)), costs),
            Seconds());
  Plan full = small_plan();
  BlockCosts full_costs(full);
  EXPECT_GT(
      tied_embedding_time(full, devices_with_table(full, {}, stage_contents(full)), full_costs),
      Seconds());
}

// W passes of the zero-bubble schedules compute the adapters' gradients alone.
TEST(AdapterPasses, LeaveLittleToWeightGradients) {
  const auto share = [](const models::NetworkSpec& spec) {
    const Plan plan = in_pipeline(small_plan(spec), "zb-h1", {.dp = 4, .tp = 1});
    BlockCosts costs(plan);
    SplitBackwards splits;
    const StagePiece layer{plan.network.chain[2], plan.blocks.front().layout, 1};
    EXPECT_GT(simulate(plan).iteration_time, Seconds());
    return 1.0 - splits.input_share(layer, plan, costs);
  };
  EXPECT_LT(share(adapted_spec()), 0.6 * share(small_spec()));
  EXPECT_GT(share(adapted_spec()), 0.0);
}

// What the caching allocator holds beyond the memory model, on the first device: temporaries.
double beyond_counted(const models::NetworkSpec& spec, const char* schedule, int zero) {
  Plan plan = in_pipeline(small_plan(spec), schedule, {.pp = 2, .dp = 4});
  plan.blocks.front().layout.zero_stage = zero;
  const auto counted = Simulator(plan).memory(plan).front().allocated().value();
  return static_cast<double>(replay_memory(plan).front().allocated.value() - counted);
}

TEST(AdapterMemory, IsReplayedAsItIsCounted) {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    for (const int zero : {0, 1}) {
      EXPECT_NEAR(beyond_counted(adapted_spec(), schedule, zero),
                  beyond_counted(small_spec(), schedule, zero), 20e6)
          << schedule << " " << zero;
    }
  }
  // Of 0.45 GB: the states of the adapters, 2 bytes of the rest, and activations.
  EXPECT_NEAR(beyond_counted(adapted_spec(), "1f1b", 0), 0, 40e6);
}

// Frozen weights stay where they were loaded: no flat buffer takes them in.
TEST(AdapterMemory, DoesNotCopyFrozenWeights) {
  const Plan plan = whole_plan(adapted_spec(), 1);
  const MemoryPeak peak = replay_memory(plan).front();
  const StageMemory memory = Simulator(plan).memory(plan).front();
  EXPECT_LT(peak.reserved.value(), 1.15 * static_cast<double>(memory.allocated().value()));
}

struct Fp8Case {
  const char* cluster;
  std::int64_t rank;
  bool gathers;
  bool on_host;
};

Plan fp8_plan(const Fp8Case& fp8) {
  models::NetworkSpec spec = adapted_spec(fp8.rank);
  spec.hidden = 2048;
  Plan plan = in_pipeline(small_plan(spec, fp8.cluster), "1f1b", {.pp = 2, .dp = 4});
  plan.precision = DType::Fp8;
  plan.execution.quantised_gather = fp8.gathers;
  BlockPlan& layout = plan.blocks.front().layout;
  layout.zero_stage = 1;
  if (fp8.on_host) {
    layout.offload.parameters = layout.offload.optimizer = Tier::Host;
  }
  check_plan(plan, "test");
  return plan;
}

std::vector<Fp8Case> fp8_cases() {
  std::vector<Fp8Case> cases;
  for (const char* cluster : {"hgx-h100:2", "hgx-b200:2"}) {
    for (const std::int64_t rank : {0, 16}) {
      for (const bool gathers : {false, true}) {
        cases.push_back({cluster, rank, gathers, false});
        cases.push_back({cluster, rank, gathers, true});
      }
    }
  }
  return cases;
}

// Of the replay: what is allocated beyond the memory model, and reserved beyond that.
struct Beyond {
  double allocated = 0;
  double reserved = 0;
};

Beyond beyond(const Plan& plan) {
  const MemoryPeak peak = replay_memory(plan).front();
  const ByteCount counted = Simulator(plan).memory(plan).front().allocated();
  return {static_cast<double>((peak.allocated - counted).value()),
          static_cast<double>((peak.reserved - peak.allocated).value())};
}

// Cast weights, 0.2 or 0.4 GB, are beside the parameters in both, once.
TEST(Fp8Memory, IsReplayedAsItIsCounted) {
  for (const Fp8Case& fp8 : fp8_cases()) {
    SCOPED_TRACE(std::string(fp8.cluster) + " rank " + std::to_string(fp8.rank) +
                 (fp8.gathers ? " gathers" : "") + (fp8.on_host ? " host" : ""));
    Plan plan = fp8_plan(fp8);
    const Beyond eight = beyond(plan);
    plan.precision = DType::Bf16;
    plan.execution.quantised_gather = false;
    const Beyond sixteen = beyond(plan);
    EXPECT_NEAR(eight.allocated, sixteen.allocated, 40e6);
    EXPECT_LT(eight.reserved, sixteen.reserved + 60e6);
  }
}

// Frozen weights are not gathered by ZeRO-1: they stay in 16 bits beside what is cast of them, and
// adapters are gathered in 16 bits.
TEST(Fp8Memory, OfAdaptersIsThatWithoutQuantisedGathers) {
  const Plan plan = fp8_plan({"hgx-b200:2", 16, false, false});
  const Plan gathers = fp8_plan({"hgx-b200:2", 16, true, false});
  EXPECT_EQ(Simulator(plan).memory(plan).front().parameters,
            Simulator(gathers).memory(gathers).front().parameters);
  EXPECT_EQ(simulate(plan).iteration_time, simulate(gathers).iteration_time);
  const auto idle = [](const Plan& one) {
    const std::vector<IdleField> fields = idle_fields(one);
    return std::any_of(fields.begin(), fields.end(), [](const IdleField& field) {
      return field.field == "execution.quantised_gather";
    });
  };
  EXPECT_TRUE(idle(gathers));
  EXPECT_FALSE(idle(fp8_plan({"hgx-b200:2", 0, true, false})));
  const int layer = plan.network.chain[2];
  EXPECT_EQ(volumes(plan, layer).gathered, volumes(gathers, layer).gathered);
}

TEST(AdapterExports, AreRefused) {
  for (const Exporter* exporter : exporter_table()) {
    try {
      (void)export_plan(*exporter, small_plan(adapted_spec()));
      ADD_FAILURE() << exporter->name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("adapters")) << exporter->name;
    }
  }
}

}  // namespace
}  // namespace orrery::plan
