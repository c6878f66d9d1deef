// SPDX-License-Identifier: Apache-2.0
// Logs of one machine on top of a profile.
#include "calibrate/fit/own_collectives.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.hpp"
#include "costmodel/collective_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CollectiveModel;
using costmodel::FabricClass;
using costmodel::Profile;
using sim::CommKind;
using ::testing::ElementsAre;

constexpr const char* kInfiniBand = "8x 400Gb/s IB";

CollectiveLog machine_log(int nodes, CommKind kind) {
  CollectiveLog log;
  log.name = "own";
  log.system = *log_system({"H100-80GB-SXM", "", nodes > 1 ? kInfiniBand : "", nodes, 8});
  log.gpu = log.system.cluster.gpu.name;
  log.family = "hopper";
  log.fabric = nodes > 1 ? FabricClass::InfiniBand : FabricClass::Node;
  log.kind = kind;
  log.nccl = 228;
  return log;
}

Profile shipped_profile() {
  return costmodel::load_profile("", machine_log(1, CommKind::AllReduce).system.cluster.gpu);
}

Seconds time_by(const Profile& profile, const CollectiveLog& log, double bytes) {
  return CollectiveModel(log.system.cluster, profile)
      .time(log.kind, Bytes(bytes), log.system.group);
}

// Times of the profile, `factor` times as long.
CollectiveLog measured_on(int nodes, CommKind kind, double factor, const Profile& profile) {
  CollectiveLog log = machine_log(nodes, kind);
  for (double bytes = 1024; bytes < 2e9; bytes *= 2) {
    log.times.push_back({Bytes(bytes), factor * time_by(profile, log, bytes)});
  }
  return log;
}

double worst_error(const Profile& profile, const CollectiveLog& log) {
  double worst = 0;
  for (const MeasuredTime& measured : log.times) {
    const double ratio = time_by(profile, log, measured.size.value()) / measured.time;
    worst = std::max(worst, std::abs(std::log(ratio)));
  }
  return worst;
}

TEST(OwnCollectives, AMachineLikeTheProfileChangesLittle) {
  const Profile base = shipped_profile();
  const std::vector<CollectiveLog> logs = {measured_on(1, CommKind::AllReduce, 1, base)};
  const OwnCollectives fit = fit_own_collectives(logs, base);
  EXPECT_LT(worst_error(fit.profile, logs.front()), 0.03);
  EXPECT_EQ(fit.profile.inter_node, base.inter_node);
  const CollectiveLog gather = measured_on(1, CommKind::AllGather, 1, base);
  EXPECT_LT(worst_error(fit.profile, gather), 0.05);
  ASSERT_EQ(fit.left_out.size(), logs.front().times.size());
}

// More than residuals may hold: the factors move.
TEST(OwnCollectives, ASlowMachineIsFollowedFarFromTheProfile) {
  const Profile base = shipped_profile();
  const std::vector<CollectiveLog> logs = {measured_on(1, CommKind::AllReduce, 3, base),
                                           measured_on(1, CommKind::AllGather, 3, base)};
  const OwnCollectives fit = fit_own_collectives(logs, base);
  EXPECT_GT(worst_error(base, logs.front()), std::log(2.9));
  for (const CollectiveLog& log : logs) {
    EXPECT_LT(worst_error(fit.profile, log), 0.12) << sim::to_text(log.kind);
  }
  // Scatters resemble gathers.
  EXPECT_LT(worst_error(fit.profile, measured_on(1, CommKind::ReduceScatter, 3, base)), 0.25);
  EXPECT_THAT(sections_of(logs), ElementsAre("collectives", "intra_node"));
}

// What no log speaks of stays: exchanges, other networks, groups of errors.
TEST(OwnCollectives, WhatWasNotMeasuredStays) {
  const Profile base = shipped_profile();
  const std::vector<CollectiveLog> logs = {measured_on(2, CommKind::AllReduce, 1.5, base)};
  const OwnCollectives fit = fit_own_collectives(logs, base);
  EXPECT_LT(worst_error(fit.profile, logs.front()), 0.1);
  EXPECT_EQ(fit.profile.intra_node, base.intra_node);
  EXPECT_EQ(fit.profile.inter_node_plugin, base.inter_node_plugin);
  EXPECT_LT(worst_error(fit.profile, measured_on(1, CommKind::AllReduce, 1, base)), 1e-9);
  EXPECT_LT(worst_error(fit.profile, measured_on(2, CommKind::AllToAll, 1, base)), 1e-9);
  for (const costmodel::CollectiveError& row : fit.profile.collectives.left_out) {
    const bool measured = row.group == "several-nodes";
    const auto& before = base.collectives.left_out;
    EXPECT_NE(measured, std::ranges::find(before, row) != before.end()) << row.group;
    EXPECT_TRUE(!measured || (row.logs == 1 && row.points == 21 && row.median < 0.1));
  }
}

// Spreads are no narrower than what the logs themselves leave, and stay for other networks.
TEST(OwnCollectives, SpreadsWidenWithTheErrors) {
  const Profile base = shipped_profile();
  std::vector<CollectiveLog> logs = {measured_on(2, CommKind::AllReduce, 1, base)};
  EXPECT_EQ(fit_own_collectives(logs, base).profile.spread, base.spread);
  for (std::size_t i = 0; i < logs.front().times.size(); i += 2) {
    logs.front().times[i].time *= 3;
  }
  const OwnCollectives fit = fit_own_collectives(logs, base);
  costmodel::Spreads spread = fit.profile.spread;
  EXPECT_GT(spread.inter_node_collective, 0.3);
  spread.inter_node_collective = base.spread.inter_node_collective;
  EXPECT_EQ(spread, base.spread);
}

// Microseconds read as milliseconds, in one size or in all.
TEST(OwnCollectives, TimesInAnotherUnitAreDropped) {
  const Profile base = shipped_profile();
  std::vector<CollectiveLog> logs = {measured_on(1, CommKind::AllReduce, 30, base),
                                     measured_on(1, CommKind::AllGather, 1000, base),
                                     measured_on(2, CommKind::AllReduce, 1, base)};
  logs.back().times.front().time *= 1e-3;
  std::vector<CollectiveLog> refused = logs;
  EXPECT_THROW((void)drop_impossible(refused, base, false), Error);
  // With the line where the log has one.
  refused = {logs.back()};
  refused.front().times.front().source = "all_reduce.txt:14";
  const std::vector<std::string> dropped = drop_impossible(refused, base, true);
  ASSERT_EQ(dropped.size(), 1U);
  EXPECT_TRUE(dropped.front().starts_with("all_reduce.txt:14: ")) << dropped.front();
  EXPECT_EQ(drop_impossible(logs, base, true).size(), 22U);
  ASSERT_EQ(logs.size(), 2U);
  EXPECT_EQ(logs.front().times.size(), 21U);
  EXPECT_EQ(logs.back().times.size(), 20U);
}

TEST(OwnCollectives, OneTimeIsEnough) {
  const Profile base = shipped_profile();
  std::vector<CollectiveLog> logs = {measured_on(1, CommKind::AllToAll, 1.3, base)};
  logs.front().times = {logs.front().times.back()};
  const OwnCollectives fit = fit_own_collectives(logs, base);
  EXPECT_LT(worst_error(fit.profile, logs.front()), 0.05);
  EXPECT_EQ(fit.left_out.size(), 1U);
}

}  // namespace
}  // namespace orrery::calibrate
