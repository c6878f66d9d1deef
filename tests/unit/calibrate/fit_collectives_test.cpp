// SPDX-License-Identifier: Apache-2.0
// From logs to profiles: machines, launch modes, five factors, errors on public logs.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/files.hpp"
#include "calibrate/fit/collective_profiles.hpp"
#include "calibrate/fit/collectives.hpp"
#include "calibrate/fit/five_factors.hpp"
#include "calibrate/reader.hpp"
#include "costmodel/collective_model.hpp"
#include "tests/folders.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CollectiveModel;
using costmodel::FabricClass;
using sim::CommKind;

TEST(LogSystemTest, ReadsTheNetwork) {
  const auto roce = log_system({"A100-SXM4-40GB", "", "16x 100Gb/s RoCE (OCI BM.GPU.B4.8)", 2, 8});
  ASSERT_TRUE(roce.has_value());
  EXPECT_EQ(costmodel::fabric_class(roce->cluster.node.scale_out), FabricClass::Roce);
  EXPECT_EQ(roce->cluster.node.scale_out.nics, 16);
  EXPECT_NEAR(roce->cluster.node.scale_out.nic_bandwidth.value() * 8, 100e9, 1);
  const auto generation = log_system({"A100-SXM4-80GB", "", "8x HDR200 IB per node", 2, 8});
  ASSERT_TRUE(generation.has_value());
  EXPECT_EQ(generation->cluster.node.scale_out.nics, 8);
  EXPECT_NEAR(generation->cluster.node.scale_out.nic_bandwidth.value() * 8, 200e9, 1);
  const auto fewer = log_system({"H100-80GB-SXM", "", "4x 200Gb/s IB", 2, 8});
  ASSERT_TRUE(fewer.has_value());
  EXPECT_EQ(fewer->cluster.node.scale_out.nics, 4);
  const auto one_gpu = log_system({"H100-80GB-SXM", "", "1x CX-7 400Gb/s IB", 2, 1});
  ASSERT_TRUE(one_gpu.has_value());
  EXPECT_EQ(one_gpu->cluster.node.scale_out.nics, 8);
  const auto counted = log_system({"A100-SXM4-80GB", "", "8x RoCE NICs", 2, 8});
  ASSERT_TRUE(counted.has_value());
  EXPECT_EQ(counted->cluster.node.scale_out.nics, 8);
  const auto sharp = log_system({"H100-80GB-SXM", "", "8x NDR400 IB with SHARP", 12, 8});
  ASSERT_TRUE(sharp.has_value());
  EXPECT_EQ(costmodel::fabric_class(sharp->cluster.node.scale_out), FabricClass::Sharp);
  EXPECT_FALSE(log_system({"H100-80GB-SXM", "", "IP over IB sockets", 2, 8}).has_value());
  EXPECT_FALSE(log_system({"Abacus-3000", "", "", 1, 8}).has_value());
}

// EFA is the network of one cloud, whose nodes say what NCCL may choose among.
TEST(LogSystemTest, EfaIsThatOfItsNodes) {
  const auto network = [](const char* gpu, const char* words) {
    return log_system({gpu, "", words, 2, 8})->cluster.node.scale_out;
  };
  const topologies::ScaleOut older = network("A100-SXM4-80GB", "4x 100Gb/s EFA");
  EXPECT_EQ(costmodel::fabric_class(older), FabricClass::Efa);
  EXPECT_FALSE(older.low_latency_128);
  const topologies::ScaleOut newer = network("H100-80GB-SXM", "32x 100Gb/s EFAv2");
  EXPECT_EQ(costmodel::fabric_class(newer), FabricClass::Efa);
  EXPECT_TRUE(newer.low_latency_128);
  EXPECT_EQ(costmodel::fabric_class(network("H100-80GB-SXM", "8x 400Gb/s IB, default settings")),
            FabricClass::InfiniBand);
}

TEST(LogSystemTest, TraysOfADomainAreOneNode) {
  const auto trays = log_system({"GB200", "", "one NVL72 rack", 2, 4});
  ASSERT_TRUE(trays.has_value());
  EXPECT_EQ(trays->group.nodes, 1);
  EXPECT_EQ(trays->group.ranks_per_node, 8);
}

TEST(LogSystemTest, ReadsVersions) {
  EXPECT_EQ(nccl_version("2.29.2"), 229);
  EXPECT_EQ(nccl_version("2.26.2+cuda12.8"), 226);
  EXPECT_EQ(nccl_version("2.5"), 205);
  for (const char* text : {"", "x", "2", "2.", "ROCm 6.2.1", "2.999"}) {
    EXPECT_EQ(nccl_version(text), 0) << text;
  }
}

SampleFile sample_file(LaunchMode mode, const std::vector<double>& microseconds) {
  SampleFile file;
  file.header.device = "H100-80GB-SXM";
  file.header.libraries = {{"nccl", "2.29.2"}};
  set_launch_mode(file.header, mode);
  std::int64_t bytes = 512;
  for (const double time : microseconds) {
    const CollectiveSample shape{.bytes = bytes, .ranks = 8, .ranks_per_node = 8};
    file.samples.push_back(
        {.shape = shape,
         .time = {Seconds(time * 1e-6), Seconds(time * 1e-6), Seconds(time * 1e-6)},
         .source = "a.txt"});
    bytes *= 2;
  }
  return file;
}

TEST(CollectiveLogsTest, SortsSamplesByLog) {
  const std::vector<SampleFile> files = {sample_file(LaunchMode::ProcessPerGpu, {9, 10, 20})};
  const CollectiveLogs collected = collect_logs(files);
  ASSERT_EQ(collected.logs.size(), 1U);
  const CollectiveLog& log = collected.logs.front();
  EXPECT_EQ(log.times.size(), 2U);  // 512 B is below what is fitted
  EXPECT_EQ(log.nccl, 229);
  EXPECT_EQ(log.family, "hopper");
  EXPECT_EQ(log.fabric, FabricClass::Node);
}

TEST(CollectiveLogsTest, OneProcessIsLaunchBound) {
  EXPECT_EQ(with_launch(LaunchMode::OneProcess, 8, Seconds(1e-6)), 8 * kLaunchOfOneProcess);
  EXPECT_EQ(with_launch(LaunchMode::OneProcess, 8, Seconds(1)), Seconds(1));
  EXPECT_EQ(with_launch(LaunchMode::ProcessPerGpu, 8, Seconds(1e-6)), Seconds(1e-6));
  const std::vector<SampleFile> files = {sample_file(LaunchMode::OneProcess, {9, 40, 400})};
  const CollectiveLogs collected = collect_logs(files);
  const CollectiveLog& log = collected.logs.front();
  EXPECT_TRUE(launch_bound(log, Seconds(40e-6)));
  EXPECT_FALSE(launch_bound(log, Seconds(400e-6)));
}

TEST(CollectiveLogsTest, ForcedAlgorithmsAndUnknownNetworksAreLeftOut) {
  SampleFile forced = sample_file(LaunchMode::ProcessPerGpu, {9, 10, 20});
  forced.header.fabric = "8x HCA, forced NCCL_ALGO=Ring";
  const CollectiveLogs collected = collect_logs(std::vector<SampleFile>{forced});
  EXPECT_TRUE(collected.logs.empty());
  ASSERT_EQ(collected.remarks.size(), 1U);
  EXPECT_NE(collected.remarks.front().find("forced"), std::string::npos);
  forced.header.fabric = "8x HCA";
  forced.header.notes = {"launch-mode: process-per-gpu", "NCCL_ALGO=RING forced"};
  EXPECT_TRUE(collect_logs(std::vector<SampleFile>{forced}).logs.empty());
}

TEST(CollectiveLogsTest, ForcedProtocolsAreLeftOut) {
  SampleFile forced = sample_file(LaunchMode::ProcessPerGpu, {9, 10, 20});
  forced.header.notes = {"NCCL_PROTO=LL"};
  EXPECT_TRUE(collect_logs(std::vector<SampleFile>{forced}).logs.empty());
}

// What is only moved takes as long in any format.
TEST(CollectiveLogsTest, SumsOfOneByteAreLeftOut) {
  const auto logs_of = [](const std::string& type, sim::CommKind kind) {
    SampleFile file = sample_file(LaunchMode::ProcessPerGpu, {9, 10, 20});
    for (Sample& sample : file.samples) {
      sample.implementation = type;
      std::get<CollectiveSample>(sample.shape).kind = kind;
    }
    SampleFile other = file;
    for (Sample& sample : other.samples) {
      sample.source = "b.txt";
    }
    return collect_logs(std::vector<SampleFile>{file, other});
  };
  for (const char* type : {"int8", "uint8", "fp8_e4m3", "f8e5m2"}) {
    const CollectiveLogs sums = logs_of(type, sim::CommKind::AllReduce);
    EXPECT_TRUE(sums.logs.empty()) << type;
    EXPECT_EQ(sums.remarks, std::vector<std::string>{
                                "left out: sums of one byte an element, which NCCL adds more "
                                "slowly: a.txt and 1 more"});
    EXPECT_EQ(logs_of(type, sim::CommKind::AllGather).logs.size(), 2U) << type;
  }
  EXPECT_EQ(logs_of("half", sim::CommKind::ReduceScatter).logs.size(), 2U);
}

TEST(CollectiveLogsTest, GroupsAtOnceAreLeftOut) {
  SampleFile file = sample_file(LaunchMode::ProcessPerGpu, {9, 10, 20});
  for (Sample& sample : file.samples) {
    std::get<CollectiveSample>(sample.shape).concurrent_groups = 2;
  }
  const CollectiveLogs collected = collect_logs(std::vector<SampleFile>{file});
  EXPECT_TRUE(collected.logs.empty());
  EXPECT_EQ(collected.remarks,
            std::vector<std::string>{"left out: times of several groups at once: a.txt"});
}

TEST(CollectiveLogsTest, NetworksThatLogsDoNotStateAreSaid) {
  SampleFile open = sample_file(LaunchMode::ProcessPerGpu, {9, 10, 20});
  EXPECT_TRUE(collect_logs(std::vector<SampleFile>{open}).remarks.empty());  // one node
  for (Sample& sample : open.samples) {
    auto& shape = std::get<CollectiveSample>(sample.shape);
    shape.nodes = 2;
    shape.ranks = 16;
  }
  const CollectiveLogs collected = collect_logs(std::vector<SampleFile>{open});
  EXPECT_EQ(collected.logs.size(), 1U);
  EXPECT_EQ(collected.remarks, std::vector<std::string>{
                                   "a.txt: the network is not stated: that of hgx-h100 is taken"});
  open.header.fabric = "8x400Gb IB";
  EXPECT_TRUE(collect_logs(std::vector<SampleFile>{open}).remarks.empty());
}

// Times of a model with known factors give back its times.
TEST(FiveFactorsTest, FindsWhatMadeTheTimes) {
  CollectiveLog log;
  log.system = *log_system({"H100-80GB-SXM", "", "", 1, 8});
  const costmodel::Profile profile = costmodel::load_profile("", log.system.cluster.gpu);
  const CollectiveModel model(log.system.cluster, profile);
  costmodel::CollectiveParameters truth;
  truth.base = Seconds(3e-6);
  truth.low_latency_factor = 1.3;
  truth.simple_factor = 1.2;
  truth.bandwidth_factor = 0.85;
  truth.in_switch_factor = 0.9;
  truth.half_size = Bytes(3e6);
  for (double bytes = 1024; bytes < 2e10; bytes *= 2) {
    log.times.push_back(
        {Bytes(bytes), model.formula(log.kind, Bytes(bytes), log.system.group, truth).time});
  }
  const LogOfModel pair{&log, &model};
  costmodel::CollectiveParameters start;
  start.bandwidth_factor = 0.9;
  const auto found = fit_five_factors({&pair, 1}, start);
  for (const MeasuredTime& time : log.times) {
    const Seconds fitted = model.formula(log.kind, time.size, log.system.group, found).time;
    EXPECT_NEAR(fitted / time.time, 1, 0.06) << time.size.value();
  }
  EXPECT_NEAR(found.in_switch_factor, 0.9, 0.02);
}

// One log between nodes is that of one cloud: it moves the factors of the family less than a log of
// one node does.
TEST(FiveFactorsTest, BetweenNodesOneLogMovesTheFactorsLess) {
  const auto moved = [](int nodes) {
    CollectiveLog log;
    log.system = *log_system({"H100-80GB-SXM", "", nodes > 1 ? "8x 400Gb/s IB" : "", nodes, 8});
    const CollectiveModel model(log.system.cluster,
                                costmodel::load_profile("", log.system.cluster.gpu));
    const costmodel::CollectiveParameters start;
    costmodel::CollectiveParameters slower = start;
    slower.low_latency_factor = slower.simple_factor = 1.2;
    for (double bytes = 1024; bytes < 2e10; bytes *= 2) {
      log.times.push_back(
          {Bytes(bytes), model.formula(log.kind, Bytes(bytes), log.system.group, slower).time});
    }
    const LogOfModel pair{&log, &model};
    const auto smallest = [&](const costmodel::CollectiveParameters& parameters) {
      return model.formula(log.kind, Bytes(1024), log.system.group, parameters).time;
    };
    const costmodel::CollectiveParameters found = fit_five_factors({&pair, 1}, start);
    return (smallest(found) - smallest(start)) / (smallest(slower) - smallest(start));
  };
  EXPECT_GT(moved(2), 0.5);
  EXPECT_LT(moved(2), 0.96);
  EXPECT_GT(moved(1), 0.98);
}

TEST(CollectiveProfilesTest, ProfilesBelongToTheirFamily) {
  const std::vector<std::string> families = {"ada-pcie", "hopper"};
  EXPECT_EQ(family_of_profile("h800-sxm5-80gb", families), "hopper");
  EXPECT_EQ(family_of_profile("default-ada", families), "ada-pcie");
  EXPECT_EQ(family_of_profile("l40s", families), "ada-pcie");
  EXPECT_EQ(family_of_profile("default-generic", families), "");
  EXPECT_EQ(family_of_profile("v100-sxm2-32gb", families), "");
}

// The log of one machine says less of how machines differ than those of all families do.
TEST(CollectiveProfilesTest, OneLogIsNoNarrowerThanAll) {
  const auto logs_of = [](const char* gpu, const char* family, int count) {
    CollectiveLog log;
    log.system = *log_system({gpu, "", "8x 400Gb/s IB", 2, 8});
    log.gpu = log.system.cluster.gpu.name;
    log.family = family;
    log.fabric = FabricClass::InfiniBand;
    for (double bytes = 1024; bytes < 2e9; bytes *= 4) {
      log.times.push_back({Bytes(bytes), Seconds(30e-6 + bytes / 1e11)});
    }
    return std::vector<CollectiveLog>(static_cast<std::size_t>(count), log);
  };
  const auto spread_of = [](const std::vector<CollectiveLog>& logs, const CollectiveLog& of) {
    std::vector<LogError> errors;
    for (const CollectiveLog& log : logs) {
      errors.push_back({&log, {}, {log.family == of.family ? 0.1 : 0.3}, {}});
    }
    const costmodel::Profile profile = costmodel::load_profile("", of.system.cluster.gpu);
    const Json document = with_collectives(costmodel::to_json(profile), "a test",
                                           fit_family(logs, of.family, {}), errors, of.family);
    return costmodel::read_profile(document, "a test", of.system.cluster.gpu)
        .spread.inter_node_collective;
  };
  std::vector<CollectiveLog> logs = logs_of("H100-80GB-SXM", "hopper", 4);
  const CollectiveLog other = logs_of("MI300X", "cdna3", 1).front();
  logs.push_back(other);
  EXPECT_NEAR(spread_of(logs, other), 0.3 / 1.2816, 1e-3);
  EXPECT_NEAR(spread_of(logs, logs.front()), 0.1 / 1.2816, 1e-3);
}

std::string rows_path() { return (orrery::shared_folder() / "nccl-logs/rows.csv").string(); }

// The bars of collectives, with all logs in the fit; a log left out is checked for one family.
// Slow sizes that no five factors follow, measured over InfiniBand alone.
TEST(CollectiveFitTest, NetworksTellWhatTheirRelativesDo) {
  std::vector<CollectiveLog> logs(1);
  CollectiveLog& log = logs.front();
  log.system = *log_system({"H100-80GB-SXM", "", "8x 400Gb/s IB", 2, 8});
  log.gpu = log.system.cluster.gpu.name;
  log.family = "hopper";
  log.fabric = FabricClass::InfiniBand;
  costmodel::Profile profile = costmodel::load_profile("", log.system.cluster.gpu);
  const CollectiveModel model(log.system.cluster, profile);
  for (double bytes = 1024; bytes < 2e10; bytes *= 2) {
    const Seconds time = model.formula(log.kind, Bytes(bytes), log.system.group).time;
    const bool is_slow = bytes >= double{1 << 19} && bytes <= double{1 << 21};
    log.times.push_back({Bytes(bytes), time * (is_slow ? 1.4 : 1.0)});
  }
  fit_family(logs, "hopper", {}).apply(profile, log.gpu);
  const auto at_step = [&](FabricClass fabric) {
    for (const costmodel::ResidualCurve& curve : profile.collectives.residuals.curves()) {
      if (curve.fabric == fabric && curve.kind == log.kind && curve.nodes == 2) {
        return static_cast<double>(curve.permille.at(static_cast<std::size_t>(20 - curve.first)));
      }
    }
    return 0.0;
  };
  EXPECT_GT(at_step(FabricClass::InfiniBand), 100);
  EXPECT_GT(at_step(FabricClass::Roce), 0.5 * at_step(FabricClass::InfiniBand));
  EXPECT_LT(at_step(FabricClass::Roce), at_step(FabricClass::InfiniBand));
  EXPECT_EQ(at_step(FabricClass::Sharp), 0.0);
}

// One log of a network that profiles need no factors of does not tell the network from its cloud.
TEST(CollectiveFitTest, RareNetworksTakeTwoLogsToHaveFactors) {
  const auto fabrics_of = [](int count) {
    CollectiveLog log;
    log.system = *log_system({"H100-80GB-SXM", "", "8x 400Gb/s IB with SHARP", 2, 8});
    log.gpu = log.system.cluster.gpu.name;
    log.family = "hopper";
    log.fabric = FabricClass::Sharp;
    for (double bytes = 1024; bytes < 2e9; bytes *= 4) {
      log.times.push_back({Bytes(bytes), Seconds(60e-6 + bytes / 5e10)});
    }
    const std::vector<CollectiveLog> logs(static_cast<std::size_t>(count), log);
    costmodel::Profile profile = costmodel::load_profile("", log.system.cluster.gpu);
    fit_family(logs, log.family, {}).apply(profile, log.gpu);
    EXPECT_FALSE(profile.collectives.residuals.empty());
    return profile.collectives.fabrics.size();
  };
  EXPECT_EQ(fabrics_of(1), 0U);
  EXPECT_EQ(fabrics_of(2), 1U);
}

// Lines of one log, each with the time of one size.
TEST(CollectiveFitTest, TimesKnowTheirLines) {
  SampleFile file = sample_file(LaunchMode::ProcessPerGpu, {20, 21, 22});
  for (std::size_t i = 0; i < file.samples.size(); ++i) {
    file.samples[i].source = "a.txt:" + std::to_string(9 + i);
  }
  const CollectiveLogs collected = collect_logs(std::vector<SampleFile>{file});
  ASSERT_EQ(collected.logs.size(), 1U);
  EXPECT_EQ(collected.logs.front().name, "a.txt");
  EXPECT_EQ(collected.logs.front().times.back().source, "a.txt:11");
}

TEST(CollectiveFitTest, PublicLogsAreWithinTheBars) {
  if (!std::filesystem::exists(rows_path())) {
    GTEST_SKIP() << "no measured tables";
  }
  const Reading reading = read_foreign(rows_path(), "", {});
  const CollectiveLogs collected = collect_logs(reading.files);
  std::map<std::string, std::vector<double>> fitted;
  for (const LogError& error : log_errors(collected.logs, {}, false, 1)) {
    auto& group = fitted[error_group(*error.log)];
    group.insert(group.end(), error.fitted.begin(), error.fitted.end());
  }
  EXPECT_LE(quantile_of(fitted["one-node"], 0.5), 0.02);
  EXPECT_LE(quantile_of(fitted["one-node"], 0.9), 0.10);
  EXPECT_LE(quantile_of(fitted["several-nodes"], 0.5), 0.03);
  EXPECT_LE(quantile_of(fitted["several-nodes"], 0.9), 0.20);
  EXPECT_LE(quantile_of(fitted["all-to-all"], 0.5), 0.03);
  EXPECT_LE(quantile_of(fitted["all-to-all"], 0.9), 0.20);

  std::vector<CollectiveLog> volta;
  for (const CollectiveLog& log : collected.logs) {
    if (log.family == "volta") {
      volta.push_back(log);
    }
  }
  std::vector<double> left_out;
  std::vector<double> times_left_out;
  std::size_t with_interval = 0;
  std::size_t in_interval = 0;
  for (const LogError& error : log_errors(volta, {}, true, 1)) {
    left_out.insert(left_out.end(), error.left_out.begin(), error.left_out.end());
    EXPECT_EQ(error.times_left_out.size(), error.fitted.size()) << error.log->name;
    with_interval += error.has_interval ? error.left_out.size() : 0;
    in_interval += static_cast<std::size_t>(error.in_interval);
    times_left_out.insert(times_left_out.end(), error.times_left_out.begin(),
                          error.times_left_out.end());
  }
  EXPECT_LE(quantile_of(left_out, 0.5), 0.06);
  // What the errors of the other logs say of a log that none of them knew.
  ASSERT_GT(with_interval, 0U);
  const double coverage = static_cast<double>(in_interval) / static_cast<double>(with_interval);
  EXPECT_GT(coverage, 0.7);
  EXPECT_LT(coverage, 0.9);
  // Easier than whole logs, harder than what was fitted.
  EXPECT_LE(quantile_of(times_left_out, 0.5), quantile_of(left_out, 0.5));
  EXPECT_GT(quantile_of(times_left_out, 0.5), 0);
}

}  // namespace
}  // namespace orrery::calibrate
