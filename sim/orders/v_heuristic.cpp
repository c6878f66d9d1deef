// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/v_heuristic.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "sim/orders/list_repetition.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

// Chunks of the weight gradients that a device owes, oldest first.
class Owed {
 public:
  explicit Owed(int most) { chunks_.reserve(static_cast<std::size_t>(most)); }
  void push(int chunk) { chunks_.push_back(static_cast<char>(chunk)); }
  int pop() { return chunks_[paid_++]; }
  int front() const { return chunks_[paid_]; }
  bool none() const { return paid_ == chunks_.size(); }
  // All of them, until `visit` is false.
  template <typename Visit>
  bool visit(Visit visit) const {
    return std::all_of(chunks_.begin() + static_cast<std::ptrdiff_t>(paid_), chunks_.end(), visit);
  }

 private:
  std::vector<char> chunks_;
  std::size_t paid_ = 0;
};

class VHeuristic {
 public:
  // `lists` at their beginning; `floors`, by device: the largest bubble is taken to be at least
  // that.
  VHeuristic(ListBuilder& lists, const ScheduleParams& params, std::int64_t cap, bool fill_forward,
             bool fill_backward, std::vector<std::int64_t> floors)
      : p_(params.stages),
        m_(params.micro_batches),
        cap_(cap),
        fill_forward_(fill_forward),
        fill_backward_(fill_backward),
        floors_(std::move(floors)),
        needed_(static_cast<std::size_t>(p_), std::numeric_limits<std::int64_t>::max()),
        chunk_of_gradient_(static_cast<std::size_t>(p_)),
        exceeded_(static_cast<std::size_t>(p_), 0),
        margins_(static_cast<std::size_t>(p_), std::numeric_limits<std::int64_t>::max()),
        lists_(lists),
        repetition_(lists, ListRepetition::Puts::ByList) {
    for (int i = 0; i < p_; ++i) {
      owed_.emplace_back(2 * m_);
      chunks_.push_back({chunk_of(i), chunk_of(2 * p_ - 1 - i)});
    }
  }

  // Ends early when some device is idle for `longest` or longer.
  void run(std::int64_t longest) {
    warm_up();
    while (decided_ < 4 * p_ * m_) {
      skip();
      if (lists_.max_bubble() >= longest) {
        break;
      }
      const int before = decided_;
      add_backwards();
      for (int i = 0; i < p_; ++i) {
        add_forward(i);
      }
      if (decided_ == before) {
        put_any();
      }
    }
    for (int i = 0; i < p_; ++i) {
      while (owes(i)) {
        put_weight_grad(i);
      }
    }
  }
  // Whether a flag that is set has changed something; without it the run is the same.
  bool fill_forward_mattered() const { return mattered_[0]; }
  bool fill_backward_mattered() const { return mattered_[1]; }
  // Whether a run with these floors may be another one.
  bool would_differ(const std::vector<std::int64_t>& floors) const {
    bool differs = false;
    for (std::size_t i = 0; i < floors.size(); ++i) {
      differs = differs || floors[i] >= needed_[i] || floors[i] < floors_[i];
    }
    return differs;
  }

 private:
  void skip() {
    const auto all_owed = [this](const auto& add) {
      return std::all_of(owed_.begin(), owed_.end(),
                         [&add](const Owed& owed) { return owed.visit(add) && add(-1); });
    };
    if (repetition_.returns(done(Lane::Gradient, 0, 0), 0, all_owed)) {
      const int times = repetition_.times_alike(exceeded_, floors_, margins_);
      repetition_.repeat(times);
      decided_ += 4 * p_ * repetition_.units() * times;
    }
    if (repetition_.has_just_marked()) {
      std::fill(exceeded_.begin(), exceeded_.end(), char{0});
      std::fill(margins_.begin(), margins_.end(), std::numeric_limits<std::int64_t>::max());
    }
  }

  struct Chunk {                                           // of a device
    std::array<std::size_t, ListBuilder::kLanes> lanes{};  // their numbers
    std::int64_t activation = 0;
    std::int64_t weight_grad = 0;  // how long it takes
  };
  Chunk chunk_of(int stage) const {
    return {{ListBuilder::number(Lane::Forward, stage), ListBuilder::number(Lane::Gradient, stage),
             ListBuilder::number(Lane::WeightGrad, stage)},
            lists_.activation(stage),
            lists_.duration(lists_.next(Lane::WeightGrad, stage))};
  }
  const Chunk& at(int chunk, int i) const {
    return chunks_[static_cast<std::size_t>(i)][static_cast<std::size_t>(chunk)];
  }
  std::size_t number(Lane lane, int chunk, int i) const {
    return at(chunk, i).lanes[static_cast<std::size_t>(lane)];
  }
  int done(Lane lane, int chunk, int i) const { return lists_.done(number(lane, chunk, i)); }
  bool is_decided(Lane lane, int chunk, int i, int unit) const {
    return done(lane, chunk, i) > unit;
  }
  std::int64_t activation(int chunk, int i) const { return at(chunk, i).activation; }
  // Room for the activation, and for the second chunk's of the oldest micro-batch that has not got
  // there: then it can always finish, and give room to the others.
  bool fits(int chunk, int i) const {
    const std::int64_t needed = activation(chunk, i);
    const std::int64_t waiting = done(Lane::Forward, 0, i) - done(Lane::Forward, 1, i);
    return (lists_.memory(i) + needed <= cap_) &
           ((chunk == 1) | ((waiting + 1) * needed + activation(1, i) <= cap_));
  }
  bool owes(int i) const { return !owed_[static_cast<std::size_t>(i)].none(); }

  std::int64_t arrival(Lane lane, int chunk, int i) const {
    return lists_.next_arrival(number(lane, chunk, i));
  }
  // Does nothing for a pass whose input is not decided yet or that does not fit: with unequal
  // stages the rules below can ask for one.
  bool put(Lane lane, int chunk, int i) {
    const std::int64_t arrives = arrival(lane, chunk, i);
    (void)show_arrival(lane, chunk, i, arrives);
    return put(lane, chunk, i, arrives);
  }
  bool put(Lane lane, int chunk, int i, std::int64_t arrives) {
    if (arrives == ListBuilder::kNever || (lane == Lane::Forward && !fits(chunk, i))) {
      return false;
    }
    lists_.put_next(number(lane, chunk, i), std::max(arrives, lists_.free(i)));
    if (lane == Lane::Gradient) {
      owed_[static_cast<std::size_t>(i)].push(chunk);
    }
    ++decided_;
    return true;
  }
  // Where the rules are stuck: the first pass that can go, gradients before forwards, deep chunks
  // before shallow ones, or the weight gradients that are in the way. There is one: the oldest
  // micro-batch can go on, see fits().
  void put_any() {
    for (const Lane lane : {Lane::Gradient, Lane::Forward}) {
      for (const int chunk : {1, 0}) {
        for (int i = 0; i < p_; ++i) {
          if (put(lane, chunk, i)) {
            return;
          }
        }
      }
    }
    for (int i = 0; i < p_; ++i) {
      while (owes(i)) {
        put_weight_grad(i);
      }
    }
  }
  void put_weight_grad(int i) {
    const int chunk = owed_[static_cast<std::size_t>(i)].pop();
    lists_.put_next(number(Lane::WeightGrad, chunk, i), lists_.free(i));
  }

  // Forwards down and up for the first micro-batch, more downward ones in the gaps, then each
  // device alternates chunks until it has as many forwards as the one before.
  void warm_up() {
    for (int i = 0; i < p_; ++i) {
      put(Lane::Forward, 0, i);
    }
    for (int i = p_ - 1; i >= 0; --i) {
      const std::int64_t arrives = arrival(Lane::Forward, 1, i);
      const std::int64_t takes = lists_.duration(lists_.next(Lane::Forward, i));
      bool more = arrives < ListBuilder::kNever;
      while (more && i + 1 < p_ && lists_.memory(i) + activation(0, i) * (2 + 2 * i) <= cap_ &&
             lists_.free(i) + takes <= arrives) {
        for (int d = 0; d <= i; ++d) {
          more = put(Lane::Forward, 0, d);
        }
      }
      put(Lane::Forward, 1, i);
    }
    const auto up = [&](int i) { return done(Lane::Forward, 1, i); };
    const auto all = [&](int i) { return done(Lane::Forward, 0, i) + up(i); };
    int chunk = 0;
    for (int i = 1; i < p_; ++i) {
      int stuck = 0;  // turns in a row, one a chunk, that could add nothing
      while (stuck < 2 && (all(i) < all(i - 1) || (up(i) <= up(i - 1) && up(i - 1) < m_))) {
        ++stuck;
        for (int d = p_ - 1; d >= i; --d) {
          stuck = put(Lane::Forward, chunk, d) ? 0 : stuck;
        }
        chunk = 1 - chunk;
      }
    }
  }

  // One gradient per device: of the first chunk, last to first device, or else of the second chunk.
  void add_backwards() {
    std::vector<int>& chunk = chunk_of_gradient_;
    for (int i = 0; i < p_; ++i) {
      const int first = done(Lane::Gradient, 0, i);
      const int second = done(Lane::Gradient, 1, i);
      const bool ready = i + 1 == p_ || second >= m_ || is_decided(Lane::Gradient, 0, i + 1, first);
      chunk[static_cast<std::size_t>(i)] = first < second && ready ? 0 : 1;
    }
    for (int i = p_ - 1; i >= 0; --i) {
      if (chunk[static_cast<std::size_t>(i)] == 0) {
        add_backward(0, i, true);
      }
    }
    for (int i = 0; i < p_; ++i) {
      if (chunk[static_cast<std::size_t>(i)] == 1) {
        add_backward(1, i, fill_backward_);
      }
    }
  }

  void add_backward(int chunk, int i, bool one_more) {
    const std::int64_t arrives = arrival(Lane::Gradient, chunk, i);
    if (arrives < ListBuilder::kNever) {
      fill_gap(Lane::Gradient, chunk, i, arrives, one_more);
      put(Lane::Gradient, chunk, i, arrives);
    }
  }

  void add_forward(int i) {
    const int lower = done(Lane::Forward, 0, i);
    const int upper = done(Lane::Forward, 1, i);
    if (upper >= m_) {
      return;
    }
    const bool may_return = upper < lower;
    const bool returns =
        may_return & ((i + 1 == p_) | is_decided(Lane::Forward, 1, std::min(i + 1, p_ - 1), upper));
    const bool may_begin =
        (lower < m_) & ((i == 0) | is_decided(Lane::Forward, 0, std::max(i - 1, 0), lower));
    if (may_return & !returns & !may_begin) {
      return;
    }
    const int chunk = returns ? 1 : 0;
    while (lists_.memory(i) + activation(chunk, i) > cap_ && owes(i)) {
      put_weight_grad(i);
    }
    const std::int64_t arrives = arrival(Lane::Forward, chunk, i);
    if (arrives < ListBuilder::kNever) {
      fill_gap(Lane::Forward, chunk, i, arrives, fill_forward_);
      put(Lane::Forward, chunk, i, arrives);
    }
  }

  // Whether another device sends the input.
  bool show_arrival(Lane lane, int chunk, int i, std::int64_t arrives) {
    const bool from_next = (lane == Lane::Forward) != (chunk == 0);
    if (from_next ? i + 1 == p_ : i == 0) {
      return false;
    }
    repetition_.show_arrival(i, from_next, arrives);
    return true;
  }

  // Weight gradients until the input of a pass arrives, and one more where the gap is too large.
  void fill_gap(Lane lane, int chunk, int i, std::int64_t arrives, bool one_more) {
    if (!show_arrival(lane, chunk, i, arrives)) {
      return;  // no other device sends the input
    }
    const auto weight_grad = [&] {
      const int oldest = owed_[static_cast<std::size_t>(i)].front();
      return at(oldest, i).weight_grad;
    };
    while (owes(i) && arrives >= lists_.free(i) + weight_grad()) {
      put_weight_grad(i);
    }
    const std::int64_t gap = arrives - lists_.free(i);
    if (!owes(i) || !one_more || gap <= 0) {
      return;
    }
    const std::int64_t allowed = largest_bubble(i) - lists_.bubble(i);
    std::int64_t& margin = margins_[static_cast<std::size_t>(i)];
    if (gap <= allowed) {
      margin = std::min(margin, allowed - gap);
    } else {
      exceeded_[static_cast<std::size_t>(i)] = 1;
      std::int64_t& needed = needed_[static_cast<std::size_t>(i)];
      needed = std::min(needed, gap + lists_.bubble(i));
      if (lane == Lane::Forward || chunk == 1) {  // the others always fill
        mattered_[lane == Lane::Forward ? 0 : 1] = true;
      }
      put_weight_grad(i);
    }
  }

  std::int64_t largest_bubble(int i) const {
    return std::max(lists_.max_bubble(), floors_[static_cast<std::size_t>(i)]);
  }

  int p_;
  int m_;
  std::int64_t cap_;
  bool fill_forward_;
  bool fill_backward_;
  std::vector<std::int64_t> floors_;          // by device
  std::vector<std::int64_t> needed_;          // by device: the least floor that keeps off a fill
  bool mattered_[2] = {false, false};         // the flags for forwards and gradients
  int decided_ = 0;                           // forwards and gradients in the lists
  std::vector<int> chunk_of_gradient_;        // by device, of the next one
  std::vector<std::array<Chunk, 2>> chunks_;  // by device
  std::vector<Owed> owed_;                    // weight gradients, per device
  std::vector<char> exceeded_;                // by device, since the last mark: a gap the allowance
  std::vector<std::int64_t> margins_;  // by device, since then: least that a gap fell short of it
  ListBuilder& lists_;
  ListRepetition repetition_;
};

}  // namespace

PipelineOrder automatic_v(const ScheduleParams& params, std::int64_t cap) {
  const auto bare = [&params] {
    return ListBuilder(one_chain(params, v_placement(params.stages), 3), params, true,
                       ListBuilder::Asks::Next);
  };
  ListBuilder best = bare();
  ListBuilder lists = bare();
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  bool backward_mattered = false;  // in a run with that flag
  for (const bool fill_backward : {true, false}) {
    bool forward_mattered = true;
    for (const bool fill_forward : {true, false}) {
      if ((!fill_forward && !forward_mattered) || (!fill_backward && !backward_mattered)) {
        continue;  // the same again
      }
      if (fill_forward) {
        forward_mattered = false;
      }
      std::vector<std::int64_t> floors(static_cast<std::size_t>(params.stages), 0);
      std::int64_t before = std::numeric_limits<std::int64_t>::max();
      while (true) {  // gaps of a device may grow to the largest bubble of the run before
        lists.restart();
        VHeuristic heuristic(lists, params, cap, fill_forward, fill_backward, floors);
        heuristic.run(before);
        forward_mattered = forward_mattered || heuristic.fill_forward_mattered();
        backward_mattered = backward_mattered || heuristic.fill_backward_mattered();
        const std::int64_t bubble = lists.max_bubble();
        for (int i = 0; i < params.stages; ++i) {
          floors[static_cast<std::size_t>(i)] = bubble - lists.bubble(i);
        }
        if (bubble < least) {
          least = bubble;
          std::swap(best, lists);
        }
        if (bubble >= before || (!params.decides_all && !heuristic.would_differ(floors))) {
          break;  // the floors do not help any more
        }
        before = bubble;
      }
    }
  }
  return best.take();
}

}  // namespace orrery::sim
