// SPDX-License-Identifier: Apache-2.0
// Cuts of the network into the virtual stages of a pipeline, and which of them are tried.
#include "plan/stage/schedule_cuts.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "plan/stages.hpp"
#include "search/space/schedule_space.hpp"

namespace orrery::search {

namespace {

// Chunks of a device that do not divide the layers: more are tried when they are fixed. Of a deep
// network whose layers nothing divides there would be as many cuts as layers, each as long.
constexpr std::int64_t kMostUnevenChunks = 64;

// Enough for every order: where it puts the stages does not depend on their number.
constexpr int kMicroBatchesOfStage = 8;

}  // namespace

const plan::ChainWork& ScheduleSpace::work() const {
  std::call_once(work_made_, [&] { work_ = plan::chain_work(base_); });
  return work_;
}

const ScheduleSpace::ChainCuts& ScheduleSpace::chain_cuts(int num_virtual_stages) const {
  ChainCuts& cuts = chain_cuts_[static_cast<std::size_t>(num_virtual_stages)];
  std::call_once(cuts.made, [&] {
    cuts.even = plan::even_stages(base_.network, num_virtual_stages);
    cuts.balanced = plan::balanced_cut(work().all, cuts.even);
    if (shares_ends_) {
      cuts.balanced_by_layers = plan::balanced_cut(work().layers, cuts.even);
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
  std::vector<int> cut =
      plan::balanced_on_devices(work().of(placement.shares_ends), placement.device_of,
                                chain_stages(pp, chunks, choice, /*balanced=*/false),
                                chain_stages(pp, chunks, choice, /*balanced=*/true));
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
