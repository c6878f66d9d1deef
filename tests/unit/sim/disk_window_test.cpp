// SPDX-License-Identifier: Apache-2.0
// Blocks from disk through a sliding window: TPI-LLM's measured example and its steady states.
#include "sim/disk_window.hpp"

#include <gtest/gtest.h>

namespace orrery::sim {
namespace {

Seconds ms(double value) { return Seconds(value * 1e-3); }

// Llama-2-7B on a quarter of the heads (TPI-LLM, section 3.3).
LayerTimes measured(double load_ffn) { return {{ms(11), ms(18)}, {ms(17), ms(load_ffn)}, ms(14)}; }

std::vector<double> layer_times(const LayerTimes& times, int layers, int window) {
  WindowedRun run;
  run.window = window;
  run.devices.emplace_back();
  for (int layer = 0; layer < layers; ++layer) {
    run.devices.front().push_back(times.attention);
    run.devices.front().push_back(times.ffn);
    run.reduce.insert(run.reduce.end(), 2, times.reduce);
  }
  const std::vector<Seconds> ends = window_ends(run);
  std::vector<double> result;
  Seconds before;
  for (std::size_t block = 1; block < ends.size(); block += 2) {
    result.push_back((ends[block] - before).value() * 1e3);
    before = ends[block];
  }
  return result;
}

// Layer 1 loads 18 ms, computes, waits 5 ms for its FFN: 79 ms; then nothing waits.
TEST(DiskWindow, TheMeasuredExampleStallsInTheFirstLayerOnly) {
  const std::vector<double> layers = layer_times(measured(30), 40, 4);
  EXPECT_NEAR(layers[0], 79, 1e-9);
  for (std::size_t layer = 1; layer < layers.size(); ++layer) {
    EXPECT_NEAR(layers[layer], 56, 1e-9) << layer;
  }
  EXPECT_FALSE(tight_steady_state(measured(30)));
  EXPECT_TRUE(loose_steady_state(measured(30), 40));
}

TEST(DiskWindow, ASlowDiskMakesLayersAsLongAsTheirLoads) {
  const std::vector<double> layers = layer_times(measured(45), 60, 4);
  EXPECT_NEAR(layers.back(), 63, 1e-9);
  EXPECT_FALSE(loose_steady_state(measured(45), 60));
}

// Every second FFN block stays: two layers load 18 + 45 + 18 ms in the 112 ms that they take.
TEST(DiskWindow, BlocksThatStayHideASlowDisk) {
  const LayerTimes slow = measured(45);
  EXPECT_TRUE(loose_steady_state(slow, 60, 2));
  EXPECT_FALSE(loose_steady_state(slow, 60, 60));
  EXPECT_TRUE(loose_steady_state(measured(30), 40, 7));
  // A period of which the loads do not fit, however it begins.
  EXPECT_FALSE(loose_steady_state({{ms(11), ms(50)}, {ms(17), ms(200)}, ms(14)}, 60, 2));
}

// Halving the window lowers memory, not speed, where the loose condition holds: the next block
// loads while the last one is reduced. With one block alone loads and reductions still run
// together.
TEST(DiskWindow, ASteadyStateNeedsTwoBlocks) {
  const LayerTimes tight = {{ms(11), ms(18)}, {ms(17), ms(25)}, ms(14)};
  EXPECT_TRUE(tight_steady_state(tight));
  EXPECT_FALSE(tight_steady_state(measured(30)));
  EXPECT_TRUE(loose_steady_state(measured(30), 20));
  for (const LayerTimes& times : {tight, measured(30)}) {
    EXPECT_NEAR(layer_times(times, 20, 2).back(), 56, 1e-9);
    EXPECT_NEAR(layer_times(times, 20, 4).back(), 56, 1e-9);
  }
  EXPECT_NEAR(layer_times(tight, 20, 1).back(), 11 + 25 + 17 + 18, 1e-9);
}

TEST(DiskWindow, TheSlowestDeviceHoldsUpAll) {
  WindowedRun run;
  run.window = 2;
  run.reduce = {ms(1), ms(1)};
  run.devices = {{{ms(2), ms(1)}, {ms(2), ms(1)}}, {{ms(1), ms(1)}, {ms(5), ms(1)}}};
  run.tokens = 2;
  const std::vector<Seconds> ends = window_ends(run);
  EXPECT_NEAR(ends[0].value() * 1e3, 1 + 2 + 1, 1e-9);
  EXPECT_NEAR(ends[1].value() * 1e3, 4 + 5 + 1, 1e-9);
  // Both blocks fit the window: the second token loads nothing.
  EXPECT_NEAR((ends[3] - ends[1]).value() * 1e3, 2 + 1 + 5 + 1, 1e-9);
}

}  // namespace
}  // namespace orrery::sim
