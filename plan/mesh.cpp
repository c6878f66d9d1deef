// SPDX-License-Identifier: Apache-2.0
// The order of the ranks of a mesh.
#include <algorithm>

#include "plan/layout.hpp"

namespace orrery::plan {

std::string_view to_text(Axis axis) {
  constexpr std::array<std::string_view, kNumAxes> kNames = {
      "tp", "tp-row", "tp-depth", "cp-heads", "cp", "ep", "dp", "dp-replica"};
  return kNames[static_cast<std::size_t>(axis)];
}

std::array<Axis, kNumAxes> Mesh::order() const {
  std::array<Axis, kNumAxes> order = kAxes;
  const auto place = std::find(order.begin(), order.end(), innermost);
  std::rotate(order.begin(), place, place + 1);
  const auto expert = std::find(order.begin(), order.end(), Axis::Expert);
  if (expert_before != Axis::Shard) {
    const auto before = expert_before == Axis::Tensor
                            ? order.begin()
                            : std::find(order.begin(), expert, expert_before);
    std::rotate(before, expert, expert + 1);
  }
  return order;
}

int Mesh::stride(Axis axis) const {
  int stride = 1;
  for (const Axis faster : order()) {
    if (faster == axis) {
      break;
    }
    stride *= of(faster);
  }
  return stride;
}

std::int64_t Mesh::span(std::span<const Axis> axes) const {
  std::int64_t span = 1;
  for (const Axis axis : axes) {
    span = of(axis) > 1 ? std::max(span, std::int64_t{stride(axis)} * of(axis)) : span;
  }
  return span;
}

int Mesh::num_ranks() const {
  int ranks = 1;
  for (const int axis_size : size) {
    ranks *= axis_size;
  }
  return ranks;
}

}  // namespace orrery::plan
