// SPDX-License-Identifier: Apache-2.0
// Asking exporters.
#pragma once

#include <string>
#include <string_view>

#include "plan/exporter.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery::plan {

// Why an exporter does not write a plan; empty where it does.
inline std::string export_refusal(std::string_view exporter, const Plan& plan) {
  const auto error = testing::error_of([&] { (void)export_plan(find_exporter(exporter), plan); });
  return error ? error->what() : "";
}

}  // namespace orrery::plan
