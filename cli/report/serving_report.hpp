// SPDX-License-Identifier: Apache-2.0
// A simulated serving plan as text and as JSON, and `orrery simulate` of one.
#pragma once

#include <string>

#include "base/json.hpp"
#include "cli/command/common.hpp"
#include "plan/serving/simulate.hpp"

namespace orrery::cli {

std::string serving_text(const plan::Plan& plan, const plan::ServingSimulation& simulation);
// Of tokens or requests a second; three digits of those below one.
std::string rate_text(double rate, int digits);
// Members of docs/serving.md; `plan` last.
Json serving_json(const plan::Plan& plan, const plan::ServingSimulation& simulation);
// "tp 4, pp 1, dp 2, 2,048 tokens, 1,024 requests, chunked prefill"
std::string serving_layout_text(const plan::Plan& plan);

// Simulates, prints, writes what has a path and returns the exit code.
int simulate_serving_plan(const plan::Plan& plan, const std::string& where,
                          const std::string& report_path, const std::string& trace_path,
                          const OutputOptions& output);

}  // namespace orrery::cli
