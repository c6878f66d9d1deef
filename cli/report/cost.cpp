// SPDX-License-Identifier: Apache-2.0
#include "cli/report/cost.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity_text.hpp"

namespace orrery::cli {

std::vector<GpusUsed> gpus_used(const plan::Plan& plan) {
  const topologies::Gpu& gpu = plan.cluster.gpu;
  return {{static_cast<double>(plan.num_gpus()), gpu.name, gpu.price}};
}

std::vector<GpusUsed> gpus_used(const plan::MixedPlan& plan) {
  std::vector<GpusUsed> gpus;
  const std::vector<std::int64_t> used = plan.gpus_used();
  for (std::size_t pool = 0; pool < used.size(); ++pool) {
    if (used[pool] == 0) {
      continue;
    }
    const topologies::Gpu& gpu = plan.machine->cluster.pools[pool].cluster.gpu;
    const auto known = std::find_if(gpus.begin(), gpus.end(), [&](const GpusUsed& kind) {
      return kind.name == gpu.name && kind.price == gpu.price;
    });
    if (known == gpus.end()) {
      gpus.push_back({static_cast<double>(used[pool]), gpu.name, gpu.price});
    } else {
      known->count += static_cast<double>(used[pool]);
    }
  }
  return gpus;
}

std::optional<double> dollars_per_trillion_tokens(const std::vector<GpusUsed>& gpus,
                                                  const plan::Simulation& simulation) {
  double count = 0;
  DollarsPerSecond price;
  for (const GpusUsed& kind : gpus) {
    if (kind.price.value() <= 0) {
      return std::nullopt;
    }
    count += kind.count;
    price += kind.price * kind.count;
  }
  return price.value() / count / simulation.tokens_per_second_per_gpu * 1e12;
}

std::string cost_text(const std::vector<GpusUsed>& gpus, const plan::Simulation& simulation) {
  const std::optional<double> dollars = dollars_per_trillion_tokens(gpus, simulation);
  if (!dollars) {
    return "";
  }
  std::string prices;
  for (const GpusUsed& kind : gpus) {
    prices += fmt::format("{}{:.2f} USD per {}", prices.empty() ? "" : ", ",
                          (kind.price * kHour).value(), gpus.size() == 1 ? "GPU" : kind.name);
  }
  return fmt::format("cost              {:.0f} USD per trillion tokens, at {} and hour\n", *dollars,
                     prices);
}

}  // namespace orrery::cli
