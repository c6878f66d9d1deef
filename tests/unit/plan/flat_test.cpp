// SPDX-License-Identifier: Apache-2.0
#include "plan/flat/flat.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "base/error.hpp"
#include "plan/stages.hpp"
#include "sim/engine/fold.hpp"
#include "tests/unit/models/specs.hpp"
#include "tests/unit/plan/flat_fixture.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

struct FlatCase {
  const char* name;
  std::function<void(Plan&, BlockPlan&)> change;
};

void PrintTo(const FlatCase& test, std::ostream* out) { *out << test.name; }

void without_overlap(Plan& plan) {
  plan.execution.overlap_grad_reduce = false;
  plan.execution.overlap_param_gather = false;
  plan.execution.overlap_tp = false;
}

// The host needs longer than the device for a forward, but not for recomputation and backward.
void slow_host(Plan& plan, BlockPlan& layout) {
  BlockCosts costs(plan);
  const int layer = plan.network.chain[1];
  plan.execution.host_per_block =
      to_seconds(costs.of(layer, layout, plan.micro_batch).forward.time) * 1.1;
}

Plan flat_plan_of(const FlatCase& test) {
  Plan plan = small_plan();
  test.change(plan, plan.blocks.front().layout);
  plan.stage_blocks = even_stages(plan.network, plan.pp * plan.chunks);
  check_plan(plan, test.name);
  return plan;
}

std::int64_t picoseconds(Seconds time) { return std::llround(time.value() * 1e12); }

// A decoder with an encoder of 4 layers in front, which is the first of two stages.
void add_encoder(Plan& plan, bool frozen) {
  plan.network = models::build_network(models::behind_encoder(small_spec(), 4, 2, frozen), "test");
  plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
}

void in_fp8(Plan& plan) {
  plan.cluster = topologies::load_cluster("hgx-h100:2");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.precision = DType::Fp8;
}

// Plans in which nothing outside a block competes with it.
const FlatCase kAlone[] = {
    {"tp",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       layout.zero_stage = 0;
     }},
    {"tp overlap",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.execution.overlap_tp = true;
       layout.zero_stage = 0;
     }},
    {"sequence parallel, selective",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       layout = {.tp = 4, .sequence_parallel = true, .recompute = Recompute::Selective};
     }},
    {"sequence parallel, full, tp overlap",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.execution.overlap_tp = true;
       layout = {.tp = 4, .sequence_parallel = true, .recompute = Recompute::Full};
     }},
    {"interleaved",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.schedule = "interleaved";
       plan.chunks = 2;
       layout.zero_stage = 0;
     }},
    {"split backward",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.schedule = "zb-h1";
       layout.zero_stage = 0;
     }},
    {"fp8, interleaved",
     [](Plan& plan, BlockPlan& layout) {
       in_fp8(plan);
       without_overlap(plan);
       plan.schedule = "interleaved";
       plan.chunks = 2;
       layout = {.tp = 4, .sequence_parallel = true};
     }},
    {"fp8, blocking sends",
     [](Plan& plan, BlockPlan& layout) {
       in_fp8(plan);
       without_overlap(plan);
       plan.execution.overlap_p2p = false;
       layout.zero_stage = 0;
     }},
    {"fp8, split backward",
     [](Plan& plan, BlockPlan& layout) {
       in_fp8(plan);
       without_overlap(plan);
       plan.schedule = "zb-h1";
       layout.zero_stage = 0;
     }},
    {"split backward, tp overlap, full recomputation, V",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.execution.overlap_tp = true;
       plan.schedule = "v-min";
       plan.chunks = 2;
       layout = {.tp = 4, .sequence_parallel = true, .recompute = Recompute::Full};
     }},
    {"blocking sends",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.execution.overlap_p2p = false;
       plan.pp = 4;
       plan.dp = 1;
       layout.zero_stage = 0;
     }},
    {"zero 1",
     [](Plan& plan, BlockPlan&) {
       without_overlap(plan);
       plan.pp = 1;
       plan.dp = 4;
     }},
    {"zero 2",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.pp = 1;
       plan.dp = 4;
       layout.zero_stage = 2;
     }},
    {"context ring",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.dp = 1;
       layout = {.tp = 4, .cp = 2};
     }},
    {"trained encoder",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       add_encoder(plan, false);
       layout.sequence_parallel = true;
     }},
    {"frozen encoder",
     [](Plan& plan, BlockPlan&) {
       without_overlap(plan);
       add_encoder(plan, true);
     }},
    {"frozen encoder, more stages",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       add_encoder(plan, true);
       layout.tp = 2;
       plan.pp = 4;
     }},
    {"ulysses",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.dp = 1;
       layout = {.tp = 4, .cp = 2, .context = ContextParallel::Ulysses};
     }},
    {"host bound",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.execution.host_per_block = Seconds(20e-3);
       layout = {.tp = 4, .recompute = Recompute::Full};
     }},
    {"host slower than a forward",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       layout = {.tp = 4, .recompute = Recompute::Full};
       slow_host(plan, layout);
     }},
    {"host slower than a forward, split backward",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.schedule = "zb-h1";
       layout = {.tp = 4, .recompute = Recompute::Full};
       slow_host(plan, layout);
     }},
    {"launch bound",
     [](Plan& plan, BlockPlan& layout) {
       without_overlap(plan);
       plan.profile.kernel_launch = Seconds(200e-6);
       layout.zero_stage = 0;
     }},
};

// Plans with data-parallel traffic beside blocks.
const FlatCase kBeside[] = {
    {"zero 0", [](Plan&, BlockPlan& layout) { layout.zero_stage = 0; }},
    {"zero 1", [](Plan&, BlockPlan&) {}},
    {"zero 1, fp8", [](Plan& plan, BlockPlan&) { in_fp8(plan); }},
    {"zero 1, sequence parallel",
     [](Plan&, BlockPlan& layout) { layout.sequence_parallel = true; }},
    {"zero 1, interleaved",
     [](Plan& plan, BlockPlan&) {
       plan.schedule = "interleaved";
       plan.chunks = 2;
     }},
    {"zero 1, breadth-first",
     [](Plan& plan, BlockPlan&) {
       plan.schedule = "breadth-first";
       plan.chunks = 2;
     }},
    {"zero 1, few micro-batches", [](Plan& plan, BlockPlan&) { plan.batch = 8; }},
    {"zero 1, split backward", [](Plan& plan, BlockPlan&) { plan.schedule = "zb-h2"; }},
    {"zero 0, split backward, small stages",  // reductions longer than weight gradients
     [](Plan& plan, BlockPlan& layout) {
       plan.schedule = "zb-h1";
       plan.pp = 8;
       plan.batch = 16;
       layout = {.tp = 1};
     }},
    {"zero 2", [](Plan&, BlockPlan& layout) { layout.zero_stage = 2; }},
    {"zero 2, no pipeline",
     [](Plan& plan, BlockPlan& layout) {
       plan.pp = 1;
       plan.dp = 16;
       layout = {.zero_stage = 2};
     }},
    {"zero 2, split backward",
     [](Plan& plan, BlockPlan& layout) {
       plan.schedule = "zb-h1";
       layout.zero_stage = 2;
     }},
    {"zero 3, split backward",
     [](Plan& plan, BlockPlan& layout) {
       plan.schedule = "zb-h2";
       layout.zero_stage = 3;
     }},
    {"zero 3", [](Plan&, BlockPlan& layout) { layout.zero_stage = 3; }},
    {"zero 3, no pipeline",
     [](Plan& plan, BlockPlan& layout) {
       plan.pp = 1;
       plan.dp = 4;
       layout.zero_stage = 3;
     }},
    {"zero 3, kept parameters",
     [](Plan& plan, BlockPlan& layout) {
       plan.execution.reshard_after_forward = false;
       layout.zero_stage = 3;
     }},
};

class Alone : public ::testing::TestWithParam<FlatCase> {};
INSTANTIATE_TEST_SUITE_P(Flat, Alone, ::testing::ValuesIn(kAlone));

TEST_P(Alone, EqualsHierarchyUpToRounding) {
  const Plan plan = flat_plan_of(GetParam());
  const FlatSimulation flat = simulate_flat(plan);
  const Seconds hierarchical = simulate(plan).iteration_time;
  EXPECT_NEAR(static_cast<double>(picoseconds(flat.iteration_time)),
              static_cast<double>(picoseconds(hierarchical)),
              static_cast<double>(flat.program.num_nodes()));
}

class Beside : public ::testing::TestWithParam<FlatCase> {};
INSTANTIATE_TEST_SUITE_P(Flat, Beside, ::testing::ValuesIn(kBeside));

TEST_P(Beside, StaysWithinTheBoundOfTheHierarchy) {
  const Plan plan = flat_plan_of(GetParam());
  const FlatSimulation flat = simulate_flat(plan);
  const Seconds hierarchical = simulate(plan).iteration_time;
  const FlatBound bound = flat_bound(plan, flat.program.num_nodes());
  EXPECT_LE(flat.iteration_time, hierarchical + bound.above);
  EXPECT_GE(flat.iteration_time + bound.below, hierarchical);
  // And it is close: 5 % where every pass exposes traffic, 0.2 % elsewhere.
  const bool every = plan.blocks.front().layout.zero_stage >= 2;
  EXPECT_NEAR(flat.iteration_time / hierarchical, 1.0, every ? 0.05 : 0.002);
}

TEST_P(Beside, AllRanksTakeTheTimeOfOne) {
  Plan plan = flat_plan_of(GetParam());
  plan.batch = 32;
  const FlatSimulation one = simulate_flat(plan, {.merge_kernels = true});
  const FlatSimulation all = simulate_flat(plan, {.all_ranks = true, .merge_kernels = true});
  EXPECT_EQ(all.iteration_time.value(), one.iteration_time.value());
  EXPECT_GT(all.program.num_nodes(), one.program.num_nodes());
  const sim::Fold folded = sim::fold(all.program);
  EXPECT_EQ(sim::run(folded.program).makespan, all.timeline.makespan);
  EXPECT_LE(folded.program.num_nodes(), one.program.num_nodes());
}

TEST_P(Beside, ActivationsPeakWhereTheMemoryModelSaysSo) {
  const Plan plan = flat_plan_of(GetParam());
  const FlatSimulation flat = simulate_flat(plan);
  const Simulation hierarchical = simulate(plan);
  ASSERT_EQ(flat.timeline.peaks.size(), hierarchical.memory.size());
  for (std::size_t stage = 0; stage < hierarchical.memory.size(); ++stage) {
    const StageMemory& memory = hierarchical.memory[stage];
    const ByteCount model = memory.activations + memory.ends;
    EXPECT_EQ(flat.timeline.peaks[stage].bytes, model);
  }
}

TEST(Flat, MergedKernelsKeepTheTime) {
  Plan plan = small_plan();
  plan.blocks.front().layout.sequence_parallel = true;
  const FlatSimulation apart = simulate_flat(plan);
  const FlatSimulation merged = simulate_flat(plan, {.merge_kernels = true});
  EXPECT_LT(merged.program.num_nodes(), apart.program.num_nodes());
  EXPECT_NEAR(static_cast<double>(picoseconds(merged.iteration_time)),
              static_cast<double>(picoseconds(apart.iteration_time)),
              static_cast<double>(apart.program.num_nodes()));
}

TEST(Flat, TagsSayWhatEachNodeIs) {
  const Plan plan = small_plan();
  const sim::Program program = flat_program(plan);
  std::set<sim::PassKind> passes;
  std::set<int> layers;
  for (sim::NodeId node = 0; node < program.num_nodes(); ++node) {
    const sim::Tag& tag = program.tag(node);
    passes.insert(tag.pass);
    layers.insert(tag.layer);
    const std::string& name = program.names()[tag.name];
    const bool of_step = tag.pass == sim::PassKind::Optimizer || name == "gradient norm" ||
                         name == "sum tied embeddings";
    if (of_step) {
      EXPECT_EQ(tag.micro_batch, sim::kAllMicroBatches);
    } else {
      EXPECT_LT(tag.micro_batch, plan.num_micro_batches());
    }
    EXPECT_LT(tag.chunk, plan.pp * plan.chunks);
  }
  EXPECT_EQ(layers.size(), plan.network.chain.size());
  EXPECT_THAT(passes,
              ::testing::IsSupersetOf({sim::PassKind::Forward, sim::PassKind::InputGrad,
                                       sim::PassKind::WeightGrad, sim::PassKind::Optimizer,
                                       sim::PassKind::Communication, sim::PassKind::Transfer}));
  EXPECT_THAT(program.names(), ::testing::Contains("reduce gradients"));
  EXPECT_THAT(program.names(), ::testing::Contains("gather parameters"));
}

// Copies of gathered parameters and of gradients (FSDP) take as long as in the hierarchy.
TEST(Flat, HoldsTheCopiesOfShardedParameters) {
  Plan plan = small_plan();
  plan.blocks.front().layout.zero_stage = 3;
  const auto both = [&] {
    return std::pair(simulate_flat(plan).iteration_time, simulate(plan).iteration_time);
  };
  const auto [flat, hierarchical] = both();
  plan.execution.copies_gathered = true;
  const auto [flat_copied, hierarchical_copied] = both();
  EXPECT_GT(hierarchical_copied, hierarchical * 1.001);
  EXPECT_NEAR((flat_copied - flat) / (hierarchical_copied - hierarchical), 1.0, 0.05);
}

TEST(Flat, RefusesWhatIsTooLargeToExpand) {
  Plan plan = small_plan();
  plan.batch = 1 << 22;
  EXPECT_THROW(flat_program(plan), Error);
}

}  // namespace
}  // namespace orrery::plan
