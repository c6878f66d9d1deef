// SPDX-License-Identifier: Apache-2.0
// 1F1B whose activations go to the host after their forward and come back before their backward,
// on copy streams of their own in both directions. Two buffers each way bound what a device holds;
// stages with no more micro-batches in flight than that keep them. No time is exposed while a copy
// takes no longer than a forward and a backward. By default a copy takes half a forward.
#include <algorithm>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

constexpr int kBuffers = 2;  // each way
constexpr int kPassesPerCopy = 2;

Refusal check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 3;
  return first_broken(
      {check_basics(params), check_one_chunk(params), check_own_warm_up(params), check_sizes(all)});
}

PipelineOrder order(const ScheduleParams& params) {
  const int m = params.micro_batches;
  const int p = params.stages;
  const int offloading = std::max(0, std::min(p, m) - 2 * kBuffers > 0 ? p - 2 * kBuffers : 0);
  PipelineOrder result = find_schedule("1f1b", "pipeoffload").order(params);
  result.chains = chains_of(result);
  result.pieces = 1;
  result.parts.assign(static_cast<std::size_t>(p), kPassesPerCopy);
  result.parts.resize(static_cast<std::size_t>(p + 2 * offloading), 1);
  result.parts_per_share = kPassesPerCopy;
  result.passes.resize(static_cast<std::size_t>(p + 2 * offloading));
  for (int i = 0; i < p; ++i) {
    const auto stage = static_cast<std::uint16_t>(i);
    if (i >= offloading) {
      result.holds.push_back({stage, stage, Lane::Forward, stage, Lane::Gradient, stage});
      continue;
    }
    const int out = add_services(result, p + 2 * i, 1, m);
    const int in = add_services(result, p + 2 * i + 1, 1, m);
    add_edge(result, Lane::Forward, i, Lane::Forward, out);
    add_edge(result, Lane::Forward, out, Lane::Forward, in);
    add_edge(result, Lane::Forward, in, Lane::Gradient, i);
    add_edge(result, Lane::Forward, out, Lane::Forward, i, kBuffers);
    add_edge(result, Lane::Gradient, i, Lane::Forward, in, kBuffers);
    const auto leaves = static_cast<std::uint16_t>(out);
    const auto comes = static_cast<std::uint16_t>(in);
    result.holds.push_back({stage, stage, Lane::Forward, stage, Lane::Forward, leaves});
    result.holds.push_back({stage, stage, Lane::Forward, comes, Lane::Gradient, stage});
  }
  return result;
}

double most(const ScheduleParams& params) {
  return std::min({params.stages, params.micro_batches, 2 * kBuffers});
}

}  // namespace

extern const Schedule schedule_pipeoffload = {
    .name = "pipeoffload",
    .description = "1f1b with activations copied to the host and back on streams of their own",
    .constraints = "1 chunk per device",
    .source = "Wan et al., PipeOffload, 2025 (arXiv 2503.01328), section 3",
    .traits = {.copies_to_host = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
};

}  // namespace orrery::sim
