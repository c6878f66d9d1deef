// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

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

namespace {

// Fills stages from the left up to `capacity`; empty when the chain needs more of them. Every stage
// gets at least one position.
std::vector<int> fill(const std::vector<double>& work, double capacity, std::size_t num_stages) {
  std::vector<int> stages;
  double load = 0;
  int count = 0;
  for (std::size_t position = 0; position < work.size(); ++position) {
    const std::size_t left = work.size() - position;
    const bool must_cut = count > 0 && left == num_stages - stages.size() - 1;
    if (count > 0 && (load + work[position] > capacity || must_cut)) {
      stages.push_back(count);
      load = 0;
      count = 0;
    }
    if (stages.size() == num_stages) {
      return {};
    }
    load += work[position];
    ++count;
  }
  stages.push_back(count);
  return stages.size() == num_stages ? stages : std::vector<int>{};
}

}  // namespace

std::vector<int> balanced_stages(const models::Network& network, std::int64_t sequence,
                                 int num_virtual_stages) {
  const auto num_stages = static_cast<std::size_t>(num_virtual_stages);
  std::vector<double> by_block;
  for (const models::Block& block : network.blocks) {
    by_block.push_back(models::forward_flops(block, {1, sequence}, true).value());
  }
  std::vector<double> work;
  double low = 0;
  double high = 0;
  for (const int block : network.chain) {
    work.push_back(by_block[static_cast<std::size_t>(block)]);
    low = std::max(low, work.back());
    high += work.back();
  }
  std::vector<int> best = fill(work, high, num_stages);
  for (int step = 0; step < 50 && low < high; ++step) {  // to rounding
    const double middle = 0.5 * (low + high);
    std::vector<int> cut = fill(work, middle, num_stages);
    if (cut.empty()) {
      low = middle;
    } else {
      high = middle;
      best = std::move(cut);
    }
  }
  return best.empty() ? even_stages(network, num_virtual_stages) : best;
}

}  // namespace orrery::plan
