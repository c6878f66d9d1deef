// SPDX-License-Identifier: Apache-2.0
// The check of plans finds the layouts whose ranks would work on each other's parts, and no others:
// those whose program does not give the serial result.
#include <gtest/gtest.h>

#include "plan/block/cut_order.hpp"
#include "tests/unit/plan/semantics/tiny_layouts.hpp"

namespace orrery::plan::semantics {
namespace {

// Where a hand-written map cuts a dimension in one order here and in another there, ranks would
// work on each other's tokens: the check of plans knows these maps, and no others.
TEST(CutOrder, IsOneWhereverTheResultIsTheSerialOne) {
  const std::vector<std::vector<Var>> lists = {{Var::Seq},
                                               {Var::Hidden, Var::Seq},
                                               {Var::Head, Var::Ffn, Var::Seq},
                                               {Var::Ffn, Var::Seq},
                                               {Var::Rank, Var::Seq},
                                               {Var::Batch},
                                               {Var::Hidden, Var::Batch},
                                               {Var::Head, Var::Ffn, Var::Rank, Var::Batch}};
  int conflicts = 0;
  for (const models::Network& network : {tiny_llama(false), adapted(tiny_llama(false).spec)}) {
    const Block& block = network.blocks[static_cast<std::size_t>(network.chain[2])];
    const Interpreter serial = serial_run(block);
    for (const std::vector<Var>& first : lists) {
      for (const std::vector<Var>& second : lists) {
        const BlockPlan layout = variables(2, first, 2, second);
        Interpreter sharded(block, layout, 1, {8, 4});
        bool equal = true;
        try {
          sharded.run();
          equal = sharded.distance(serial) < kTolerance;
        } catch (const std::out_of_range&) {  // a rank reads what it does not hold
          equal = false;
        }
        const auto conflict = find_cut_conflict(block, rules_of(layout, true), sharded.mesh());
        EXPECT_EQ(!conflict, equal)
            << network.spec.name << " tp " << to_text(first.front()) << " +" << first.size()
            << ", cp " << to_text(second.front()) << " +" << second.size();
        conflicts += conflict ? 1 : 0;
      }
    }
  }
  EXPECT_GT(conflicts, 0);
}

// The same of tensor meshes.
TEST(CutOrder, IsOneOnMeshes) {
  for (const models::Network& network : {tiny_llama(false), adapted(tiny_llama(false).spec)}) {
    const Block& block = network.blocks[static_cast<std::size_t>(network.chain[2])];
    for (const TensorMesh kind : {TensorMesh::TwoD, TensorMesh::TwoAndHalfD, TensorMesh::ThreeD}) {
      const BlockPlan layout = tensor_mesh(kind, kind == TensorMesh::TwoD ? 4 : 8);
      const auto conflict = find_cut_conflict(block, rules_of(layout, true), mesh_of(layout, 2));
      EXPECT_FALSE(conflict) << to_text(kind);
    }
  }
}

// Experts cut by some of the tensor-parallel ranks and spread over the others: copies of tokens go
// back to the ranks that have the tokens. What an adapter adds is scattered before that, along
// other tokens.
TEST(CutOrder, IsOneWhereExpertsAreOverHalfOfTensor) {
  for (const bool adapters : {false, true}) {
    const models::Network network = adapters ? adapted(tiny_llama(true).spec) : tiny_llama(true);
    const Block& block = network.blocks[static_cast<std::size_t>(network.chain[2])];
    const BlockPlan layout = expert(2, 4, 2, true);
    Interpreter sharded(block, layout, 1, {8, 4});
    sharded.run();
    const double distance = sharded.distance(serial_run(block));
    EXPECT_EQ(distance < kTolerance, !adapters);
    EXPECT_EQ(!find_cut_conflict(block, rules_of(layout, true), sharded.mesh()), !adapters);
  }
}

}  // namespace
}  // namespace orrery::plan::semantics
