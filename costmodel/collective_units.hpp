// SPDX-License-Identifier: Apache-2.0
// NCCL's tables count in GB/s and us.
#pragma once

namespace orrery::costmodel {

inline constexpr double kGiga = 1e9;
inline constexpr double kMicro = 1e-6;

}  // namespace orrery::costmodel
