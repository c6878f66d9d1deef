// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/pipeline_path.hpp"

#include <gtest/gtest.h>

#include <string>

namespace orrery::sim {
namespace {

struct Pipe {
  PipelineOrder order;
  PipelineCosts costs;
};

Pipe pipe_of(const std::string& schedule, const ScheduleParams& params, std::int64_t latency) {
  Pipe pipe;
  pipe.order = find_schedule(schedule, "test").order(params);
  const auto stages = static_cast<std::size_t>(pipe.order.num_virtual_stages);
  pipe.costs.forward.assign(stages, {10});
  pipe.costs.backward.assign(stages, {20});
  pipe.costs.send_forward.assign(stages - 1, {latency});
  pipe.costs.send_backward.assign(stages - 1, {latency});
  if (find_schedule(schedule, "test").traits.joins_passes) {
    pipe.costs.kind_of.assign(stages, 0);
    pipe.costs.hidden = {{4}};
    pipe.costs.kinds = 1;
  }
  return pipe;
}

PipelinePath path_of(const Pipe& pipe) {
  return pipeline_path(pipe.order,
                       evaluate_pipeline(pipe.order, pipe.costs, {.record_spans = true}));
}

// p = 2, m = 2, F = 10, Bf = 20, c = 3: F0 F1 B1 on the first, F0 B0 F1 B1 on the second device.
TEST(PipelinePath, SmallExampleByHand) {
  const PipelinePath path = path_of(pipe_of("1f1b", {2, 2, 1, 0}, 3));
  EXPECT_EQ(path.on_device, (std::vector<SimTime>{{30}, {60}}));
  EXPECT_EQ(path.transfers.ps, 6);
  EXPECT_EQ(path.total().ps, 96);
}

// Results of a block leave at its end: what follows waited for passes, not for a transfer.
TEST(PipelinePath, GoesOnFromTheEndOfABlock) {
  for (const auto& [schedule, chunks] :
       {std::pair("combined-1f1b", 1), std::pair("combined-1f1b", 2), std::pair("dualpipe", 1),
        std::pair("dualpipe-v", 2), std::pair("interleaved", 2)}) {
    const Pipe pipe = pipe_of(schedule, {4, 16, chunks, 0}, 0);
    const PipelinePath path = path_of(pipe);
    EXPECT_EQ(path.transfers, SimTime{}) << schedule;
    EXPECT_EQ(path.total(), evaluate_pipeline(pipe.order, pipe.costs).makespan) << schedule;
  }
}

// Every transfer takes the latency, so that their sum is a multiple of it.
TEST(PipelinePath, CountsTransfersOfBlocksWhole) {
  for (const auto& [schedule, chunks] :
       {std::pair("combined-1f1b", 2), std::pair("dualpipe-v", 2), std::pair("interleaved", 2)}) {
    const PipelinePath path = path_of(pipe_of(schedule, {4, 16, chunks, 0}, 7));
    EXPECT_GT(path.transfers.ps, 0) << schedule;
    EXPECT_EQ(path.transfers.ps % 7, 0) << schedule;
  }
}

}  // namespace
}  // namespace orrery::sim
