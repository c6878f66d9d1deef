// SPDX-License-Identifier: Apache-2.0
// Where the experts of one mixture-of-experts layer stand: every rank has a number of slots, a slot
// holds a copy of one expert, and the tokens for an expert are divided over its copies within reach
// of their rank. FlexMoE (Nie et al. 2023) and LAER-MoE (Liu et al. 2026) move copies to balance
// the ranks; here is what their planners share: the problem, the loads and what a placement costs.
#pragma once

#include <string>
#include <vector>

#include "base/json_reader.hpp"
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
  int layers = 1;  // drawn with different seeds
  std::uint64_t seed = 1;
  double token_time = 0;      // seconds of one copy's forward
  double compute_passes = 3;  // forward, two for the backward
  double token_bytes = 0;
  double exchanges = 4;         // dispatch and combine, forward and backward
  double inside_bandwidth = 0;  // bytes/s of a rank to the others of its node, to other nodes
  double outside_bandwidth = 0;
  double latency = 0;
  double other = 0;  // seconds of the rest of the layer
};
// Reads everything but the members of one planner.
ExpertProblem read_expert_problem(ObjectReader& problem);

// What one step's tokens cost under a placement.
struct PlacedStep {
  std::vector<double> received;  // token copies each rank computes
  double exchange = 0;           // seconds of one all-to-all
  double time = 0;               // of the layer, forward and backward
};
PlacedStep place_tokens(const ExpertProblem& problem, const models::RoutedTokens& tokens,
                        const ExpertPlacement& placement, const TokenReach& reach);

ExpertPlacement static_placement(const ExpertProblem& problem);

// Draws every layer and step, and asks for the next placement after each step. The policy sees the
// tokens of a step when it has run; what it returns holds for the next one.
struct PlacementPolicy {
  virtual ~PlacementPolicy() = default;
  virtual ExpertPlacement next(const models::RoutedTokens& tokens, ExpertPlacement current) = 0;
};
// {"time_s", "static_time_s", "speedup", "max_over_mean", "variation", ..., "moves"} (moves: slots
// changed a step).
Json compare_with_static(const ExpertProblem& problem, const TokenReach& reach,
                         PlacementPolicy& policy);

}  // namespace orrery::search
