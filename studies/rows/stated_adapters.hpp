// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters that a row names: "LoRA rank 16, q_proj k_proj v_proj o_proj" in its variant,
// notes, model or framework.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "models/network.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Whether a cell says that adapters are trained.
bool names_adapters(std::string_view cell);

// None where no cell names any. What a row leaves out is the framework's default, for rows of
// partial confidence that of PEFT where it has none; the reason why there are none of ours where it
// has no default, or for other adapters (QLoRA, DoRA).
tl::expected<models::AdapterSpec, std::string> stated_adapters(const Measurement& row,
                                                               const FrameworkFacts& framework);

// Lines for `assumed` on what was taken from PEFT.
std::vector<std::string> adapter_notes(const Measurement& row, const FrameworkFacts& framework);

}  // namespace orrery::studies
