// SPDX-License-Identifier: Apache-2.0
// Bounds of pipelines that need no program (search/per_block/capacity.hpp).
#include <gtest/gtest.h>

#include "search/per_block/capacity.hpp"
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

}  // namespace
}  // namespace orrery::search
