// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/zero_bubble.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "sim/orders/list_repetition.hpp"
#include "sim/orders/post_validation.hpp"

namespace orrery::sim {
namespace {

// Flags of the heuristic.
constexpr unsigned kIdleFirst = 4;       // no warm-up forward that would delay the first gradient
constexpr unsigned kPreferBackward = 2;  // leave out a forward that would delay the next backward
constexpr unsigned kFillMore = 1;        // fill a gap with a weight gradient even if it delays
constexpr unsigned kAllFlags = 7;

class Heuristic {
 public:
  // `lists` at their beginning.
  Heuristic(ListBuilder& lists, const ScheduleParams& params, std::int64_t cap, unsigned flags)
      : m_(params.micro_batches),
        cap_(cap),
        flags_(flags),
        decides_all_(params.decides_all),
        wanted_(static_cast<std::size_t>(params.stages), 0),
        exceeds_(static_cast<std::size_t>(params.stages), 0),
        margins_(static_cast<std::size_t>(params.stages), std::numeric_limits<std::int64_t>::max()),
        lists_(lists),
        repetition_(lists_, ListRepetition::Puts::ByList) {
    for (int i = 0; i < params.stages; ++i) {
      const auto stage = static_cast<std::size_t>(i);
      const PassTimes& times = params.times_of(stage);
      stages_.push_back({.forward = times.forward.ps,
                         .input_grad = times.input_grad.ps,
                         .weight_grad = times.weight_grad.ps,
                         .send = times.send.ps,
                         .activation = params.activation_of(stage),
                         .weight_grad_activation = params.weight_grad_activation_of(stage)});
    }
  }

  // Whether the lists are complete: not when no device could end up with a span below `shortest`.
  bool run(std::int64_t shortest) {
    warm_up();
    for (int j = 1; j < m_; ++j) {
      j += skipped(j);
      if (!decides_all_ && least_span() >= shortest) {
        return false;
      }
      add_forwards();
      for (int i = last(); i >= 0; --i) {
        put(Lane::Gradient, i);
      }
    }
    for (int i = 0; i <= last(); ++i) {
      put_weight_grads(i);
    }
    return true;
  }
  // Flags that were set and have changed something; without the others the run is the same.
  unsigned mattered() const { return mattered_; }

 private:
  struct Stage {
    std::int64_t forward = 0;  // how long each takes
    std::int64_t input_grad = 0;
    std::int64_t weight_grad = 0;
    std::int64_t send = 0;
    std::int64_t activation = 0;
    std::int64_t weight_grad_activation = 0;  // the part that is left after the input gradient
    std::int64_t work() const { return forward + input_grad + weight_grad; }
  };

  // All work, and the idle time so far, of the device with most.
  std::int64_t least_span() const {
    std::int64_t span = 0;
    for (int i = 0; i <= last(); ++i) {
      span = std::max(span, at(i).work() * m_ + lists_.bubble(i));
    }
    return span;
  }

  // Units of gradients that were only copied.
  int skipped(int unit) {
    int copied = 0;
    if (repetition_.returns(unit, 0, [](const auto&) { return true; })) {
      const int times = repetition_.times_alike(exceeds_, {}, margins_);
      repetition_.repeat(times);
      copied = times * repetition_.units();
    }
    if (repetition_.has_just_marked()) {
      std::fill(exceeds_.begin(), exceeds_.end(), char{0});
      std::fill(margins_.begin(), margins_.end(), std::numeric_limits<std::int64_t>::max());
    }
    return copied;
  }
  // Whether a gap would make the device's bubble the largest.
  bool exceeds(std::int64_t gap, int i) {
    const std::int64_t allowed = lists_.max_bubble() - lists_.bubble(i);
    if (gap > allowed) {
      exceeds_[static_cast<std::size_t>(i)] = 1;
      return true;
    }
    std::int64_t& margin = margins_[static_cast<std::size_t>(i)];
    margin = std::min(margin, allowed - gap);
    return false;
  }

  bool has(unsigned flag) const { return (flags_ & flag) != 0; }
  const Stage& at(int i) const { return stages_[static_cast<std::size_t>(i)]; }
  int last() const { return static_cast<int>(stages_.size()) - 1; }
  int done(Lane lane, int i) const { return lists_.done(lane, i); }
  bool owes_weight_grad(int i) const { return done(Lane::WeightGrad, i) < done(Lane::Gradient, i); }
  void put_weight_grad(int i) {
    lists_.put_next(ListBuilder::number(Lane::WeightGrad, i), static_cast<std::size_t>(i),
                    lists_.free(i));
  }
  void put_weight_grads(int i) {
    while (owes_weight_grad(i)) {
      put_weight_grad(i);
    }
  }

  // One forward everywhere, more while the first gradient is on its way, then the first gradients.
  void warm_up() {
    const auto put_first = [this](Lane lane, int i) {
      const std::size_t number = ListBuilder::number(lane, i);
      lists_.put_next(number, std::max(lists_.next_arrival(number), lists_.free(i)));
    };
    for (int i = 0; i <= last(); ++i) {
      put_first(Lane::Forward, i);
    }
    const std::vector<int> extra = extra_forwards(has(kIdleFirst));
    mattered_ |= has(kIdleFirst) && extra != extra_forwards(false) ? kIdleFirst : 0U;
    for (int i = 0; i <= last(); ++i) {
      for (int k = 0; k < extra[static_cast<std::size_t>(i)]; ++k) {
        put_first(Lane::Forward, i);
      }
    }
    for (int i = last(); i >= 0; --i) {
      put_first(Lane::Gradient, i);
    }
  }

  // Forwards of each device while its first gradient is on its way.
  std::vector<int> extra_forwards(bool idle_first) const {
    std::vector<int> extra(stages_.size(), 0);
    std::int64_t gradient = lists_.free(last()) + stages_.back().input_grad;
    for (int i = last() - 1; i >= 0; --i) {
      const std::int64_t arrives = gradient + at(i).send;
      std::int64_t free = lists_.free(i);
      int& more = extra[static_cast<std::size_t>(i)];
      while (1 + more < m_ && (2 + more) * at(i).activation <= cap_ &&
             (idle_first ? free + at(i).forward <= arrives : free < arrives)) {
        free += at(i).forward;
        ++more;
      }
      gradient = std::max(free, arrives) + at(i).input_grad;
    }
    for (std::size_t i = 1; i < extra.size(); ++i) {  // unless the stage before has all, fewer
      const int before = extra[i - 1];
      extra[i] = std::clamp(extra[i], 0, before + 1 == m_ ? before : std::max(0, before - 1));
    }
    return extra;
  }

  void add_forwards() {
    bool next = true;
    for (int i = last(); i >= 0; --i) {  // no stage runs ahead of the next one's forward
      next = next && wants_forward(i);
      wanted_[static_cast<std::size_t>(i)] = next ? 1 : 0;
    }
    for (int i = 0; i <= last(); ++i) {
      if (wanted_[static_cast<std::size_t>(i)] != 0) {
        put(Lane::Forward, i);
      }
    }
  }

  bool wants_forward(int i) {
    if (done(Lane::Forward, i) >= m_) {
      return false;
    }
    if (!has(kPreferBackward) || i == last() ||
        done(Lane::Forward, i) < done(Lane::Forward, i + 1) + 2) {
      return true;
    }
    const std::int64_t free = lists_.free(i);
    const std::int64_t gradient =
        lists_.free(i + 1) + at(i + 1).forward + at(i + 1).input_grad + at(i).send;
    repetition_.show_arrival(i, true, gradient);
    if (free >= gradient) {
      mattered_ |= kPreferBackward;
      return false;
    }
    std::int64_t memory = lists_.memory(i) + at(i).activation;
    std::int64_t cost = at(i).forward;
    for (int w = done(Lane::WeightGrad, i); memory > cap_ && w < done(Lane::Gradient, i); ++w) {
      memory -= at(i).weight_grad_activation;
      cost += at(i).weight_grad;
    }
    const bool wants = free + cost <= gradient || exceeds(gradient - free, i);
    mattered_ |= wants ? 0U : kPreferBackward;
    return wants;
  }

  // The next pass of a lane, after the weight gradients that come before it.
  void put(Lane lane, int i) {
    const std::size_t number = ListBuilder::number(lane, i);
    const std::int64_t arrives = lists_.next_arrival(number);
    const std::int64_t brings = lane == Lane::Forward ? at(i).activation : 0;
    while (lists_.memory(i) + brings > cap_ && owes_weight_grad(i)) {
      put_weight_grad(i);
    }
    if (lane == Lane::Forward ? i > 0 : i < last()) {
      repetition_.show_arrival(i, lane != Lane::Forward, arrives);
      fill_gap(i, arrives);
    }
    if (lane == Lane::Gradient && i == 0 && done(Lane::Forward, 0) == m_) {
      put_weight_grads(0);
    }
    lists_.put_next(number, static_cast<std::size_t>(i), std::max(arrives, lists_.free(i)));
  }

  // Weight gradients until the input of a pass arrives, and one more.
  void fill_gap(int i, std::int64_t arrives) {
    while (owes_weight_grad(i) && lists_.free(i) + at(i).weight_grad <= arrives) {
      put_weight_grad(i);
    }
    const std::int64_t gap = arrives - lists_.free(i);
    if (!owes_weight_grad(i) || gap <= 0) {
      return;
    }
    const bool pays = exceeds(gap, i);
    mattered_ |= has(kFillMore) && !pays ? kFillMore : 0U;
    if (pays || has(kFillMore)) {
      put_weight_grad(i);
    }
  }

  int m_;
  std::int64_t cap_;
  unsigned flags_;
  bool decides_all_;
  unsigned mattered_ = 0;
  std::vector<Stage> stages_;
  std::vector<char> wanted_;           // forwards, by device
  std::vector<char> exceeds_;          // by device, since the last mark: a gap the allowance
  std::vector<std::int64_t> margins_;  // by device, since then: least that a gap fell short of it
  ListBuilder& lists_;
  ListRepetition repetition_;
};

// No run has a shorter longest span: the first device, which starts at once, ends after some device
// has run everything but the weight gradients that memory lets it put off (those it owes after its
// last gradient are all it holds), and that gradient has come back to the first.
std::int64_t least_longest_span(const ScheduleParams& params, std::int64_t cap) {
  std::int64_t least = 0;
  std::int64_t there_and_back = params.times_of(0).weight_grad.ps;
  for (std::size_t i = 0; i < static_cast<std::size_t>(params.stages); ++i) {
    const PassTimes& of = params.times_of(i);
    const std::int64_t m = params.micro_batches;
    const std::int64_t each = params.weight_grad_activation_of(i);
    const std::int64_t late = each > 0 ? std::clamp<std::int64_t>(cap / each, 1, m) : m;
    const std::int64_t passes =
        m * (of.forward + of.input_grad).ps + (m - late) * of.weight_grad.ps;
    least = std::max(
        {least, m * (of.forward + of.input_grad + of.weight_grad).ps, there_and_back + passes});
    there_and_back += (of.forward + of.input_grad + of.send * 2).ps;
  }
  return least;
}

}  // namespace

Refusal check_hand_made(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_one_replica(params), check_validated_iterations(params),
                       check_own_warm_up(params), check_one_chunk(params)});
}

Refusal check_automatic(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_one_replica(params),
                       check_validated_iterations(params), check_own_warm_up(params),
                       check_one_chunk(params), check_cap(params, 1),
                       check_heuristic_sizes(params)});
}

PipelineOrder automatic_zero_bubble(const ScheduleParams& params, std::int64_t cap) {
  const auto bare = [&params] {
    return ListBuilder(empty_order(params, loop_placement(params), 3), params, true,
                       ListBuilder::Asks::Next);
  };
  ListBuilder best = bare();
  ListBuilder lists = bare();
  std::vector<std::pair<unsigned, unsigned>> runs;  // flags, and those that mattered
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t least = params.decides_all ? 0 : least_longest_span(params, cap);
  for (unsigned flags = kAllFlags + 1; flags-- > 0 && shortest > least;) {
    const bool known = std::any_of(runs.begin(), runs.end(), [flags](const auto& run) {
      return (run.first & flags) == flags && (run.first & ~flags & run.second) == 0;
    });
    if (known && !params.decides_all) {
      continue;
    }
    lists.restart();
    Heuristic heuristic(lists, params, cap, flags);
    const bool is_complete = heuristic.run(shortest);
    runs.emplace_back(flags, heuristic.mattered());  // of one that ended early: until then
    if (is_complete && lists.longest_span() < shortest) {
      shortest = lists.longest_span();
      std::swap(best, lists);
    }
  }
  return best.take();
}

std::int64_t cap_of(const ScheduleParams& params, double own) {
  return static_cast<std::int64_t>((params.cap > 0 ? params.cap : own) *
                                   static_cast<double>(params.activation * params.chunks));
}

Refusal check_one_fits(const ScheduleParams& params, double own) {
  if (params.activations.empty() || params.stages < 1) {
    return {};
  }
  const auto stages = static_cast<std::size_t>(params.stages);
  std::vector<std::int64_t> held(stages, 0);
  for (std::size_t s = 0; s < params.activations.size(); ++s) {
    const std::size_t at = s % stages;
    held[s / stages % 2 == 0 ? at : stages - 1 - at] += params.activations[s];
  }
  const auto most = std::max_element(held.begin(), held.end());
  if (*most <= cap_of(params, own)) {
    return {};
  }
  const auto each = static_cast<double>(params.activation * params.chunks);
  return refused(
      fmt::format(
          "one micro-batch keeps activations of {:g} on device {}, and there is room for {:g}",
          static_cast<double>(*most) / each, most - held.begin(),
          params.cap > 0 ? params.cap : own),
      Size::Cap, std::ceil(static_cast<double>(*most) / each));
}

}  // namespace orrery::sim
