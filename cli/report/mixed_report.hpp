// SPDX-License-Identifier: Apache-2.0
// A simulated plan of a mixed cluster explained: as report.hpp, and by replica and pool.
#pragma once

#include <string>

#include "base/json.hpp"
#include "plan/mixed/simulate.hpp"

namespace orrery::cli {

// "llama3-70b on hgx-h100:4+dgx-a100:4 (64 of 64 GPUs), batch 512, sequence 8192, bf16"
std::string mixed_subject_text(const plan::MixedPlan& plan);
// A row for each stage of every group of replicas.
std::string device_table(const plan::MixedPlan& plan, const plan::MixedSimulation& simulation);
std::string explanation(const plan::MixedPlan& plan, const plan::MixedSimulation& simulation);
// The members that `plan` and `simulate` share; `plan` last.
Json::Object mixed_simulation_json(const plan::MixedPlan& plan,
                                   const plan::MixedSimulation& simulation);

}  // namespace orrery::cli
