// SPDX-License-Identifier: Apache-2.0
#include "costmodel/time_table.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::costmodel {
namespace {

using sim::CommKind;

std::array<double, TimeTable::kPoints> times(double (*of)(double)) {
  std::array<double, TimeTable::kPoints> seconds{};
  for (int i = 0; i < TimeTable::kPoints; ++i) {
    seconds[static_cast<std::size_t>(i)] = of(TimeTable::size_of(i).value());
  }
  return seconds;
}

TEST(TimeTableTest, KeepsLawfulTimes) {
  const TimeTable table(times([](double bytes) { return 1e-5 + bytes / 1e11; }));
  for (const double bytes : {64.0, 1024.0, 3e6, 1e9, 1e12}) {
    const double exact = 1e-5 + bytes / 1e11;
    EXPECT_NEAR(table.at(Bytes(bytes)).value(), exact, 0.004 * exact) << bytes;
  }
  EXPECT_EQ(table.at(Bytes(1)), table.at(Bytes(64)));
  EXPECT_NEAR(table.at(Bytes(4e12)) / table.at(Bytes(2e12)), 2, 1e-9);
}

// A dip between 1 and 4 MiB and a jump by ten at 16 MiB, as some logs show.
double lawless(double bytes) {
  const double dip = bytes > 1e6 && bytes < 4e6 ? 0.3 : 1;
  return (1e-5 + bytes / 1e11) * dip * (bytes > 1.6e7 ? 10 : 1);
}

TEST(TimeTableTest, BendsLawlessTimes) {
  const TimeTable table(times(lawless));
  Seconds last(0);
  double last_rate = 0;
  for (double bytes = 32; bytes < 1e13; bytes *= 1.07) {
    const Seconds time = table.at(Bytes(bytes));
    EXPECT_GE(time.value() * (1 + 1e-9), last.value()) << bytes;
    EXPECT_GE(bytes / time.value() * (1 + 1e-9), last_rate) << bytes;
    last = time;
    last_rate = bytes / time.value();
  }
}

TEST(TimeTablesTest, TellsShapesApart) {
  TimeTables tables;
  const TimeTable one(times([](double) { return 1e-5; }));
  GroupShape group = make_group(8, 1, 8);
  tables.add(CommKind::AllReduce, group, one);
  EXPECT_NE(tables.find(CommKind::AllReduce, group), nullptr);
  EXPECT_EQ(tables.find(CommKind::AllGather, group), nullptr);
  group.gpu_stride = 2;
  EXPECT_EQ(tables.find(CommKind::AllReduce, group), nullptr);
}

}  // namespace
}  // namespace orrery::costmodel
