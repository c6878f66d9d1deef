// SPDX-License-Identifier: Apache-2.0
// The per-block search: what it finds beyond one layout for all blocks, and that what it minimises
// is what is reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "plan/document/plan_text.hpp"
#include "search/per_block/bound.hpp"
#include "search/per_block/critical_path.hpp"
#include "search/per_block/cuts.hpp"
#include "search/per_block/linear_program.hpp"
#include "search/per_block/node.hpp"
#include "search/per_block/search.hpp"
#include "search/per_block/split.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// With room beyond the card where memory is replayed: what counts here are its categories.
PerBlockOutcome search_fixed(const Shape& shape, const std::string& fix, int jobs = 1) {
  Options options;
  options.replay_reserve = ByteCount(-(std::int64_t{64} << 30));
  options.jobs = jobs;
  options.constraints = fixed(fix);
  return search_per_block(base_plan(shape), options);
}

const std::string kOneStage = "tp=1,cp=1,pp=1,dp=4,zero=1,micro_batch=2";

ByteCount needed(const std::string& fix) {
  const PerBlockOutcome found = search_fixed(with_memory("80 GiB"), fix);
  return found.outcome.best ? found.outcome.best->simulation.memory.front().total() : ByteCount();
}

std::string bytes_text(ByteCount bytes) { return std::to_string(bytes.value()) + " B"; }

// Between what no recomputation and full recomputation need, some blocks recompute and others do
// not.
TEST(PerBlock, RecomputesOnlySomeBlocks) {
  const ByteCount most = needed(kOneStage + ",recompute=none");
  const ByteCount least = needed(kOneStage + ",recompute=full");
  ASSERT_LT(least, most);
  const ByteCount between(least.value() + (most.value() - least.value()) * 6 / 10);
  const PerBlockOutcome found = search_fixed(with_memory(bytes_text(between)), kOneStage);
  ASSERT_TRUE(found.outcome.best);
  const plan::Plan& plan = found.outcome.best->plan;
  std::set<plan::Recompute> used;
  for (const plan::BlockRun& run : plan.blocks) {
    used.insert(run.layout.recompute);
  }
  EXPECT_GT(used.size(), 1U) << plan::block_texts(plan).front();
  EXPECT_LT(found.outcome.best->simulation.iteration_time, found.homogeneous);
  EXPECT_LE(found.outcome.lower_bound, found.outcome.best->simulation.iteration_time);
  EXPECT_EQ(verify(*found.outcome.best), "");
}

// A head worth many layers: the slow last stage is seen, and it gets fewer of them.
TEST(PerBlock, CutsStagesUnevenly) {
  Shape shape = with_memory("80 GiB");
  shape.spec.vocab = 64'000;
  const PerBlockOutcome found =
      search_fixed(shape, "tp=1,cp=1,pp=4,chunks=1,schedule=1f1b,recompute=none,micro_batch=1");
  ASSERT_TRUE(found.outcome.best);
  const std::vector<int>& stages = found.outcome.best->plan.stage_blocks;
  EXPECT_LT(stages.back(), *std::max_element(stages.begin(), stages.end()));
  EXPECT_LE(found.outcome.best->simulation.iteration_time, found.homogeneous);
}

// Memory is exact: with just what the best plan needs, it is found again.
TEST(PerBlock, UsesTheLastByte) {
  const PerBlockOutcome roomy = search_fixed(with_memory("4400 MiB"), kOneStage);
  ASSERT_TRUE(roomy.outcome.best);
  const ByteCount all = roomy.outcome.best->simulation.memory.front().total();
  const PerBlockOutcome exact = search_fixed(with_memory(bytes_text(all)), kOneStage);
  ASSERT_TRUE(exact.outcome.best);
  EXPECT_EQ(exact.outcome.best->simulation.iteration_time,
            roomy.outcome.best->simulation.iteration_time);
  const PerBlockOutcome less = search_fixed(with_memory(bytes_text(all - ByteCount(1))), kOneStage);
  ASSERT_TRUE(less.outcome.best);
  EXPECT_GE(less.outcome.best->simulation.iteration_time,
            roomy.outcome.best->simulation.iteration_time);
}

// Every plan that is reported fits when its allocations are replayed, which some do not that fit by
// categories.
TEST(PerBlock, ReportsWhatFitsWhenReplayed) {
  const PerBlockOutcome roomy = search_fixed(with_memory("4400 MiB"), kOneStage);
  ASSERT_TRUE(roomy.outcome.best);
  const ByteCount all = roomy.outcome.best->simulation.memory.front().total();
  Options options;
  options.jobs = 1;
  options.constraints = fixed(kOneStage);
  const Shape shape = with_memory(bytes_text(all));
  const PerBlockOutcome found = search_per_block(base_plan(shape), options);
  ASSERT_TRUE(found.outcome.best);
  const plan::Plan& plan = found.outcome.best->plan;
  EXPECT_TRUE(plan::replayed_verdict(plan, plan::replay_memory(plan)).fits);
  const plan::Plan by_categories = search_fixed(shape, kOneStage).outcome.best->plan;
  EXPECT_FALSE(plan::replayed_verdict(by_categories, plan::replay_memory(by_categories)).fits);
  // All plans were simulated, so the bound is that of those which fit.
  EXPECT_EQ(found.outcome.lower_bound, found.outcome.best->simulation.iteration_time);
}

TEST(PerBlock, DoesNotDependOnThreads) {
  const Shape shape = with_memory("3 GiB", 4);
  const PerBlockOutcome one = search_fixed(shape, "cp=1,pp=2", 1);
  const PerBlockOutcome two = search_fixed(shape, "cp=1,pp=2", 2);
  ASSERT_TRUE(one.outcome.best && two.outcome.best);
  EXPECT_EQ(plan::to_json(one.outcome.best->plan), plan::to_json(two.outcome.best->plan));
  EXPECT_EQ(one.outcome.lower_bound, two.outcome.lower_bound);
  EXPECT_EQ(one.outcome.simulated, two.outcome.simulated);
}

TEST(PerBlock, SaysHowLargeTheSpaceIs) {
  EXPECT_EQ((SpaceSize{48, 1.7}).text(), "48");
  EXPECT_EQ((SpaceSize{-1, 187.5}).text(), "3.2e+187");
  const Constraints constraints = fixed("tp=1,cp=1,pp=2,dp=2,micro_batch=4,schedule=1f1b,zero=1");
  const PerBlockSpace space(base_plan(), constraints);
  // Three ways to recompute for each of six blocks, five cuts.
  EXPECT_EQ(space.size().exact, 729 * 5);
}

// Cuts with whole chunks, a small first one, and fewer layers beside the head.
TEST(PerBlock, LikelyCutsFillTheStages) {
  for (const int chunks : {1, 2, 3}) {
    const auto cuts = likely_cuts(26, 4, chunks);
    EXPECT_GT(cuts.size(), 2U);
    for (const std::vector<int>& cut : cuts) {
      EXPECT_EQ(cut.size(), 4U * static_cast<std::size_t>(chunks));
      EXPECT_EQ(std::accumulate(cut.begin(), cut.end(), 0), 26);
      EXPECT_GE(*std::min_element(cut.begin(), cut.end()), 1);
    }
  }
  const std::vector<int> small_first = {2, 1, 1, 1, 5, 5, 5, 6};
  const auto cuts = likely_cuts(26, 4, 2);
  EXPECT_NE(std::find(cuts.begin(), cuts.end(), small_first), cuts.end());
  EXPECT_TRUE(likely_cuts(4, 4, 2).empty());
}

using Stages = std::vector<std::size_t>;

// Neighbours with parts of blocks have fewer or more of them together: here a device of two.
TEST(PerBlock, SplitsDevicesWithPartsOfBlocks) {
  Pipeline pipeline;
  pipeline.chunks = 2;
  pipeline.placement.device_of = {0, 1, 0, 1};
  const Shares shares{{{{1.0}, {1.5}}, {{0.25}, {2.0}}, {{2.1}, {0.0}}, {{1.0}, {2.0}}}};
  const auto parts = split_stages(shares, pipeline, {});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].front().stages, (Stages{0, 2}));
  EXPECT_EQ(parts[0].front().most, 4);
  EXPECT_EQ(parts[1].front().least, 5);
  EXPECT_TRUE(split_stages({{{{1.0}, {2.0}}}}, pipeline, {}).empty());
}

// Four devices with room for four blocks each share 15: one half of them has eight, or the other.
TEST(PerBlock, SplitsHalfOfTheDevices) {
  Pipeline pipeline;
  pipeline.placement.device_of = {0, 1, 2, 3};
  const Shares shares{{{{3.75}}, {{3.75}}, {{3.75}}, {{3.75}}}};
  const auto parts = split_stages(shares, pipeline, {});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].front().stages, (Stages{0, 1}));
  EXPECT_EQ(parts[0].front().most, 7);
  EXPECT_EQ(parts[1].front().least, 8);
  // Two directions: both copies of a stage are the same blocks.
  pipeline.placement.device_of = {0, 1, 2, 3, 3, 2, 1, 0};
  pipeline.placement.two_directions = true;
  EXPECT_EQ(split_stages(shares, pipeline, {}).front().front().stages, (Stages{1, 2}));
}

// Where devices have whole blocks, consecutive stages are split; a range that is known is narrowed.
TEST(PerBlock, SplitsStagesWithPartsOfBlocks) {
  Pipeline pipeline;
  pipeline.chunks = 2;
  pipeline.placement.device_of = {0, 1, 0, 1};
  const Shares shares{{{{1.0}, {1.5}}, {{0.25}, {2.0}}, {{2.5}, {0.0}}, {{1.0}, {1.75}}}};
  const auto parts = split_stages(shares, pipeline, {});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].front().stages, Stages{0});
  EXPECT_EQ(parts[0].front().most, 2);
  EXPECT_EQ(parts[1].front().least, 3);
  const auto next = split_stages(shares, pipeline, {{{0}, 1, 4}});
  ASSERT_EQ(next.size(), 2U);
  ASSERT_EQ(next[1].size(), 1U);
  EXPECT_EQ(next[1].front().least, 3);
  EXPECT_EQ(next[1].front().most, 4);
}

// A pipeline with many rounds before it, or one that is drafted, has others beside it; meshes are
// apart.
TEST(PerBlock, BoundsPipelinesOfAllRoundsTogether) {
  EXPECT_TRUE(go_together(PerBlockStage::Bounded, PerBlockStage::Pipeline));
  EXPECT_TRUE(go_together(PerBlockStage::Bounded, PerBlockStage::Done));
  EXPECT_TRUE(go_together(PerBlockStage::Mesh, PerBlockStage::Mesh));
  EXPECT_FALSE(go_together(PerBlockStage::Mesh, PerBlockStage::Pipeline));
  EXPECT_FALSE(go_together(PerBlockStage::Done, PerBlockStage::Mesh));
}

// Lists of several iterations bound nothing of one.
TEST(PerBlock, AsynchronousSchedulesStayHomogeneous) {
  Constraints constraints = fixed("tp=1,cp=1,pp=4,micro_batch=1,zero=1");
  constraints.allow("asynchronous");
  const plan::Plan base = base_plan();
  const PerBlockSpace space(base, constraints);
  ASSERT_FALSE(space.meshes().empty());
  for (const StageMesh& mesh : space.meshes()) {
    for (const Pipeline& pipeline : space.pipelines(mesh)) {
      const auto schedule = static_cast<std::size_t>(pipeline.schedule);
      EXPECT_TRUE(space.homogeneous().schedules().choices()[schedule].traits.synchronous);
    }
  }
}

// Under ZeRO-2 the first block of a stage is reduced behind every backward, beside nothing.
TEST(PerBlock, FirstBlocksAreReducedBehindBackwards) {
  Shape shape = with_memory("80 GiB");
  shape.batch = 256;
  const plan::Plan base = base_plan(shape);
  const Constraints constraints = fixed("tp=1,cp=1,pp=1,zero=2,recompute=none,micro_batch=1");
  const PerBlockSpace space(base, constraints);  // refers to them
  const StageMesh& mesh = space.meshes().front();
  BlockPricer pricer(space);
  const MeshCosts costs = pricer.price(mesh);
  double pass = 0;
  for (const int block : base.network.chain) {
    const BlockChoice& one = costs.choices[static_cast<std::size_t>(block)].front();
    pass += one.forward + one.backward + costs.beside * one.traffic;
  }
  const auto front = static_cast<std::size_t>(base.network.chain.front());
  const double behind = (1.0 - costs.beside) * costs.choices[front].front().pass_reduce;
  ASSERT_GT(behind, 0);
  plan::Simulator simulator(base);
  PipelineBounds bounds(space, simulator);
  const double batches = static_cast<double>(space.micro_batches(mesh));
  const double bound = bounds.bound(mesh, space.pipelines(mesh).front(), costs, 1e3, 5).seconds;
  EXPECT_GE(bound, batches * (pass + behind) * (1.0 - 1e-6));
  EXPECT_GT(batches * behind, 2 * costs.optimizer);  // so that no end of the step hides it
}

// Idle variables are there for the bound, and wake where they are of use.
TEST(LinearProgram, WakesIdleVariables) {
  LinearProgram program;
  const int group = program.add_group(4);
  const int dear = program.add_variable(10, 5, false, group);
  const int cheap = program.add_variable(10, 1, true, group);
  program.add_row({{dear, 1}, {cheap, 1}}, 4);
  const LinearProgram::Answer answer = program.solve();
  EXPECT_NEAR(answer.bound, 4, 1e-6);
  EXPECT_NEAR(answer.values[static_cast<std::size_t>(cheap)], 4, 1e-6);
}

// A bound that is enough asks for no more variables; those to begin with are there before.
TEST(LinearProgram, StopsWhereTheBoundIsEnough) {
  for (const bool begins : {false, true}) {
    LinearProgram program;
    program.stop_at(1.0);
    const int dear = program.add_variable(10, 5);
    const int cheap = program.add_variable(10, 4, true);
    program.add_row({{dear, 1}, {cheap, 1}}, 4);
    if (begins) {
      program.begin_with(cheap);
    }
    const LinearProgram::Answer answer = program.solve();
    EXPECT_GE(answer.bound, 1.0);
    EXPECT_LE(answer.bound, 16.0);
    EXPECT_NEAR(answer.values[static_cast<std::size_t>(cheap)], begins ? 4 : 0, 1e-6);
  }
}

// Weak duality: the bound needs no trust in the solver, and meets it where it is right.
TEST(LinearProgram, BoundsAndSolves) {
  LinearProgram program;
  const int x = program.add_variable(10, 1);
  const int y = program.add_variable(10, 2);
  program.add_row({{x, 1}, {y, 1}}, 4);
  LinearProgram::Answer answer = program.solve();
  EXPECT_NEAR(answer.bound, 4, 1e-9);
  program.add_row({{x, -1}}, -3);  // x <= 3
  answer = program.solve();
  EXPECT_NEAR(answer.bound, 5, 1e-9);
  EXPECT_LE(answer.bound, 5);
  program.add_row({{x, -1}, {y, -1}}, -2);
  answer = program.solve();  // nothing: at least 4, at most 2
  EXPECT_FALSE(answer.solved);
  EXPECT_GT(answer.bound, 1e3);
}

// Rows with something to spare leave without a trace; one that binds stays.
TEST(LinearProgram, DropsRowsThatDoNotBind) {
  LinearProgram program;
  const int x = program.add_variable(10, 1);
  const int slack = program.add_row({{x, 1}}, 1);
  const int tight = program.add_row({{x, 1}}, 4);
  EXPECT_NEAR(program.solve().bound, 4, 1e-9);
  program.drop_rows({slack, tight});
  EXPECT_NEAR(program.solve().bound, 4, 1e-9);
  const int y = program.add_variable(10, 1);
  program.add_row({{x, -1}, {y, 1}}, 1);
  EXPECT_NEAR(program.solve().bound, 9, 1e-9);  // y of at least 5
}

// Where a stage that ends earlier has more behind it, the path ends there, and says so.
TEST(LongestPath, EndsWhereMostIsBehind) {
  sim::ScheduleParams params;
  params.stages = 2;
  params.micro_batches = 4;
  const sim::PipelineOrder order = sim::find_schedule("1f1b", "test").order(params);
  sim::PipelineCosts costs;
  costs.forward.assign(2, SimTime{1'000});
  costs.backward.assign(2, SimTime{2'000});
  costs.send_forward = costs.send_backward = {SimTime{0}};
  costs.first_forward_extra = {SimTime{70}, SimTime{7}};
  costs.last_backward_extra = {SimTime{50}, SimTime{5}};
  const PassPath whole = longest_path(order, costs);
  EXPECT_EQ(whole.last_stage, 0U);
  EXPECT_TRUE(whole.firsts[0] && whole.firsts[1] && whole.finals[0] && whole.finals[1]);
  EXPECT_NEAR(whole.seconds, to_seconds(sim::evaluate_pipeline(order, costs).makespan).value(),
              1e-15);
  const PassPath early = longest_path(order, costs, {SimTime{0}, SimTime{9'000}});
  EXPECT_EQ(early.last_stage, 1U);
  EXPECT_TRUE(early.ends_stage);
  EXPECT_FALSE(early.finals[0]);
  EXPECT_LT(early.seconds, whole.seconds);
}

// Two chunks on a device: the first one's gradients are ready last.
TEST(LongestPath, KnowsWhoseGradientsAreReadyLater) {
  sim::ScheduleParams params;
  params.stages = 2;
  params.micro_batches = 4;
  params.chunks = 2;
  const auto later = reduced_later(sim::find_schedule("interleaved", "test").order(params));
  EXPECT_TRUE(later[0].empty());
  EXPECT_EQ(later[2], std::vector<std::size_t>{0});
  EXPECT_EQ(later[3], std::vector<std::size_t>{1});
}

// The counts of a longest path add up to the makespan.
TEST(LongestPath, AddsUp) {
  sim::ScheduleParams params;
  params.stages = 4;
  params.micro_batches = 8;
  for (const char* name : {"1f1b", "zb-h1", "chimera", "dualpipe"}) {
    const sim::PipelineOrder order = sim::find_schedule(name, "test").order(params);
    sim::PipelineCosts costs;
    for (int stage = 0; stage < order.num_virtual_stages; ++stage) {
      costs.forward.push_back({1'000'000 + 70'000 * stage});
      costs.backward.push_back({2'000'000 + 90'000 * stage});
      costs.input_grad.push_back({1'100'000});
      costs.weight_grad.push_back({900'000 + 90'000 * stage});
    }
    costs.send_forward.assign(costs.forward.size() - 1, SimTime{1'000});
    if (order.chains.size() > 1) {
      costs.send_forward[static_cast<std::size_t>(order.chains[1].first) - 1] = SimTime{};
    }
    costs.send_backward = costs.send_forward;
    const PassPath path = longest_path(order, costs);
    double seconds = 0;
    for (std::size_t stage = 0; stage < costs.forward.size(); ++stage) {
      const bool sends = stage + 1 < costs.forward.size();
      seconds += path.sends[stage] * (sends ? to_seconds(costs.send_forward[stage]).value() : 0.0);
      seconds += path.forwards[stage] * to_seconds(costs.forward[stage]).value() +
                 path.backwards[stage] * to_seconds(costs.backward[stage]).value() +
                 path.input_grads[stage] * to_seconds(costs.input_grad[stage]).value() +
                 path.weight_grads[stage] * to_seconds(costs.weight_grad[stage]).value();
    }
    const SimTime makespan = sim::evaluate_pipeline(order, costs).makespan;
    EXPECT_NEAR(seconds, to_seconds(makespan).value(), 1e-15) << name;
  }
}

}  // namespace
}  // namespace orrery::search
