// SPDX-License-Identifier: Apache-2.0
// What an export leaves to the framework.
#pragma once

#include <string>
#include <vector>

#include "plan/exporter.hpp"

namespace orrery::plan {

// Fields of the execution and the layouts that are not those of an empty plan (of the execution:
// not what the exporter says is usual) and that what it writes does not tell: "fp8_gathers =
// false"; and those of the execution that the importer of the same format, where there is one,
// takes otherwise. The framework decides them. One export a field.
std::vector<std::string> untold(const Exporter& exporter, const Plan& plan);

}  // namespace orrery::plan
