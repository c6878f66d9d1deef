// SPDX-License-Identifier: Apache-2.0
// A plan in a few words, for tables and pictures.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::plan {

// The parallel layout: "tp 8, pp 4, dp 2, ...", in terms of --fix.
std::string layout_text(const Plan& plan);
// layout_text of plans that stand side by side; those that would read alike say their stages, too
// ("..., stages 8 7 6 6 7").
std::vector<std::string> layout_texts(const std::vector<const Plan*>& plans);
// "0-11, 24: tp 8, sp, zero 1, recompute full", "12-23: tp 8, ...": positions of the chain
// (embedding first) by what is chosen for them, each choice once.
std::vector<std::string> block_texts(const Plan& plan);
// "13 12 12 13": positions of every virtual stage; runs of more than three equal ones as "6 x 12".
std::string stages_text(const Plan& plan);

}  // namespace orrery::plan
