// SPDX-License-Identifier: Apache-2.0
// A plan within a second or so, before the arrangements of a large cluster are listed: the first
// found in narrow parts of the space (whole nodes for tensor parallelism, one sequence a
// micro-batch, 1F1B, few numbers of stages), as far as the constraints admit them, then the best
// that a little more work finds there.
#pragma once

#include <functional>
#include <optional>

#include "search/mixed/search.hpp"

namespace orrery::search {

// Without intervals; nothing where none was found with little work. The same on every machine: a
// limit on time waits for it, Ctrl-C does not. `first` is told the time of the first plan.
std::optional<MixedFound> early_mixed_plan(const plan::MixedPlan& base, const Options& options,
                                           const std::function<void(Seconds)>& first = {});

}  // namespace orrery::search
