// SPDX-License-Identifier: Apache-2.0
// Cross-validation: a fifth of the samples is left out in turn.
#pragma once

#include <cstddef>

namespace orrery::calibrate {

inline constexpr std::size_t kFolds = 5;

}  // namespace orrery::calibrate
