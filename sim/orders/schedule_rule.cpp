// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/schedule_rule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/order_bound.hpp"
#include "sim/orders/policy.hpp"
#include "sim/orders/traversal.hpp"
#include "sim/orders/warm_up_advice.hpp"
#include "sim/orders/zero_bubble.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {
namespace {

const DeviceOverride* override_of(const ScheduleDescription& rule, int device) {
  for (const DeviceOverride& one : rule.overrides) {
    if (one.device == device) {
      return &one;
    }
  }
  return nullptr;
}

// Warm-up, then one backward and one forward in turn, all in the order of the traversal; weight
// gradients whenever there is time, or so many backwards late.
class StrictOrder {
 public:
  StrictOrder(const ScheduleDescription& rule, Traversal traversal, const ScheduleParams& params)
      : delay_(rule.weight_grads), traversal_(traversal) {
    for (int device = 0; device < params.stages; ++device) {
      ahead_.push_back(ahead(rule, params, device));
    }
  }

  // What a device may do next, in a run that keeps this order.
  struct Turn {
    std::int64_t rank(Lane lane) const { return ranks[static_cast<std::size_t>(lane)]; }
    bool admits(Lane lane, const Pass& pass, std::int64_t) const {
      return (lane == Lane::WeightGrad && !order.delay_) ||
             (next == lane &&
              order.traversal_.position(pass) == done[static_cast<std::size_t>(lane)]);
    }
    const StrictOrder& order;
    const PolicyRanks& ranks;
    const std::array<std::int64_t, 3>& done;
    Lane next;
  };
  Turn turn(const DeviceView& view, const PolicyRanks& ranks) const {
    return {*this, ranks, view.done, next_lane(view.done, view.device)};
  }

  // `done`: passes by lane.
  Lane next_lane(const std::array<std::int64_t, 3>& done, int device) const {
    const auto [forwards, gradients, weight_grads] = done;
    const std::int64_t late =
        delay_ ? delay_->backwards + std::int64_t{delay_->per_earlier_device} * device : 0;
    if (delay_ && weight_grads < gradients &&
        (gradients == traversal_.total() || gradients - weight_grads > late)) {
      return Lane::WeightGrad;
    }
    const bool ahead = forwards < traversal_.total() &&
                       forwards - gradients < ahead_[static_cast<std::size_t>(device)];
    return ahead ? Lane::Forward : Lane::Gradient;
  }

  // Forwards of the first device before its first gradient.
  std::int64_t most_ahead() const { return std::min(ahead_.front(), traversal_.total()); }

 private:
  std::int64_t ahead(const ScheduleDescription& rule, const ScheduleParams& params,
                     int device) const {
    const DeviceOverride* own = override_of(rule, device);
    const WarmUpDepth depth =
        own != nullptr && own->warm_up ? *own->warm_up : rule.warm_up.value_or(WarmUpDepth{});
    if (depth.all) {
      return traversal_.total();
    }
    return depth.forwards + std::int64_t{depth.micro_batches} * traversal_.slices() +
           std::int64_t{depth.per_later_device} * (params.stages - 1 - device) +
           std::int64_t{depth.groups_per_later_chunk} * (params.chunks - 1) * traversal_.group();
  }

  std::optional<WeightGradDelay> delay_;
  Traversal traversal_;
  std::vector<std::int64_t> ahead_;  // by device
};

std::vector<std::uint16_t> devices_of(Placement placement, const ScheduleParams& params) {
  return placement == Placement::Loop ? loop_placement(params)
                                      : zigzag_placement(params.stages, params.chunks);
}

// Passes of the lane of `kind` that a list holds, of one virtual stage or of all.
std::int64_t count(const std::vector<Pass>& list, PassKind kind, int stage = -1) {
  return std::count_if(list.begin(), list.end(), [&](const Pass& pass) {
    return lane_of(pass.kind) == lane_of(kind) && (stage < 0 || pass.virtual_stage == stage);
  });
}

// Names the first device that is not done, the pass it waits to start and what that pass needs.
// Only a strict order can end early: without one, gradients always start and a micro-batch that
// begins has room to finish.
[[noreturn]] void fail_deadlock(const PipelineOrder& order, const Traversal& traversal,
                                const StrictOrder& strict, std::size_t device,
                                const std::string& where, const std::string& advice) {
  const std::vector<Pass>& list = order.passes[device];
  const std::int64_t forwards = count(list, PassKind::Forward);
  const bool forward = strict.next_lane({forwards, count(list, PassKind::Backward), forwards},
                                        static_cast<int>(device)) == Lane::Forward;
  const PassKind kind = forward ? PassKind::Forward : PassKind::Backward;
  const int last = order.num_virtual_stages - 1;
  for (int stage = 0; stage <= last; ++stage) {
    const Pass next{kind, static_cast<std::uint16_t>(stage),
                    static_cast<std::uint32_t>(count(list, kind, stage))};
    if (order.device_of[next.virtual_stage] != device ||
        traversal.position(next) != count(list, kind)) {
      continue;
    }
    const bool own = !forward && (stage == last || count(list, PassKind::Forward, stage) <=
                                                       std::int64_t{next.micro_batch});
    const int needed = own ? stage : stage + (forward ? -1 : 1);
    bad_input(where,
              fmt::format("deadlock: device {} waits after {} for ever to start {} of "
                          "virtual stage {}, micro-batch {}, which needs the {} of virtual stage "
                          "{} on device {}",
                          device, counted(forwards, "forward"), to_text(kind), stage,
                          next.micro_batch, to_text(own ? PassKind::Forward : kind), needed,
                          order.device_of[static_cast<std::size_t>(needed)]),
              advice);
  }
  check_failed("next pass", __FILE__, __LINE__, "a device that is not done has no next pass");
}

int kinds_of(const ScheduleDescription& rule) { return rule.split_backward ? 3 : 2; }

// The first device whose list is not complete.
std::optional<std::size_t> unfinished(const PipelineOrder& order, std::int64_t passes) {
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    if (static_cast<std::int64_t>(order.passes[d].size()) < passes) {
      return d;
    }
  }
  return std::nullopt;
}

// Whether lists run to the end; quickly where they take the units of every lane in order.
bool runs(const PipelineOrder& order, bool in_order) {
  if (!in_order) {
    return check_order(order, order.micro_batches).empty();
  }
  const PassInputs inputs(order);
  std::array<std::vector<std::uint32_t>, kNumLanes> done;  // so far, by virtual stage
  done.fill(std::vector<std::uint32_t>(order.device_of.size(), 0));
  const auto is_done = [&](const PassInput& input) {
    return done[static_cast<std::size_t>(input.lane)][input.virtual_stage] > input.unit;
  };
  const auto is_ready = [&](const Pass& pass) {
    const Lane lane = lane_in_lists(pass.kind);
    const Lane own = lane == Lane::WeightGrad ? Lane::Gradient : Lane::Forward;
    return (lane == Lane::Forward || is_done({own, pass.virtual_stage, pass.micro_batch, 0})) &&
           inputs.visit_neighbour(pass, is_done);
  };
  std::vector<std::size_t> position(order.passes.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t d = 0; d < position.size(); ++d) {
      const std::vector<Pass>& list = order.passes[d];
      for (std::size_t& at = position[d]; at < list.size() && is_ready(list[at]); ++at) {
        ++done[static_cast<std::size_t>(lane_in_lists(list[at].kind))][list[at].virtual_stage];
        progress = true;
      }
    }
  }
  for (std::size_t d = 0; d < position.size(); ++d) {
    if (position[d] < order.passes[d].size()) {
      return false;
    }
  }
  return true;
}

// The lists of a strict order, which follow from counts alone.
PipelineOrder write_strict(const ScheduleDescription& rule, const ScheduleParams& params,
                           const Traversal& traversal, const StrictOrder& strict) {
  PipelineOrder order = one_chain(params, devices_of(rule.placement, params), kinds_of(rule));
  std::vector<std::vector<std::uint16_t>> stages_on(order.passes.size());  // by chunk
  for (std::size_t s = 0; s < order.device_of.size(); ++s) {
    stages_on[order.device_of[s]].push_back(static_cast<std::uint16_t>(s));
  }
  const std::array<PassKind, 3> kinds = {
      PassKind::Forward, rule.split_backward ? PassKind::InputGrad : PassKind::Backward,
      PassKind::WeightGrad};
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    std::array<std::int64_t, 3> done{};
    for (std::int64_t left = traversal.total() * kinds_of(rule); left > 0; --left) {
      const auto lane = static_cast<std::size_t>(strict.next_lane(done, static_cast<int>(d)));
      const auto [chunk, unit] = traversal.at(done[lane]++, lane == 0);
      order.passes[d].emplace_back(kinds[lane], stages_on[d][static_cast<std::size_t>(chunk)],
                                   unit);
    }
  }
  return order;
}

PipelineOrder run(const ScheduleDescription& rule, const ScheduleParams& params,
                  const Traversal& traversal, const StrictOrder& strict, SimTime limit = kNoLimit) {
  const auto ranks_of = [](const std::vector<PassKind>& priority) {
    PolicyRanks ranks{};  // what is not named comes last
    ranks.fill(static_cast<std::int64_t>(priority.size()));
    for (std::size_t at = 0; at < priority.size(); ++at) {
      ranks[static_cast<std::size_t>(lane_of(priority[at]))] = static_cast<std::int64_t>(at);
    }
    return ranks;
  };
  std::vector<PolicyRanks> ranks(static_cast<std::size_t>(params.stages), ranks_of(rule.priority));
  const auto place = [&](const Pass& pass) { return policy_place(traversal.position(pass)); };
  ScheduleParams own = params;
  if (params.cap == 0.0) {
    own.cap = rule.cap;
  }
  if (rule.recompute) {  // a gradient takes the forward's time longer
    own.times.resize(std::max<std::size_t>(1, own.times.size()));
    for (PassTimes& times : own.times) {
      times.input_grad += times.forward;
    }
  }
  std::vector<std::int64_t> caps(ranks.size(), cap_of(own, params.micro_batches));
  for (const DeviceOverride& one : rule.overrides) {
    const auto device = static_cast<std::size_t>(one.device);
    ranks[device] = one.priority.empty() ? ranks[device] : ranks_of(one.priority);
    if (one.cap > 0) {
      ScheduleParams capped = own;
      capped.cap = one.cap;
      caps[device] = std::min(caps[device], cap_of(capped, params.micro_batches));
    }
  }
  PipelineOrder empty = empty_order(params, devices_of(rule.placement, params), kinds_of(rule));
  std::vector<std::int64_t> idle_within;
  if (limit < kNoLimit) {
    idle_within = OrderBound(empty.device_of, own, rule.split_backward).idle_within(limit);
  }
  const auto run_with = [&](const auto& look) {
    return run_policy(std::move(empty), own, rule.split_backward,
                      Policy{look, place, traversal.period()}, std::move(idle_within));
  };
  if (rule.warm_up) {
    return run_with([&](const DeviceView& view) {
      return strict.turn(view, ranks[static_cast<std::size_t>(view.device)]);
    });
  }
  return run_with([&](const DeviceView& view) {
    const auto device = static_cast<std::size_t>(view.device);
    return WithinCap(view, ranks[device], caps[device]);
  });
}

void add_recompute_passes(PipelineOrder& order) {
  order.extended = true;
  for (std::vector<Pass>& list : order.passes) {
    std::vector<Pass> with;
    for (const Pass& pass : list) {
      if (lane_of(pass.kind) == Lane::Gradient) {
        with.emplace_back(PassKind::Recompute, pass.virtual_stage, pass.micro_batch);
      }
      with.push_back(pass);
    }
    list = std::move(with);
  }
}

}  // namespace

bool counts_decide(const ScheduleDescription& rule) {
  return rule.warm_up && (rule.weight_grads || !rule.split_backward);
}

Refusal check_rule(const ScheduleDescription& rule, const ScheduleParams& params) {
  if (rule.placement == Placement::V && params.chunks != 2) {
    Refusal broken = check_chunks(params, 2);
    broken.constraint = "impossible placement \"v\": " + broken.constraint;
    return broken;
  }
  if (rule.placement == Placement::Zigzag && params.chunks < 2) {
    return refused("impossible placement \"zigzag\": at least 2 chunks are required", Size::Chunks,
                   2);
  }
  if ((params.slices > 1 || rule.last_in_first_out) && !counts_decide(rule)) {
    return {fmt::format("{} warm_up, and weight_grads with a split backward: add them",
                        rule.last_in_first_out ? "gradients last in, first out need"
                                               : "slices run in a strict order, which needs")};
  }
  if (rule.warm_up && (rule.cap > 0 || params.cap > 0)) {
    return {fmt::format("warm_up fixes the activations: leave it or {} out",
                        params.cap > 0 ? params.cap_name : "\"cap\"")};
  }
  if (rule.weight_grads && !(rule.warm_up && rule.split_backward)) {
    return {"weight_grads needs warm_up and a split backward: add both, or leave it out"};
  }
  for (const DeviceOverride& one : rule.overrides) {
    if (one.device >= params.stages) {
      return refused(fmt::format("device {} has an override, but there are {} stages", one.device,
                                 params.stages),
                     Size::Stages, one.device + 1.0);
    }
    if (rule.warm_up && one.cap > 0) {
      return {"warm_up fixes the activations: leave it or \"cap\" of the overrides out"};
    }
  }
  return first_broken({check_looks(params, 1), check_cap(params, 1)});
}

double least_peak(const ScheduleDescription& rule, const ScheduleParams& params) {
  const Traversal traversal(rule, params);
  const std::int64_t warm_up =
      rule.warm_up ? StrictOrder(rule, traversal, params).most_ahead() : std::int64_t{0};
  return static_cast<double>(warm_up) / params.chunks;
}

std::optional<PipelineOrder> try_rule(const ScheduleDescription& rule, const ScheduleParams& params,
                                      SimTime limit) {
  std::int64_t ahead = params.micro_batches;
  if (const double cap = params.cap > 0 ? params.cap : rule.cap;
      cap > 0 && !rule.warm_up && params.activation > 0 && params.activations.empty()) {
    ahead = static_cast<std::int64_t>(cap);  // what it begins has room for all chunks
  }
  if (limit < kNoLimit &&
      OrderBound(devices_of(rule.placement, params), params, rule.split_backward, ahead)
              .makespan() >= limit) {
    return std::nullopt;
  }
  const Traversal traversal(rule, params);
  const StrictOrder strict(rule, traversal, params);
  const bool strictly = counts_decide(rule);
  PipelineOrder order = strictly ? write_strict(rule, params, traversal, strict)
                                 : run(rule, params, traversal, strict, limit);
  if (strictly ? !runs(order, params.slices == 1 && !rule.last_in_first_out)
               : unfinished(order, traversal.total() * kinds_of(rule)).has_value()) {
    return std::nullopt;
  }
  if (rule.recompute) {
    add_recompute_passes(order);
  }
  return order;
}

PipelineOrder run_rule(const ScheduleDescription& rule, const ScheduleParams& params,
                       const std::string& where) {
  if (auto order = try_rule(rule, params)) {
    return std::move(*order);
  }
  const Traversal traversal(rule, params);
  const StrictOrder strict(rule, traversal, params);
  if (params.slices > 1 || rule.last_in_first_out) {
    const PipelineOrder lists = write_strict(rule, params, traversal, strict);
    bad_input(where, check_order(lists, lists.micro_batches), warm_up_advice(rule, params));
  }
  const PipelineOrder order = run(rule, params, traversal, strict);
  fail_deadlock(order, traversal, strict, *unfinished(order, traversal.total() * kinds_of(rule)),
                where, warm_up_advice(rule, params));
}

}  // namespace orrery::sim
