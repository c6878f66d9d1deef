// SPDX-License-Identifier: Apache-2.0
// What every registered collective algorithm promises.
#include "sim/collective.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/text.hpp"
#include "sim/collective_program.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::sim {
namespace {

constexpr double kBandwidth = 50e9;

std::vector<std::int64_t> sizes() { return {0, 1, 5, 840, 65'537, (3 << 20) + 1}; }

class Collective : public ::testing::TestWithParam<const CollectiveAlgorithm*> {
 protected:
  const CollectiveAlgorithm& algorithm() const { return *GetParam(); }

  // Bytes over all ranks in units of the size, by kind.
  std::int64_t total_factor(int ranks) const {
    return (algorithm().kind == CommKind::AllReduce ? 2 : 1) * std::int64_t{ranks - 1};
  }

  CollectiveCosts costs() const {
    return {SimTime{500'000}, BytesPerSecond(kBandwidth), SimTime{10'000},
            [](ByteCount bytes) { return SimTime{bytes.value()}; }};
  }

  // The expansion around a non-blocking switch; `port_of` places the ranks on its ports.
  Timeline expanded(int ranks, ByteCount size, const CollectiveCosts& with,
                    const std::vector<std::uint32_t>& port_of) const {
    Program program;
    for (int port = 0; port < 2 * ranks; ++port) {
      program.add_resource(with.bandwidth.value(), fmt::format("port {}", port));
    }
    const auto routes = [&](std::uint32_t from, std::uint32_t to) {
      return std::vector<ResourceId>{port_of[from], static_cast<ResourceId>(ranks) + port_of[to]};
    };
    expand_collective(program, algorithm(), ranks, size, with, routes, Tag{});
    program.finalize();
    return orrery::sim::run(program);
  }
};

std::vector<std::uint32_t> in_order(int ranks) {
  std::vector<std::uint32_t> ports;
  for (int rank = 0; rank < ranks; ++rank) {
    ports.push_back(static_cast<std::uint32_t>(rank));
  }
  return ports;
}

TEST_P(Collective, DescribesItself) {
  EXPECT_TRUE(is_kebab_case(algorithm().name));
  EXPECT_FALSE(algorithm().description.empty());
  EXPECT_FALSE(algorithm().source.empty());
  EXPECT_NE(algorithm().kind, CommKind::None);
  EXPECT_EQ(&find_collective(algorithm().name, ""), &algorithm());
}

TEST_P(Collective, MessagesAreWellFormedAndConserveBytes) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const std::int64_t size : sizes()) {
      std::int64_t total = 0;
      const CollectiveMessage* before = nullptr;
      const auto messages = collective_messages(algorithm(), ranks, ByteCount(size));
      for (const CollectiveMessage& message : messages) {
        ASSERT_LT(message.from, static_cast<std::uint32_t>(ranks));
        ASSERT_LT(message.to, static_cast<std::uint32_t>(ranks));
        ASSERT_NE(message.from, message.to);
        ASSERT_GE(message.bytes.value(), 0);
        if (before != nullptr) {
          ASSERT_LE(std::pair(before->step, before->from), std::pair(message.step, message.from));
        }
        before = &message;
        total += message.bytes.value();
      }
      EXPECT_EQ(total, total_factor(ranks) * size) << ranks << " ranks, " << size << " bytes";
      if (before != nullptr) {
        EXPECT_EQ(before->step + 1, algorithm().num_steps(ranks, ByteCount(size)));
      }
    }
  }
}

TEST_P(Collective, OneRankCostsNothing) {
  EXPECT_EQ(algorithm().num_steps(1, ByteCount(1000)), 0u);
  EXPECT_EQ(collective_time(algorithm(), 1, ByteCount(1000), costs()).time.ps, 0);
}

// Every rank's result can depend on every contribution (a broadcast: on rank 0), given that a
// message carries what its sender had before the step.
TEST_P(Collective, EveryContributionArrives) {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    std::vector<std::set<int>> has(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      has[static_cast<std::size_t>(rank)].insert(rank);
    }
    std::vector<CollectiveMessage> messages;
    for (std::uint32_t step = 0; step < algorithm().num_steps(ranks, ByteCount(1 << 20)); ++step) {
      messages.clear();
      algorithm().append_step(ranks, ByteCount(1 << 20), step, messages);
      auto after = has;
      for (const CollectiveMessage& message : messages) {
        after[message.to].insert(has[message.from].begin(), has[message.from].end());
      }
      has = std::move(after);
    }
    for (const std::set<int>& known : has) {
      if (algorithm().kind == CommKind::Broadcast) {
        EXPECT_TRUE(known.contains(0)) << ranks;
      } else {
        EXPECT_EQ(known.size(), static_cast<std::size_t>(ranks)) << ranks;
      }
    }
  }
}

TEST_P(Collective, ReductionsAreMarked) {
  std::int64_t reduced = 0;
  for (const CollectiveMessage& message : collective_messages(algorithm(), 8, ByteCount(8 << 20))) {
    reduced += message.reduces ? message.bytes.value() : 0;
  }
  const bool sums =
      algorithm().kind == CommKind::AllReduce || algorithm().kind == CommKind::ReduceScatter;
  EXPECT_EQ(reduced, sums ? std::int64_t{7} * (8 << 20) : 0);
}

// The streamed time is the makespan of the expanded program.
TEST_P(Collective, StreamedTimeEqualsTheProgram) {
  for (const int ranks : {1, 2, 3, 4, 6, 7, 8}) {
    for (const std::int64_t size : sizes()) {
      const Timeline timeline = expanded(ranks, ByteCount(size), costs(), in_order(ranks));
      EXPECT_FALSE(timeline.deadlock.has_value());
      EXPECT_EQ(timeline.makespan.ps,
                collective_time(algorithm(), ranks, ByteCount(size), costs()).time.ps)
          << ranks << " ranks, " << size << " bytes";
    }
  }
}

// Without contention a group with the link loads takes what the messages take.
TEST_P(Collective, TheGroupEqualsTheMessages) {
  for (const int ranks : {1, 2, 5, 8}) {
    for (const std::int64_t size : sizes()) {
      Program program;
      std::vector<StreamId> streams;
      for (int rank = 0; rank < ranks; ++rank) {
        streams.push_back(program.add_stream(static_cast<std::uint32_t>(rank),
                                             StreamKind::Collective, fmt::format("rank {}", rank)));
      }
      for (int port = 0; port < 2 * ranks; ++port) {
        program.add_resource(kBandwidth, fmt::format("port {}", port));
      }
      const auto routes = [&](std::uint32_t from, std::uint32_t to) {
        return std::vector<ResourceId>{from, static_cast<ResourceId>(ranks) + to};
      };
      add_collective_group(program, streams, algorithm(), ranks, ByteCount(size), costs(), routes,
                           Tag{});
      program.finalize();
      const SimTime alone = collective_time(algorithm(), ranks, ByteCount(size), costs()).time;
      EXPECT_NEAR(static_cast<double>(orrery::sim::run(program).makespan.ps),
                  static_cast<double>(alone.ps), 1.0)
          << ranks << " ranks, " << size << " bytes";
    }
  }
}

// Which port a rank has makes no difference.
TEST_P(Collective, RanksCanBeRelabelled) {
  const std::vector<std::uint32_t> shuffled = {3, 0, 5, 1, 6, 2, 4};
  const ByteCount size((2 << 20) + 3);
  EXPECT_EQ(expanded(7, size, costs(), in_order(7)).makespan,
            expanded(7, size, costs(), shuffled).makespan);
}

// No port carries more than its bandwidth: the bus bandwidth is at most that of a link.
TEST_P(Collective, IsNotFasterThanItsLinks) {
  for (const int ranks : {2, 3, 8, 16}) {
    const ByteCount size(std::int64_t{48} << 20);
    const CollectiveCosts bytes_only{SimTime{}, BytesPerSecond(kBandwidth), SimTime{}, {}};
    const double share = algorithm().kind == CommKind::Broadcast
                             ? 1.0
                             : static_cast<double>(total_factor(ranks)) / ranks;
    const double least = share * size.bytes().value() / kBandwidth;
    const SimTime time = collective_time(algorithm(), ranks, size, bytes_only).time;
    EXPECT_GE(to_seconds(time).value(), least * (1.0 - 1e-9)) << ranks;
  }
}

// More bytes never take less time, as long as the number of pipeline steps is the same.
TEST_P(Collective, MoreBytesTakeNoLessTime) {
  SimTime before;
  std::uint32_t steps_before = 0;
  for (std::int64_t size = 0; size < (1 << 20); size = size * 3 / 2 + 7) {
    const SimTime time = collective_time(algorithm(), 6, ByteCount(size), costs()).time;
    const std::uint32_t steps = algorithm().num_steps(6, ByteCount(size));
    EXPECT_TRUE(steps != steps_before || time >= before) << size;
    before = time;
    steps_before = steps;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Collective,
                         ::testing::ValuesIn(collective_table().begin(), collective_table().end()),
                         [](const auto& test) {
                           std::string name(test.param->name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace orrery::sim
