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

}  // namespace
}  // namespace orrery::studies
