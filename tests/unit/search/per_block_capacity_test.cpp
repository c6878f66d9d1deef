// SPDX-License-Identifier: Apache-2.0
// Bounds of pipelines that need no program (search/per_block/capacity.hpp) or a small one
// (search/per_block/device_program.hpp).
#include <gtest/gtest.h>

#include "search/per_block/capacity.hpp"
#include "search/per_block/device_program.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// 10 layers on 4 devices: one has three of them, whatever the rest.
TEST(PerBlockCapacity, BlocksAreWhole) {
  const plan::Plan base = base_plan(with_memory("80 GiB", 10));
  const Constraints constraints = fixed("tp=1,cp=1,pp=4,micro_batch=1,schedule=1f1b,zero=1");
  const PerBlockSpace space(base, constraints);  // refers to them
  BlockPricer pricer(space);
  ASSERT_EQ(space.meshes().size(), 1U);
  const StageMesh& mesh = space.meshes().front();
  const MeshCosts costs = pricer.price(mesh);
  const Pipeline pipeline = space.pipelines(mesh).front();
  const auto floors = device_floors(base.network, costs, pipeline, 4, 8);
  const double bound = capacity_bound(base.network, costs, pipeline, 4, 8);
  EXPECT_GE(bound, 3 * floors.front().layer);
  EXPECT_EQ(floors.front().layers_within(floors.front().fixed + 2.5 * floors.front().layer), 2);
}

// One micro-batch on four devices: each waits while the others work.
TEST(PerBlockCapacity, OneMicroBatchGoesThroughAllBlocks) {
  Shape shape = with_memory("80 GiB");
  shape.batch = 1;
  const plan::Plan base = base_plan(shape);
  const Constraints constraints = fixed("tp=1,cp=1,pp=4,micro_batch=1,schedule=1f1b,zero=1");
  const PerBlockSpace space(base, constraints);  // refers to them
  BlockPricer pricer(space);
  for (const StageMesh& mesh : space.meshes()) {
    const MeshCosts costs = pricer.price(mesh);
    const Pipeline pipeline = space.pipelines(mesh).front();
    double pass = 0;
    for (const int block : base.network.chain) {
      const BlockChoice& one = costs.choices[static_cast<std::size_t>(block)].front();
      pass += one.forward + one.backward;
    }
    EXPECT_NEAR(chain_bound(base.network, costs, pipeline), pass, 1e-6 * pass);
    EXPECT_GT(chain_bound(base.network, costs, pipeline),
              capacity_bound(base.network, costs, pipeline, 4, 1));
  }
  EXPECT_FALSE(space.meshes().empty());
}

// No plan is faster, and the more micro-batches devices hold the more they have to recompute.
TEST(DeviceBound, KnowsHowManyMicroBatchesDevicesHold) {
  const Constraints constraints =
      fixed("tp=1,cp=1,pp=2,micro_batch=1,zero=1,schedule=interleaved,chunks=4");
  int tighter = 0;
  int known = 0;
  for (int mib = 3600; mib <= 5200; mib += 200) {
    Shape shape = with_memory(std::to_string(mib) + " MiB");
    shape.batch = 64;
    const plan::Plan base = base_plan(shape);
    const PerBlockSpace space(base, constraints);
    Options options;
    options.jobs = 1;
    options.interval_draws = 0;
    options.constraints = constraints;
    const Outcome outcome = search(base, options);
    if (!outcome.best) {
      continue;
    }
    const double best = outcome.best->simulation.iteration_time.value();
    const StageMesh& mesh = space.meshes().front();
    const Pipeline pipeline = space.pipelines(mesh).front();
    BlockPricer pricer(space);
    const MeshCosts costs = pricer.price(mesh);
    plan::Simulator simulator(base);
    plan::Plan plan = outcome.best->plan;
    const auto bound_of = [&](int times) {  // as many micro-batches
      std::vector<plan::LiveCounts> live = plan::live_counts(simulator.order(plan));
      for (plan::LiveCounts& device : live) {
        for (std::vector<int>& counts : device.maxima) {
          for (int& count : counts) {
            count *= times;
          }
        }
      }
      const plan::ScheduleTraits traits = plan::schedule_traits(plan);
      return device_bound(plan, pipeline, traits, costs, live, best * 1.01, {});
    };
    const double bound = bound_of(1);
    EXPECT_LE(bound, best) << mib;
    EXPECT_GT(bound, 0.5 * best) << mib;
    EXPECT_LE(bound_of(0), bound * (1 + 1e-9)) << mib;
    tighter += bound_of(3) > bound * 1.001 ? 1 : 0;
    ++known;
  }
  EXPECT_GT(known, 3);
  EXPECT_GT(tighter, 0);
}

}  // namespace
}  // namespace orrery::search
