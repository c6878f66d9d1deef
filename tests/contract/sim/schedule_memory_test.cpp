// SPDX-License-Identifier: Apache-2.0
// What every registered schedule holds comes to nothing at its end.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "sim/engine/memory.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/pipeline/versions.hpp"
#include "tests/contract/sim/schedule_params.hpp"

namespace orrery::sim {
namespace {

class ScheduleMemory : public testing::TestWithParam<const Schedule*> {};

// Final occupancy: at the end every pool holds what it held at the start, nothing, and on the way
// never less; its peak is the one that the sweep counts.
TEST_P(ScheduleMemory, GivesAllMemoryBack) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const PipelineOrder order = schedule.order(allowed_params(schedule));
    RC_PRE(order.num_virtual_stages * order.micro_batches < 20'000);
    PipelineCosts costs = share_costs(order, random_share()).costs;
    const std::size_t stages = costs.forward.size();
    // Passes of no length have no memory: the ledger leaves out what lives for no time.
    const auto give = [&](std::int64_t least, std::int64_t most) {
      std::vector<ByteCount> bytes;
      for (std::size_t s = 0; s < stages; ++s) {
        bytes.emplace_back(costs.forward[s] > SimTime{} ? *rc::gen::inRange(least, most + 1) : 0);
      }
      return bytes;
    };
    costs.activation = give(5, 9);
    if (*rc::gen::inRange(0, 2) == 1) {
      costs.weight_grad_activation = give(1, 4);
    }
    costs.forward_workspace = give(0, 3);
    costs.backward_workspace = give(0, 3);
    const PipelineResult result = evaluate_pipeline(order, costs);
    const Program program = expand_pipeline(order, costs);
    const Timeline timeline = run(program);
    const std::vector<BufferLife> lives = buffer_lives(program, timeline.start, timeline.end);
    for (const BufferLife& life : lives) {
      RC_ASSERT(life.from >= SimTime{});
      RC_ASSERT(life.until <= timeline.makespan);
    }
    std::vector<std::int64_t> held(program.pools().size(), 0);
    std::vector<std::int64_t> peaks(held.size(), 0);
    for (const LedgerEntry& entry : memory_ledger(program, lives)) {
      const PoolId pool = program.buffers()[entry.buffer].pool;
      held[pool] += entry.delta;
      peaks[pool] = std::max(peaks[pool], held[pool]);
      RC_ASSERT(held[pool] >= 0);
    }
    for (std::size_t pool = 0; pool < held.size(); ++pool) {
      RC_ASSERT(held[pool] == 0);
      RC_ASSERT(!order.holds.empty() ||
                peaks[pool] == result.devices[pool].peak_activation.value());
    }
  }));
}

// The same of activations and parameter versions, counted from the spans alone: every forward is
// answered by its last gradient pass, with which the version that it used is let go; updates of a
// stage come in turn, and each stage of a kind ends with the same number of them. Where replicas of
// a stage take micro-batches in turn, an update has the number of the last one before it.
TEST_P(ScheduleMemory, EndsAsItBegan) {
  const Schedule& schedule = *GetParam();
  EXPECT_TRUE(rc::check([&] {
    const PipelineOrder order = schedule.order(allowed_params(schedule));
    const PipelineResult result =
        evaluate_pipeline(order, share_costs(order, random_share()).costs, {.record_spans = true});
    const PassInputs inputs(order);
    std::vector<std::int64_t> live(static_cast<std::size_t>(order.num_virtual_stages), 0);
    std::vector<std::uint32_t> updates(live.size(), 0);
    const bool in_turn = order.chains.size() > 1 && order.chains.front().stride > 1;
    for (const auto& device : result.spans) {
      int last = -1;  // update of the device
      for (const PassSpan& span : device) {
        const std::size_t stage = span.pass.virtual_stage;
        if (span.pass.kind == PassKind::Optimizer && in_turn) {
          RC_ASSERT(inputs.number_of(span.pass) > last);
          last = inputs.number_of(span.pass);
        } else if (span.pass.kind == PassKind::Optimizer) {
          RC_ASSERT(span.pass.micro_batch == updates[stage]);
          ++updates[stage];
        } else if (span.pass.kind == PassKind::Forward) {
          live[stage] += inputs.forward_only(stage) ? 0 : 1;
        } else if (span.pass.kind == PassKind::Backward || span.pass.kind == PassKind::WeightGrad) {
          --live[stage];
        }
      }
    }
    for (std::size_t stage = 0; stage < live.size(); ++stage) {
      RC_ASSERT(live[stage] == 0);
      RC_ASSERT(updates[stage] == 0 || updates[stage] == updates[0]);
      RC_ASSERT(updates[stage] % static_cast<std::uint32_t>(order.iterations) == 0 ||
                updates[stage] == 0);
    }
    for (const VersionUseOfStage& use : count_versions(order)) {
      RC_ASSERT(use.staleness >= 0);
      RC_ASSERT(use.versions >= 1);
      RC_ASSERT(!schedule.traits.synchronous || (use.staleness == 0 && use.versions == 1));
    }
  }));
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleMemory,
                         testing::ValuesIn(schedule_table().begin(), schedule_table().end()),
                         schedule_test_name);

}  // namespace
}  // namespace orrery::sim
