// SPDX-License-Identifier: Apache-2.0
// Unlike edge devices in a star and in a ring: messages, sums, and what their document must say.
#include "search/problems/edge_cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "search/planner.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

using ::testing::HasSubstr;

EdgeCluster equal(bool ring, std::size_t count) {
  EdgeCluster cluster;
  cluster.ring = ring;
  for (std::size_t i = 0; i < count; ++i) {
    EdgeDevice device;
    device.latency = Seconds(1e-3);
    device.bandwidth = BytesPerSecond(1e6);
    cluster.devices.push_back(device);
  }
  return cluster;
}

// Two links a message in a star: 2, 4 and 2 (n - 1) messages, in units of the links' latency.
TEST(EdgeCluster, LatenciesOfEqualDevices) {
  const EdgeReduce star = edge_reduce(equal(false, 8), Bytes(0));
  EXPECT_NEAR(star.star.value(), 4e-3, 1e-12);
  EXPECT_NEAR(star.tree.value(), 8e-3, 1e-12);
  EXPECT_NEAR(star.ring.value(), 28e-3, 1e-12);
  // Around a ring of 8 the farthest worker is four links away; neighbours are one.
  const EdgeReduce ring = edge_reduce(equal(true, 8), Bytes(0));
  EXPECT_NEAR(ring.star.value(), 8e-3, 1e-12);
  EXPECT_NEAR(ring.ring.value(), 14e-3, 1e-12);
}

// Large messages: a ring moves 2 (n - 1) / n of the bytes, a star twice all of them.
TEST(EdgeCluster, BytesFavourRings) {
  const EdgeReduce large = edge_reduce(equal(true, 8), Bytes(1e6));
  EXPECT_NEAR(large.ring.value(), 14e-3 + 14.0 / 8, 1e-9);
  EXPECT_LT(large.ring, large.star);
}

TEST(EdgeCluster, TheSlowestLinkDecides) {
  EdgeCluster cluster = equal(false, 4);
  const Seconds before = edge_reduce(cluster, Bytes(1000)).star;
  cluster.devices[2].latency = Seconds(9e-3);
  EXPECT_NEAR((edge_reduce(cluster, Bytes(1000)).star - before).value(), 16e-3, 1e-12);
  cluster.devices[2].bandwidth = BytesPerSecond(1e5);
  EXPECT_NEAR(message_time(cluster, 2, 1, Bytes(1000)).value(), 10e-3 + 10e-3, 1e-12);
  // The other way around a ring avoids nothing: the shorter way is taken, whatever its links.
  cluster.ring = true;
  EXPECT_NEAR(message_time(cluster, 0, 3, Bytes(0)).value(), 1e-3, 1e-12);
  EXPECT_NEAR(message_time(cluster, 1, 3, Bytes(0)).value(), 1e-3 + 9e-3, 1e-12);
}

std::string document(const std::string& devices, const std::string& more = "") {
  return R"({"schema": "orrery-problem", "version": 1, "window": 2, "memory_factor": 1.6,
    "network": {"layers": 32, "hidden": 4096, "ffn_hidden": 11008, "heads": 32, "vocab": 32000})" +
         more + R"(, "devices": [)" + devices + "]}";
}

std::string device(const std::string& more = "", const std::string& disk = "1.35 GB/s") {
  return R"({"memory": "8 GB", "memory_bandwidth": "6.5 GB/s")" +
         (disk.empty() ? disk : R"(, "disk_bandwidth": ")" + disk + "\"") +
         R"(, "link": {"latency": "2 ms", "bandwidth": "300 Mbit/s"})" + more + "}";
}

Json answer(const std::string& text) {
  const Json problem = parse_json(text, "edge.json");
  return run_planner(find_planner("tpi-llm", "planner"), problem, "edge.json");
}

std::string four(const std::string& more = "") {
  return device() + ", " + device() + ", " + device() + ", " + device(more);
}

TEST(EdgeCluster, PlannerTakesTheFastestSum) {
  const Json star = answer(document(four()));
  EXPECT_EQ(*star.find("all_reduce"), Json("star"));
  EXPECT_LT(number(star, "star_s"), number(star, "ring_s"));
  for (const Json& fits : star.find("fits")->as_array()) {
    EXPECT_TRUE(fits.as_bool());
  }
  const Json ring = answer(document(four(), R"(, "topology": "ring")"));
  EXPECT_LT(number(ring, "ring_s"), number(star, "ring_s"));
  // A slow disk holds all of them up.
  const Json slow = answer(document(device() + ", " + device("", "300 MB/s")));
  const Json fast = answer(document(device() + ", " + device()));
  EXPECT_GT(number(slow, "token_s"), 2 * number(fast, "token_s"));
  // Without a window everything is in memory: the small device does not hold its part.
  const std::string whole = R"({"schema": "orrery-problem", "version": 1, "network": {"layers": 32,
    "hidden": 4096, "ffn_hidden": 11008, "heads": 32, "vocab": 32000}, "devices": [)";
  const Json full = answer(whole + device("", "") + ", " + device("", "") + "]}");
  EXPECT_FALSE(full.find("fits")->as_array().back().as_bool());  // 13 GB
  EXPECT_LT(number(full, "token_s"), number(fast, "token_s"));
}

std::string problem(const std::string& text) {
  try {
    answer(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EdgeCluster, BadInput) {
  EXPECT_THAT(problem(document(four(R"(, "share": 0.5)"))),
              HasSubstr("1 of 4 devices state a share, 0.5 in sum"));
  EXPECT_THAT(problem(document("")), HasSubstr("no devices"));
  EXPECT_THAT(problem(document(device("", ""))),
              HasSubstr("\"device 0\" has no disk_bandwidth, but a window of 2"));
  EXPECT_THAT(problem(document(four(), R"(, "topology": "mesh")")), HasSubstr("star"));
  EXPECT_THAT(problem(document(R"({"memory_bandwidth": "6 GB/s"})")), HasSubstr("link"));
}

}  // namespace
}  // namespace orrery::search
