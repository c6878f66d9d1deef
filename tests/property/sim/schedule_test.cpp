// SPDX-License-Identifier: Apache-2.0
// Closed forms of the published schedules on uniform stages, exact in integer picoseconds.
#include "sim/schedule.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {
namespace {

struct Uniform {
  SimTime forward;   // of one chunk
  SimTime backward;  // fused
  SimTime latency;
};

Uniform random_uniform(bool with_latency) {
  return {{*rc::gen::inRange(1, 1'000'000)},
          {*rc::gen::inRange(1, 1'000'000)},
          {with_latency ? *rc::gen::inRange(0, 1'000'000) : 0}};
}

PipelineResult evaluate(const char* name, const ScheduleParams& params, const Uniform& uniform) {
  const Schedule& schedule = find_schedule(name, "test");
  RC_ASSERT(to_text(schedule.check(params)) == std::string());
  const PipelineOrder order = schedule.order(params);
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  PipelineCosts costs;
  costs.forward.assign(stages, uniform.forward);
  costs.backward.assign(stages, uniform.backward);
  costs.send_forward.assign(stages - 1, uniform.latency);
  costs.send_backward.assign(stages - 1, uniform.latency);
  for (std::size_t s = 0; s + 1 < stages && params.stages == 1; ++s) {
    costs.send_forward[s] = costs.send_backward[s] = {};
  }
  return evaluate_pipeline(order, costs);
}

std::int64_t idle_time_of(const DeviceUse& use) {
  return (use.last_end - use.first_start - use.busy).ps;
}

int stages() { return *rc::gen::inRange(1, 17); }
int micro_batches() { return *rc::gen::inRange(1, 65); }
int chunks() { return *rc::gen::inRange(1, 5); }

// O1
TEST(ScheduleOracles, GpipeTimeAndMemory) {
  EXPECT_TRUE(rc::check([] {
    const ScheduleParams params{stages(), micro_batches(), 1, 0};
    const Uniform u = random_uniform(false);
    const PipelineResult result = evaluate("gpipe", params, u);
    RC_ASSERT(result.makespan ==
              (u.forward + u.backward) * (params.micro_batches + params.stages - 1));
    for (const DeviceUse& use : result.devices) {
      RC_ASSERT(use.peak_chunks == params.micro_batches);
    }
  }));
}

TEST(ScheduleOracles, OneForwardOneBackwardTimeAndMemory) {
  EXPECT_TRUE(rc::check([] {
    const ScheduleParams params{stages(), micro_batches(), 1, 0};
    const Uniform u = random_uniform(false);
    const PipelineResult result = evaluate("1f1b", params, u);
    RC_ASSERT(result.makespan ==
              (u.forward + u.backward) * (params.micro_batches + params.stages - 1));
    for (int i = 0; i < params.stages; ++i) {
      RC_ASSERT(result.devices[static_cast<std::size_t>(i)].peak_chunks ==
                std::min(params.stages - i, params.micro_batches));
    }
  }));
}

// O2: one round trip is paid for every p micro-batches.
TEST(ScheduleOracles, OneForwardOneBackwardWithLatency) {
  EXPECT_TRUE(rc::check([] {
    const int p = *rc::gen::inRange(2, 17);
    const int rounds = *rc::gen::inRange(1, 65 / p + 1);
    const ScheduleParams params{p, p * rounds, 1, 0};
    const Uniform u = random_uniform(true);
    RC_ASSERT(evaluate("1f1b", params, u).makespan ==
              (u.forward + u.backward) * (params.micro_batches + p - 1) +
                  u.latency * (2 * ((p - 1) * rounds + p - 2)));
  }));
}

// O3: the doubled warm-up hides it while a transfer is no longer than a pass.
TEST(ScheduleOracles, DoubledWarmUpHidesLatency) {
  EXPECT_TRUE(rc::check([] {
    const int p = *rc::gen::inRange(2, 17);
    const ScheduleParams params{p, p * *rc::gen::inRange(2, 65 / p + 2), 1, 1};
    Uniform u = random_uniform(true);
    u.latency.ps = std::min({u.latency.ps, u.forward.ps, u.backward.ps});
    const PipelineResult result = evaluate("1f1b", params, u);
    RC_ASSERT(result.makespan == (u.forward + u.backward) * (params.micro_batches + p - 1) +
                                     u.latency * (2 * (p - 1)));
    RC_ASSERT(result.devices[0].peak_chunks == 2 * p - 1);
  }));
}

// DAPPLE's policies A and B: a device runs as many forwards ahead as the rule says and memory
// holds. With D <= p of them in flight D micro-batches pass in p forwards and backwards.
TEST(ScheduleOracles, OneForwardOneBackwardUnderACap) {
  EXPECT_TRUE(rc::check([] {
    const int p = stages();
    const int cap = *rc::gen::inRange(1, 2 * p + 2);
    const Uniform u = random_uniform(false);
    for (const int warm_up : {0, 1}) {
      ScheduleParams params{p, cap * *rc::gen::inRange(1, 5), 1, warm_up};
      params.cap = cap;
      const PipelineResult result = evaluate("1f1b", params, u);
      for (int i = 0; i < p; ++i) {
        const int rule = warm_up == 0 ? p - i : 2 * (p - i) - 1;
        RC_ASSERT(result.devices[static_cast<std::size_t>(i)].peak_chunks ==
                  std::min({rule, cap, params.micro_batches}));
      }
    }
  }));
}

// O4
TEST(ScheduleOracles, InterleavedIdleAndMemory) {
  EXPECT_TRUE(rc::check([] {
    const int p = stages();
    const int v = chunks();
    const ScheduleParams params{p, p * *rc::gen::inRange(1, std::max(2, 65 / p)), v, 0};
    const Uniform u = random_uniform(false);
    const PipelineResult result = evaluate("interleaved", params, u);
    const SimTime busy = (u.forward + u.backward) * (params.micro_batches * v);
    RC_ASSERT(result.makespan == busy + (u.forward + u.backward) * (p - 1));
    // p (1 + (p - 1) / (p v)) activations of v chunks each, as far as there are as many.
    RC_ASSERT(result.devices[0].peak_chunks == std::min(p * v + p - 1, params.micro_batches * v));
  }));
}

// O5
TEST(ScheduleOracles, BreadthFirstIdleAndMemory) {
  EXPECT_TRUE(rc::check([] {
    const int p = stages();
    const int v = chunks();
    const ScheduleParams params{p, p + *rc::gen::inRange(0, 65 - p), v, 0};
    const Uniform u = random_uniform(false);
    const PipelineResult result = evaluate("breadth-first", params, u);
    RC_ASSERT(result.makespan == (u.forward + u.backward) * (params.micro_batches * v + p - 1));
    for (const DeviceUse& use : result.devices) {
      RC_ASSERT(use.peak_chunks == params.micro_batches * v);
    }
  }));
}

// The idle time of the first device is the whole bubble, in all synchronous schedules above.
TEST(ScheduleOracles, FirstDeviceSpansTheWholeRun) {
  EXPECT_TRUE(rc::check([] {
    const int p = stages();
    const ScheduleParams params{p, p * *rc::gen::inRange(1, std::max(2, 65 / p)), 1, 0};
    const Uniform u = random_uniform(false);
    for (const char* name : {"gpipe", "1f1b", "interleaved", "breadth-first"}) {
      const PipelineResult result = evaluate(name, params, u);
      RC_ASSERT(idle_time_of(result.devices[0]) == (p - 1) * (u.forward + u.backward).ps);
      RC_ASSERT(result.devices[0].last_end == result.makespan);
    }
  }));
}

}  // namespace
}  // namespace orrery::sim
