// SPDX-License-Identifier: Apache-2.0
// Why no plan satisfies a set of constraints.
#pragma once

#include "search/space/constraints.hpp"

namespace orrery::search {

// Throws Error naming what was fixed together and, where dropping one of them opens the space,
// that one.
[[noreturn]] void explain_empty_space(const plan::Plan& base, const Constraints& constraints);

}  // namespace orrery::search
