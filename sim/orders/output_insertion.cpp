// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/output_insertion.hpp"

#include <algorithm>
#include <utility>

#include "sim/orders/list_repetition.hpp"
#include "sim/orders/meeting.hpp"
#include "sim/orders/output_layer.hpp"

namespace orrery::sim {
namespace {

// On every device the passes of the base, in their order, and its S and T, by turns, go where they
// start first. That depends on what other devices have run before. In rounds: what the layers run
// in one reaches other devices only after it, so that each goes on by itself. Only a meeting may be
// over within a round: who has to know waits until the others have met or come to the end.
class Insertion {
 public:
  // `skeleton`: the layers and the shards, without passes.
  Insertion(const PipelineOrder& base, PipelineOrder skeleton, const ScheduleParams& params,
            int barriers)
      : base_(base),
        barriers_(barriers),
        devices_(base.passes.size()),
        units_(static_cast<std::size_t>(base.micro_batches)),
        last_(static_cast<std::size_t>(base.num_virtual_stages) - 1),
        last_device_(base.device_of.back()),
        params_(with_stage_times(skeleton, params)),
        lists_(std::move(skeleton), params_, splits(base)),
        repetition_(lists_, ListRepetition::Puts::ByStart, base.slices),
        states_(devices_),
        forward_end_(units_ + 1, kNever),
        met_s_(base.micro_batches, devices_),
        met_t_(base.micro_batches, devices_),
        last_forward_(params_.times_of(last_).forward.ps),
        send_last_(params_.times_of(last_).send.ps),
        send_(params_.times_of(last_ + 1).send.ps),
        reach_(std::min(lists_.soonest_reach_in_chains(), last_forward_ + send_last_)) {
    turns_ = {last_device_};
    for (std::size_t d = 0; d < devices_; ++d) {
      if (d != last_device_) {
        turns_.push_back(d);
      }
      same_sends_ = same_sends_ && params_.times_of(last_ + 1 + d).send.ps == send_;
      states_[d].next = base.passes[d].data();
      states_[d].end = states_[d].next + base.passes[d].size();
    }
  }

  PipelineOrder run() {
    for (std::int64_t now = 0; now < kNever;) {
      run_round(now);
      now = has_run_ ? end_ : first_;
      if (looks_) {
        now = skip(now);
      }
    }
    return lists_.take();
  }

 private:
  static constexpr std::int64_t kNever = ListBuilder::kNever;
  struct State {                     // of a device
    const Pass* next = nullptr;      // in its list of the base
    const Pass* end = nullptr;       // of that
    std::int64_t ready = kNever;     // of the pass there; kNever: not known yet
    std::int64_t inserted = kNever;  // the same of its next S or T
    std::uint32_t s = 0;             // passes run
    std::uint32_t t = 0;
    bool owes_t() const { return t < s; }
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

  // When to go on.
  std::int64_t skip(std::int64_t now) {
    const int unit = lists_.done(Lane::Gradient, 0);
    const auto own = [&](const auto& add) { return visit(unit, now, add); };
    if (repetition_.returns(unit, now, own)) {
      const int times = std::min(repetition_.most_times(), most_times_in_base());
      repeat(times);
      return now + repetition_.time() * times;
    }
    if (repetition_.has_just_marked()) {
      marked_ = states_;
    }
    return now;
  }

  template <typename Add>
  bool visit(int unit, std::int64_t now, const Add& add) const {
    const std::int64_t send = std::max(send_, send_last_);
    const auto [first, end] = open_units();
    for (std::size_t d = 0; d < devices_; ++d) {
      const State& state = states_[d];
      if (state.next == state.end || !add(static_cast<std::int64_t>(state.next->kind)) ||
          !add(state.next->virtual_stage) || !add(std::int64_t{state.next->micro_batch} - unit)) {
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
    std::ptrdiff_t times = base_.micro_batches;
    const auto units = static_cast<std::uint32_t>(repetition_.units());
    for (std::size_t d = 0; d < devices_; ++d) {
      const State& state = states_[d];
      const std::ptrdiff_t length = state.next - marked_[d].next;
      const Pass* at = state.next;
      while (at != state.end && times > 0 && at->kind == at[-length].kind &&
             at->virtual_stage == at[-length].virtual_stage &&
             at->micro_batch == at[-length].micro_batch + units) {
        ++at;
      }
      const std::ptrdiff_t alike = at - state.next;  // what comes after them is looked at, too
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
    }
    met_s_.shift(first, end, units, time);
    met_t_.shift(first, end, units, time);
    for (std::size_t d = 0; d < devices_; ++d) {
      State& state = states_[d];
      state.next += (state.next - marked_[d].next) * times;
      state.s += units;
      state.t += units;
      state.ready = state.inserted = kNever;
    }
  }

  // What starts from `now` on, before what runs then can reach other devices.
  void run_round(std::int64_t now) {
    end_ = now < kNever - reach_ ? now + std::max<std::int64_t>(reach_, 1) : kNever;
    no_s_ = no_t_ = units_;
    looks_ = has_run_ = false;
    while (run_devices()) {
    }
  }

  // Whether some may go on. Others look at the forwards of the last stage: its device comes first,
  // and of what devices meet at all know at once.
  bool run_devices() {
    next_s_ = met_s_.next();
    next_t_ = met_t_.next();
    const bool had_run = std::exchange(has_run_, false);
    first_ = kNever;
    waits_ = false;
    bool last_waits = false;
    for (const std::size_t d : turns_) {
      run_device(d);
      last_waits = last_waits || (waits_ && d == last_device_);
    }
    if (waits_ && met_s_.next() == next_s_ && met_t_.next() == next_t_) {
      if (last_waits && no_t_ != next_t_) {  // all others are at the end
        no_t_ = next_t_;
      } else {
        no_s_ = next_s_;
      }
    }
    const bool reaches = reach_ == 0 && has_run_;
    has_run_ = has_run_ || had_run;
    return waits_ || reaches;
  }

  // As far as it can within the round.
  void run_device(std::size_t d) {
    State& state = states_[d];
    while (true) {
      const std::int64_t free = lists_.free(static_cast<int>(d));
      if (free >= end_) {
        first_ = std::min(first_, free);
        return;
      }
      if (state.ready == kNever || state.inserted == kNever) {
        state.ready = state.ready == kNever ? next_arrival(d) : state.ready;
        state.inserted = state.inserted == kNever ? next_inserted(d) : state.inserted;
        if (waits_for_others(d)) {
          waits_ = true;
          return;
        }
      }
      const std::int64_t own = std::max(state.ready, free);
      const std::int64_t inserted = std::max(state.inserted, free);
      const bool inserts = inserts_first(d, own, inserted);
      const std::int64_t start = inserts ? inserted : own;
      if (start >= end_) {
        first_ = std::min(first_, start);
        return;
      }
      const Pass pass = inserts ? inserted_pass(d) : *state.next;
      lists_.put(pass, start);
      has_run_ = true;
      if (inserts) {
        go_on_inserting(d);
      } else {
        go_on(d, pass, start);
      }
    }
  }

  // Whether what comes next depends on a meeting that this device has been at and that may be over
  // within the round.
  bool waits_for_others(std::size_t d) const {
    const State& state = states_[d];
    if (state.owes_t() && state.t >= next_s_ && state.t != no_s_) {
      return true;
    }
    return barriers_ == 2 && d == last_device_ && state.ready == kNever &&
           state.next != state.end && is_last_gradient(*state.next) &&
           state.next->micro_batch < state.t && state.next->micro_batch >= next_t_ &&
           next_t_ != no_t_;
  }

  // S and T come before the layers' own where both can start, T with one barrier only where the
  // next S can run, too, and then in any case.
  bool inserts_first(std::size_t d, std::int64_t own, std::int64_t inserted) const {
    const State& state = states_[d];
    if (barriers_ == 2 || !state.owes_t()) {
      return inserted <= own;
    }
    const std::int64_t begun = forward_end_[state.s] - last_forward_;
    // Of what starts at once, that of the first device does.
    return inserted < own || begun < own || (begun == own && last_device_ <= d);
  }

  Pass inserted_pass(std::size_t d) const {
    const State& state = states_[d];
    const PassKind kind = state.owes_t() ? PassKind::Backward : PassKind::Forward;
    return {kind, static_cast<std::uint16_t>(last_ + 1 + d), state.t};
  }

  void go_on_inserting(std::size_t d) {
    State& state = states_[d];
    const std::int64_t end = lists_.free(static_cast<int>(d));
    if (state.owes_t()) {
      met_t_.add(state.t++, d, end);
    } else {
      met_s_.add(state.s++, d, end);
    }
    state.inserted = kNever;  // known once it is looked at
  }

  void go_on(std::size_t d, const Pass& pass, std::int64_t start) {
    ++states_[d].next;
    states_[d].ready = kNever;
    if (pass.kind == PassKind::Forward && pass.virtual_stage == last_) {
      forward_end_[pass.micro_batch] = lists_.free(static_cast<int>(d));
    } else if (pass.virtual_stage == 0 && lane_in_lists(pass.kind) == Lane::Gradient &&
               lists_.done(Lane::Gradient, 0) % base_.slices == 0) {
      looks_ = true;  // at the same place of every period
      end_ = std::min(end_, start + 1);
    }
  }

  bool is_last_gradient(const Pass& pass) const {
    return pass.virtual_stage == last_ && lane_in_lists(pass.kind) == Lane::Gradient;
  }

  std::int64_t next_arrival(std::size_t d) const {
    const State& state = states_[d];
    if (state.next == state.end) {
      return kNever;
    }
    if (is_last_gradient(*state.next)) {  // its forward is in its list
      const std::uint32_t unit = state.next->micro_batch;
      const Meeting& meeting = barriers_ == 2 ? met_t_ : met_s_;
      return unit < (barriers_ == 2 ? next_t_ : next_s_) ? meeting.known(unit, d, send_last_)
                                                         : kNever;
    }
    return lists_.arrival_or_never(*state.next);
  }

  std::int64_t next_inserted(std::size_t d) const {
    const State& state = states_[d];
    if (!state.owes_t()) {
      const std::int64_t forward = forward_end_[state.s];
      return forward == kNever ? kNever : forward + (d == last_device_ ? 0 : send_last_);
    }
    if (state.t >= next_s_) {
      return kNever;
    }
    return same_sends_ ? met_s_.known(state.t, d, send_)
                       : lists_.arrival_or_never(inserted_pass(d));
  }

  const PipelineOrder& base_;
  int barriers_;
  std::size_t devices_;
  std::size_t units_;
  std::size_t last_;  // virtual stage of the base; the shards follow
  std::size_t last_device_;
  ScheduleParams params_;
  ListBuilder lists_;
  ListRepetition repetition_;
  std::vector<State> states_;
  std::vector<std::size_t> turns_;
  std::vector<State> marked_;              // when the repetition set its mark
  std::vector<std::int64_t> forward_end_;  // of the last stage, by unit
  Meeting met_s_;
  Meeting met_t_;
  std::int64_t last_forward_;  // how long one of the last stage takes
  std::int64_t send_last_;     // from the shards to the last stage
  std::int64_t send_;          // between shards
  bool same_sends_ = true;     // by all of them
  std::int64_t reach_;         // from the start of a pass of the layers to other devices
  // Of a round:
  std::int64_t end_ = 0;
  std::int64_t first_ = 0;  // start of what comes after it, if nothing has run
  std::size_t next_s_ = 0;  // units at which not all are known to have met
  std::size_t next_t_ = 0;
  std::size_t no_s_ = 0;  // units at which the devices do not meet within it
  std::size_t no_t_ = 0;
  bool has_run_ = false;
  bool waits_ = false;  // some device
  bool looks_ = false;  // for repetitions after it
};

}  // namespace

PipelineOrder insert_output_layer(const PipelineOrder& base, const ScheduleParams& params,
                                  int barriers) {
  PipelineOrder skeleton = output_layer_skeleton(base, barriers);
  // With room for the input layer's; `| 8` keeps lists apart in the cache, as ListBuilder does.
  for (std::size_t d = 0; d < base.passes.size(); ++d) {
    skeleton.passes[d].reserve(base.passes[d].size() +
                               (4 * static_cast<std::size_t>(base.micro_batches) | 8));
  }
  return Insertion(base, std::move(skeleton), params, barriers).run();
}

}  // namespace orrery::sim
