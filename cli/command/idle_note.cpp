// SPDX-License-Identifier: Apache-2.0
#include "cli/command/idle_note.hpp"

#include <string>

#include "plan/document/idle_fields.hpp"

namespace orrery::cli {

void note_idle_fields(const plan::Plan& plan, const OutputOptions& output) {
  const std::string idle = plan::idle_fields_text(plan);
  if (!idle.empty() && !output.quiet) {
    note("orrery: without effect in this plan: " + idle);
  }
}

}  // namespace orrery::cli
