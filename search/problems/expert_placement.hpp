// SPDX-License-Identifier: Apache-2.0
// Where the experts of one mixture-of-experts layer stand: every rank has a number of slots, a slot
// holds a copy of one expert, and the tokens for an expert are divided over its copies within reach
// of their rank. FlexMoE (Nie et al. 2023) and LAER-MoE (Liu et al. 2026) move copies to balance
// the ranks; here is what their planners share: the problem, the loads and what a placement costs.
#pragma once

#include <string>
#include <vector>

#include "base/json_reader.hpp"
#include "base/units.hpp"
#include "models/routing.hpp"

namespace orrery::search {

// experts[rank][slot].
using ExpertPlacement = std::vector<std::vector<int>>;

// Ranks to which a token may go: those of the same block of `group` ranks; first those of its own
// node, where `node_first` and the expert stands there.
struct TokenReach {
  int group = 1;
  bool node_first = false;
};

struct ExpertProblem {
  models::RoutingModel routing;
  int ranks_per_node = 8;
  int expert_parallel = 1;  // ranks of a static group
  int slots = 1;            // of a rank
  int steps = 1;
  int history = 1;  // of the last steps, whose tokens a policy sees together
  int layers = 1;   // drawn with different seeds
  std::uint64_t seed = 1;
  Seconds token_time;         // of one copy's forward
  double compute_passes = 3;  // forward, two for the backward
  Bytes token_bytes;
  double exchanges = 4;             // dispatch and combine, forward and backward
  BytesPerSecond inside_bandwidth;  // of a rank to the others of its node, to other nodes
  BytesPerSecond outside_bandwidth;
  Seconds latency;
  Seconds other;         // the rest of the layer
  Bytes gradient_bytes;  // of an expert, which its copies add up; 0: not counted
};
// Reads everything but the members of one planner.
ExpertProblem read_expert_problem(ObjectReader& problem);

// What one step's tokens cost under a placement. Where every static group still has all experts,
// tokens stay in theirs if that takes less time.
struct PlacedStep {
  std::vector<double> received;  // token copies each rank computes
  Seconds exchange;              // one all-to-all
  Seconds reduction;             // all-reduces of the gradients of experts with several copies
  Seconds time;                  // of the layer, forward and backward
};
PlacedStep place_tokens(const ExpertProblem& problem, const models::RoutedTokens& tokens,
                        const ExpertPlacement& placement, const TokenReach& reach);

// The ranks that hold each expert, in their order: they add up their gradients of it. Copies on one
// rank are added up where they are.
std::vector<std::vector<int>> gradient_rings(const ExpertPlacement& placement, int experts);
// All rings at once: what the busiest link of a rank carries.
Seconds reduce_gradients(const ExpertProblem& problem, const ExpertPlacement& placement);

// Tokens of all ranks for each expert.
std::vector<double> load_of_experts(const models::RoutedTokens& tokens);

ExpertPlacement static_placement(const ExpertProblem& problem);

// Draws every layer and step, and asks for the next placement after each step. The policy sees the
// tokens of a step when it has run, added to those of the steps before (`history`); what it returns
// holds for the next one.
struct PlacementPolicy {
  virtual ~PlacementPolicy() = default;
  virtual ExpertPlacement next(const models::RoutedTokens& tokens, ExpertPlacement current) = 0;
};
// {"time_s", "static_time_s", "speedup", "max_over_mean", "variation", ..., "moves"} (moves: slots
// changed a step).
Json compare_with_static(const ExpertProblem& problem, const TokenReach& reach,
                         PlacementPolicy& policy);

}  // namespace orrery::search
