// SPDX-License-Identifier: Apache-2.0
// Experts with copies (FlexMoE, LAER-MoE): tokens are divided over the ranks that a placement gives
// an expert, and those ranks add up its gradients. Outputs and gradients equal those of one device;
// without one of the sums they do not.
#include <gtest/gtest.h>

#include "search/problems/expert_placement.hpp"
#include "tests/unit/plan/semantics/interpreter_backward.hpp"
#include "tests/unit/plan/semantics/tiny_networks.hpp"

namespace orrery::plan::semantics {
namespace {

constexpr int kExperts = 4;
constexpr Sizes kCopySizes = {8, 4};

struct PlacementCase {
  std::string name;
  search::ExpertPlacement placement;  // of the ranks that share the experts
  BlockPlan layout;
  int dp = 4;
};

void PrintTo(const PlacementCase& c, std::ostream* out) { *out << c.name; }

PlacementCase placed(const std::string& name, search::ExpertPlacement placement, int tp = 1,
                     int dp = 4, int zero_stage = 0) {
  PlacementCase one{name, std::move(placement), {}, dp};
  one.layout.ep = static_cast<int>(one.placement.size());
  one.layout.tp = tp;
  one.layout.sequence_parallel = tp > 1;
  one.layout.zero_stage = zero_stage;
  return one;
}

std::vector<PlacementCase> placement_cases() {
  return {placed("one_each", {{3}, {1}, {0}, {2}}),
          placed("hot_one_everywhere", {{0, 1}, {0, 2}, {0, 3}, {0}}),
          placed("two_copies", {{0, 1}, {1, 2}, {2, 3}, {3, 0}}),
          placed("all_everywhere", {{0, 1, 2, 3}, {3, 2, 1, 0}}),
          placed("beside_tensor", {{0, 1}, {1, 2, 3}}, 2, 2),
          placed("with_replicas", {{0, 1, 2}, {2, 3}}, 1, 4),
          placed("with_sharded_states", {{0, 1, 2}, {2, 3, 0}}, 1, 4, 2)};
}

class ExpertCopies : public testing::TestWithParam<PlacementCase> {};

TEST_P(ExpertCopies, EqualTheSerialResultAndNeedEverySum) {
  const PlacementCase& c = GetParam();
  models::NetworkSpec spec = tiny(models::Family::Llama);
  spec.moe = {.experts = kExperts, .top_k = 2, .ffn_hidden = 4, .shared_ffn_hidden = 4};
  const models::Network network = models::build_network(spec, "test");
  const Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
  Conditions conditions;
  conditions.places_of = search::gradient_rings(c.placement, kExperts);
  for (const std::vector<int>& experts : c.placement) {
    Indices sorted = experts;
    std::sort(sorted.begin(), sorted.end());
    conditions.experts_at.push_back(sorted);
  }
  Interpreter serial(block, BlockPlan(), 1, kCopySizes);
  serial.run();
  const auto run = [&](const Fault& fault) {
    Interpreter program(block, c.layout, c.dp, kCopySizes, fault, conditions);
    program.run();
    return program;
  };
  const Interpreter whole = run({});
  EXPECT_LT(whole.distance(serial), 1e-9);
  for (int reduction = 0; reduction < whole.num_reductions(); ++reduction) {
    for (const bool doubled : {false, true}) {
      const Fault fault{reduction, doubled};
      if (whole.matters(fault)) {
        const double distance = run(fault).distance(serial);
        EXPECT_TRUE(distance > 1e-6 || std::isnan(distance))
            << reduction << (doubled ? " doubled" : " dropped");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, ExpertCopies, testing::ValuesIn(placement_cases()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace orrery::plan::semantics
