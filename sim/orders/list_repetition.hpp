// SPDX-License-Identifier: Apache-2.0
// Skips what a run of ListBuilder repeats. Such a run decides by differences: between times,
// between counts of units, in memory. Where all that it can still look at is as it was at a mark,
// but k units and a time T later, it goes on as it did there, and so on until a lane comes to its
// last units: the lists since the mark are copied. Where passes are put in an order that does not
// come from times, T may be another on every device, as of unequal stages of which none waits for
// the others yet: that goes on until one does. Exact, not an estimate. What a policy or
// heuristic looks at beside the ListBuilder it shows itself. One chain, or chains of equally many
// units whose edges the caller shows; gradients of slices go backward within a micro-batch. A look
// takes O(stages + units in flight) at most, far less where the state differs early.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/orders/list_builder.hpp"

namespace orrery::sim {

class ListRepetition {
 public:
  // ByStart: passes are put so that at a look nothing is to come that starts before `now`, and what
  // was over by then is alike. ByList: in an order of the caller's, who compares the times at which
  // devices are free, shows all that arrives from other devices, and asks times_alike().
  enum class Puts { ByStart, ByList };

  // Units shift by multiples of `period`, slices by whole micro-batches; 0: never.
  ListRepetition(ListBuilder& lists, Puts puts, int period = 1)
      : lists_(lists), by_start_(puts == Puts::ByStart), period_(period) {
    slacks_.assign(2 * lists.devices_.size(), kNoLook);
    off_ = period_ == 0 || lists.decides_all_ || !lists.equal_units();
  }

  // ByList: an input from the device beside, before a pass is put for which it may have to wait.
  void show_arrival(int device, bool from_next, std::int64_t arrives) {
    std::int64_t& slack = slacks_[2 * static_cast<std::size_t>(device) + (from_next ? 1 : 0)];
    slack = std::min(slack, lists_.free(device) - arrives);
  }

  // Whether the run is where it was at the mark. `unit` and, by start, `now` are what units and
  // times are counted from; own(add) gives add() each number that decisions look at and ListBuilder
  // lacks, and stops when add() is false. Sets marks by itself, further and further apart.
  template <typename Own>
  bool returns(int unit, std::int64_t now, Own own) {
    has_just_marked_ = false;
    if (off_ || unit % period_ != 0 || unit == looked_at_) {
      return false;
    }
    looked_at_ = unit;
    ++looks_;
    if (has_mark_) {
      std::size_t at = 0;
      const auto same = [&](std::int64_t value) {
        return at < state_.size() && state_[at++] == value;
      };
      if (visit(unit, now, same) && own(same) && at == state_.size()) {
        units_ = unit - unit_;
        time_ = now - now_;
        set_shifts();
        return true;
      }
    }
    if (looks_ >= next_mark_) {
      mark(unit, now);
      state_.clear();
      const auto add = [&](std::int64_t value) {
        state_.push_back(value);
        return true;
      };
      (void)(visit(unit, now, add) && own(add));
    }
    return false;
  }
  // Whether that, or the copies since, set a mark.
  bool has_just_marked() const { return has_just_marked_; }

  // From the mark to here; how often that can follow until some lane has no next unit.
  int units() const { return units_; }
  std::int64_t time() const { return time_; }
  int most_times() const { return times_left(units_); }

  // How often waiting or not, and the comparisons of gaps with max(max_bubble, floor of the device)
  // - bubble of the device, come out again as they did since the mark. `exceeded`, by device, says
  // which had one that the gap won; `margins` by how little a gap lost. Without floors they are 0.
  int times_alike(const std::vector<char>& exceeded, const std::vector<std::int64_t>& floors,
                  const std::vector<std::int64_t>& margins) const;

  // At most most_times(); with fewer, what follows may repeat again.
  void repeat(int times);

 private:
  static constexpr std::int64_t kNoLook = std::numeric_limits<std::int64_t>::max();
  std::size_t device_of(int stage) const {
    return lists_.order_.device_of[static_cast<std::size_t>(stage)];
  }
  bool has_weight_grads(int stage) const {
    return lists_.lanes_[ListBuilder::number(Lane::WeightGrad, stage)].units > 0;
  }
  // Whether the lane goes backward within a micro-batch, and the unit of its k-th pass.
  bool is_backward(Lane lane, int stage) const {
    return lists_.order_.slices > 1 && lane != Lane::Forward &&
           lists_.inputs_.role(static_cast<std::size_t>(stage)) == Role::Layers;
  }
  int unit_of(Lane lane, int stage, int k) const {
    const int n = lists_.order_.slices;
    return is_backward(lane, stage) ? k / n * n + n - 1 - k % n : k;
  }
  // The first unit that the lane has not had.
  int first_left(Lane lane, int stage) const {
    const int done = lists_.done(lane, stage);
    return is_backward(lane, stage) ? done - done % lists_.order_.slices : done;
  }
  int times_left(int units) const;
  void set_shifts();
  std::int64_t times_waiting_alike() const;
  std::int64_t times_allowed_alike(std::int64_t times, std::size_t device,
                                   const std::vector<char>& exceeded,
                                   const std::vector<std::int64_t>& floors,
                                   const std::vector<std::int64_t>& margins) const;
  void mark(int unit, std::int64_t now);
  void copy(int times);
  void shift_ends(int units, int times);

  template <typename Add>
  bool visit(int unit, std::int64_t now, Add add) const;
  // Results of a stage that one beside it has not taken yet: when they arrive, from when that is
  // free; or when they were there, from when their own device is free.
  template <typename Add>
  bool visit_pending(Lane lane, int from, int to, std::int64_t send, std::int64_t now,
                     Add add) const;

  ListBuilder& lists_;
  bool by_start_;
  int period_;
  bool off_ = false;
  bool has_mark_ = false;
  bool has_just_marked_ = false;
  int looked_at_ = -1;  // unit
  int looks_ = 0;
  int first_look_ = 0;  // since the last copies
  int next_mark_ = 1;
  int unit_ = 0;  // at the mark
  std::int64_t now_ = 0;
  std::vector<std::int64_t> state_;
  std::vector<std::size_t> listed_;
  std::vector<ListBuilder::Device> devices_;
  std::int64_t max_bubble_ = 0;
  int bubble_holders_ = 0;
  std::vector<std::int64_t> slacks_;  // since then, by device and the one beside: least that an
                                      // input came too early; negative: it was waited for
  int units_ = 0;
  std::int64_t time_ = 0;
  std::vector<std::int64_t> shifts_;  // of the times on a device
};

template <typename Add>
bool ListRepetition::visit(int unit, std::int64_t now, Add add) const {
  for (std::size_t d = 0; d < lists_.devices_.size(); ++d) {
    const ListBuilder::Device& device = lists_.devices_[d];
    const std::vector<Pass>& list = lists_.order_.passes[d];
    if ((by_start_ && !add(std::max(device.free, now) - now)) || !add(device.memory) ||
        list.empty() || !add(static_cast<std::int64_t>(list.back().kind))) {
      return false;
    }
  }
  for (int s = 0; s < lists_.order_.num_virtual_stages; ++s) {
    const ListBuilder::Facts& facts = lists_.facts_[static_cast<std::size_t>(s)];
    if (!add(lists_.done(Lane::Forward, s) - unit) || !add(lists_.done(Lane::Gradient, s) - unit) ||
        (has_weight_grads(s) && !add(lists_.done(Lane::WeightGrad, s) - unit))) {
      return false;
    }
    if (!lists_.inputs_.is_last(static_cast<std::size_t>(s)) && device_of(s) != device_of(s + 1) &&
        (!visit_pending(Lane::Forward, s, s + 1, facts.send_after, now, add) ||
         !visit_pending(Lane::Gradient, s + 1, s, facts.send_after, now, add))) {
      return false;
    }
  }
  return true;
}

template <typename Add>
bool ListRepetition::visit_pending(Lane lane, int from, int to, std::int64_t send, std::int64_t now,
                                   Add add) const {
  const std::int64_t free = lists_.free(static_cast<int>(device_of(by_start_ ? to : from)));
  const std::int64_t until = by_start_ ? std::max(free, now) : free;
  for (int k = lists_.done(lane, to); k < lists_.done(lane, from); ++k) {
    const std::int64_t end = lists_.end_of(lane, from, unit_of(lane, from, k));
    if (!add(by_start_ ? std::max<std::int64_t>(end + send - until, -1) : end - until)) {
      return false;
    }
  }
  return true;
}

}  // namespace orrery::sim
