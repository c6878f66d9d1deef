// SPDX-License-Identifier: Apache-2.0
// Stages of ZeRO in words. Linear in the length of the cell.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace orrery::studies {

// "ZeRO-2", "stage 1", "FSDP + CPU offload", "_HYBRID_SHARD_ZERO2"; no value where the cell holds
// no such words.
std::optional<std::int64_t> stage_of_zero(std::string_view cell);

}  // namespace orrery::studies
