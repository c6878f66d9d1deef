// SPDX-License-Identifier: Apache-2.0
// A plan within a second or so, before the arrangements of a large cluster are listed: the first
// found in narrow parts of the space (whole nodes for tensor parallelism, one sequence a
// micro-batch, 1F1B, few numbers of stages), as far as the constraints admit them.
#pragma once

#include <cstdint>
#include <optional>

#include "search/mixed/search.hpp"

namespace orrery::search {

// GPUs of a node that all pools have: tensor-parallel groups lie inside the nodes of all.
std::int64_t gpus_of_every_node(const plan::MixedPlan& base);

// Without intervals; nothing where none was found with little work. The same on every machine: a
// limit on time waits for it, Ctrl-C does not.
std::optional<MixedFound> early_mixed_plan(const plan::MixedPlan& base, const Options& options);

}  // namespace orrery::search
