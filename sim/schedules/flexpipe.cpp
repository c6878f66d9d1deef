// SPDX-License-Identifier: Apache-2.0
// The best of the schedules that a description (sim/orders/schedule_document.hpp) can state for the
// given times: placement, traversal, priorities, warm-up and split backward are enumerated, each is
// run under the cap, and the shortest run wins, of equal ones the first. One that cannot win is not
// run, or not to its end. Users write such descriptions as JSON.
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "sim/orders/order_bound.hpp"
#include "sim/orders/policy.hpp"
#include "sim/orders/schedule_rule.hpp"
#include "sim/orders/shortest_order.hpp"
#include "sim/orders/zero_bubble.hpp"

namespace orrery::sim {
namespace {

constexpr int kDescriptions = 24;  // at most

Refusal check(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_own_warm_up(params),
                       check_one_replica(params), check_own_iterations(params),
                       check_cap(params, 1), check_looks(params, kDescriptions)});
}

// What starts first, in every traversal of the chunks.
void add_greedy(std::vector<ScheduleDescription>& all, Placement placement, bool depth) {
  using enum PassKind;
  all.push_back({.placement = placement, .depth_first = depth});
  for (const std::vector<PassKind>& first : std::initializer_list<std::vector<PassKind>>{
           {Backward, Forward}, {Backward, WeightGrad}, {Forward, Backward}}) {
    all.push_back(
        {.placement = placement, .priority = first, .depth_first = depth, .split_backward = true});
  }
}

// Those whose lists follow from counts come first.
std::vector<ScheduleDescription> descriptions(const ScheduleParams& params) {
  const bool one = params.chunks == 1;  // depth and breadth are the same
  std::vector<ScheduleDescription> all;
  ScheduleDescription strict{.depth_first = !one, .split_backward = one};
  for (int late = 1; one && late <= 2; ++late) {  // zb-h1 and zb-h2
    strict.warm_up = WarmUpDepth{.per_later_device = late};
    strict.weight_grads = WeightGradDelay{.per_earlier_device = late};
    all.push_back(strict);
  }
  strict = {.depth_first = !one};
  for (int each = one ? 1 : 2; each <= 2; ++each) {  // 1f1b, with more ahead or interleaved
    strict.warm_up = WarmUpDepth{.per_later_device = each, .groups_per_later_chunk = 1};
    all.push_back(strict);
  }
  all.push_back({.warm_up = WarmUpDepth{.all = true}});  // gpipe or breadth-first
  add_greedy(all, Placement::Loop, true);
  if (!one) {
    add_greedy(all, Placement::Loop, false);
    add_greedy(all, Placement::Zigzag, true);
    add_greedy(all, Placement::Zigzag, false);
  }
  return all;
}

PipelineOrder order(const ScheduleParams& params) {
  ScheduleParams own = params;
  own.cap = 0;
  const double cap = params.cap > 0 ? params.cap : params.stages;
  ShortestOrder shortest(params, cap);
  for (const char* lists : {"v-zb", "v-half", "v-min"}) {  // a description can hold lists, too
    const Schedule& schedule = find_schedule(lists, "flexpipe");
    if (schedule.check(own).empty() && can_end_before(shortest.shortest(), schedule, own)) {
      shortest.offer(schedule.order(own));
    }
  }
  for (ScheduleDescription& rule : descriptions(params)) {
    rule.cap = rule.warm_up ? 0 : cap;
    const SimTime limit = params.decides_all ? kNoLimit : shortest.shortest();
    if (least_peak(rule, own) <= cap) {
      if (std::optional<PipelineOrder> order = try_rule(rule, own, limit)) {
        shortest.offer(std::move(*order));
      }
    }
  }
  return shortest.take("flexpipe");
}

}  // namespace

extern const Schedule schedule_flexpipe = {
    .name = "flexpipe",
    .description = "the shortest of all that a schedule description can state, under a cap",
    .constraints = "cap at least 1",
    .source = "Jiang et al., FlexPipe, 2025 (arXiv 2510.05112), section on the scheduler",
    .traits = {.splits_backward = true, .uses_chunks = true, .uses_times = true},
    .check = check,
    .order = order,
    .most_activations = cap_or_one_per_stage,
    .own_with_one_chunk = true,
    .in_plans = true,
    .chooses_placement = true,
};

}  // namespace orrery::sim
