// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/answer.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/parallel.hpp"

namespace orrery::search {

std::vector<MixedNode> fitting_plans(const std::vector<MixedState::Ranked>& ranked,
                                     std::size_t most, ByteCount reserve,
                                     WorkerCrew<MixedWorker>& workers) {
  std::vector<MixedNode> plans;
  for (std::size_t next = 0; next < ranked.size() && plans.size() < most;) {
    std::vector<char> fits(std::min(ranked.size() - next, most - plans.size()), 0);
    workers.for_each(fits.size(), [&](MixedWorker& worker, std::size_t index) {
      const std::size_t place = next + index;
      fits[index] = place == 0 || worker.replay(ranked[place].node, reserve, 1).fits;
    });
    for (std::size_t index = 0; index < fits.size(); ++index, ++next) {
      if (fits[index] != 0) {
        plans.push_back(ranked[next].node);
      }
    }
  }
  return plans;
}

std::vector<MixedFound> drawn_plans(const MixedFound* early, const std::vector<MixedNode>& plans,
                                    int draws, Drawing& drawing, WorkerCrew<MixedWorker>& workers) {
  const std::size_t before = early != nullptr ? 1 : 0;  // the nodes
  std::vector<std::optional<MixedFound>> drawn(before + plans.size());
  const auto stop = [&] { return drawing.is_over(); };
  workers.for_each(drawn.size(), [&](MixedWorker& worker, std::size_t index) {
    if (index < before) {
      plan::MixedSimulator simulator(early->plan);
      drawn[index] = MixedFound{early->plan, simulator.run(early->plan, draws, stop)};
    } else {
      const MixedNode& node = plans[index - before];
      const plan::MixedPlan& plan = worker.configure(node);
      drawn[index] = MixedFound{plan, worker.simulate(node, draws, stop)};
    }
  });
  std::vector<MixedFound> found;
  for (std::optional<MixedFound>& one : drawn) {
    found.push_back(*std::move(one));
  }
  return found;
}

}  // namespace orrery::search
