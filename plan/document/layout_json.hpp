// SPDX-License-Identifier: Apache-2.0
// A run of blocks with its layout in a plan document: an entry of "blocks".
#pragma once

#include "base/json_reader.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

// A degree from `min` on, `fallback` where the member is left out; Error otherwise.
int degree_or(ObjectReader& object, std::string_view key, int fallback, int min = 1);
// Members that few plans state only where they differ from their defaults. Errors name unknown and
// unusable members.
Json to_json(const BlockRun& run);
BlockRun read_block_run(const JsonReader& value);

}  // namespace orrery::plan
