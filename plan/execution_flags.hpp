// SPDX-License-Identifier: Apache-2.0
// The boolean members of Execution by name: the names of a plan's document, of --fix and --forbid
// and of notes on fields without effect.
#pragma once

#include <span>
#include <string_view>

#include "plan/execution.hpp"

namespace orrery::plan {

struct ExecutionFlag {
  std::string_view name;
  bool Execution::*member;
  bool is_rare;  // false by default, and documents state it only where it is true
};

// In the order in which documents state them.
std::span<const ExecutionFlag> execution_flags();
std::string_view flag_name(bool Execution::*member);

}  // namespace orrery::plan
