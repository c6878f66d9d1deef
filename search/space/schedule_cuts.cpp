// SPDX-License-Identifier: Apache-2.0
// Cuts of the network into the virtual stages of a pipeline, and which of them are tried.
#include <algorithm>
#include <iterator>

#include "search/space/schedule_space.hpp"

namespace orrery::search {

namespace {

// Chunks of a device that do not divide the layers: more are tried when they are fixed. Of a deep
// network whose layers nothing divides there would be as many cuts as layers, each as long.
constexpr std::int64_t kMostUnevenChunks = 64;

}  // namespace

ScheduleSpace::Inner ScheduleSpace::inner_of(const models::Network& network) {
  const auto is_layer = [&](int block) {
    return network.blocks[static_cast<std::size_t>(block)].kind == models::BlockKind::Layer;
  };
  const std::vector<int>& chain = network.chain;
  const auto first = std::find_if(chain.begin(), chain.end(), is_layer);
  const auto last = std::find_if(chain.rbegin(), chain.rend(), is_layer).base();
  Inner inner;
  inner.network.spec = network.spec;
  inner.network.blocks = network.blocks;
  inner.network.chain.assign(first, last);
  inner.before = static_cast<int>(first - chain.begin());
  inner.after = static_cast<int>(chain.end() - last);
  return inner;
}

// All devices have as much of embedding and head as each other: they are no work of a stage.
std::vector<int> ScheduleSpace::cut_by_layers(int num_virtual_stages) const {
  std::vector<int> cut = plan::balanced_stages(inner_.network, base_.sequence, num_virtual_stages);
  cut.front() += inner_.before;
  cut.back() += inner_.after;
  return cut;
}

const ScheduleSpace::ChainCuts& ScheduleSpace::chain_cuts(int num_virtual_stages) const {
  ChainCuts& cuts = chain_cuts_[static_cast<std::size_t>(num_virtual_stages)];
  std::call_once(cuts.made, [&] {
    cuts.even = plan::even_stages(base_.network, num_virtual_stages);
    const auto keep = [&](std::vector<int> cut, std::vector<int>& slot) {
      if (num_virtual_stages > 1 && cut != cuts.even) {
        slot = std::move(cut);
      }
    };
    keep(plan::balanced_stages(base_.network, base_.sequence, num_virtual_stages), cuts.balanced);
    if (shares_ends_) {
      keep(cut_by_layers(num_virtual_stages), cuts.balanced_by_layers);
    }
  });
  return cuts;
}

const std::vector<int>& ScheduleSpace::stages(int num_virtual_stages, bool balanced) const {
  const ChainCuts& cuts = chain_cuts(num_virtual_stages);
  return balanced ? cuts.balanced : cuts.even;
}

const std::vector<int>& ScheduleSpace::stages(int pp, int chunks, const ScheduleChoice& choice,
                                              bool balanced) const {
  if (choice.cut == plan::ModuleCut::OneChain) {
    return balanced && choice.traits.shares_output_layer
               ? chain_cuts(pp * chunks).balanced_by_layers
               : stages(pp * chunks, balanced);
  }
  const std::lock_guard<std::mutex> lock(cuts_mutex_);
  const auto [slot, is_new] = module_cuts_.try_emplace({pp, chunks, choice.cut, balanced});
  if (is_new) {
    slot->second =
        plan::cut_stages(base_.network, base_.sequence, pp, chunks, choice.cut, balanced);
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
