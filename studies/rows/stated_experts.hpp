// SPDX-License-Identifier: Apache-2.0
// What a row says of its mixture of experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Why a row whose cells or names speak of experts does not state which: without their number the
// network would be simulated as a dense one. Nothing for dense networks and complete mixtures.
std::optional<std::string> missing_experts(const Measurement& row);

// Whether the framework spreads the row's experts over context ranks, too.
bool folds_experts(const Measurement& row, const FrameworkFacts& framework);

// Which layers have experts: every so many, or why what the row says of it is not modelled.
struct ExpertLayers {
  std::int64_t frequency = 0;  // 0: it says nothing
  std::string refused = {};
};
ExpertLayers stated_expert_layers(const Measurement& row);

// The degree that cuts every expert's matrices: "ETP=1", "expert_tensor_parallel_size 1" in notes,
// variant and framework; no value where they say nothing of it.
std::optional<std::int64_t> stated_expert_tensor(const Measurement& row);

// The same as a plan's `expert_tp` (0: as tp), where the ranks of plans nest so.
std::optional<int> stated_expert_tp(const Measurement& row, bool folds);
// Whether the row says nothing of it and its framework's recipes keep experts whole.
bool recipe_keeps_experts_whole(const Measurement& row, bool folds);

// A stated degree that plans do not know, a line.
std::vector<std::string> unread_experts(const Measurement& row);

}  // namespace orrery::studies
