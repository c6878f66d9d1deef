// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/contradictions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/schedule_traits.hpp"
#include "studies/rows/bridge_layouts.hpp"
#include "studies/rows/cloud_recipes.hpp"

namespace orrery::studies {
namespace {

// Of a stated product nothing is rounded. Sources of sliced schedules count slices.
std::string batch_contradiction(const Measurement& stated, const plan::Plan& plan) {
  const bool open = !stated.global_batch || !stated.micro_batch || !stated.num_microbatches;
  if (open || plan::schedule_traits(plan).uses_slices) {
    return "";
  }
  const std::int64_t product = *stated.micro_batch * *stated.num_microbatches * plan.dp;
  return product == *stated.global_batch || product == plan.batch
             ? std::string()
             : fmt::format("global_batch {}, not micro_batch {} x num_microbatches {} x dp {} = {}",
                           *stated.global_batch, *stated.micro_batch, *stated.num_microbatches,
                           plan.dp, product);
}

// Names round ("7B" of 6.7), and some sources leave out embeddings or count what a token uses.
std::string parameter_contradiction(const Measurement& stated, const models::Network& network) {
  constexpr double kFar = 0.2;
  if (stated.params_b.value_or(0) <= 0) {
    return "";
  }
  const auto far_from = [&](std::int64_t parameters) {
    return std::abs(static_cast<double>(parameters) / (*stated.params_b * 1e9) - 1) > kFar;
  };
  const std::int64_t all = models::num_parameters(network);
  const std::int64_t embeddings =
      network.spec.vocab * network.spec.hidden * (network.spec.tied_embeddings ? 1 : 2);
  if (!far_from(all) || !far_from(all - embeddings) ||
      !far_from(models::num_active_parameters(network))) {
    return "";
  }
  return fmt::format("the {:.3g} B parameters of the widths, not params_b {:g}",
                     static_cast<double>(all) / 1e9, *stated.params_b);
}

}  // namespace

std::vector<std::string> contradictions(const Measurement& stated, const plan::Plan& plan) {
  std::vector<std::string> lines = {batch_contradiction(stated, plan),
                                    parameter_contradiction(stated, plan.network),
                                    cloud_recipe_contradiction(stated, plan.execution)};
  std::erase(lines, "");
  const std::vector<std::string> of_recipe = recipe_contradictions(stated);
  lines.insert(lines.end(), of_recipe.begin(), of_recipe.end());
  return lines;
}

}  // namespace orrery::studies
