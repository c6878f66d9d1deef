// SPDX-License-Identifier: Apache-2.0
#include "sim/output_layer.hpp"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "base/error.hpp"
#include "sim/first_start.hpp"
#include "sim/list_builder.hpp"
#include "sim/order_blocks.hpp"
#include "sim/policy.hpp"
#include "sim/v_pattern.hpp"

namespace orrery::sim {
namespace {

// Which devices have run a pass of every unit, and when the last two of them ended.
class Meeting {
 public:
  explicit Meeting(int units) : of_unit_(static_cast<std::size_t>(units)) {}

  // How many have met.
  int add(std::size_t unit, int device, std::int64_t end) {
    Ends& ends = of_unit_[unit];
    if (end >= ends.last) {
      ends.before = ends.last;
      ends.last = end;
      ends.last_device = device;
    } else {
      ends.before = std::max(ends.before, end);
    }
    return ++ends.met;
  }
  int met(std::size_t unit) const { return of_unit_[unit].met; }
  // When a device knows of all, with `send` from the others.
  std::int64_t known(std::size_t unit, int device, std::int64_t send) const {
    const Ends& ends = of_unit_[unit];
    return ends.last_device == device ? std::max(ends.last, ends.before + send) : ends.last + send;
  }

 private:
  struct Ends {
    int met = 0;
    int last_device = -1;
    std::int64_t last = -1;
    std::int64_t before = -1;
  };
  std::vector<Ends> of_unit_;
};

class Insertion {
 public:
  Insertion(const PipelineOrder& base, const ScheduleParams& params, int barriers)
      : base_(base),
        barriers_(barriers),
        devices_(static_cast<int>(base.passes.size())),
        last_(base.num_virtual_stages - 1),
        skeleton_(output_layer_skeleton(base, barriers)),
        params_(with_stage_times(skeleton_, params)),
        lists_(skeleton_, params_, splits(base)),
        position_(base.passes.size(), 0),
        choices_(base.passes.size()),
        is_stale_(base.passes.size(), false),
        first_(base.passes.size()),
        met_s_(base.micro_batches),
        met_t_(base.micro_batches) {
    const auto send_of = [&](int d) {
      return params_.times_of(static_cast<std::size_t>(last_ + 1 + d)).send.ps;
    };
    send_last_ = send_of(-1);
    send_ = send_of(0);
    for (int d = 1; d < devices_; ++d) {
      same_sends_ = same_sends_ && send_of(d) == send_;
    }
  }

  PipelineOrder run() {
    mark_all();
    while (true) {
      for (const int d : stale_) {
        const auto at = static_cast<std::size_t>(d);
        choices_[at] = choice_of(d);
        first_.set(at, choices_[at].start);
        is_stale_[at] = false;
      }
      stale_.clear();
      if (first_.none()) {
        return lists_.take();
      }
      const std::size_t d = first_.first();
      put(choices_[d], static_cast<int>(d));
    }
  }

 private:
  struct Choice {
    Pass pass;
    std::int64_t start = FirstStart::kNever;
    bool is_base = false;
  };

  void mark(int device) {
    if (!is_stale_[static_cast<std::size_t>(device)]) {
      is_stale_[static_cast<std::size_t>(device)] = true;
      stale_.push_back(device);
    }
  }
  void mark_all() {
    for (int d = 0; d < devices_; ++d) {
      mark(d);
    }
  }
  // The device of a stage whose next pass of the base waits for this one.
  void mark_waiting(int stage, const Pass& pass) {
    if (stage < 0 || stage > last_) {
      return;
    }
    const std::size_t d = base_.device_of[static_cast<std::size_t>(stage)];
    if (position_[d] < base_.passes[d].size()) {
      const Pass& next = base_.passes[d][position_[d]];
      if (next.virtual_stage == stage && next.micro_batch == pass.micro_batch &&
          next.kind == pass.kind) {
        mark(static_cast<int>(d));
      }
    }
  }

  // Devices whose choice the pass can change are looked at again: its own, the one that waits for
  // it, and all when every device does.
  void put(Choice choice, int device) {
    const Pass pass = choice.pass;
    const bool forward = pass.kind == PassKind::Forward;
    position_[static_cast<std::size_t>(device)] += choice.is_base ? 1 : 0;
    lists_.put(pass, choice.start);
    mark(device);
    bool all = pass.virtual_stage == last_ && forward;
    if (pass.virtual_stage > last_) {
      Meeting& met = forward ? met_s_ : met_t_;
      all = met.add(pass.micro_batch, device, lists_.free(device)) == devices_;
    } else if (pass.kind != PassKind::WeightGrad) {
      mark_waiting(pass.virtual_stage + (forward ? 1 : -1), pass);
    }
    if (all) {
      mark_all();
    }
  }

  static bool splits(const PipelineOrder& base) {
    for (const Pass& pass : base.passes.front()) {
      if (pass.kind == PassKind::WeightGrad) {
        return true;
      }
    }
    return false;
  }

  std::optional<std::int64_t> arrival(const Pass& pass, int d) const {
    const std::size_t unit = pass.micro_batch;
    if (lane_of(pass.kind) != Lane::Gradient || pass.virtual_stage < last_) {
      return lists_.arrival(pass);
    }
    const bool is_last = pass.virtual_stage == last_;
    const Meeting& meeting = is_last && barriers_ == 2 ? met_t_ : met_s_;
    if (meeting.met(unit) < devices_) {
      return std::nullopt;
    }
    if (is_last) {  // its forward is earlier in its list
      return meeting.known(unit, d, send_last_);
    }
    return same_sends_ ? meeting.known(unit, d, send_) : lists_.arrival(pass);
  }

  // The pass that can start first; S and T before the layers' own when both can.
  Choice choice_of(int d) const {
    const int shard = last_ + 1 + d;
    Pass s = lists_.next(Lane::Forward, shard);
    Pass t = lists_.next(Lane::Gradient, shard);
    t.kind = PassKind::Backward;
    const bool owes_t = t.micro_batch < s.micro_batch;
    Choice best;
    const auto offer = [&](const Pass& pass, bool is_base) {
      const std::optional<std::int64_t> arrives = arrival(pass, d);
      if (arrives) {
        const std::int64_t start = std::max(*arrives, lists_.free(d));
        if (start < best.start) {
          best = {pass, start, is_base};
        }
      }
    };
    if (owes_t && barriers_ == 2) {
      offer(t, false);
    }
    if (!owes_t && s.micro_batch < static_cast<std::uint32_t>(base_.micro_batches)) {
      offer(s, false);
    }
    const auto at = static_cast<std::size_t>(d);
    if (position_[at] < base_.passes[at].size()) {
      offer(base_.passes[at][position_[at]], true);
    }
    if (owes_t && barriers_ == 1) {
      const bool next_s = s.micro_batch < static_cast<std::uint32_t>(base_.micro_batches) &&
                          lists_.arrival(s).has_value();
      if (next_s) {
        best = {};  // before the next S
      }
      offer(t, false);
    }
    return best;
  }

  const PipelineOrder& base_;
  int barriers_;
  int devices_;
  int last_;  // virtual stage of the base; the shards follow
  PipelineOrder skeleton_;
  ScheduleParams params_;
  ListBuilder lists_;
  std::vector<std::size_t> position_;
  std::vector<Choice> choices_;  // by device
  std::vector<int> stale_;       // devices to choose for again
  std::vector<bool> is_stale_;
  FirstStart first_;
  Meeting met_s_;
  Meeting met_t_;
  std::int64_t send_last_ = 0;  // from the shards to the last stage
  std::int64_t send_ = 0;       // between shards
  bool same_sends_ = true;      // by all of them
};

}  // namespace

PipelineOrder output_layer_skeleton(const PipelineOrder& base, int barriers) {
  PipelineOrder order = base;
  const auto devices = static_cast<int>(base.passes.size());
  const int shards = base.num_virtual_stages;  // virtual stage of the first shard
  const auto last = static_cast<std::uint16_t>(shards - 1);
  order.pieces = pieces_of(base);
  order.parts.assign(static_cast<std::size_t>(shards), devices);
  order.parts.resize(static_cast<std::size_t>(shards + devices), order.pieces);
  order.parts_per_share = devices * order.pieces;
  order.chains = chains_of(base);
  for (int d = 0; d < devices; ++d) {
    order.passes[static_cast<std::size_t>(d)].clear();
    add_chain(order, {static_cast<std::uint16_t>(d)},
              {.units = base.micro_batches, .role = Role::Output});
  }
  for (int d = 0; d < devices; ++d) {
    const auto shard = static_cast<std::uint16_t>(shards + d);
    order.edges.push_back({Lane::Forward, last, Lane::Forward, shard});
    order.edges.push_back(
        {barriers == 1 ? Lane::Forward : Lane::Gradient, shard, Lane::Gradient, last});
    for (int other = 0; other < devices; ++other) {
      order.edges.push_back(
          {Lane::Forward, static_cast<std::uint16_t>(shards + other), Lane::Gradient, shard});
    }
  }
  return order;
}

PipelineOrder with_output_layer(const PipelineOrder& base, const ScheduleParams& params,
                                int barriers) {
  PipelineOrder order = Insertion(base, params, barriers).run();
  for (std::size_t d = 0; d < base.passes.size(); ++d) {
    ORRERY_CHECK(order.passes[d].size() ==
                     base.passes[d].size() + 2 * static_cast<std::size_t>(base.micro_batches),
                 "the output layer's barriers deadlock with the base order");
  }
  return order;
}

bool shares_output_layer(std::string_view schedule) {
  return schedule == "vocab-1" || schedule == "vocab-2" || schedule == "interlaced";
}

PipelineOrder vocabulary_base(const ScheduleParams& params, int extra) {
  if (params.chunks == 2) {
    return v_pattern(params, v_half_blocks(params.stages, extra), true);
  }
  PipelineOrder order = empty_order(params, loop_placement(params), 2);
  for (int i = 0; i < params.stages; ++i) {
    const auto pass = [i](PassKind kind, int k) {
      return Pass{kind, static_cast<std::uint16_t>(i), static_cast<std::uint32_t>(k)};
    };
    append_one_forward_one_backward(
        order.passes[static_cast<std::size_t>(i)], params.micro_batches, params.stages - i + extra,
        [&](int k) { return pass(PassKind::Forward, k); },
        [&](int k) { return pass(PassKind::Backward, k); });
  }
  return order;
}

std::string check_vocabulary(const ScheduleParams& params) {
  const bool known = params.chunks == 1 || params.chunks == 2;
  return first_broken(
      {check_basics(params), check_own_warm_up(params), check_looks(params, 1),
       known ? ""
             : fmt::format("one chunk (1f1b) or two (v-half) are required, not {}: set chunks "
                           "to 2",
                           params.chunks)});
}

}  // namespace orrery::sim
