// SPDX-License-Identifier: Apache-2.0
// Lists of policies against a plain simulation that looks at every lane before every pass.
#include "sim/orders/policy.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/random.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/schedule_rule.hpp"

namespace orrery::sim {
namespace {

// One chain in a zigzag or loop. A lane has its next unit, and when its units ended.
class PlainRun {
 public:
  PlainRun(std::vector<std::uint16_t> device_of, const ScheduleParams& params, bool splits)
      : device_of_(std::move(device_of)),
        params_(params),
        splits_(splits),
        ends_(3 * device_of_.size()),
        free_(static_cast<std::size_t>(params.stages), 0),
        lists_(free_.size()) {}

  // `ranks` by lane, of equal ones gradients in breadth: all units of a chunk before the next.
  std::vector<std::vector<Pass>> run(const std::vector<int>& ranks, std::int64_t cap) {
    for (;;) {
      using Candidate = std::tuple<std::int64_t, int, std::int64_t, std::size_t, std::size_t>;
      Candidate best{kNever, 0, 0, 0, 0};
      for (std::size_t s = 0; s < device_of_.size(); ++s) {
        for (std::size_t lane = 0; lane < (splits_ ? 3U : 2U); ++lane) {
          if (const std::int64_t at = start(s, lane, cap); at < kNever) {
            best = std::min(best, Candidate{at, ranks[lane], place(s, lane), s, lane});
          }
        }
      }
      const auto [at, rank, place, s, lane] = best;
      if (at == kNever) {
        return lists_;
      }
      put(s, lane, at);
    }
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  std::vector<std::int64_t>& ends(std::size_t s, std::size_t lane) { return ends_[3 * s + lane]; }

  std::int64_t duration(std::size_t s, std::size_t lane) const {
    const PassTimes& times = params_.times_of(s);
    const SimTime gradient = splits_ ? times.input_grad : times.backward();
    return (lane == 0 ? times.forward : lane == 1 ? gradient : times.weight_grad).ps;
  }

  std::int64_t place(std::size_t s, std::size_t lane) {
    const auto chunk = static_cast<std::int64_t>(s) / params_.stages;
    const auto unit = static_cast<std::int64_t>(ends(s, lane).size());
    return (lane == 0 ? chunk : params_.chunks - 1 - chunk) * params_.micro_batches + unit;
  }

  std::int64_t sent(std::size_t from, std::size_t to, std::size_t lane, std::size_t unit) {
    const std::int64_t send =
        device_of_[from] == device_of_[to] ? 0 : params_.times_of(std::min(from, to)).send.ps;
    return ends(from, lane).size() > unit ? ends(from, lane)[unit] + send : kNever;
  }

  std::int64_t start(std::size_t s, std::size_t lane, std::int64_t cap) {
    const std::size_t unit = ends(s, lane).size();
    if (unit == static_cast<std::size_t>(params_.micro_batches) ||
        (lane == 0 && !has_room(s, unit, cap))) {
      return kNever;
    }
    std::int64_t at = free_[device_of_[s]];
    if (lane > 0) {
      at = std::max(at, sent(s, s, lane - 1, unit));
    }
    if (lane == 0 && s > 0) {
      at = std::max(at, sent(s - 1, s, 0, unit));
    }
    if (lane == 1 && s + 1 < device_of_.size()) {
      at = std::max(at, sent(s + 1, s, 1, unit));
    }
    return at;
  }

  // A micro-batch begins where all forwards of its device then fit.
  bool has_room(std::size_t s, std::size_t unit, std::int64_t cap) {
    std::int64_t held = 0;
    std::size_t begun = unit;
    for (std::size_t other = 0; other < device_of_.size(); ++other) {
      begun = device_of_[other] == device_of_[s] ? std::max(begun, ends(other, 0).size()) : begun;
    }
    for (std::size_t other = 0; other < device_of_.size(); ++other) {
      if (device_of_[other] == device_of_[s]) {
        const std::size_t ended = ends(other, splits_ ? 2 : 1).size();
        held += params_.activation * static_cast<std::int64_t>(begun + 1 - ended);
        if (splits_) {  // part of each is free already
          held -= (params_.activation - params_.weight_grad_activation) *
                  static_cast<std::int64_t>(ends(other, 1).size() - ended);
        }
      }
    }
    return unit < begun || held <= cap;
  }

  void put(std::size_t s, std::size_t lane, std::int64_t at) {
    const PassKind kind = lane == 0   ? PassKind::Forward
                          : lane == 2 ? PassKind::WeightGrad
                          : splits_   ? PassKind::InputGrad
                                      : PassKind::Backward;
    lists_[device_of_[s]].emplace_back(kind, static_cast<std::uint16_t>(s),
                                       static_cast<std::uint32_t>(ends(s, lane).size()));
    free_[device_of_[s]] = at + duration(s, lane);
    ends(s, lane).push_back(free_[device_of_[s]]);
  }

  std::vector<std::uint16_t> device_of_;
  const ScheduleParams& params_;
  bool splits_;
  std::vector<std::vector<std::int64_t>> ends_;
  std::vector<std::int64_t> free_;
  std::vector<std::vector<Pass>> lists_;
};

TEST(PolicyProperty, ListsAreThoseOfAPlainSimulation) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    ScheduleParams params;
    params.stages = 1 + static_cast<int>(random.below(6));
    params.chunks = 1 + static_cast<int>(random.below(3));
    params.micro_batches = 1 + static_cast<int>(random.below(40));
    params.activation = 1 + static_cast<std::int64_t>(random.below(3));
    params.weight_grad_activation =
        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(params.activation) + 1));
    const std::uint64_t spread = 1 + random.below(2) * 8;
    const auto draw = [&](std::int64_t least) {
      return SimTime{least + static_cast<std::int64_t>(random.below(spread))};
    };
    for (int s = 0; s < params.stages * params.chunks; ++s) {
      params.times.push_back({draw(1), draw(2), draw(1), draw(0)});
    }
    using enum PassKind;
    const bool forward_first = random.below(2) == 0;
    const bool loop = params.chunks == 1 || random.below(2) == 0;
    const ScheduleDescription rule{.placement = loop ? Placement::Loop : Placement::Zigzag,
                                   .priority = forward_first
                                                   ? std::vector{Forward, Backward, WeightGrad}
                                                   : std::vector{Backward, WeightGrad, Forward},
                                   .split_backward = random.below(2) == 0,
                                   .cap = 1 + static_cast<double>(random.below(8))};
    const std::vector<int> ranks = forward_first ? std::vector{0, 1, 2} : std::vector{2, 0, 1};
    const auto cap = static_cast<std::int64_t>(rule.cap) * params.activation * params.chunks;
    PlainRun plain(loop ? loop_placement(params) : zigzag_placement(params.stages, params.chunks),
                   params, rule.split_backward);
    RC_ASSERT(run_rule(rule, params, "test").passes == plain.run(ranks, cap));
  }));
}

}  // namespace
}  // namespace orrery::sim
