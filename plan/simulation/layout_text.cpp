// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/layout_text.hpp"

#include <fmt/format.h>

#include "plan/block_rules.hpp"
#include "plan/offload_text.hpp"

namespace orrery::plan {

std::string axes_text(std::span<const Axis> axes) {
  std::string text;
  for (const Axis axis : axes) {
    text += fmt::format("{}{}", text.empty() ? "" : " x ", to_text(axis));
  }
  return text;
}

std::string axes_text(std::uint8_t bits) {
  std::vector<Axis> axes;
  for (const Axis axis : kAxes) {
    if ((bits >> static_cast<unsigned>(axis) & 1U) != 0) {
      axes.push_back(axis);
    }
  }
  return axes_text(axes);
}

std::string mesh_text(const Mesh& mesh) {
  std::string text;
  for (const Axis axis : mesh.order()) {
    if (mesh.of(axis) > 1) {
      text += fmt::format("{}{} {}", text.empty() ? "" : " x ", to_text(axis), mesh.of(axis));
    }
  }
  return text.empty() ? "one rank" : text;
}

std::string shape_text(const models::Tensor& tensor, const Layout& layout, const Mesh& mesh,
                       const Extents& extents) {
  std::string text;
  for (const models::Dim& dim : tensor.dims) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", to_text(dim.var),
                        local_extent(dim, layout, mesh, extents));
  }
  const std::int64_t parts = copy_shards(layout, mesh);
  return parts > 1 ? fmt::format("1/{} of {}", parts, text) : text;
}

std::string layout_text(const BlockPlan& layout) {
  std::string text = fmt::format("tp {}", layout.tp);
  if (layout.tensor_parallel != TensorMesh::OneD) {
    text += fmt::format(" ({})", tensor_mesh_text(layout));
  }
  if (!layout.tensor_shares.empty()) {
    text += fmt::format(" in shares {}", fmt::join(layout.tensor_shares.list(), ":"));
  }
  text += layout.sequence_parallel ? " with sequence parallelism" : "";
  if (layout.cp > 1) {
    text += fmt::format(", cp {} ({})", layout.cp, to_text(layout.context));
  }
  if (layout.ep > 1) {
    const ExpertRanks tensor = tensor_experts(layout);
    const ExpertRanks context = context_experts(layout);
    const bool tp = tensor.spread > 1;
    const bool cp = context.spread > 1;
    text += fmt::format(", ep {}{}", layout.ep,
                        tp && cp ? " (also over tp and cp)"
                        : tp     ? " (also over tp)"
                        : cp     ? " (also over cp)"
                                 : "");
    text += tensor.cut > 1 && tensor.cut < layout.tp
                ? fmt::format(", each cut by {} ranks of tp", tensor.cut)
                : "";
    text += tensor.copies > 1 ? fmt::format(", {} copies on tp", tensor.copies) : "";
    text += cp && context.copies > 1 ? fmt::format(", {} copies on cp", context.copies) : "";
    text += reorders_experts(layout) ? fmt::format(" inside {}", to_text(layout.ep_inside)) : "";
  }
  if (layout.zero_stage > 0) {
    text += fmt::format(", ZeRO-{}", layout.zero_stage);
  }
  if (layout.shard_degree > 0) {
    text += fmt::format(" over {}", layout.shard_degree);
  }
  if (layout.recompute != Recompute::None) {
    text += fmt::format(", recompute {}", recompute_text(layout));
  }
  return text + offload_text(layout.offload);
}

std::string layout_text(const Layout& layout, const Mesh& mesh) {
  std::string text;
  for (const Axis axis : kAxes) {
    const Placement placement = layout[axis];
    if (mesh.of(axis) == 1 || placement.is_replicated()) {
      continue;
    }
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ",
                        placement.is_partial() ? "partial sums" : to_text(placement.var()),
                        to_text(axis));
  }
  return text.empty() ? "replicated" : text;
}

}  // namespace orrery::plan
