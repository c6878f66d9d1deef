// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/flow_network.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/sim/sizes.hpp"

namespace orrery::sim {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kLink = 50e9;

struct Transfer {
  int from;
  int to;
  std::int64_t bytes;
};

// Hosts with an injection and an ejection link around leaves and spines, 50e9 bytes/s each.
// Equal-cost paths are chosen by destination index. One leaf is a star.
class Tree {
 public:
  Tree(int hosts, int hosts_per_leaf, int spines)
      : per_leaf_(hosts_per_leaf), spines_(spines), leaves_(hosts / hosts_per_leaf) {
    add_links(up_, hosts);
    add_links(down_, hosts);
    add_links(leaf_up_, leaves_ * spines);
    add_links(leaf_down_, leaves_ * spines);
  }

  std::vector<ResourceId> route(int from, int to) const {
    const int first = from / per_leaf_;
    const int last = to / per_leaf_;
    if (first == last) {
      return {at(up_, from), at(down_, to)};
    }
    const int spine = to % spines_;
    return {at(up_, from), at(leaf_up_, first * spines_ + spine),
            at(leaf_down_, last * spines_ + spine), at(down_, to)};
  }

  FlowNetwork network;

 private:
  static ResourceId at(const std::vector<ResourceId>& links, int i) {
    return links[static_cast<std::size_t>(i)];
  }
  void add_links(std::vector<ResourceId>& links, int count) {
    for (int i = 0; i < count; ++i) {
      links.push_back(network.add_link(kLink));
    }
  }
  int per_leaf_;
  int spines_;
  int leaves_;
  std::vector<ResourceId> up_;
  std::vector<ResourceId> down_;
  std::vector<ResourceId> leaf_up_;
  std::vector<ResourceId> leaf_down_;
};

Tree star() { return {8, 8, 0}; }

std::string microseconds(SimTime time) {
  return fmt::format("{:.3f}", static_cast<double>(time.ps) * 1e-6);
}

// The end of every transfer, in order.
std::vector<std::string> ends(Tree tree, const std::vector<Transfer>& transfers) {
  std::map<FlowId, std::size_t> index;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& t = transfers[i];
    index[tree.network.start(ByteCount(t.bytes), tree.route(t.from, t.to))] = i;
  }
  std::vector<std::string> result(transfers.size());
  for (auto done = tree.network.advance(); !done.empty(); done = tree.network.advance()) {
    for (const FlowId flow : done) {
      result[index.at(flow)] = microseconds(tree.network.now());
    }
  }
  EXPECT_EQ(tree.network.in_flight(), 0u);
  return result;
}

std::vector<Transfer> incast(int hosts, std::int64_t bytes) {
  std::vector<Transfer> transfers;
  for (int from = 1; from < hosts; ++from) {
    transfers.push_back({from, 0, bytes});
  }
  return transfers;
}

std::vector<Transfer> all_to_all(int hosts, std::int64_t bytes) {
  std::vector<Transfer> transfers;
  for (int from = 0; from < hosts; ++from) {
    for (int to = 0; to < hosts; ++to) {
      if (from != to) {
        transfers.push_back({from, to, bytes});
      }
    }
  }
  return transfers;
}

std::vector<Transfer> shift(int hosts, int by, std::int64_t bytes) {
  std::vector<Transfer> transfers;
  for (int from = 0; from < hosts; ++from) {
    transfers.push_back({from, (from + by) % hosts, bytes});
  }
  return transfers;
}

// Reference values of the pure max-min model (latency 0, 50e9 bytes/s per link and direction).
TEST(FlowReference, StarIncast) {
  EXPECT_THAT(ends(star(), incast(8, 8 * kMiB)), Each("1174.405"));
}
TEST(FlowReference, StarAllToAll) {
  EXPECT_THAT(ends(star(), all_to_all(8, 8 * kMiB)), Each("1174.405"));
}
TEST(FlowReference, StarShiftByOne) {
  EXPECT_THAT(ends(star(), shift(8, 1, 8 * kMiB)), Each("167.772"));
}
TEST(FlowReference, StarShiftByFourOfDifferentSizes) {
  EXPECT_THAT(
      ends(star(), {{0, 4, 2 * kMiB}, {1, 5, 4 * kMiB}, {2, 6, 6 * kMiB}, {3, 7, 8 * kMiB}}),
      ElementsAre("41.943", "83.886", "125.829", "167.772"));
}
TEST(FlowReference, StarTwoBottlenecks) {
  EXPECT_THAT(
      ends(star(), {{1, 0, 8 * kMiB}, {2, 0, 8 * kMiB}, {1, 3, 8 * kMiB}, {4, 3, 2 * kMiB}}),
      ElementsAre("335.544", "335.544", "335.544", "83.886"));
}
TEST(FlowReference, Chain) {
  FlowNetwork chain;
  const std::vector<ResourceId> hops = {chain.add_link(kLink), chain.add_link(kLink),
                                        chain.add_link(kLink)};
  chain.start(ByteCount(8 * kMiB), hops);
  for (const ResourceId hop : hops) {
    chain.start(ByteCount(8 * kMiB), {{hop}});
  }
  EXPECT_EQ(chain.advance().size(), 4u);
  EXPECT_EQ(microseconds(chain.now()), "335.544");
}
TEST(FlowReference, FatTreeIncast) {
  EXPECT_THAT(ends({16, 4, 4}, incast(16, 8 * kMiB)), Each("2516.582"));
}
TEST(FlowReference, FatTreeShift) {
  EXPECT_THAT(ends({16, 4, 4}, shift(16, 8, 8 * kMiB)), Each("167.772"));
}
TEST(FlowReference, TaperedFatTreeAllToAll) {
  const std::vector<std::string> all = ends({16, 4, 2}, all_to_all(16, 4 * kMiB));
  EXPECT_EQ(
      *std::max_element(all.begin(), all.end(),
                        [](const auto& a, const auto& b) { return std::stod(a) < std::stod(b); }),
      "2013.266");
}

// The same traffic on other topologies gives other times.
TEST(FlowNetwork, ReactsToTheTopology) {
  EXPECT_THAT(ends({16, 4, 4}, shift(16, 4, kMiB)), Each("20.972"));
  EXPECT_THAT(ends({16, 4, 1}, shift(16, 4, kMiB)), Each("83.886"));
}

// Cut-through: alone, a flow takes its latency plus bytes over its narrowest link, once.
TEST(FlowNetwork, AloneItTakesLatencyPlusBytesOverBottleneck) {
  FlowNetwork network;
  const std::vector<ResourceId> route = {network.add_link(4e9), network.add_link(1e9),
                                         network.add_link(2e9)};
  network.start(ByteCount(1000), route, SimTime{5'000});
  ASSERT_EQ(network.advance().size(), 1u);
  EXPECT_EQ(network.now().ps, 5'000 + 1'000'000);
}

TEST(FlowNetwork, RoundsUpToTheNextPicosecond) {
  FlowNetwork network;
  const ResourceId link = network.add_link(3e12);
  network.start(ByteCount(1), {{link}});
  network.advance();
  EXPECT_EQ(network.now().ps, 1);
  network.start(ByteCount(3), {{link}});
  network.advance();
  EXPECT_EQ(network.now().ps, 2);
}

TEST(FlowNetwork, ZeroBytesAndZeroDelayAreLegal) {
  FlowNetwork network;
  const ResourceId link = network.add_link(1e9);
  const FlowId nothing = network.start(ByteCount(0), {{link}});
  const FlowId late = network.start(ByteCount(0), {{link}}, SimTime{7});
  const FlowId routeless = network.start(ByteCount(5), {});
  EXPECT_THAT(network.advance(), ElementsAre(nothing, routeless));
  EXPECT_EQ(network.now().ps, 0);
  EXPECT_THAT(network.advance(), ElementsAre(late));
  EXPECT_EQ(network.now().ps, 7);
  EXPECT_TRUE(network.advance().empty());
}

TEST(FlowNetwork, SaysWhenNothingCanEnd) {
  FlowNetwork network;
  const ResourceId dead = network.add_link(0.0);
  network.start(ByteCount(1), {{dead}});
  EXPECT_TRUE(network.advance().empty());
  EXPECT_EQ(network.in_flight(), 1u);
}

// A class of 5 equal flows and 5 flows apart end at the same picosecond, beside a competitor.
TEST(FlowNetwork, AFlowClassEqualsItsMembers) {
  FlowNetwork apart;
  FlowNetwork together;
  std::vector<SimTime> ends_apart;
  for (FlowNetwork* network : {&apart, &together}) {
    const ResourceId link = network->add_link(7e9);
    network->start(ByteCount(123'456), {{link}});
    if (network == &together) {
      network->start(ByteCount(1'000'003), {{link}}, {}, 5);
    } else {
      for (int i = 0; i < 5; ++i) {
        network->start(ByteCount(1'000'003), {{link}});
      }
    }
    while (!network->advance().empty()) {
    }
  }
  EXPECT_EQ(apart.now(), together.now());
}

// A flow that starts later takes its share from then on: 1,000 bytes alone for 0.5 us, then half.
TEST(FlowNetwork, SharesFromTheArrivalOn) {
  FlowNetwork network;
  const ResourceId link = network.add_link(1e9);
  const FlowId first = network.start(ByteCount(1000), {{link}});
  const FlowId second = network.start(ByteCount(1000), {{link}}, SimTime{500'000});
  EXPECT_THAT(network.advance(), ElementsAre(first));
  EXPECT_EQ(network.now().ps, 1'500'000);
  EXPECT_THAT(network.advance(), ElementsAre(second));
  EXPECT_EQ(network.now().ps, 2'000'000);
}

TEST(Progress, KeepsWholePicosecondsWhole) {
  Progress progress{static_cast<double>(8 * kMiB), kLink, {}};
  EXPECT_EQ(progress.end().ps, 167'772'160);
  progress.change_rate(SimTime{100'000'000}, kLink / 2.0);
  EXPECT_EQ(progress.end().ps, 100'000'000 + 2 * 67'772'160);
  progress.change_rate(SimTime{150'000'000}, 0.0);
  EXPECT_EQ(progress.end(), SimTime::max());
}

}  // namespace
}  // namespace orrery::sim
