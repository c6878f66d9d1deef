// SPDX-License-Identifier: Apache-2.0
// All-reduces on an edge network link by link: 8 devices, each behind a gateway, and a core router
// (TPI-LLM, arXiv 2410.00531, section 3.2). Every message crosses four links.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/collective_program.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::sim {
namespace {

constexpr int kDevices = 8;
constexpr double kLinkLatency = 1e-3;
constexpr double kBandwidth = 300e6 / 8;

// Links of device d: 4 d up to its gateway, 4 d + 1 on to the core, and back by 4 d + 2 and 4 d
// + 3.
double all_reduce(std::string_view name, std::int64_t bytes) {
  Program program;
  for (int link = 0; link < 4 * kDevices; ++link) {
    program.add_resource(kBandwidth, fmt::format("link {}", link));
  }
  const CollectiveCosts costs{
      to_sim_time(Seconds(4 * kLinkLatency)), BytesPerSecond(kBandwidth), SimTime{}, {}};
  const auto routes = [](std::uint32_t from, std::uint32_t to) {
    return std::vector<ResourceId>{4 * from, 4 * from + 1, 4 * to + 2, 4 * to + 3};
  };
  expand_collective(program, find_collective(name, "test"), kDevices, ByteCount(bytes), costs,
                    routes, Tag{});
  program.finalize();
  return to_seconds(run(program).makespan).value();
}

TEST(EdgeAllReduce, LatencyIsThatOfTheMessagesInTurn) {
  EXPECT_NEAR(all_reduce("star-all-reduce", 0), 8 * kLinkLatency, 1e-9);
  EXPECT_NEAR(all_reduce("two-level-all-reduce", 0), 16 * kLinkLatency, 1e-9);
  EXPECT_NEAR(all_reduce("ring-all-reduce", 0), 56 * kLinkLatency, 1e-9);
}

// 32 KiB of activations at 300 Mbit/s: seven messages queue at the master's links each way, and the
// star is still the fastest.
TEST(EdgeAllReduce, TheStarWinsInSpiteOfItsQueue) {
  const std::int64_t bytes = 32 << 10;
  const double message = static_cast<double>(bytes) / kBandwidth;
  const double star = all_reduce("star-all-reduce", bytes);
  const double tree = all_reduce("two-level-all-reduce", bytes);
  const double ring = all_reduce("ring-all-reduce", bytes);
  EXPECT_NEAR(star, 8 * kLinkLatency + 2 * 7 * message, 1e-6);
  // Two messages meet at a leader in each of the four steps; rank 6, which has one member only, is
  // through with its own before the other leader starts.
  EXPECT_NEAR(tree, 16 * kLinkLatency + (4 * 2 - 1) * message, 1e-6);
  EXPECT_NEAR(ring, 14 * (4 * kLinkLatency + message / 8), 1e-6);
  EXPECT_LT(star, tree);
  EXPECT_LT(tree, ring);
}

}  // namespace
}  // namespace orrery::sim
