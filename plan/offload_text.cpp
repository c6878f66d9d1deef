// SPDX-License-Identifier: Apache-2.0
#include "plan/offload_text.hpp"

#include <fmt/format.h>

#include <string_view>

namespace orrery::plan {

std::string offload_text(const Offload& offload) {
  std::string text;
  const auto add = [&text](std::string_view tensor, Tier tier) {
    if (tier != Tier::Device) {
      text += fmt::format(", {} on {}", tensor, to_text(tier));
    }
  };
  add("parameters", offload.parameters);
  add("gradients", offload.gradients);
  add("optimizer", offload.optimizer);
  const OperatorSet of = offload.activations_of;
  add(fmt::format("{:.3g} % of {}", 100 * offload.activations,
                  of.empty() ? "activations" : of.text()),
      offload.home_of_activations());
  return text;
}

}  // namespace orrery::plan
