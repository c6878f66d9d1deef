// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/chain_work.hpp"

#include <algorithm>
#include <cmath>

#include "plan/block/cost.hpp"

namespace orrery::plan {

namespace {

std::vector<double> flops_of_blocks(const Plan& plan) {
  std::vector<double> flops;
  for (const models::Block& block : plan.network.blocks) {
    flops.push_back(models::forward_flops(block, {1, plan.sequence}, true).value());
  }
  return flops;
}

std::vector<double> times_of_blocks(const Plan& plan) {
  Plan alone = plan;
  alone.pp = 1;
  alone.dp = 1;
  alone.chunks = 1;
  alone.micro_batch = 1;
  alone.encoder_parts = 1;
  alone.slices = 1;
  alone.slice_tokens.clear();
  const BlockPlan layout;
  alone.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  BlockCosts costs(alone);
  std::vector<double> times;
  for (int block = 0; block < static_cast<int>(plan.network.blocks.size()); ++block) {
    const BlockCost& cost = costs.of(block, layout, alone.micro_batch_of(layout, block));
    times.push_back(to_seconds(cost.forward.time + cost.backward.time).value());
  }
  return times;
}

// In billionths of the largest.
std::vector<std::int64_t> of_chain(const models::Network& network,
                                   const std::vector<double>& of_blocks) {
  constexpr double kLargest = 1e9;
  const double largest = std::max(*std::max_element(of_blocks.begin(), of_blocks.end()), 1e-300);
  std::vector<std::int64_t> work;
  for (const int block : network.chain) {
    work.push_back(std::llround(kLargest * of_blocks[static_cast<std::size_t>(block)] / largest));
  }
  return work;
}

}  // namespace

std::vector<std::int64_t> work_of_chain(const Plan& plan) {
  try {
    return of_chain(plan.network, times_of_blocks(plan));
  } catch (const BeyondSimulatedTime&) {
    return flops_of_chain(plan);
  }
}

std::vector<std::int64_t> flops_of_chain(const Plan& plan) {
  return of_chain(plan.network, flops_of_blocks(plan));
}

}  // namespace orrery::plan
