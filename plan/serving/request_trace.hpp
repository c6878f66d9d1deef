// SPDX-License-Identifier: Apache-2.0
// Requests one by one, in order of arrival: a list in a requests document, or a CSV file.
#pragma once

#include <string>
#include <vector>

#include "base/json_reader.hpp"
#include "plan/serving/serving.hpp"

namespace orrery::plan {

inline constexpr double kLastArrival = 1e6;  // seconds; simulated time ends at 106 days

// [{"arrival_s", "prompt", "output", "prefix", "prefix_tokens"}]; all requests state their arrival,
// or none does and all are there from the start. Throws Error naming the request.
std::vector<Request> read_trace(const JsonReader& value);
// The same as columns. Throws Error naming the line.
RequestSpec read_csv_trace(const std::string& path);

}  // namespace orrery::plan
