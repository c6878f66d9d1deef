// SPDX-License-Identifier: Apache-2.0
// What every registered schedule promises, for random parameters that its own constraints allow.
#include "sim/schedule.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "sim/pipeline.hpp"

namespace orrery::sim {
namespace {

ScheduleParams random_params(bool multiple) {
  ScheduleParams params;
  params.stages = *rc::gen::inRange(1, 17);
  params.micro_batches = *rc::gen::inRange(1, 65);
  params.chunks = *rc::gen::inRange(1, 5);
  params.warm_up = *rc::gen::inRange(0, 2);
  if (multiple) {
    params.micro_batches = std::max(1, params.micro_batches / params.stages) * params.stages;
  }
  return params;
}

// Parameters that the schedule accepts; most constraints are met by these adjustments.
ScheduleParams allowed_params(const Schedule& schedule) {
  ScheduleParams params = random_params(true);
  const std::vector<void (*)(ScheduleParams&)> adjustments = {
      [](ScheduleParams& p) { p.warm_up = 0; },
      [](ScheduleParams& p) { p.chunks = 1; },
      [](ScheduleParams& p) { p.chunks = 2; },
      [](ScheduleParams& p) {
        p.stages += p.stages % 2;
        p.micro_batches = p.stages * (1 + p.micro_batches / p.stages);
      },
      [](ScheduleParams& p) { p.micro_batches += p.micro_batches % 2 * p.stages; },
      [](ScheduleParams& p) { p.chunks = 1; },
  };
  for (const auto& adjust : adjustments) {
    if (!schedule.check(params).empty()) {
      adjust(params);
    }
  }
  RC_PRE(schedule.check(params).empty());
  return params;
}

PipelineCosts unit_costs(const PipelineOrder& order, SimTime forward, SimTime grad) {
  PipelineCosts costs;
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  costs.forward.assign(stages, forward);
  costs.input_grad.assign(stages, grad);
  costs.weight_grad.assign(stages, grad);
  costs.backward.assign(stages, grad + grad);
  costs.send_forward.assign(stages - 1, {});
  costs.send_backward.assign(stages - 1, {});
  costs.activation.assign(stages, ByteCount(1));
  return costs;
}

class ScheduleContract : public testing::TestWithParam<const Schedule*> {};

TEST_P(ScheduleContract, DescribesItself) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(is_kebab_case(schedule.name));
  EXPECT_FALSE(schedule.description.empty());
  EXPECT_FALSE(schedule.constraints.empty());
  EXPECT_FALSE(schedule.source.empty());
  EXPECT_EQ(&find_schedule(schedule.name, "test"), &schedule);
}

// P10: every pass exactly once, on its device, in an order that runs.
TEST_P(ScheduleContract, IsCompleteAndOrdered) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const ScheduleParams params = allowed_params(schedule);
    const PipelineOrder order = schedule.order(params);
    RC_ASSERT(order.passes.size() == static_cast<std::size_t>(params.stages));
    RC_ASSERT(order.num_virtual_stages == params.stages * params.chunks);
    RC_ASSERT(check_order(order, params.micro_batches) == std::string());
    for (const auto& list : order.passes) {
      for (const Pass& pass : list) {
        RC_ASSERT(schedule.splits_backward || pass.kind == PassKind::Forward ||
                  pass.kind == PassKind::Backward);
      }
    }
  }));
}

// P11 inside the constraints, with the data dependencies checked on the spans.
TEST_P(ScheduleContract, RespectsDependencies) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const ScheduleParams params = allowed_params(schedule);
    const PipelineOrder order = schedule.order(params);
    const PipelineCosts costs =
        unit_costs(order, {*rc::gen::inRange(1, 100)}, {*rc::gen::inRange(1, 100)});
    const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
    const auto m = static_cast<std::size_t>(params.micro_batches);
    const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
    std::vector<PassSpan> forward(stages * m);
    std::vector<PassSpan> gradient(stages * m);
    for (const auto& spans : result.spans) {
      SimTime free;
      for (const PassSpan& span : spans) {
        RC_ASSERT(span.start >= free);  // P7
        free = span.end;
        const std::size_t here = span.pass.virtual_stage * m + span.pass.micro_batch;
        if (span.pass.kind == PassKind::Forward) {
          forward[here] = span;
        } else if (span.pass.kind != PassKind::WeightGrad) {
          gradient[here] = span;
        } else {
          RC_ASSERT(span.start >= gradient[here].end);
        }
      }
    }
    for (std::size_t i = 0; i < stages * m; ++i) {
      if (i >= m) {
        RC_ASSERT(forward[i].start >= forward[i - m].end);
      }
      if (i + m < stages * m) {
        RC_ASSERT(gradient[i].start >= gradient[i + m].end);
      }
      RC_ASSERT(gradient[i].start >= forward[i].end);
    }
  }));
}

// P11 outside the constraints: words, never a hang or a crash.
TEST_P(ScheduleContract, NamesTheBrokenConstraint) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const ScheduleParams params = random_params(false);
    const std::string broken = schedule.check(params);
    if (broken.empty()) {
      RC_ASSERT(check_order(schedule.order(params), params.micro_batches) == std::string());
    }
  }));
  for (const ScheduleParams& params :
       {ScheduleParams{0, 1, 1, 0}, ScheduleParams{1, 0, 1, 0}, ScheduleParams{1, 1, 0, 0},
        ScheduleParams{-1, 4, 1, 0}, ScheduleParams{4, 4, 1, 7}, ScheduleParams{4, 4, 1, -1},
        ScheduleParams{1 << 30, 1 << 30, 1 << 30, 0}, ScheduleParams{1000, 50'000'000, 1, 0}}) {
    EXPECT_NE(schedule.check(params), "");
  }
  EXPECT_EQ(schedule.check({2, 2, 2, 0}).empty(), schedule.uses_chunks);
}

// P12, first half, and O24: the passes of a micro-batch take the same time in every schedule, so
// no device is busier or less busy than its share; one device alone never idles.
TEST_P(ScheduleContract, ConservesWork) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const ScheduleParams params = allowed_params(schedule);
    const PipelineOrder order = schedule.order(params);
    const SimTime forward{*rc::gen::inRange(1, 100)};
    const SimTime grad{*rc::gen::inRange(1, 100)};
    const PipelineResult result = evaluate_pipeline(order, unit_costs(order, forward, grad));
    const SimTime share =
        (forward + grad + grad) * (std::int64_t{params.micro_batches} * params.chunks);
    for (const DeviceUse& use : result.devices) {
      RC_ASSERT(use.busy == share);
    }
    RC_ASSERT(result.makespan >= share);
    RC_ASSERT(params.stages > 1 || result.makespan == share);
  }));
}

// P13: no device ever holds more than all activations, nor fewer than one; and the number in bytes
// is the number in activations.
TEST_P(ScheduleContract, KeepsActivationsWithinBounds) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const ScheduleParams params = allowed_params(schedule);
    const PipelineOrder order = schedule.order(params);
    const PipelineResult result = evaluate_pipeline(order, unit_costs(order, {1}, {1}));
    for (const DeviceUse& use : result.devices) {
      RC_ASSERT(use.peak_chunks >= 1);
      RC_ASSERT(use.peak_chunks <= std::int64_t{params.micro_batches} * params.chunks);
      RC_ASSERT(use.peak_activation.value() == use.peak_chunks);
    }
  }));
}

std::string test_name(const testing::TestParamInfo<const Schedule*>& info) {
  std::string name(info.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return "schedule_" + name;
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleContract,
                         testing::ValuesIn(schedule_table().begin(), schedule_table().end()),
                         test_name);

TEST(ScheduleTable, IsSortedAndComplete) {
  std::set<std::string_view> names;
  std::string_view last;
  for (const Schedule* schedule : schedule_table()) {
    EXPECT_TRUE(names.insert(schedule->name).second) << schedule->name;
    EXPECT_LT(last, schedule->name);
    last = schedule->name;
  }
  for (const char* name : {"gpipe", "1f1b", "interleaved", "breadth-first"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
}

}  // namespace
}  // namespace orrery::sim
