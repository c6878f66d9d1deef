// SPDX-License-Identifier: Apache-2.0
#include "sim/output_layer.hpp"

#include <fmt/format.h>

#include <algorithm>

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
  std::size_t add(std::size_t unit, std::size_t device, std::int64_t end) {
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
  std::size_t met(std::size_t unit) const { return of_unit_[unit].met; }
  // When a device knows of all, with `send` from the others.
  std::int64_t known(std::size_t unit, std::size_t device, std::int64_t send) const {
    const Ends& ends = of_unit_[unit];
    return ends.last_device == device ? std::max(ends.last, ends.before + send) : ends.last + send;
  }

 private:
  struct Ends {
    std::size_t met = 0;
    std::size_t last_device = 0;
    std::int64_t last = -1;
    std::int64_t before = -1;
  };
  std::vector<Ends> of_unit_;
};

// Passes in the order of their starts. What a device runs next is looked at again when its own list
// or something that it waits for has gone on: a neighbour's pass, the last forward of a unit, or a
// meeting of all devices.
class Insertion {
 public:
  Insertion(const PipelineOrder& base, const ScheduleParams& params, int barriers)
      : base_(base),
        barriers_(barriers),
        devices_(base.passes.size()),
        units_(static_cast<std::size_t>(base.micro_batches)),
        last_(static_cast<std::size_t>(base.num_virtual_stages) - 1),
        last_device_(base.device_of.back()),
        skeleton_(output_layer_skeleton(base, barriers)),
        params_(with_stage_times(skeleton_, params)),
        lists_(skeleton_, params_, splits(base)),
        states_(devices_),
        first_(devices_),
        forward_end_(units_, FirstStart::kNever),
        met_s_(base.micro_batches),
        met_t_(base.micro_batches) {
    const auto send_of = [&](std::size_t stage) { return params_.times_of(stage).send.ps; };
    send_last_ = send_of(last_);
    send_ = send_of(last_ + 1);
    for (std::size_t d = 1; d < devices_; ++d) {
      same_sends_ = same_sends_ && send_of(last_ + 1 + d) == send_;
    }
  }

  PipelineOrder run() {
    for (std::size_t d = 0; d < devices_; ++d) {
      states_[d].ready = next_arrival(d);
      choose(d);
    }
    while (!first_.none()) {
      put(first_.first());
    }
    return lists_.take();
  }

 private:
  enum class Source : std::uint8_t { Base, Shard, Gradient };
  struct State {               // of a device
    std::size_t position = 0;  // in its list of the base
    std::int64_t ready = 0;    // of the pass there; kNever: not known yet
    std::uint32_t s = 0;       // passes run
    std::uint32_t t = 0;
    Source next = Source::Base;
    std::int64_t start = FirstStart::kNever;
  };

  static bool splits(const PipelineOrder& base) {
    for (const Pass& pass : base.passes.front()) {
      if (pass.kind == PassKind::WeightGrad) {
        return true;
      }
    }
    return false;
  }

  Pass shard_pass(PassKind kind, std::size_t d, std::uint32_t unit) const {
    return {kind, static_cast<std::uint16_t>(last_ + 1 + d), unit};
  }

  void put(std::size_t d) {
    State& state = states_[d];
    const std::int64_t start = state.start;
    switch (state.next) {
      case Source::Base:
        put_base(d, base_.passes[d][state.position++], start);
        break;
      case Source::Shard: {
        const std::uint32_t unit = state.s++;
        lists_.put(shard_pass(PassKind::Forward, d, unit), start);
        if (met_s_.add(unit, d, lists_.free(static_cast<int>(d))) == devices_) {
          wait_no_more(barriers_ == 1, unit);
          choose_where([unit](const State& of) { return of.t == unit; });
        }
        break;
      }
      case Source::Gradient: {
        const std::uint32_t unit = state.t++;
        lists_.put(shard_pass(PassKind::Backward, d, unit), start);
        if (met_t_.add(unit, d, lists_.free(static_cast<int>(d))) == devices_) {
          wait_no_more(barriers_ == 2, unit);
        }
        break;
      }
    }
    choose(d);
  }

  void put_base(std::size_t d, const Pass& pass, std::int64_t start) {
    lists_.put(pass, start);
    states_[d].ready = next_arrival(d);
    if (pass.kind == PassKind::WeightGrad) {
      return;
    }
    const bool forward = pass.kind == PassKind::Forward;
    if (forward && pass.virtual_stage == last_) {
      forward_end_[pass.micro_batch] = lists_.free(static_cast<int>(d));
      choose_where([&pass](const State& of) { return of.s == pass.micro_batch; });
    } else if (forward || pass.virtual_stage > 0) {
      go_on(static_cast<std::size_t>(pass.virtual_stage) + (forward ? 1 : 0) - (forward ? 0 : 1),
            lane_of(pass.kind), pass.micro_batch);
    }
  }

  // The last stage's gradient has been waiting for a meeting.
  void wait_no_more(bool has, std::uint32_t unit) {
    if (has) {
      go_on(last_, Lane::Gradient, unit);
    }
  }

  // The device of a stage goes on if its next pass of the base is that one.
  void go_on(std::size_t stage, Lane lane, std::uint32_t unit) {
    const std::size_t d = base_.device_of[stage];
    State& state = states_[d];
    if (state.position < base_.passes[d].size()) {
      const Pass& next = base_.passes[d][state.position];
      if (next.virtual_stage == stage && next.micro_batch == unit && lane_of(next.kind) == lane) {
        state.ready = next_arrival(d);
        choose(d);
      }
    }
  }

  std::int64_t next_arrival(std::size_t d) const {
    const std::size_t position = states_[d].position;
    if (position == base_.passes[d].size()) {
      return FirstStart::kNever;
    }
    const Pass& pass = base_.passes[d][position];
    if (lane_of(pass.kind) == Lane::Gradient && pass.virtual_stage == last_) {
      const Meeting& meeting = barriers_ == 2 ? met_t_ : met_s_;  // its forward is in its list
      return meeting.met(pass.micro_batch) < devices_
                 ? FirstStart::kNever
                 : meeting.known(pass.micro_batch, d, send_last_);
    }
    return lists_.arrival(pass).value_or(FirstStart::kNever);
  }

  template <typename Concerns>
  void choose_where(Concerns concerns) {
    for (std::size_t d = 0; d < devices_; ++d) {
      if (concerns(states_[d])) {
        choose(d);
      }
    }
  }

  // The pass that can start first; S and T before the layers' own when both can, T with one barrier
  // only where the next S can run, too, and then in any case.
  void choose(std::size_t d) {
    State& state = states_[d];
    const std::int64_t before = state.start;
    const std::int64_t free = lists_.free(static_cast<int>(d));
    state.start = FirstStart::kNever;
    const auto offer = [&](std::int64_t arrives, Source source) {
      const std::int64_t start = std::max(arrives, free);
      if (start < state.start) {
        state.start = start;
        state.next = source;
      }
    };
    const bool owes_t = state.t < state.s;
    const std::int64_t forward = state.s < units_ ? forward_end_[state.s] : FirstStart::kNever;
    if (owes_t && barriers_ == 2) {
      offer(arrival_of_t(d, state.t), Source::Gradient);
    }
    if (!owes_t && forward != FirstStart::kNever) {
      offer(forward + (d == last_device_ ? 0 : send_last_), Source::Shard);
    }
    if (!owes_t || barriers_ == 2 || forward == FirstStart::kNever) {
      offer(state.ready, Source::Base);
    }
    if (owes_t && barriers_ == 1) {
      offer(arrival_of_t(d, state.t), Source::Gradient);
    }
    if (state.start != before) {
      first_.set(d, state.start);
    }
  }

  std::int64_t arrival_of_t(std::size_t d, std::uint32_t unit) const {
    if (met_s_.met(unit) < devices_) {
      return FirstStart::kNever;
    }
    return same_sends_ ? met_s_.known(unit, d, send_)
                       : *lists_.arrival(shard_pass(PassKind::Backward, d, unit));
  }

  const PipelineOrder& base_;
  int barriers_;
  std::size_t devices_;
  std::size_t units_;
  std::size_t last_;  // virtual stage of the base; the shards follow
  std::size_t last_device_;
  PipelineOrder skeleton_;
  ScheduleParams params_;
  ListBuilder lists_;
  std::vector<State> states_;
  FirstStart first_;
  std::vector<std::int64_t> forward_end_;  // of the last stage, by unit
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
