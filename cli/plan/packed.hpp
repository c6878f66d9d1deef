// SPDX-License-Identifier: Apache-2.0
// `orrery plan --lengths`: sequences of different length, in packs on groups of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/plan/options.hpp"

namespace orrery::cli {

class Command;

void add_lengths_option(const Command& command, std::string& lengths);

// Error where --lengths is missing for a schedule that needs it, or beside options that it leaves
// no room for.
void check_lengths(const PlanOptions& options);

// A JSON list, or numbers apart by blanks, commas or lines.
std::vector<std::int64_t> read_lengths(const std::string& path);

// The batch, and the longest sequence.
void tell_lengths(const std::vector<std::int64_t>& lengths, PlanOptions& options);

}  // namespace orrery::cli
