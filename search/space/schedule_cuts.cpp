// SPDX-License-Identifier: Apache-2.0
// Cuts of the network into the virtual stages of a pipeline, and which of them are tried.
#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "plan/stage/chain_work.hpp"
#include "plan/stages.hpp"
#include "search/space/schedule_space.hpp"

namespace orrery::search {

namespace {

// Chunks of a device that do not divide the layers: more are tried when they are fixed. Of a deep
// network whose layers nothing divides there would be as many cuts as layers, each as long.
constexpr std::int64_t kMostUnevenChunks = 64;

// Of the work of the device that has most: a balanced cut that gains no more is the even one, so
// that no search is about two that are as good as the same.
constexpr double kLeastGain = 0.005;

const std::vector<int>& better_cut(const std::vector<std::int64_t>& work,
                                   const std::vector<std::uint16_t>& device_of,
                                   const std::vector<int>& even, const std::vector<int>& balanced) {
  const auto most = [&](const std::vector<int>& cut) {
    return static_cast<double>(plan::largest_load(work, device_of, cut));
  };
  return most(even) <= (1 + kLeastGain) * most(balanced) ? even : balanced;
}

// Enough for every order: where it puts the stages does not depend on their number.
constexpr int kMicroBatchesOfStage = 8;

}  // namespace

// All devices have as much of a shared embedding and head as each other: they are no work of a
// stage.
const ScheduleSpace::Work& ScheduleSpace::work() const {
  std::call_once(work_made_, [&] {
    work_.all = work_.layers = plan::work_of_chain(base_);
    const models::Network& network = base_.network;
    for (std::size_t position = 0; position < network.chain.size(); ++position) {
      const auto block = static_cast<std::size_t>(network.chain[position]);
      if (network.blocks[block].kind != models::BlockKind::Layer) {
        work_.layers[position] = 0;
      }
    }
  });
  return work_;
}

const ScheduleSpace::ChainCuts& ScheduleSpace::chain_cuts(int num_virtual_stages) const {
  ChainCuts& cuts = chain_cuts_[static_cast<std::size_t>(num_virtual_stages)];
  std::call_once(cuts.made, [&] {
    cuts.even = plan::even_stages(base_.network, num_virtual_stages);
    cuts.balanced = better_cut(work().all, {}, cuts.even,
                               plan::balanced_stages(work().all, num_virtual_stages));
    if (shares_ends_) {
      cuts.balanced_by_layers = better_cut(
          work().layers, {}, cuts.even, plan::balanced_stages(work().layers, num_virtual_stages));
    }
  });
  return cuts;
}

const std::vector<int>& ScheduleSpace::chain_stages(int pp, int chunks,
                                                    const ScheduleChoice& choice,
                                                    bool balanced) const {
  const ChainCuts& cuts = chain_cuts(pp * chunks);
  if (!balanced) {
    return cuts.even;
  }
  return choice.traits.shares_output_layer ? cuts.balanced_by_layers : cuts.balanced;
}

const std::vector<int>& ScheduleSpace::balanced_on_devices(int pp, int chunks,
                                                           const ScheduleChoice& choice) const {
  const std::tuple<int, int, int> key = {choice.index, pp, chunks};
  {
    const std::lock_guard<std::mutex> lock(cuts_mutex_);
    if (const auto known = device_cuts_.find(key); known != device_cuts_.end()) {
      return known->second;
    }
  }
  const plan::StagePlacement& placement =
      placement_of(choice.index, {pp, kMicroBatchesOfStage * pp, chunks, 0});
  const std::vector<std::int64_t>& of = placement.shares_ends ? work().layers : work().all;
  std::vector<int> cut = chain_stages(pp, chunks, choice, /*balanced=*/true);
  if (cut.size() == placement.device_of.size()) {  // else devices have stages of two copies each
    cut = better_cut(of, placement.device_of, chain_stages(pp, chunks, choice, /*balanced=*/false),
                     plan::balance_devices(of, placement.device_of, cut));
  }
  const std::lock_guard<std::mutex> lock(cuts_mutex_);
  return device_cuts_.try_emplace(key, std::move(cut)).first->second;
}

const std::vector<int>& ScheduleSpace::stages(int pp, int chunks, const ScheduleChoice& choice,
                                              bool balanced) const {
  if (choice.cut == plan::ModuleCut::OneChain) {
    return balanced && chunks > 1 && !choice.document ? balanced_on_devices(pp, chunks, choice)
                                                      : chain_stages(pp, chunks, choice, balanced);
  }
  const std::lock_guard<std::mutex> lock(cuts_mutex_);
  const auto [slot, is_new] = module_cuts_.try_emplace({pp, chunks, choice.cut, balanced});
  if (is_new) {
    slot->second = plan::cut_stages(base_.network, base_.sequence, pp, chunks, choice.cut,
                                    balanced ? std::span(work().all) : std::span<std::int64_t>());
  }
  return slot->second;
}

std::vector<int> ScheduleSpace::chunk_counts(int pp) const {
  std::vector<int> counts;
  for (std::int64_t chunks = 1; chunks * pp <= std::max<std::int64_t>(layers_, pp); ++chunks) {
    // Uneven chunks are of use where no even ones exist, and where a schedule needs just two.
    const bool even = chunks <= 2 || layers_ % (chunks * pp) == 0;
    const bool uneven = layers_ % pp != 0 && chunks <= kMostUnevenChunks;
    if ((chunks == 1 || pp > 1) && (even || uneven || constraints_.is_fixed("chunks")) &&
        constraints_.admits("chunks", chunks)) {
      counts.push_back(static_cast<int>(chunks));
    }
  }
  return counts;
}

// Which cuts into virtual stages a plan may have: by layers (false), balanced (true).
std::vector<bool> ScheduleSpace::cuts(const sim::ScheduleParams& params,
                                      const ScheduleChoice& choice) const {
  std::vector<bool> result;
  for (const bool balanced : {false, true}) {
    const std::vector<int>& own = stages(params.stages, params.chunks, choice, balanced);
    const bool again = balanced && own == stages(params.stages, params.chunks, choice, false);
    if (!own.empty() && !again && constraints_.admits("stages", balanced ? "balanced" : "even")) {
      result.push_back(balanced);
    }
  }
  if (result.empty() && constraints_.admits("stages", "balanced") &&
      !stages(params.stages, params.chunks, choice, false).empty()) {
    result.push_back(false);  // the even cut is balanced, too
  }
  return result;
}

}  // namespace orrery::search
