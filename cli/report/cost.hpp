// SPDX-License-Identifier: Apache-2.0
// What training takes: days, hours of the GPUs that a plan uses and, at their prices, dollars.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
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

// Of 10^12 tokens on all of them.
struct TrainingCost {
  double days = 0;
  double gpu_hours = 0;
  std::optional<double> dollars;  // nothing when the price of a GPU is not known
};
TrainingCost cost_of_trillion_tokens(const std::vector<GpusUsed>& gpus,
                                     const plan::Simulation& simulation);
// Three digits, and all before the point: "149", "617575".
std::string cost_number(double number);
// A line, with the prices.
std::string cost_text(const std::vector<GpusUsed>& gpus, const plan::Simulation& simulation);
void add_cost_json(const std::vector<GpusUsed>& gpus, const plan::Simulation& simulation,
                   Json::Object& result);

}  // namespace orrery::cli
