// SPDX-License-Identifier: Apache-2.0
// Layouts of blocks and tensors in words (plan/simulation/layout_report.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plan/layout.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

std::string axes_text(std::span<const Axis> axes);  // "cp x dp"
std::string axes_text(std::uint8_t bits);           // bit i for axis i
std::string mesh_text(const Mesh& mesh);            // "tp 8 x dp 16"
// "batch 2 x seq 2048 x head 4 x head-dim 64": what a rank has of a tensor.
std::string shape_text(const models::Tensor& tensor, const Layout& layout, const Mesh& mesh,
                       const Extents& extents);
// "tp 8, 3d; cp 2, ring": the degrees of a block that are not 1.
std::string layout_text(const BlockPlan& layout);
std::string layout_text(const Layout& layout, const Mesh& mesh);

}  // namespace orrery::plan
