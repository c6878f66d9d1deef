// SPDX-License-Identifier: Apache-2.0
// Groups of data-parallel ranks that share states among themselves (HSDP, MiCS, hybrid ZeRO), as
// the remarks of a row name them. Linear in the length of the remarks.
#pragma once

#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Ranks of a group, where they are fewer than all data-parallel ones: "shard group 8",
// "dp_replicate=2", "FSDP within a node"; 0 for all.
int state_shards(const Measurement& row);

// Whether the row names such groups and they may be of so many data-parallel ranks in all.
bool may_share_in_groups(const Measurement& row, std::int64_t ranks);

// Remarks that speak of such groups in words that are not read.
std::vector<std::string> unread_groups(const Measurement& row);

}  // namespace orrery::studies
