// SPDX-License-Identifier: Apache-2.0
// Where the plans of a space keep their tensors.
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "search/space/constraints.hpp"
#include "search/space/layout_fields.hpp"
#include "search/space/space.hpp"

namespace orrery::search {

using plan::Offload;
using plan::Recompute;
using plan::Tier;

namespace {

// Parameters and gradients leave the device only where the optimizer that updates them does.
bool can_update(const Offload& home) {
  return home.optimizer != Tier::Device ||
         (home.parameters == Tier::Device && home.gradients == Tier::Device);
}

}  // namespace

Offload Constraints::offload() const {
  Offload offload;
  for (const Entry& entry : fixed_) {
    if (entry.field == "offload_activations") {
      offload.activations = parse_number(entry.value, "--fix", 0.0, 1.0);
    } else if (entry.field == "offload_activations_of") {
      offload.activations_of = plan::parse_operator_set(entry.value, "--fix");
    } else if (entry.field.starts_with("offload_")) {
      const Tier tier = plan::parse_tier(entry.value, "--fix");
      (entry.field == "offload_parameters"  ? offload.parameters
       : entry.field == "offload_gradients" ? offload.gradients
       : entry.field == "offload_optimizer" ? offload.optimizer
                                            : offload.activations_tier) = tier;
    }
  }
  const bool whose = !offload.activations_of.empty();
  if (!offload_ && offload.activations == 0 && (whose || offload.activations_tier != Tier::Host)) {
    bad_input("--fix",
              fmt::format("offload_activations_{} tensors leave the device, but none do",
                          whose ? "of says whose" : "tier says where"),
              "add offload_activations=1, or --allow offload");
  }
  if (!can_update(offload) && (!offload_ || is_fixed("offload_optimizer"))) {
    bad_input("--fix",
              fmt::format("offload_{}: they leave the device, but the optimizer that updates them "
                          "does not",
                          offload.parameters != Tier::Device ? "parameters" : "gradients"),
              is_fixed("offload_optimizer") ? "set offload_optimizer to host or disk"
                                            : "add offload_optimizer=host, or --allow offload");
  }
  return offload;
}

// Where tensors may live: as fixed, and where offloading is allowed half or all of the saved
// activations, the optimizer with the gradients (from ZeRO-2 on), or both, on the host; where
// operators are allowed, too, the activations of some that are not recomputed.
std::vector<Offload> Space::tried_homes(Recompute recompute, plan::OperatorSet recomputed) const {
  const bool by_operator = recompute == Recompute::None || recompute == Recompute::Operators;
  if (!offload_.activations_of.empty() &&
      (!by_operator || offload_.activations_of.intersects(recomputed))) {
    return {};
  }
  std::vector<Offload> homes = {offload_};
  if (!constraints_.allows_offload() || base_.cluster.node.host_memory.value() == 0) {
    return homes;
  }
  Offload updated = offload_;
  updated.optimizer = Tier::Host;
  if (constraints_.admits("offload_gradients", "host")) {
    updated.gradients = Tier::Host;
  }
  if (!constraints_.is_fixed("offload_optimizer")) {
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

// Those that --forbid leaves, and whose optimizer is where what it updates is.
std::vector<Offload> Space::homes(Recompute recompute, plan::OperatorSet recomputed) const {
  std::vector<Offload> homes = tried_homes(recompute, recomputed);
  std::erase_if(homes, [&](const Offload& home) {
    return !can_update(home) ||
           !constraints_.admits("offload_optimizer", plan::to_text(home.optimizer)) ||
           !constraints_.admits("offload_gradients", plan::to_text(home.gradients)) ||
           !constraints_.admits("offload_activations", fmt::format("{}", home.activations)) ||
           !constraints_.admits("offload_activations_of", home.activations_of.text());
  });
  return homes;
}

}  // namespace orrery::search
