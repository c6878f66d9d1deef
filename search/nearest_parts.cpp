// SPDX-License-Identifier: Apache-2.0
#include "search/nearest_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/interrupt.hpp"
#include "base/quantity_text.hpp"
#include "base/words.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::search {
namespace {

constexpr Seconds kLongest(60);   // on machines that are slower than any
constexpr Seconds kLeastLeft(1);  // of a time limit that the search has used up
constexpr std::int64_t kMostValue = std::int64_t{1} << 40;

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

// What the values of a number divide, 0: there is no such rule; nothing where it has no order.
std::optional<std::int64_t> modulus_of(std::string_view field, const plan::Plan& plan,
                                       const Divided& divided) {
  constexpr std::array<std::string_view, 2> kAny = {"zero", "chunks"};
  if (is_among(field, kAny)) {
    return 0;
  }
  if (field == "tp" || field == "cp") {
    return divided.by_ranks;
  }
  if (field == "pp" || field == "dp") {
    return divided.by_stages;
  }
  if (field == "micro_batch") {
    return plan.batch;
  }
  return field == "ep" ? std::optional<std::int64_t>(plan.network.spec.moe.experts) : std::nullopt;
}

}  // namespace

Deadline::Deadline(const Options& options, Seconds searched) {
  if (options.time_limit.value() > 0) {
    const Seconds left = std::max(options.time_limit - searched, kLeastLeft);
    end_ = std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
               std::chrono::duration<double>(left.value()));
  }
}

Seconds Deadline::left() const {
  if (!end_) {
    return Seconds(std::numeric_limits<double>::infinity());
  }
  const std::chrono::duration<double> left = *end_ - std::chrono::steady_clock::now();
  return Seconds(left.count());
}

Seconds Effort::seconds_left() const {
  if (!deadline_) {
    return Seconds(std::numeric_limits<double>::infinity());
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun_;
  return std::min(kLongest - Seconds(spent.count()), deadline_->left());
}

bool Effort::over() const { return interrupted() || left_ == 0 || seconds_left().value() <= 0; }

Options Effort::until_first_plan(Options options, std::uint64_t most_work) const {
  options.gap_fraction = 1;  // any plan will do
  options.top = 0;
  options.proves_top = false;
  options.interval_draws = 0;
  options.most_work = std::max<std::uint64_t>(1, std::min(left_, most_work));  // 0 is no limit
  options.time_limit = std::max(seconds_left(), Seconds(0.001));               // as well
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

std::optional<std::string> value_instead(const std::string& fixed, const plan::Plan& plan) {
  const std::string field = fixed.substr(0, fixed.find('='));
  const std::string value = value_in(plan, field);
  return value.empty() ? std::nullopt : std::optional(field + "=" + value);
}

std::string instead_of(const std::string& fixed, const plan::Plan& plan) {
  const std::optional<std::string> value = value_instead(fixed, plan);
  return value ? fmt::format("{} instead of {}", *value, fixed)
               : fmt::format("leave out {}", fixed);
}

std::vector<std::string> nearer_values(const std::string& fixed, const plan::Plan& found,
                                       const Divided& divided) {
  const std::string field = fixed.substr(0, fixed.find('='));
  const std::string now = value_in(found, field);
  const std::string before = fixed.substr(std::min(fixed.size(), field.size() + 1));
  std::vector<std::string> all = {"none", "selective", "full"};  // in their order
  if (field != "recompute") {
    all.clear();
    const std::optional<std::int64_t> modulus = modulus_of(field, found, divided);
    if (!modulus || now.empty()) {
      return {};
    }
    const std::int64_t from = parse_integer(before, "--fix", 0, kMostValue);
    const std::int64_t to = parse_integer(now, "--fix", 0, kMostValue);
    for (std::int64_t value = std::min(from, to); value <= std::max(from, to); ++value) {
      if (value == from || value == to || *modulus == 0 || (value > 0 && *modulus % value == 0)) {
        all.push_back(fmt::format("{}", value));
      }
    }
  }
  auto begin = std::find(all.begin(), all.end(), before);
  auto end = std::find(all.begin(), all.end(), now);
  if (begin == all.end() || end == all.end()) {
    return {};
  }
  if (begin > end) {
    std::reverse(all.begin(), all.end());
    begin = std::find(all.begin(), all.end(), before);
    end = std::find(all.begin(), all.end(), now);
  }
  std::vector<std::string> between;
  for (auto value = begin + 1; value < end; ++value) {
    between.push_back(field + "=" + *value);
  }
  return between;
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
