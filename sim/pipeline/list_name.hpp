// SPDX-License-Identifier: Apache-2.0
// What the lists of an order are, for pictures: stages, or the devices of replicated ones; or
// streams, where they run services (copies, host work), or where a worker has several, the first of
// which prepares its batches; or servers: of orders that never flush the services are theirs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "sim/schedule.hpp"

namespace orrery::sim {

inline std::string_view list_name(const PipelineOrder& order, std::size_t list) {
  const auto runs = [&](std::size_t of, bool services) {
    return std::any_of(order.chains.begin(), order.chains.end(), [&](const Chain& chain) {
      const auto first = order.device_of.begin() + chain.first;
      return (chain.role == Role::Service) == services &&
             std::find(first, first + chain.stages, of) != first + chain.stages;
    });
  };
  const auto serves = [&](std::size_t of) { return runs(of, true) && !runs(of, false); };
  if (serves(0) || serves(list)) {
    return order.versions == Versions::Flush ? "stream" : "server";
  }
  return has_copies(order) ? "device" : "stage";
}

}  // namespace orrery::sim
