// SPDX-License-Identifier: Apache-2.0
// Reserved memory of the rows that state it, through the allocator (docs/fidelity.md, memory).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/csv.hpp"
#include "plan/replay/memory_replay.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/row_choice.hpp"
#include "studies/rows/row_plan.hpp"
#include "tests/folders.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

TEST(ReservedRowsSharedTest, SimuMaxsRunsReserveWhatTheReplayDoes) {
  const std::filesystem::path file = orrery::shared_folder() / "measurements" / "simumax_b200.csv";
  if (!std::filesystem::exists(file)) {
    GTEST_SKIP() << "no measurements here";
  }
  int rows = 0;
  double sum = 0;
  std::vector<Measurement> all = read_measurements(read_csv_file(file.string()), "simumax_b200");
  for (Measurement& row : all) {
    const auto reserved = row.aux.find("reserved_gib");
    if (row.metric != "peak_mem_gib" || reserved == row.aux.end()) {
      continue;
    }
    std::vector<std::string> assumed;
    const auto plan = chosen_plan(row, assumed);
    ASSERT_TRUE(plan) << row.id;
    double most = 0;
    for (const plan::MemoryPeak& peak : plan::replay_memory(*plan, row_memory(row))) {
      most = std::max(most, static_cast<double>(peak.reserved.value()) / (1 << 30));
    }
    const double error = most / std::stod(reserved->second) - 1;
    EXPECT_LT(std::abs(error), 0.035) << row.id;
    sum += std::abs(error);
    ++rows;
  }
  ASSERT_EQ(rows, 13);
  EXPECT_LT(sum / rows, 0.015);
}

// torchtitan's log is that of the last stage, which holds the logits of the whole step.
TEST(ReservedRowsTest, TorchtitanLogsTheLastStage) {
  const testing::Changes changes = {
      {"framework", "torchtitan"}, {"measured_metric", "peak_mem_gib"}, {"measured_value", "40"}};
  const Measurement row = testing::row_of(changes);
  const std::vector<plan::MemoryPeak> devices =
      plan::replay_memory(row_plan(row).value(), row_memory(row));
  ASSERT_EQ(devices.size(), 2U);
  ASSERT_NE(devices.front().reserved, devices.back().reserved);
  EXPECT_EQ(testing::predicted(changes).predicted,
            static_cast<double>(devices.back().reserved.value()));
  testing::Changes other = changes;
  other["framework"] = "Meta internal 4D";
  other["measured_metric"] = "peak_mem_reserved_gib";
  const Measurement largest = testing::row_of(other);
  double most = 0;
  for (const plan::MemoryPeak& device :
       plan::replay_memory(row_plan(largest).value(), row_memory(largest))) {
    most = std::max(most, static_cast<double>(device.reserved.value()));
  }
  EXPECT_EQ(testing::predicted(other).predicted, most);
}

}  // namespace
}  // namespace orrery::studies
