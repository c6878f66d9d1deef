// SPDX-License-Identifier: Apache-2.0
#include "costmodel/time_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.hpp"

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

// What few sizes show moves these sizes, not all that are larger: a dip over an octave of ten.
TEST(TimeTableTest, ADipLeavesLargeMessagesNearTheirTimes) {
  const auto steady = [](double bytes) { return 1e-5 + bytes / 1e9; };
  const TimeTable table(times([](double bytes) {
    return (1e-5 + bytes / 1e9) * (bytes > 0.7e6 && bytes < 1.4e6 ? 0.6 : 1.0);
  }));
  for (double bytes = 4e6; bytes < 1e10; bytes *= 2) {
    EXPECT_NEAR(table.at(Bytes(bytes)).value() / steady(bytes), 1, 0.1) << bytes;
  }
  EXPECT_LT(table.at(Bytes(1 << 20)).value(), steady(1 << 20));
}

using Points = std::array<double, TimeTable::kPoints>;

// The isotonic regression by its definition: of the means of all blocks from a point or before it
// the largest of those that are the least to any point behind. Sizes of logs weigh a thousand times
// as much as others.
Points isotonic(const Points& values) {
  const auto mean = [&](std::size_t from, std::size_t to) {
    double sum = 0;
    double weights = 0;
    for (std::size_t i = from; i <= to; ++i) {
      const double bytes = TimeTable::size_of(static_cast<int>(i)).value();
      const double weight = bytes > 1000 && bytes < 1.1e9 ? 1 : 1e-3;
      sum += weight * values[i];
      weights += weight;
    }
    return sum / weights;
  };
  Points result{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    result[i] = -INFINITY;
    for (std::size_t from = 0; from <= i; ++from) {
      double least = INFINITY;
      for (std::size_t to = i; to < values.size(); ++to) {
        least = std::min(least, mean(from, to));
      }
      result[i] = std::max(result[i], least);
    }
  }
  return result;
}

// The nearest in logarithms of the first law, then of the second, within the range of the times.
TEST(TimeTableTest, BendsToTheNearestByLeastSquares) {
  Random random(17);
  for (int draw = 0; draw < 20; ++draw) {
    Points logs{};
    for (std::size_t i = 0; i < logs.size(); ++i) {
      logs[i] = -16 + 0.25 * static_cast<double>(i) + 3 * random.uniform();
    }
    Points seconds{};
    std::ranges::transform(logs, seconds.begin(), [](double log) { return std::exp2(log); });
    Points by_bytes{};
    for (std::size_t i = 0; i < logs.size(); ++i) {
      by_bytes[i] = static_cast<double>(i) / TimeTable::kPerOctave - logs[i];
    }
    by_bytes = isotonic(by_bytes);
    for (std::size_t i = 0; i < logs.size(); ++i) {
      by_bytes[i] = static_cast<double>(i) / TimeTable::kPerOctave - by_bytes[i];
    }
    const Points nearest = isotonic(by_bytes);
    const TimeTable table(seconds);
    const auto [least, most] = std::ranges::minmax(logs);
    for (int i = 0; i < TimeTable::kPoints; ++i) {
      const double log = std::log2(table.at(TimeTable::size_of(i)).value());
      EXPECT_NEAR(log, nearest[static_cast<std::size_t>(i)], 1e-9) << draw << " " << i;
      EXPECT_GE(log, least - 1e-9);
      EXPECT_LE(log, most + 1e-9);
    }
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
