// SPDX-License-Identifier: Apache-2.0
// Asking exporters.
#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "plan/exporter.hpp"

namespace orrery::plan {

// Why an exporter does not write a plan; empty where it does.
inline std::string export_refusal(std::string_view exporter, const Plan& plan) {
  try {
    (void)export_plan(find_exporter(exporter), plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace orrery::plan
