// SPDX-License-Identifier: Apache-2.0
// Nodes that the copies of a token go to, and experts that get any. O(groups and copies of a
// token).
#pragma once

#include "models/network.hpp"

namespace orrery::plan {

// The part of an exchange's buffer that crosses where tokens are sent once (is_sent_once() of
// step_list.hpp): k different ones of E experts, E/n on each of
// n nodes, meet n (1 - C(E - E/n, k) / C(E, k)) nodes. Where experts are in groups, n are the nodes
// of the groups that a token goes to; where a node holds several of G groups, H, and a token goes
// to t of them, of A experts each, it is the mean over those groups c of a node that it goes to: n
// sum P(c) (1 - C(tA - cA, k) / C(tA, k)), P(c) = C(H, c) C(G - H, t - c) / C(G, t).
// So it does for single ranks in place of nodes.
double crossing_share(const models::Block& block, int nodes);

// Of `held` experts those that some token is expected to choose, of `copies` of tokens that the
// ranks which share the experts have together: held (1 - (1 - k/E)^tokens). The weights of others
// are not read.
std::int64_t chosen_experts(const models::Block& block, std::int64_t held, std::int64_t copies);

}  // namespace orrery::plan
