// SPDX-License-Identifier: Apache-2.0
// What profiles say of the logs behind their collective sections, and where no log tells anything.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "calibrate/fit/collective_profiles.hpp"

namespace orrery::calibrate {
namespace {

using ::testing::HasSubstr;

// A section's source counts the logs of its factors, not those of networks with others.
TEST(CollectiveProfilesTest, SourcesCountTheLogsOfASection) {
  const auto log_on = [](const char* network, int ranks_per_node) {
    CollectiveLog log;
    log.system = *log_system({"H100-80GB-SXM", "", network, 2, ranks_per_node});
    log.name = fmt::format("{} {}", network, ranks_per_node);
    log.gpu = log.system.cluster.gpu.name;
    log.family = "hopper";
    log.fabric = costmodel::fabric_class(log.system.cluster.node.scale_out);
    log.times.push_back({Bytes(1 << 20), Seconds(100e-6)});
    return log;
  };
  const std::vector<CollectiveLog> logs = {log_on("8x 400Gb/s IB", 8), log_on("8x 400Gb/s IB", 1),
                                           log_on("8x 400Gb/s IB with SHARP", 8)};
  const topologies::Gpu& gpu = logs.front().system.cluster.gpu;
  const Json document = with_collectives(costmodel::to_json(costmodel::load_profile("", gpu)),
                                         "a test", fit_family(logs, "hopper", {}), {}, "hopper");
  const Json& sources = *document.find("sources");
  EXPECT_THAT(sources.find("inter_node")->as_string(), HasSubstr("on 1 log of"));
  EXPECT_THAT(sources.find("collectives")->as_string(), HasSubstr("over 3 logs of"));
}

// Where no log tells of a network, its rates are those that NCCL counts on, which hold its losses;
// logs of one node say nothing of it.
TEST(CollectiveFitTest, RatesBetweenNodesStartFromThoseOfNccl) {
  CollectiveLog log;
  log.system = *log_system({"H100-80GB-SXM", "", "", 1, 8});
  log.gpu = log.system.cluster.gpu.name;
  log.family = "hopper";
  for (double bytes = 1024; bytes < 2e9; bytes *= 4) {
    log.times.push_back({Bytes(bytes), Seconds(20e-6 + bytes / 1e11)});
  }
  const FamilyFit fit = fit_family(std::vector<CollectiveLog>{log}, log.family, {});
  EXPECT_EQ(fit.base().inter_node.bandwidth_factor, 1);
  EXPECT_EQ(fit.base().inter_node_plugin.bandwidth_factor, 1);
  EXPECT_LT(fit.base().intra_node.bandwidth_factor, 1);
  EXPECT_EQ(fit.sections(), (std::vector<std::string>{"collectives", "intra_node"}));
}

}  // namespace
}  // namespace orrery::calibrate
