// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace orrery::sim {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;

}  // namespace orrery::sim
