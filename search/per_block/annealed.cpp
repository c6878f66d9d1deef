// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/annealed.hpp"

#include <optional>
#include <utility>

namespace orrery::search {

namespace {

constexpr std::uint64_t kChains = 2;  // fixed, so that results do not depend on threads

std::optional<std::size_t> fastest_draft(const std::vector<PerBlockNode>& batch,
                                         const std::vector<PerBlockDone>& done, double best,
                                         const PerBlockSpace& space) {
  std::optional<std::size_t> fastest;
  for (std::size_t index = 0; index < done.size(); ++index) {
    const PerBlockNode& node = batch[index];
    const std::optional<DraftResult>& draft = done[index].draft;
    if (draft && draft->fits && draft->time.value() < best &&
        node.pipeline < space.pipelines(space.meshes()[node.mesh]).size()) {
      best = draft->time.value();
      fastest = index;
    }
  }
  return fastest;
}

}  // namespace

void anneal_best(const std::vector<PerBlockNode>& batch, std::vector<PerBlockDone>& done,
                 double best, const PerBlockSpace& space, const AskWorks& ask) {
  const std::optional<std::size_t> fastest = fastest_draft(batch, done, best, space);
  if (!fastest) {
    return;
  }
  const PerBlockDone& found = done[*fastest];
  PerBlockWork chain;
  chain.task = PerBlockTask::Anneal;
  chain.best = found.draft->time.value();
  chain.node = batch[*fastest];
  chain.node.shares = found.shares ? found.shares : chain.node.shares;
  chain.draft = found.draft->draft;
  std::vector<PerBlockWork> chains;
  for (chain.seed = 1; chain.seed <= kChains; ++chain.seed) {
    chains.push_back(chain);
  }
  DraftResult result = *found.draft;
  std::int64_t simulated = result.simulated;
  for (const PerBlockDone& one : ask(chains)) {
    if (one.draft) {
      simulated += one.draft->simulated;
      result = one.draft->fits && one.draft->time < result.time ? *one.draft : result;
    }
  }
  result.simulated = simulated;
  done[*fastest].draft = std::move(result);
}

}  // namespace orrery::search
