// SPDX-License-Identifier: Apache-2.0
// What training costs at the hourly prices of the GPUs that a plan uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/mixed/plan.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::cli {

// GPUs of one kind.
struct GpusUsed {
  double count = 0;
  std::string name;
  DollarsPerSecond price;  // of each; 0 = not known
};
std::vector<GpusUsed> gpus_used(const plan::Plan& plan);
// Those without a rank left out; pools of one GPU at one price are one kind.
std::vector<GpusUsed> gpus_used(const plan::MixedPlan& plan);

// US dollars for 10^12 tokens; nothing when the price of a GPU is not known.
std::optional<double> dollars_per_trillion_tokens(const std::vector<GpusUsed>& gpus,
                                                  const plan::Simulation& simulation);
// A line with the prices; nothing likewise.
std::string cost_text(const std::vector<GpusUsed>& gpus, const plan::Simulation& simulation);

}  // namespace orrery::cli
