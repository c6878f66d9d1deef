// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/pass_inputs.hpp"

#include "base/error.hpp"

namespace orrery::sim {

PassInputs::PassInputs(const PipelineOrder& order)
    : stages_(static_cast<std::size_t>(order.num_virtual_stages)) {
  for (const Chain& chain : chains_of(order)) {
    for (int k = 0; k < chain.stages; ++k) {
      Stage& stage = stages_.at(static_cast<std::size_t>(chain.first + k));
      stage.units = static_cast<std::uint32_t>(chain.units);
      stage.is_first = k == 0;
      stage.is_last = k + 1 == chain.stages;
      stage.forward_only = chain.forward_only;
      stage.role = chain.role;
      stage.first_unit = chain.first_unit;
      stage.stride = chain.stride;
    }
  }
  if (order.edges.empty()) {
    return;
  }
  const std::size_t rows = kNumLanes * stages_.size();
  const auto row_of = [&](const Edge& edge) {
    return static_cast<std::size_t>(edge.to_lane) * stages_.size() + edge.to;
  };
  edge_begin_.assign(rows + 1, 0);
  for (const Edge& edge : order.edges) {
    ORRERY_CHECK(edge.from < stages_.size() && edge.to < stages_.size(), "an edge without a stage");
    ++edge_begin_[row_of(edge) + 1];
  }
  for (std::size_t row = 0; row < rows; ++row) {
    edge_begin_[row + 1] += edge_begin_[row];
  }
  std::vector<std::uint32_t> next(edge_begin_.begin(), edge_begin_.end() - 1);
  edge_inputs_.resize(order.edges.size());
  for (std::size_t k = 0; k < order.edges.size(); ++k) {
    const Edge& edge = order.edges[k];
    edge_inputs_[next[row_of(edge)]++] = {edge.from_lane, edge.from, static_cast<std::int32_t>(k),
                                          edge.shift};
  }
}

}  // namespace orrery::sim
