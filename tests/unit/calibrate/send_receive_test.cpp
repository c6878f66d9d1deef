// SPDX-License-Identifier: Apache-2.0
// Messages from rank to rank in a profile, and broadcasts, which stand for themselves.
#include "calibrate/fit/send_receive.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "calibrate/fit/own_collectives.hpp"
#include "costmodel/collective_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CollectiveModel;
using costmodel::Profile;
using sim::CommKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CollectiveLog peer_log(const char* gpu, int nodes, int ranks_per_node) {
  CollectiveLog log;
  log.name = "peers";
  log.system = *log_system({gpu, "", nodes > 1 ? "8x 400Gb/s IB" : "", nodes, ranks_per_node});
  log.gpu = log.system.cluster.gpu.name;
  log.kind = CommKind::SendReceive;
  return log;
}

CollectiveLog messages_at(double latency, double rate, CollectiveLog log,
                          double largest = 1024.0 * 1024 * 1024) {
  for (double bytes = 1024; bytes <= largest; bytes *= 4) {
    log.times.push_back({Bytes(bytes), Seconds(latency + bytes / rate)});
  }
  return log;
}

Profile base_of(const CollectiveLog& log) {
  return costmodel::load_profile("", log.system.cluster.gpu);
}

double worst_message(const Profile& profile, const CollectiveLog& log) {
  const CollectiveModel model(log.system.cluster, profile);
  double worst = 0;
  for (const MeasuredTime& measured : log.times) {
    const Seconds time = model.send_receive(measured.size, log.system.group.nodes == 1, 1);
    worst = std::max(worst, std::abs(time / measured.time - 1));
  }
  return worst;
}

TEST(SendReceiveFit, InsideANodeTheShareOfTheLinksMoves) {
  const CollectiveLog log = messages_at(6e-6, 250e9, peer_log("H100-80GB-SXM", 1, 2));
  const Profile base = base_of(log);
  const SendReceiveFit fit = fit_send_receive(std::vector{log}, base);
  EXPECT_TRUE(fit.is_moved);
  EXPECT_GT(worst_message(base, log), 0.1);
  EXPECT_LT(worst_message(fit.profile, log), 0.01);
  EXPECT_NEAR(fit.profile.send_receive.intra_fraction, 250.0 / 450, 0.005);
  EXPECT_EQ(fit.profile.send_receive.inter_latency, base.send_receive.inter_latency);
  EXPECT_EQ(fit.left_out.size(), log.times.size());
  EXPECT_THAT(
      fit.profile.collectives.left_out,
      testing::Contains(testing::Field(&costmodel::CollectiveError::group, "send-receive")));
}

// One message at a time: what one connection carries where the adapter has more.
TEST(SendReceiveFit, BetweenNodesAConnectionIsNoAdapter) {
  const CollectiveLog slow = messages_at(20e-6, 12e9, peer_log("H100-80GB-SXM", 2, 1));
  const Profile base = base_of(slow);
  const Profile limited = fit_send_receive(std::vector{slow}, base).profile;
  EXPECT_LT(worst_message(limited, slow), 0.01);
  EXPECT_NEAR(limited.send_receive.peer_limit.value(), 12e9, 0.1e9);
  EXPECT_EQ(limited.send_receive.nic_fraction, base.send_receive.nic_fraction);
  EXPECT_EQ(limited.send_receive.intra_latency, base.send_receive.intra_latency);
  const CollectiveLog fast = messages_at(20e-6, 46e9, peer_log("H100-80GB-SXM", 2, 8));
  const Profile whole = fit_send_receive(std::vector{fast}, base).profile;
  EXPECT_LT(worst_message(whole, fast), 0.01);
  EXPECT_GT(whole.send_receive.nic_fraction, base.send_receive.nic_fraction);
}

// Logs of several networks: shares are of the fastest, whatever the order.
TEST(SendReceiveFit, SharesOfNetworksThatDifferAreShares) {
  const CollectiveLog fast = messages_at(20e-6, 47e9, peer_log("H100-80GB-SXM", 2, 8));
  CollectiveLog slow = fast;
  slow.system = *log_system({"H100-80GB-SXM", "", "8x 100Gb/s IB", 2, 8});
  slow.times.clear();
  slow = messages_at(20e-6, 12e9, slow);
  const Profile base = base_of(fast);
  const Profile fitted = fit_send_receive(std::vector{slow, fast}, base).profile;
  EXPECT_NEAR(fitted.send_receive.nic_fraction, 47.0 / 48, 0.01);  // 48 of 50 GB/s, as NCCL lays it
  EXPECT_EQ(fitted.send_receive,
            fit_send_receive(std::vector{fast, slow}, base).profile.send_receive);
  EXPECT_LT(worst_message(fitted, fast), 0.03);
  EXPECT_LT(worst_message(fitted, slow), 0.05);
}

// A connection over Omni-Path carries a fixed rate: the latency alone moves.
TEST(SendReceiveFit, OmniPathStatesItsRate) {
  CollectiveLog log = peer_log("V100-SXM2-32GB", 2, 1);
  log.system.cluster = topologies::load_cluster("dgx-1v:2", {"node.scale_out.link=omni-path"});
  log = messages_at(40e-6, 2.5e9, log);
  const Profile base = base_of(log);
  const Profile fitted = fit_send_receive(std::vector{log}, base).profile;
  EXPECT_EQ(fitted.send_receive.peer_limit, base.send_receive.peer_limit);
  EXPECT_EQ(fitted.send_receive.nic_fraction, base.send_receive.nic_fraction);
  EXPECT_LT(worst_message(fitted, log), 0.02);
}

// The rate of a mesh is that of its links: the latency alone moves.
TEST(SendReceiveFit, MeshesStateTheirRates) {
  const CollectiveLog plain = peer_log("V100-SXM2-32GB", 1, 2);
  const Profile base = base_of(plain);
  Profile slower = base;
  slower.send_receive.intra_latency = Seconds(30e-6);
  CollectiveLog log = messages_at(0, 1e12, plain);
  for (MeasuredTime& measured : log.times) {
    measured.time =
        CollectiveModel(log.system.cluster, slower).send_receive(measured.size, true, 1);
  }
  const Profile fitted = fit_send_receive(std::vector{log}, base).profile;
  EXPECT_LT(worst_message(fitted, log), 0.01);
  EXPECT_EQ(fitted.send_receive.intra_fraction, base.send_receive.intra_fraction);
}

TEST(SendReceiveFit, MessagesThatSayNothingOfTheLinkAreRefused) {
  const CollectiveLog log = peer_log("H100-80GB-SXM", 1, 2);
  const Profile base = base_of(log);
  const auto remark_of = [&](const CollectiveLog& of) {
    const SendReceiveFit fit = fit_send_receive(std::vector{of}, base);
    EXPECT_EQ(fit.profile.send_receive, base.send_receive);
    EXPECT_FALSE(fit.is_moved);
    return fit.remarks.empty() ? std::string() : fit.remarks.front();
  };
  EXPECT_THAT(remark_of(messages_at(6e-6, 250e9, log, 4 << 20)), HasSubstr("none of 16 MiB"));
  EXPECT_THAT(remark_of(messages_at(6e-6, 900e9, log)), HasSubstr("times the rate of the link"));
  CollectiveLog few = messages_at(6e-6, 250e9, log);
  few.times.erase(few.times.begin(), few.times.end() - 2);
  EXPECT_THAT(remark_of(few), HasSubstr("2 sizes, where 4 are needed"));
  EXPECT_THAT(fit_send_receive({}, base).remarks, IsEmpty());
}

TEST(SendReceiveFit, MessagesAreSortedApartFromCollectives) {
  SampleFile file;
  file.header.device = "H100-80GB-SXM";
  const CollectiveSample shape{
      .kind = CommKind::SendReceive, .bytes = 4096, .ranks = 2, .ranks_per_node = 2};
  file.samples.push_back({.shape = shape, .time = {Seconds(1e-5), Seconds(1e-5), Seconds(1e-5)}});
  const CollectiveLogs collected = collect_logs(std::vector<SampleFile>{file});
  EXPECT_TRUE(collected.logs.empty());
  ASSERT_EQ(collected.peers.size(), 1U);
  EXPECT_EQ(collected.peers.front().times.size(), 1U);
}

// Broadcasts have curves of their own, and move nothing else.
TEST(BroadcastFit, StandsForItself) {
  CollectiveLog log;
  log.name = "own";
  log.system = *log_system({"H100-80GB-SXM", "", "", 1, 8});
  log.gpu = log.system.cluster.gpu.name;
  log.family = "hopper";
  log.kind = CommKind::Broadcast;
  const Profile base = base_of(log);
  const auto time = [&](const Profile& profile, CommKind kind, double bytes) {
    return CollectiveModel(log.system.cluster, profile)
        .time(kind, Bytes(bytes), log.system.group)
        .value();
  };
  for (double bytes = 1024; bytes < 2e9; bytes *= 2) {
    log.times.push_back({Bytes(bytes), Seconds(1.5 * time(base, CommKind::Broadcast, bytes))});
  }
  const std::vector<CollectiveLog> logs = {log};
  const Profile fitted = fit_own_collectives(logs, base).profile;
  for (const MeasuredTime& measured : log.times) {
    const double bytes = measured.size.value();
    EXPECT_NEAR(time(fitted, CommKind::Broadcast, bytes) / measured.time.value(), 1, 0.08) << bytes;
    EXPECT_EQ(time(fitted, CommKind::AllReduce, bytes), time(base, CommKind::AllReduce, bytes));
  }
  EXPECT_THAT(sections_of(logs), ElementsAre("collectives"));
}

}  // namespace
}  // namespace orrery::calibrate
