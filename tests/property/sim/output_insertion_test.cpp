// SPDX-License-Identifier: Apache-2.0
// Insertion of an output layer in rounds against one that decides pass after pass, always the one
// that starts first.
#include "sim/orders/output_insertion.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "base/random.hpp"
#include "sim/orders/list_builder.hpp"
#include "sim/orders/meeting.hpp"
#include "sim/orders/output_layer.hpp"

namespace orrery::sim {
namespace {

constexpr std::int64_t kNever = ListBuilder::kNever;

class PassByPass {
 public:
  PassByPass(const PipelineOrder& base, const ScheduleParams& params, int barriers)
      : base_(base),
        barriers_(barriers),
        last_(base.num_virtual_stages - 1),
        params_(with_stage_times(output_layer_skeleton(base, barriers), params)),
        states_(base.passes.size()),
        lists_(base.passes.size()) {}

  std::vector<std::vector<Pass>> run() {
    while (true) {
      std::size_t first = 0;
      Choice best;
      for (std::size_t d = 0; d < states_.size(); ++d) {
        const Choice choice = choose(d);
        first = choice.start < best.start ? d : first;
        best = choice.start < best.start ? choice : best;
      }
      if (best.start == kNever) {
        return lists_;
      }
      put(first, best);
    }
  }

 private:
  struct State {
    std::size_t position = 0;
    std::uint32_t s = 0;
    std::uint32_t t = 0;
    std::int64_t free = 0;
  };
  struct Choice {
    Pass pass;
    std::int64_t start = kNever;
  };

  std::size_t device_of(int stage) const {
    return stage > last_ ? static_cast<std::size_t>(stage - last_ - 1)
                         : base_.device_of[static_cast<std::size_t>(stage)];
  }
  // When a result reaches a virtual stage; kNever: it is not there.
  std::int64_t reaches(Lane lane, int from, std::uint32_t unit, int to) const {
    const auto end = ends_.find({static_cast<int>(lane), from, static_cast<int>(unit)});
    if (end == ends_.end()) {
      return kNever;
    }
    const auto sender = static_cast<std::size_t>(std::min(from, to));
    return end->second + (device_of(from) == device_of(to) ? 0 : params_.times_of(sender).send.ps);
  }
  std::int64_t all_reach(Lane lane, std::uint32_t unit, int to) const {
    std::int64_t last = 0;
    for (int d = 0; d < static_cast<int>(states_.size()); ++d) {
      last = std::max(last, reaches(lane, last_ + 1 + d, unit, to));
    }
    return last;
  }
  std::int64_t arrives(const Pass& pass) const {
    const int stage = pass.virtual_stage;
    const Lane lane = lane_in_lists(pass.kind);
    if (lane == Lane::Forward && stage > 0) {
      return reaches(lane, stage - 1, pass.micro_batch, stage);
    }
    if (lane == Lane::Gradient && stage < last_) {
      return reaches(lane, stage + 1, pass.micro_batch, stage);
    }
    return lane == Lane::Gradient
               ? all_reach(barriers_ == 1 ? Lane::Forward : Lane::Gradient, pass.micro_batch, last_)
               : 0;
  }

  Choice choose(std::size_t d) const {
    const State& state = states_[d];
    const auto shard = static_cast<std::uint16_t>(last_ + 1 + static_cast<int>(d));
    const bool owes_t = state.t < state.s;
    const std::int64_t next_s = reaches(Lane::Forward, last_, state.s, shard);
    Choice best;
    const auto offer = [&](const Pass& pass, std::int64_t at) {
      const std::int64_t start = std::max(at, state.free);
      best = start < best.start ? Choice{pass, start} : best;
    };
    const Pass t(PassKind::Backward, shard, state.t);
    const std::int64_t at_t = all_reach(Lane::Forward, state.t, shard);
    if (owes_t && barriers_ == 2) {
      offer(t, at_t);
    } else if (!owes_t) {
      offer({PassKind::Forward, shard, state.s}, next_s);
    }
    if (state.position < base_.passes[d].size() &&
        (!owes_t || barriers_ == 2 || next_s == kNever)) {
      offer(base_.passes[d][state.position], arrives(base_.passes[d][state.position]));
    }
    if (owes_t && barriers_ == 1) {
      offer(t, at_t);
    }
    return best;
  }

  void put(std::size_t d, const Choice& choice) {
    State& state = states_[d];
    const Pass& pass = choice.pass;
    const PassTimes& times = params_.times_of(pass.virtual_stage);
    state.free = choice.start + (pass.kind == PassKind::Forward      ? times.forward
                                 : pass.kind == PassKind::InputGrad  ? times.input_grad
                                 : pass.kind == PassKind::WeightGrad ? times.weight_grad
                                                                     : times.backward())
                                    .ps;
    ends_[{static_cast<int>(lane_in_lists(pass.kind)), pass.virtual_stage,
           static_cast<int>(pass.micro_batch)}] = state.free;
    const bool inserted = pass.virtual_stage > last_;
    state.position += inserted ? 0 : 1;
    state.s += inserted && pass.kind == PassKind::Forward ? 1 : 0;
    state.t += inserted && pass.kind != PassKind::Forward ? 1 : 0;
    lists_[d].push_back(pass);
  }

  const PipelineOrder& base_;
  int barriers_;
  int last_;
  ScheduleParams params_;
  std::vector<State> states_;
  std::vector<std::vector<Pass>> lists_;
  std::map<std::array<int, 3>, std::int64_t> ends_;  // by lane, virtual stage and unit
};

TEST(OutputInsertionProperty, InsertsWhatStartsFirst) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const auto below = [&](int end) {
      return static_cast<int>(random.below(static_cast<std::uint64_t>(end)));
    };
    ScheduleParams params{1 + below(6), 1 + below(14), 1 + below(2), 0};
    params.decides_all = below(2) == 0;
    const int spread = below(2) * 20;
    const int send = below(3) * 10;
    const int shards = below(2) * params.stages;  // otherwise their times follow from the layers'
    for (int stage = 0; stage < params.stages * params.chunks + shards; ++stage) {
      const int least = stage < params.stages * params.chunks ? 1 + below(12) : 1;
      const auto draw = [&] { return SimTime{least + below(spread + 1)}; };
      params.times.push_back({draw(), draw(), draw(), SimTime{send + below(spread / 4 + 1)}});
    }
    const int barriers = 1 + below(2);
    const PipelineOrder base = vocabulary_base(params, barriers);
    RC_ASSERT(insert_output_layer(base, params, barriers).passes ==
              PassByPass(base, params, barriers).run());
  }));
}

TEST(Meeting, OneDeviceWaitsForNoOther) {
  Meeting meeting(1, 1);
  meeting.add(0, 0, 30);
  EXPECT_EQ(meeting.next(), 1U);
  EXPECT_EQ(meeting.known(0, 0, 70), 30);
}

TEST(Meeting, IsKnownWhenTheLastHasEnded) {
  Meeting meeting(2, 3);
  meeting.add(0, 2, 30);
  meeting.add(0, 0, 50);
  EXPECT_EQ(meeting.next(), 0U);
  meeting.add(0, 1, 40);
  EXPECT_EQ(meeting.next(), 1U);
  EXPECT_EQ(meeting.known(0, 1, 7), 57);
  EXPECT_EQ(meeting.known(0, 0, 7), 50);   // its own, and 47 from device 1
  EXPECT_EQ(meeting.known(0, 0, 12), 52);  // device 1's comes later than its own
  meeting.shift(0, 1, 1, 100);
  EXPECT_EQ(meeting.next(), 2U);
  EXPECT_EQ(meeting.known(1, 1, 7), 157);
}

}  // namespace
}  // namespace orrery::sim
