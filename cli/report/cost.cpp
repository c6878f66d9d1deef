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

namespace {

// 0 where the price of a GPU is not known.
DollarsPerSecond price_of_all(const std::vector<GpusUsed>& gpus) {
  DollarsPerSecond price;
  for (const GpusUsed& kind : gpus) {
    if (kind.price.value() <= 0) {
      return {};
    }
    price += kind.price * kind.count;
  }
  return price;
}

}  // namespace

TrainingCost cost_of_trillion_tokens(const std::vector<GpusUsed>& gpus,
                                     const plan::Simulation& simulation) {
  double count = 0;
  for (const GpusUsed& kind : gpus) {
    count += kind.count;
  }
  const Seconds time(1e12 / (simulation.tokens_per_second_per_gpu * count));
  TrainingCost cost;
  cost.days = time / (24 * kHour);
  cost.gpu_hours = time * count / kHour;
  if (const DollarsPerSecond price = price_of_all(gpus); price.value() > 0) {
    cost.dollars = price.value() * time.value();
  }
  return cost;
}

std::string cost_text(const std::vector<GpusUsed>& gpus, const plan::Simulation& simulation) {
  const TrainingCost cost = cost_of_trillion_tokens(gpus, simulation);
  std::string text = fmt::format("trillion tokens   {} days, {} GPU-hours", cost_number(cost.days),
                                 cost_number(cost.gpu_hours));
  if (!cost.dollars) {
    return text + "\n";
  }
  text += fmt::format(", {} USD at ", cost_number(*cost.dollars));
  for (const GpusUsed& kind : gpus) {
    text += fmt::format("{}{:.2f} USD per {}", &kind == gpus.data() ? "" : ", ",
                        (kind.price * kHour).value(), gpus.size() == 1 ? "GPU" : kind.name);
  }
  return text + " and hour\n";
}

std::string cost_number(double number) { return format_number(number, 3); }

void add_cost_json(const std::vector<GpusUsed>& gpus, const plan::Simulation& simulation,
                   Json::Object& result) {
  const TrainingCost cost = cost_of_trillion_tokens(gpus, simulation);
  result.emplace_back("days_per_trillion_tokens", cost.days);
  result.emplace_back("gpu_hours_per_trillion_tokens", cost.gpu_hours);
  if (cost.dollars) {
    result.emplace_back("cost_usd_per_trillion_tokens", *cost.dollars);
  }
}

}  // namespace orrery::cli
