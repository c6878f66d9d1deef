// SPDX-License-Identifier: Apache-2.0
#include "search/nearest_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity_text.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::search {
namespace {

// A field as the plan has it, in the words of --fix; "" for fields that it does not have.
std::string value_in(const plan::Plan& plan, std::string_view field) {
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  if (field == "tp") {
    return number(layout.tp);
  }
  if (field == "cp") {
    return number(layout.cp);
  }
  if (field == "ep") {
    return number(layout.ep);
  }
  if (field == "pp") {
    return number(plan.pp);
  }
  if (field == "dp") {
    return number(plan.dp);
  }
  if (field == "chunks") {
    return number(plan.chunks);
  }
  if (field == "micro_batch") {
    return number(plan.micro_batch);
  }
  if (field == "zero") {
    return number(layout.zero_stage);
  }
  if (field == "recompute") {
    return std::string(plan::to_text(layout.recompute));
  }
  if (field == "schedule") {
    return plan.schedule;
  }
  if (field == "sequence_parallel") {
    return layout.sequence_parallel ? "true" : "false";
  }
  if (field == "context") {
    return std::string(plan::to_text(layout.context));
  }
  return "";
}

}  // namespace

Seconds Patience::left() const {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun_;
  return most_ - Seconds(spent.count());
}

Options Patience::until_first_plan(Options options) const {
  options.gap_fraction = 1;  // any plan will do
  options.top = 0;
  options.interval_draws = 0;
  const Seconds most = std::max(left(), Seconds(0.001));  // 0 would be no limit
  options.time_limit = options.time_limit.value() > 0 ? std::min(options.time_limit, most) : most;
  return options;
}

std::vector<int> node_doublings(int now) {
  constexpr int kMostFactor = 64;
  std::vector<int> numbers;
  for (int factor = 2; factor <= kMostFactor; factor *= 2) {
    numbers.push_back(now * factor);
  }
  return numbers;
}

std::vector<int> node_counts_below(int doubled) {
  constexpr int kCounts = 8;
  const int step = std::max(1, doubled / 2 / kCounts);
  std::vector<int> numbers;
  for (int nodes = doubled / 2 + step; nodes < doubled; nodes += step) {
    numbers.push_back(nodes);
  }
  return numbers;
}

std::string instead_of(const std::string& fixed, const plan::Plan& plan) {
  const std::string field = fixed.substr(0, fixed.find('='));
  const std::string value = value_in(plan, field);
  return value.empty() ? fmt::format("leave out {}", fixed)
                       : fmt::format("{}={} instead of {}", field, value, fixed);
}

std::vector<topologies::Gpu> larger_gpus(const topologies::Gpu& gpu) {
  std::vector<topologies::Gpu> larger;
  for (const std::string& name : topologies::gpu_names()) {
    const topologies::Gpu other = topologies::load_gpu(name);
    if (other.vendor == gpu.vendor && other.memory > gpu.memory &&
        other.hbm_bandwidth >= gpu.hbm_bandwidth) {
      larger.push_back(other);
    }
  }
  std::stable_sort(larger.begin(), larger.end(),
                   [](const auto& a, const auto& b) { return a.memory < b.memory; });
  return larger;
}

std::string with_memory(const topologies::Gpu& gpu) {
  return fmt::format("{} ({})", gpu.name, format_bytes(gpu.memory.bytes()));
}

ByteCount states_once(plan::Plan base) {
  const auto length = static_cast<int>(base.network.chain.size());
  base.batch = 1;
  base.stage_blocks = {length};
  base.blocks = {{length, plan::BlockPlan()}};
  const plan::StageMemory memory = plan::Simulator(base).memory(base).front();
  return memory.parameters + memory.optimizer;
}

}  // namespace orrery::search
