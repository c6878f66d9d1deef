// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/output_insertion.hpp"

#include <algorithm>

#include "sim/orders/first_start.hpp"
#include "sim/orders/list_repetition.hpp"
#include "sim/orders/output_layer.hpp"

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
  // What a later look at a unit can depend on, when nothing starts before `now`.
  template <typename Add>
  bool visit(std::size_t unit, std::int64_t now, std::int64_t send, Add add) const {
    const Ends& ends = of_unit_[unit];
    const auto since = [&](std::int64_t end) {
      return std::max<std::int64_t>(end + send - now, -1);
    };
    return add(static_cast<std::int64_t>(ends.met)) &&
           add(static_cast<std::int64_t>(ends.last_device)) && add(since(ends.last)) &&
           add(since(ends.before));
  }
  void shift(std::size_t unit, std::size_t units, std::int64_t time) {
    Ends& to = of_unit_[unit + units];
    to = of_unit_[unit];
    to.last += time;
    to.before += time;
  }
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
        repetition_(lists_, ListRepetition::Puts::ByStart, base.slices),
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
      const int gradients = lists_.done(Lane::Gradient, 0);
      const std::int64_t now = states_[first_.first()].start;
      put(first_.first());
      if (lists_.done(Lane::Gradient, 0) > gradients) {
        skip(now);
      }
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

  // Units from the first one that some device has not passed yet to the last that some device has
  // begun, of what they meet at; gradients of slices go backward within a micro-batch.
  std::pair<std::size_t, std::size_t> open_units() const {
    const int gradients = lists_.done(Lane::Gradient, static_cast<int>(last_));
    auto first = static_cast<std::size_t>(gradients - gradients % base_.slices);
    for (const State& state : states_) {
      first = std::min<std::size_t>(first, state.t);
    }
    return {first, static_cast<std::size_t>(lists_.done(Lane::Forward, static_cast<int>(last_)))};
  }

  void skip(std::int64_t now) {
    const int unit = lists_.done(Lane::Gradient, 0);
    const auto own = [&](const auto& add) { return visit(unit, now, add); };
    if (repetition_.returns(unit, now, own)) {
      repeat(std::min(repetition_.most_times(), most_times_in_base()));
    } else if (repetition_.has_just_marked()) {
      marked_ = states_;
    }
  }

  template <typename Add>
  bool visit(int unit, std::int64_t now, const Add& add) const {
    const std::int64_t send = std::max(send_, send_last_);
    const auto [first, end] = open_units();
    for (std::size_t d = 0; d < devices_; ++d) {
      const State& state = states_[d];
      if (state.position == base_.passes[d].size()) {
        return false;
      }
      const Pass& next = base_.passes[d][state.position];
      if (!add(static_cast<std::int64_t>(next.kind)) || !add(next.virtual_stage) ||
          !add(std::int64_t{next.micro_batch} - unit)) {
        return false;
      }
    }
    for (std::size_t of = first; of < end; ++of) {
      if (!add(std::max<std::int64_t>(forward_end_[of] + send - now, -1)) ||
          !met_s_.visit(of, now, send, add) || !met_t_.visit(of, now, send, add)) {
        return false;
      }
    }
    return add(static_cast<std::int64_t>(end) - unit);
  }

  // How often the lists of the base repeat what they held since the mark.
  int most_times_in_base() const {
    std::size_t times = units_;
    for (std::size_t d = 0; d < devices_; ++d) {
      const std::vector<Pass>& list = base_.passes[d];
      const std::size_t length = states_[d].position - marked_[d].position;
      std::size_t at = states_[d].position;
      for (; at < list.size() && times > 0; ++at) {
        const Pass& before = list[at - length];
        if (list[at].kind != before.kind || list[at].virtual_stage != before.virtual_stage ||
            list[at].micro_batch !=
                before.micro_batch + static_cast<std::uint32_t>(repetition_.units())) {
          break;
        }
      }
      const std::size_t alike =
          at - states_[d].position;  // what comes after them is looked at, too
      times = std::min(times, alike > 0 ? (alike - 1) / length : 0);
    }
    return static_cast<int>(times);
  }

  void repeat(int times) {
    const auto units = static_cast<std::uint32_t>(repetition_.units() * times);
    const std::int64_t time = repetition_.time() * times;
    const auto [first, end] = open_units();
    repetition_.repeat(times);
    if (times == 0) {
      return;
    }
    for (std::size_t unit = end; unit-- > first;) {
      forward_end_[unit + units] = forward_end_[unit] + time;
      met_s_.shift(unit, units, time);
      met_t_.shift(unit, units, time);
    }
    for (std::size_t d = 0; d < devices_; ++d) {
      State& state = states_[d];
      state.position += (state.position - marked_[d].position) * static_cast<std::size_t>(times);
      state.s += units;
      state.t += units;
      state.ready = next_arrival(d);
    }
    for (std::size_t d = 0; d < devices_; ++d) {
      states_[d].start = FirstStart::kNever;
      first_.set(d, FirstStart::kNever);
      choose(d);
    }
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
            lane_in_lists(pass.kind), pass.micro_batch);
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
      if (next.virtual_stage == stage && next.micro_batch == unit &&
          lane_in_lists(next.kind) == lane) {
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
    if (lane_in_lists(pass.kind) == Lane::Gradient && pass.virtual_stage == last_) {
      const Meeting& meeting = barriers_ == 2 ? met_t_ : met_s_;  // its forward is in its list
      return meeting.met(pass.micro_batch) < devices_
                 ? FirstStart::kNever
                 : meeting.known(pass.micro_batch, d, send_last_);
    }
    return lists_.arrival_or_never(pass);
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
                       : lists_.arrival_or_never(shard_pass(PassKind::Backward, d, unit));
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
  ListRepetition repetition_;
  std::vector<State> states_;
  std::vector<State> marked_;  // when the repetition set its mark
  FirstStart first_;
  std::vector<std::int64_t> forward_end_;  // of the last stage, by unit
  Meeting met_s_;
  Meeting met_t_;
  std::int64_t send_last_ = 0;  // from the shards to the last stage
  std::int64_t send_ = 0;       // between shards
  bool same_sends_ = true;      // by all of them
};

}  // namespace

PipelineOrder insert_output_layer(const PipelineOrder& base, const ScheduleParams& params,
                                  int barriers) {
  return Insertion(base, params, barriers).run();
}

}  // namespace orrery::sim
