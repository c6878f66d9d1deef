// SPDX-License-Identifier: Apache-2.0
#include "plan/block/crossing_share.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::plan {

namespace {

// Chance that none of `taken` out of `all`, without one twice, is among `share` of them:
// C(all - share, taken) / C(all, taken).
double chance_of_none(double all, double share, double taken) {
  double none = 1.0;
  for (double i = 0; i < taken; ++i) {
    none *= std::max(0.0, all - share - i) / (all - i);
  }
  return none;
}

double ways_to_take(double all, double taken) {
  double ways = 1.0;
  for (double i = 0; i < taken; ++i) {
    ways *= (all - i) / (i + 1);
  }
  return ways;
}

// Chance that a token has an expert on a node that holds so many of several groups: it goes to some
// of these, and its copies to any experts of the groups that it goes to.
double chance_of_node(const models::Block& block, double copies, double held) {
  const auto groups = static_cast<double>(block.groups);
  const auto taken = static_cast<double>(block.groups_per_token);
  const double experts = static_cast<double>(block.experts) / groups;  // of a group
  double chance = 0;
  for (double met = std::max(1.0, taken + held - groups); met <= std::min(held, taken); ++met) {
    chance += ways_to_take(held, met) * ways_to_take(groups - held, taken - met) *
              (1.0 - chance_of_none(taken * experts, met * experts, copies));
  }
  return chance / ways_to_take(groups, taken);
}

// Expected nodes that a token has an expert on where a group is on a node of its own or on several:
// of the nodes of its groups those that its copies meet.
double nodes_met_by_copies(const models::Block& block, double copies, int nodes) {
  const auto taken = static_cast<double>(block.groups_per_token);
  const double reached = std::min(1.0 * nodes, taken * nodes / static_cast<double>(block.groups));
  const double of_a_node = static_cast<double>(block.experts) / nodes;
  return reached * (1.0 - chance_of_none(of_a_node * reached, of_a_node, copies));
}

// The same where a node holds several groups; not a whole number of them: between its neighbours.
double nodes_met_by_groups(const models::Block& block, double copies, int nodes) {
  const double held = static_cast<double>(block.groups) / nodes;
  const double fewer = std::floor(held);
  const double chance = chance_of_node(block, copies, fewer);
  const double next = held > fewer ? chance_of_node(block, copies, fewer + 1) : chance;
  return nodes * (chance + (next - chance) * (held - fewer));
}

}  // namespace

double crossing_share(const models::Block& block, int nodes) {
  const auto copies = static_cast<double>(std::max<std::int64_t>(1, block.top_k));
  const double met = block.groups > nodes ? nodes_met_by_groups(block, copies, nodes)
                                          : nodes_met_by_copies(block, copies, nodes);
  return std::min(1.0, met / copies);
}

std::int64_t chosen_experts(const models::Block& block, std::int64_t held, std::int64_t copies) {
  if (held <= 1 || block.experts == 0) {
    return held;
  }
  const auto each = static_cast<double>(std::max<std::int64_t>(1, block.top_k));
  const double others = std::max(0.0, 1.0 - each / static_cast<double>(block.experts));
  const double chosen = 1.0 - std::pow(others, static_cast<double>(copies) / each);
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(held) * chosen));
}

}  // namespace orrery::plan
