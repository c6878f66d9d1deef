// SPDX-License-Identifier: Apache-2.0
// What every registered schedule promises, for random parameters that its own constraints allow.
#include "sim/schedule.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "tests/contract/sim/schedule_params.hpp"

namespace orrery::sim {
namespace {

// By lane, virtual stage and unit.
struct Spans {
  explicit Spans(const PipelineOrder& order, const PipelineResult& result)
      : units(static_cast<std::size_t>(order.micro_batches)),
        stages(static_cast<std::size_t>(order.num_virtual_stages)),
        all(kNumLanes * stages * units) {
    for (const auto& spans : result.spans) {
      for (const PassSpan& span : spans) {
        at(lane_of(span.pass.kind), span.pass.virtual_stage, span.pass.micro_batch) = span;
      }
    }
  }
  PassSpan& at(Lane lane, std::size_t stage, std::size_t unit) {
    return all[(static_cast<std::size_t>(lane) * stages + stage) * units + unit];
  }
  std::size_t units;
  std::size_t stages;
  std::vector<PassSpan> all;
};

class ScheduleContract : public testing::TestWithParam<const Schedule*> {};

TEST_P(ScheduleContract, DescribesItself) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(is_kebab_case(schedule.name));
  EXPECT_FALSE(schedule.description.empty());
  EXPECT_FALSE(schedule.constraints.empty());
  EXPECT_FALSE(schedule.source.empty());
  EXPECT_NE(schedule.most_activations, nullptr);
  EXPECT_EQ(&find_schedule(schedule.name, "test"), &schedule);
}

// P10: every pass exactly once, on its device, in an order that runs.
TEST_P(ScheduleContract, IsCompleteAndOrdered) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const ScheduleParams params = allowed_params(schedule);
    const PipelineOrder order = schedule.order(params);
    RC_ASSERT(check_order(order, order.micro_batches) == std::string());
    if (order.is_plain()) {
      RC_ASSERT(order.passes.size() == static_cast<std::size_t>(params.stages));
      RC_ASSERT(order.num_virtual_stages == params.stages * params.chunks);
      const std::vector<int> slices = slices_of_all(params);
      RC_ASSERT(order.micro_batches == std::accumulate(slices.begin(), slices.end(), 0));
    }
  }));
}

// P11 inside the constraints, with the data dependencies checked on the spans.
TEST_P(ScheduleContract, RespectsDependencies) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const PipelineOrder order = schedule.order(allowed_params(schedule));
    const PipelineResult result =
        evaluate_pipeline(order, share_costs(order, random_share()).costs, {.record_spans = true});
    const PassInputs inputs(order);
    Spans spans(order, result);
    for (const auto& device : result.spans) {
      SimTime free;
      for (const PassSpan& span : device) {
        RC_ASSERT(span.start >= free);  // P7
        free = span.end;
        const Pass& pass = span.pass;
        if (pass.kind != PassKind::Forward && pass.kind != PassKind::Optimizer) {
          const Lane before = pass.kind == PassKind::WeightGrad ? Lane::Gradient : Lane::Forward;
          RC_ASSERT(span.start >= spans.at(before, pass.virtual_stage, pass.micro_batch).end);
        }
        inputs.for_each(pass, [&](const PassInput& input) {
          RC_ASSERT(pass.joined ||
                    span.start >= spans.at(input.lane, input.virtual_stage, input.unit).end);
        });
      }
    }
  }));
}

// The event engine on the expanded program: the same time; all memory given back; and with
// rendezvous transfers no deadlock where the schedule claims it.
TEST_P(ScheduleContract, RunsOnTheEngine) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    ScheduleParams params = allowed_params(schedule);
    const PipelineOrder order = schedule.order(params);
    RC_PRE(order.num_virtual_stages * order.micro_batches < 20'000);
    PipelineCosts costs = share_costs(order, random_share()).costs;
    costs.activation.assign(costs.forward.size(), ByteCount(3));
    const PipelineResult result = evaluate_pipeline(order, costs);
    const Program program = expand_pipeline(order, costs);
    const Timeline timeline = run(program);
    RC_ASSERT(!timeline.deadlock.has_value());
    RC_ASSERT(timeline.makespan == result.makespan);
    for (BufferId buffer = 0; buffer < program.buffers().size(); ++buffer) {
      RC_ASSERT(!program.consumers(buffer).empty());
    }
    if (schedule.runs_blocking) {
      costs.blocking_rendezvous = true;
      RC_ASSERT(!run(expand_pipeline(order, costs)).deadlock.has_value());
    }
  }));
}

// P11 outside the constraints: words, never a hang or a crash.
TEST_P(ScheduleContract, NamesTheBrokenConstraint) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const ScheduleParams params = random_params(false);
    const std::string broken = to_text(schedule.check(params));
    if (broken.empty()) {
      const PipelineOrder order = schedule.order(params);
      RC_ASSERT(check_order(order, order.micro_batches) == std::string());
    }
  }));
  for (const ScheduleParams& params :
       {ScheduleParams{0, 1, 1, 0}, ScheduleParams{1, 0, 1, 0}, ScheduleParams{1, 1, 0, 0},
        ScheduleParams{-1, 4, 1, 0}, ScheduleParams{4, 4, 1, 7}, ScheduleParams{4, 4, 1, -1},
        ScheduleParams{1 << 30, 1 << 30, 1 << 30, 0}, ScheduleParams{1000, 50'000'000, 1, 0},
        ScheduleParams{0, 0, 0, 2}, ScheduleParams{4, 4, 2, 7}, ScheduleParams{4, 8, 1, 0, 0}}) {
    EXPECT_NE(to_text(schedule.check(params)), "");
  }
  if (!schedule.traits.uses_chunks) {
    EXPECT_NE(to_text(schedule.check({2, 4, 2, 0})), "");
  }
  if (!schedule.traits.uses_slices) {
    EXPECT_NE(to_text(schedule.check({2, 4, schedule.traits.uses_chunks ? 2 : 1, 0, 2})), "");
  }
}

// P12, first half, and O24: every order of a placement runs the same passes, so that busy times add
// up to the work of all virtual stages and units.
TEST_P(ScheduleContract, ConservesWork) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const PipelineOrder order = schedule.order(allowed_params(schedule));
    const PassTimes share = random_share();
    const PipelineResult result = evaluate_pipeline(order, share_costs(order, share).costs);
    SimTime work;
    for (const Chain& chain : chains_of(order)) {
      for (int s = chain.first; s < chain.first + chain.stages; ++s) {
        const int parts = order.parts.empty() ? 1 : order.parts[static_cast<std::size_t>(s)];
        const SimTime back = chain.forward_only ? SimTime{} : share.input_grad + share.weight_grad;
        work += (share.forward + back) * (std::int64_t{parts} * chain.units);
      }
    }
    SimTime busy;
    for (const DeviceUse& use : result.devices) {
      busy += use.busy;
      RC_ASSERT(result.makespan >= use.busy);
    }
    RC_ASSERT(busy == work);
  }));
}

// P13: no device holds more than the schedule promises or than all activations, nor fewer than one;
// the number in bytes is the number in activations.
TEST_P(ScheduleContract, KeepsActivationsWithinBounds) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const ScheduleParams params = allowed_params(schedule);
    const PipelineOrder order = schedule.order(params);
    PipelineCosts costs = share_costs(order, random_share()).costs;
    const PassInputs inputs(order);
    for (std::size_t s = 0; s < costs.forward.size(); ++s) {
      costs.activation.push_back(ByteCount(inputs.role(s) == Role::Layers ? 1 : 0));
    }
    const PipelineResult result = evaluate_pipeline(order, costs);
    std::vector<std::int64_t> all(order.passes.size(), 0);
    for (std::size_t s = 0; s < costs.forward.size(); ++s) {
      all[order.device_of[s]] += inputs.role(s) == Role::Layers ? inputs.units(s) : 0;
    }
    const double most = schedule.most_activations(params) * pieces_of(order);
    for (std::size_t d = 0; d < result.devices.size(); ++d) {
      RC_ASSERT(static_cast<double>(result.devices[d].peak_chunks) <= most + 1e-9);
      RC_ASSERT(result.devices[d].peak_chunks <= all[d]);
      RC_ASSERT(all[d] == 0 || result.devices[d].peak_chunks >= 1);
      RC_ASSERT(result.devices[d].peak_activation.value() == result.devices[d].peak_chunks);
    }
  }));
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleContract,
                         testing::ValuesIn(schedule_table().begin(), schedule_table().end()),
                         schedule_test_name);

TEST(ScheduleTable, IsSortedAndComplete) {
  std::set<std::string_view> names;
  std::string_view last;
  for (const Schedule* schedule : schedule_table()) {
    EXPECT_TRUE(names.insert(schedule->name).second) << schedule->name;
    EXPECT_LT(last, schedule->name);
    last = schedule->name;
  }
  constexpr std::string_view kAll =
      "gpipe 1f1b pipedream pipedream-vertical-sync pipedream-2bw xpipe hetpipe layerpipe "
      "interleaved zb-h1 "
      "breadth-first zb-h2 zb-1p zb-2p zb-v v-min v-half v-zb vocab-1 vocab-2 "
      "interlaced chimera bitpipe hanayo dualpipe terapipe dualpipe-v seq1f1b slimpipe "
      "helixpipe infinipipe dynapipe dip crosspipe tessel diffusionpipe flexpipe "
      "nestpipe pipeoffload flexsp zou-ps-ring chimera-doubling v-cap "
      "diffusionpipe-cascaded slimpipe-vocab interleaved-uneven";
  for (const std::string_view name : split(kAll, ' ')) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
}

}  // namespace
}  // namespace orrery::sim
