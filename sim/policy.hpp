// SPDX-License-Identifier: Apache-2.0
// Schedules given as a policy: whenever a device can start something, the best pass that is ready
// and admitted starts. The policy is run once with the times of ScheduleParams; the lists it makes
// are the schedule. Lanes run their units in order. O(passes x (lanes per device + log devices)).
#pragma once

#include <functional>
#include <string>
#include <tuple>

#include "sim/list_builder.hpp"

namespace orrery::sim {

struct Policy {
  // The smallest starts first, among passes that can start at the same time.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  std::function<Key(const ListBuilder&, const Pass&)> key;
  // Whether the pass may start; gradients always should.
  std::function<bool(const ListBuilder&, const Pass&)> admits;
};

// What it could not place is missing in the lists: check_order names it.
PipelineOrder run_policy(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
                         const Policy& policy);

// "" when running `policies` of them does not take too long.
std::string check_looks(const ScheduleParams& params, int policies);

// A key: the other kind than the device ran before comes first.
Policy::Key by_turns(const ListBuilder& lists, const Pass& pass);

// Passes of this one's lane that its device has done, of all its virtual stages.
std::int64_t done_like(const ListBuilder& lists, const Pass& pass);

// Admits forwards while the device then holds at most `cap` activations (params.activation units),
// counting also those that micro-batches it has begun will still bring, so that they can finish.
bool within_cap(const ListBuilder& lists, const Pass& pass, std::int64_t cap);

}  // namespace orrery::sim
