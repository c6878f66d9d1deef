// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstddef>

#include "base/error.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

// Blocks that are no layers go with the layer after them (embeddings, position embeddings), the
// last ones with the last stage.
std::vector<int> even_stages(const models::Network& network, int num_virtual_stages) {
  ORRERY_CHECK(num_virtual_stages >= 1, "a pipeline has at least one stage");
  std::vector<std::size_t> layers;  // chain positions
  for (std::size_t position = 0; position < network.chain.size(); ++position) {
    const auto block = static_cast<std::size_t>(network.chain[position]);
    if (network.blocks[block].kind == models::BlockKind::Layer) {
      layers.push_back(position);
    }
  }
  const auto num_stages = static_cast<std::size_t>(num_virtual_stages);
  if (num_stages > layers.size()) {
    bad_input(network.spec.name,
              fmt::format("{} layers cannot fill {} virtual stages (stages x chunks)",
                          layers.size(), num_stages),
              "use fewer pipeline stages or model chunks");
  }
  const std::size_t share = layers.size() / num_stages;
  const std::size_t larger = layers.size() % num_stages;
  std::vector<int> stages(num_stages);
  std::size_t first_layer = 0;
  std::size_t begin = 0;  // chain position
  for (std::size_t stage = 0; stage < num_stages; ++stage) {
    first_layer += share + (stage < larger ? 1 : 0);
    const std::size_t end =
        stage + 1 == num_stages ? network.chain.size() : layers[first_layer - 1] + 1;
    stages[stage] = static_cast<int>(end - begin);
    begin = end;
  }
  return stages;
}

}  // namespace orrery::plan
