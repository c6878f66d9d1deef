// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/schedule_cuts.hpp"

#include <utility>

#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/chain_work.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stages.hpp"

namespace orrery::plan {

namespace {

// Of the work of the device that has most: a balanced cut that gains no more is the even one, so
// that no search is about two that are as good as the same.
constexpr double kLeastGain = 0.005;

std::vector<int> better_cut(std::span<const std::int64_t> work,
                            std::span<const std::uint16_t> device_of, const std::vector<int>& even,
                            std::vector<int> balanced) {
  const auto most = [&](const std::vector<int>& cut) {
    return static_cast<double>(largest_load(work, device_of, cut));
  };
  return most(even) <= (1 + kLeastGain) * most(balanced) ? even : std::move(balanced);
}

}  // namespace

ChainWork chain_work(const Plan& plan) {
  ChainWork work;
  work.all = work.layers = work_of_chain(plan);
  const models::Network& network = plan.network;
  for (std::size_t position = 0; position < network.chain.size(); ++position) {
    const auto block = static_cast<std::size_t>(network.chain[position]);
    if (network.blocks[block].kind != models::BlockKind::Layer) {
      work.layers[position] = 0;
    }
  }
  return work;
}

std::vector<int> balanced_cut(std::span<const std::int64_t> work, const std::vector<int>& even) {
  return better_cut(work, {}, even, balanced_stages(work, static_cast<int>(even.size())));
}

std::vector<int> balanced_on_devices(std::span<const std::int64_t> work,
                                     std::span<const std::uint16_t> device_of,
                                     const std::vector<int>& even, std::vector<int> cut) {
  if (cut.size() != device_of.size()) {
    return cut;  // devices have stages of two copies each
  }
  return better_cut(work, device_of, even, balance_devices(work, device_of, std::move(cut)));
}

ScheduleCuts schedule_cuts(Plan plan, const ChainWork& work) {
  const ModuleCut cut = module_cut(plan);
  const auto cut_by = [&](std::span<const std::int64_t> weights) {
    return cut_stages(plan.network, plan.sequence, plan.pp, plan.chunks, cut, weights);
  };
  ScheduleCuts cuts{cut_by({}), {}};
  if (cut != ModuleCut::OneChain || cuts.even.empty()) {
    cuts.balanced = cut_by(work.all);
    return cuts;
  }
  const std::vector<std::int64_t>& own = work.of(schedule_traits(plan).shares_output_layer);
  cuts.balanced = balanced_cut(own, cuts.even);
  if (plan.chunks > 1 && plan.schedule_document == nullptr) {
    plan.stage_blocks = cuts.even;
    cuts.balanced = balanced_on_devices(own, schedule_devices(plan), cuts.even, cuts.balanced);
  }
  return cuts;
}

}  // namespace orrery::plan
