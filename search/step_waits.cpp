// SPDX-License-Identifier: Apache-2.0
#include "search/step_waits.hpp"

namespace orrery::search {
namespace {

plan::Recommender part_of(const plan::Recommender& network) {
  plan::Recommender part = network;
  part.batch /= network.micro_batches;
  return part;
}

}  // namespace

StepWaits::StepWaits(const plan::Recommender& network, const plan::RecommenderModel& model)
    : network_(network), model_(model), part_network_(part_of(network)), part_(part_network_) {}

std::vector<plan::TableExchange> StepWaits::exchanges_of(const plan::TableGroup& group,
                                                         const plan::TableShare& share) {
  std::vector<plan::TableExchange> exchanges = share.exchanges;
  if (!network_.nested) {
    return exchanges;
  }
  const std::vector<plan::TableExchange> parts = part_.share(group).exchanges;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].of != "table gradients") {  // which wait for all micro-batches
      exchanges[i] = parts[i];
    }
  }
  std::erase_if(exchanges, [](const plan::TableExchange& one) { return one.of == "indices"; });
  return exchanges;
}

Seconds StepWaits::work_of(const plan::TableShare& share) const {
  return network_.nested ? share.mean_update : share.mean_lookup + share.mean_update;
}

Seconds StepWaits::dense_time() const {
  if (!network_.nested) {
    return model_.dense().time();
  }
  // A step has a few passes for each micro-batch, which are rounded to picoseconds.
  constexpr double kRounding = 1.0 - 1e-6;
  return (part_.dense().forward + part_.dense().backward) * (kRounding * network_.micro_batches);
}

}  // namespace orrery::search
