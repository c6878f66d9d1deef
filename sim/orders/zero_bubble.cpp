// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/zero_bubble.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "sim/orders/list_repetition.hpp"
#include "sim/orders/post_validation.hpp"

namespace orrery::sim {
namespace {

// Flags of the heuristic.
constexpr unsigned kOvershoot = 4;  // warm-up forwards may end after the first gradient arrives
constexpr unsigned kPreferBackward = 2;  // leave out a forward that would delay the next backward
constexpr unsigned kFillMore = 1;        // fill a gap with a weight gradient even if it delays
constexpr unsigned kAllFlags = 7;

class Heuristic {
 public:
  Heuristic(const ScheduleParams& params, std::int64_t cap, unsigned flags)
      : params_(params),
        cap_(cap),
        flags_(flags),
        wanted_(static_cast<std::size_t>(params.stages), 0),
        exceeds_(static_cast<std::size_t>(params.stages), 0),
        margins_(static_cast<std::size_t>(params.stages), std::numeric_limits<std::int64_t>::max()),
        lists_(empty_order(params, loop_placement(params), 3), params, true),
        repetition_(lists_, ListRepetition::Puts::ByList) {}

  // Nothing when no device could end up with a span below `shortest`.
  std::optional<ListBuilder> run(std::int64_t shortest) {
    warm_up();
    for (int j = 1; j < params_.micro_batches; ++j) {
      j += skipped(j);
      if (!params_.decides_all && least_span() >= shortest) {
        return std::nullopt;
      }
      add_forwards();
      for (int i = params_.stages - 1; i >= 0; --i) {
        prepare(lists_.next(Lane::Gradient, i), i);
        while (i == 0 && done(Lane::Forward, 0) == params_.micro_batches && owes_weight_grad(0)) {
          put_weight_grad(0);
        }
        put(Lane::Gradient, i);
      }
    }
    for (int i = 0; i < params_.stages; ++i) {
      while (owes_weight_grad(i)) {
        put_weight_grad(i);
      }
    }
    return std::move(lists_);
  }
  // Flags that were set and have changed something; without the others the run is the same.
  unsigned mattered() const { return mattered_; }

 private:
  // All work, and the idle time so far, of the device with most.
  std::int64_t least_span() const {
    std::int64_t span = 0;
    for (int i = 0; i < params_.stages; ++i) {
      const PassTimes& of = times(i);
      const SimTime work = (of.forward + of.input_grad + of.weight_grad) *
                           static_cast<std::int64_t>(params_.micro_batches);
      span = std::max(span, work.ps + lists_.bubble(i));
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
  int done(Lane lane, int i) const { return lists_.done(lane, i); }
  void put(Lane lane, int i) { lists_.put(lists_.next(lane, i)); }
  void put_weight_grad(int i) { lists_.put(lists_.next(Lane::WeightGrad, i), lists_.free(i)); }
  bool owes_weight_grad(int i) const { return done(Lane::WeightGrad, i) < done(Lane::Gradient, i); }
  const PassTimes& times(int i) const { return params_.times_of(static_cast<std::size_t>(i)); }
  std::int64_t activation(int i) const {
    return params_.activation_of(static_cast<std::size_t>(i));
  }
  std::int64_t send(int i) const { return times(i).send.ps; }

  // One forward everywhere, more while the first gradient is on its way, then the first gradients.
  void warm_up() {
    const int p = params_.stages;
    std::vector<int> extra(static_cast<std::size_t>(p), 0);
    for (int i = 0; i < p; ++i) {
      put(Lane::Forward, i);
    }
    std::int64_t gradient = lists_.free(p - 1) + times(p - 1).input_grad.ps;
    for (int i = p - 2; i >= 0; --i) {
      const std::int64_t arrives = gradient + send(i);
      const std::int64_t forward = times(i).forward.ps;
      std::int64_t at = lists_.free(i);
      int& more = extra[static_cast<std::size_t>(i)];
      while (1 + more < params_.micro_batches && (2 + more) * activation(i) <= cap_) {
        const bool ends = at + forward <= arrives;
        mattered_ |= has(kOvershoot) && ends != (at < arrives) ? kOvershoot : 0U;
        if (has(kOvershoot) ? !ends : at >= arrives) {
          break;
        }
        at += forward;
        ++more;
      }
      gradient = std::max(at, arrives) + times(i).input_grad.ps;
    }
    for (int i = 0; i < p; ++i) {
      int& more = extra[static_cast<std::size_t>(i)];
      if (i > 0) {  // fewer than the stage before, unless that has all
        const int before = extra[static_cast<std::size_t>(i - 1)];
        more = std::clamp(more, 0,
                          before + 1 == params_.micro_batches ? before : std::max(0, before - 1));
      }
      for (int k = 0; k < more; ++k) {
        put(Lane::Forward, i);
      }
    }
    for (int i = p - 1; i >= 0; --i) {
      put(Lane::Gradient, i);
    }
  }

  void add_forwards() {
    const int p = params_.stages;
    bool next = true;
    for (int i = p - 1; i >= 0; --i) {  // no stage runs ahead of the next one's forward
      next = next && wants_forward(i);
      wanted_[static_cast<std::size_t>(i)] = next ? 1 : 0;
    }
    for (int i = 0; i < p; ++i) {
      if (wanted_[static_cast<std::size_t>(i)] != 0) {
        prepare(lists_.next(Lane::Forward, i), i);
        put(Lane::Forward, i);
      }
    }
  }

  bool wants_forward(int i) {
    if (done(Lane::Forward, i) >= params_.micro_batches) {
      return false;
    }
    if (!has(kPreferBackward) || i + 1 == params_.stages ||
        done(Lane::Forward, i) < done(Lane::Forward, i + 1) + 2) {
      return true;
    }
    const std::int64_t at = lists_.free(i);
    const std::int64_t gradient =
        lists_.free(i + 1) + times(i + 1).forward.ps + times(i + 1).input_grad.ps + send(i);
    repetition_.show_arrival(i, true, gradient);
    if (at >= gradient) {
      mattered_ |= kPreferBackward;
      return false;
    }
    std::int64_t memory = lists_.memory(i) + activation(i);
    std::int64_t cost = times(i).forward.ps;
    for (int w = done(Lane::WeightGrad, i); memory > cap_ && w < done(Lane::Gradient, i); ++w) {
      memory -= params_.weight_grad_activation_of(static_cast<std::size_t>(i));
      cost += times(i).weight_grad.ps;
    }
    const bool wants = at + cost <= gradient || exceeds(gradient - at, i);
    mattered_ |= wants ? 0U : kPreferBackward;
    return wants;
  }

  // Weight gradients before a pass: for memory, in the gap until its input arrives, and one more.
  void prepare(const Pass& pass, int i) {
    while (lists_.memory(i) + lists_.memory_change(pass) > cap_ && owes_weight_grad(i)) {
      put_weight_grad(i);
    }
    const bool from_neighbour = pass.kind == PassKind::Forward ? i > 0 : i + 1 < params_.stages;
    if (!from_neighbour) {
      return;
    }
    const std::int64_t arrives = *lists_.arrival(pass);
    repetition_.show_arrival(i, pass.kind != PassKind::Forward, arrives);
    while (owes_weight_grad(i) && lists_.free(i) + times(i).weight_grad.ps <= arrives) {
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

  const ScheduleParams& params_;
  std::int64_t cap_;
  unsigned flags_;
  unsigned mattered_ = 0;
  std::vector<char> wanted_;           // forwards, by device
  std::vector<char> exceeds_;          // by device, since the last mark: a gap the allowance
  std::vector<std::int64_t> margins_;  // by device, since then: least that a gap fell short of it
  ListBuilder lists_;
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

std::string check_hand_made(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_one_replica(params), check_validated_iterations(params),
                       check_own_warm_up(params), check_one_chunk(params)});
}

std::string check_automatic(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_one_replica(params),
                       check_validated_iterations(params), check_own_warm_up(params),
                       check_one_chunk(params), check_cap(params, 1),
                       check_heuristic_sizes(params)});
}

PipelineOrder automatic_zero_bubble(const ScheduleParams& params, std::int64_t cap) {
  std::optional<ListBuilder> best;
  std::vector<std::pair<unsigned, unsigned>> runs;  // flags, and those that mattered
  const std::int64_t least = params.decides_all ? 0 : least_longest_span(params, cap);
  for (unsigned flags = kAllFlags + 1; flags-- > 0 && (!best || best->longest_span() > least);) {
    const bool known = std::any_of(runs.begin(), runs.end(), [flags](const auto& run) {
      return (run.first & flags) == flags && (run.first & ~flags & run.second) == 0;
    });
    if (known && !params.decides_all) {
      continue;
    }
    Heuristic heuristic(params, cap, flags);
    std::optional<ListBuilder> lists =
        heuristic.run(best ? best->longest_span() : std::numeric_limits<std::int64_t>::max());
    runs.emplace_back(flags, heuristic.mattered());  // of one that ended early: until then
    if (lists && (!best || lists->longest_span() < best->longest_span())) {
      best = std::move(lists);
    }
  }
  return best->take();
}

std::int64_t cap_of(const ScheduleParams& params, double own) {
  return static_cast<std::int64_t>((params.cap > 0 ? params.cap : own) *
                                   static_cast<double>(params.activation * params.chunks));
}

std::string check_one_fits(const ScheduleParams& params, double own) {
  if (params.activations.empty() || params.stages < 1) {
    return "";
  }
  const auto stages = static_cast<std::size_t>(params.stages);
  std::vector<std::int64_t> held(stages, 0);
  for (std::size_t s = 0; s < params.activations.size(); ++s) {
    const std::size_t at = s % stages;
    held[s / stages % 2 == 0 ? at : stages - 1 - at] += params.activations[s];
  }
  const auto most = std::max_element(held.begin(), held.end());
  if (*most <= cap_of(params, own)) {
    return "";
  }
  const auto each = static_cast<double>(params.activation * params.chunks);
  return fmt::format(
      "one micro-batch keeps activations of {:g} on device {}, and there is room for {:g}: set {} "
      "to {:g}",
      static_cast<double>(*most) / each, most - held.begin(), params.cap > 0 ? params.cap : own,
      params.cap_name, std::ceil(static_cast<double>(*most) / each));
}

}  // namespace orrery::sim
