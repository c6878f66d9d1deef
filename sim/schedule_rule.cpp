// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule_rule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "sim/order_blocks.hpp"
#include "sim/policy.hpp"
#include "sim/zero_bubble.hpp"

namespace orrery::sim {
namespace {

// The order in which the forwards of a device are taken, and its gradients with chunks reversed.
class Traversal {
 public:
  Traversal(const ScheduleDescription& rule, const ScheduleParams& params)
      : stages_(params.stages), chunks_(params.chunks), units_(params.micro_batches) {
    const int group = rule.group > 0 ? rule.group : params.stages;
    group_ = rule.depth_first ? std::min(group, units_) : units_;
  }

  std::int64_t position(const Pass& pass) const {
    const int chunk = pass.virtual_stage / stages_;
    const bool forward = pass.kind == PassKind::Forward;
    const auto unit = static_cast<std::int64_t>(pass.micro_batch);
    const std::int64_t first = unit / group_ * group_;  // of its group
    const std::int64_t size = std::min<std::int64_t>(group_, units_ - first);
    return first * chunks_ + (forward ? chunk : chunks_ - 1 - chunk) * size + unit - first;
  }

  std::int64_t total() const { return std::int64_t{units_} * chunks_; }
  std::int64_t group() const { return group_; }

 private:
  int stages_;
  int chunks_;
  int units_;
  int group_ = 1;
};

// Warm-up, then one backward and one forward in turn, all in the order of the traversal.
class StrictOrder {
 public:
  StrictOrder(const WarmUpDepth& depth, Traversal traversal, const ScheduleParams& params)
      : depth_(depth),
        traversal_(traversal),
        params_(params),
        done_(static_cast<std::size_t>(params.stages)) {}

  bool admits(const ListBuilder& lists, const Pass& pass) {
    if (pass.kind == PassKind::WeightGrad) {
      return true;
    }
    const int device = lists.order().device_of[pass.virtual_stage];
    const auto [listed, forwards, gradients] = done(lists, device);
    const bool forward = pass.kind == PassKind::Forward;
    return forward_is_next(forwards, gradients, device) == forward &&
           traversal_.position(pass) == (forward ? forwards : gradients);
  }

  bool forward_is_next(std::int64_t forwards, std::int64_t gradients, int device) const {
    return forwards < traversal_.total() && forwards - gradients < ahead(device);
  }

 private:
  struct Done {
    std::size_t listed = 0;  // passes counted so far
    std::int64_t forwards = 0;
    std::int64_t gradients = 0;
  };

  Done done(const ListBuilder& lists, int device) {
    Done& done = done_[static_cast<std::size_t>(device)];
    const std::vector<Pass>& list = lists.order().passes[static_cast<std::size_t>(device)];
    for (; done.listed < list.size(); ++done.listed) {
      const Lane lane = lane_of(list[done.listed].kind);
      done.forwards += lane == Lane::Forward ? 1 : 0;
      done.gradients += lane == Lane::Gradient ? 1 : 0;
    }
    return done;
  }

  std::int64_t ahead(int device) const {
    if (depth_.all) {
      return traversal_.total();
    }
    return depth_.forwards + std::int64_t{depth_.per_later_device} * (params_.stages - 1 - device) +
           std::int64_t{depth_.groups_per_later_chunk} * (params_.chunks - 1) * traversal_.group();
  }

  WarmUpDepth depth_;
  Traversal traversal_;
  const ScheduleParams& params_;
  std::vector<Done> done_;  // per device
};

std::vector<std::uint16_t> devices_of(Placement placement, const ScheduleParams& params) {
  return placement == Placement::Loop ? loop_placement(params)
                                      : zigzag_placement(params.stages, params.chunks);
}

PassKind kind_for_priority(PassKind kind) {
  return kind == PassKind::InputGrad ? PassKind::Backward : kind;
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
                                const std::string& where) {
  const std::vector<Pass>& list = order.passes[device];
  const std::int64_t forwards = count(list, PassKind::Forward);
  const bool forward =
      strict.forward_is_next(forwards, count(list, PassKind::Backward), static_cast<int>(device));
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
              fmt::format("deadlock: device {} waits after {} forwards for ever to start {} of "
                          "virtual stage {}, micro-batch {}, which needs the {} of virtual stage "
                          "{} on device {}",
                          device, forwards, to_text(kind), stage, next.micro_batch,
                          to_text(own ? PassKind::Forward : kind), needed,
                          order.device_of[static_cast<std::size_t>(needed)]),
              "set a deeper warm_up, or leave it out to start whatever is ready");
  }
  check_failed("next pass", __FILE__, __LINE__, "a device that is not done has no next pass");
}

void check_finished(const PipelineOrder& order, const Traversal& traversal,
                    const StrictOrder& strict, int kinds, const std::string& where) {
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    if (static_cast<std::int64_t>(order.passes[d].size()) < traversal.total() * kinds) {
      fail_deadlock(order, traversal, strict, d, where);
    }
  }
}

}  // namespace

std::string check_rule(const ScheduleDescription& rule, const ScheduleParams& params) {
  if (rule.placement == Placement::V && params.chunks != 2) {
    return "impossible placement \"v\": " + check_chunks(params, 2);
  }
  if (rule.placement == Placement::Zigzag && params.chunks < 2) {
    return "impossible placement \"zigzag\": at least 2 chunks are required: set chunks to 2";
  }
  if (rule.warm_up && (rule.cap > 0 || params.cap > 0)) {
    return "warm_up fixes the activations, so there is no cap with it: leave one of them out";
  }
  // Every decision looks at all devices and, about 8 times as slowly, at all chunks of one.
  constexpr std::int64_t kMaxLooks = 500'000'000;
  const std::int64_t looks = std::int64_t{params.stages} * params.chunks * params.micro_batches *
                             (params.stages + std::int64_t{8} * params.chunks);
  if (looks > kMaxLooks) {
    return fmt::format(
        "a rule with so many passes takes too long: stages x chunks x micro-batches "
        "x (stages + 8 chunks) must be at most {}, not {}",
        kMaxLooks, looks);
  }
  return check_cap(params, 1);
}

PipelineOrder run_rule(const ScheduleDescription& rule, const ScheduleParams& params,
                       const std::string& where) {
  const Traversal traversal(rule, params);
  Policy policy;
  policy.key = [&](const ListBuilder&, const Pass& pass) {
    const auto rank =
        std::find(rule.priority.begin(), rule.priority.end(), kind_for_priority(pass.kind));
    return Policy::Key{rank - rule.priority.begin(), traversal.position(pass), 0};
  };
  ScheduleParams capped = params;
  if (params.cap == 0.0) {
    capped.cap = rule.cap;
  }
  StrictOrder strict(rule.warm_up.value_or(WarmUpDepth{}), traversal, params);
  const std::int64_t cap = cap_of(capped, params.micro_batches);
  policy.admits = [&](const ListBuilder& lists, const Pass& pass) {
    return rule.warm_up ? strict.admits(lists, pass) : within_cap(lists, pass, cap);
  };
  const int kinds = rule.split_backward ? 3 : 2;
  PipelineOrder order = run_policy(empty_order(params, devices_of(rule.placement, params), kinds),
                                   params, rule.split_backward, policy);
  check_finished(order, traversal, strict, kinds, where);
  return order;
}

}  // namespace orrery::sim
