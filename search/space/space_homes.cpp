// SPDX-License-Identifier: Apache-2.0
// Where the plans of a space keep their tensors.
#include <fmt/format.h>

#include "search/space/layout_fields.hpp"
#include "search/space/space.hpp"

namespace orrery::search {

using plan::Recompute;

// Where tensors may live: as fixed, and where offloading is allowed half or all of the saved
// activations, the optimizer with the gradients (from ZeRO-2 on), or both, on the host; where
// operators are allowed, too, the activations of some that are not recomputed.
std::vector<plan::Offload> Space::tried_homes(Recompute recompute,
                                              plan::OperatorSet recomputed) const {
  const bool by_operator = recompute == Recompute::None || recompute == Recompute::Operators;
  if (!offload_.activations_of.empty() &&
      (!by_operator || offload_.activations_of.intersects(recomputed))) {
    return {};
  }
  std::vector<plan::Offload> homes = {offload_};
  if (!constraints_.allows_offload() || base_.cluster.node.host_memory.value() == 0) {
    return homes;
  }
  plan::Offload updated = offload_;
  updated.optimizer = plan::Tier::Host;
  if (constraints_.admits("offload_gradients", "host")) {
    updated.gradients = plan::Tier::Host;
  }
  if (!constraints_.is_fixed("offload_optimizer") && !constraints_.is_fixed("offload_gradients")) {
    homes.push_back(updated);
  }
  if (constraints_.is_fixed("offload_activations")) {
    return homes;
  }
  const bool chooses =
      by_operator && constraints_.allows_operators() && offload_.activations_of.empty();
  for (std::size_t index = 0, count = homes.size(); index < count; ++index) {
    for (const double share : {0.5, 1.0}) {
      homes.push_back(homes[index]);
      homes.back().activations = share;
    }
    for (const plan::OperatorSet& set : offloaded_operator_sets()) {
      if (chooses && !set.intersects(recomputed)) {
        homes.push_back(homes[index]);
        homes.back().activations = 1.0;
        homes.back().activations_of = set;
      }
    }
  }
  return homes;
}

// Those that --forbid leaves.
std::vector<plan::Offload> Space::homes(Recompute recompute, plan::OperatorSet recomputed) const {
  std::vector<plan::Offload> homes = tried_homes(recompute, recomputed);
  std::erase_if(homes, [&](const plan::Offload& home) {
    return !constraints_.admits("offload_optimizer", plan::to_text(home.optimizer)) ||
           !constraints_.admits("offload_gradients", plan::to_text(home.gradients)) ||
           !constraints_.admits("offload_activations", fmt::format("{}", home.activations)) ||
           !constraints_.admits("offload_activations_of", home.activations_of.text());
  });
  return homes;
}

}  // namespace orrery::search
