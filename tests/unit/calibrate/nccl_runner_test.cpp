// SPDX-License-Identifier: Apache-2.0
// The runner on a team of threads, each with a device that computes its times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.hpp"
#include "calibrate/collective_log.hpp"
#include "calibrate/nccl/runner.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

// t = 10 us + bytes / 100 GB/s, on rank r of the group (1 + r / 10) times as long; twice as long
// beside a GEMM.
class FakeDevice : public CollectiveDevice {
 public:
  explicit FakeDevice(int fail_after = -1) : left_(fail_after) {}
  DeviceFacts facts() override { return {"NVIDIA H100 80GB HBM3", "570", "12.8", "2.28.9"}; }
  LinkClasses links() override { return {}; }
  void reserve(std::int64_t bytes) override { reserved_ = bytes; }
  std::string new_group_id() override { return std::string("id\0:x", 5) + std::to_string(++ids_); }
  void join(const std::string& id, int rank, int size) override {
    EXPECT_TRUE(id.starts_with("id"));
    EXPECT_LT(rank, size);
    rank_ = rank;
  }
  void leave() override { rank_ = -1; }
  std::vector<double> time_collective(sim::CommKind, std::int64_t bytes, int batches,
                                      int) override {
    if (left_-- == 0) {
      throw Error(ErrorKind::InputOutput, "nccl", "unhandled system error");
    }
    EXPECT_GE(rank_, 0);
    EXPECT_LE(bytes, reserved_);
    return std::vector<double>(static_cast<std::size_t>(batches), time(bytes));
  }
  std::vector<double> time_gemm(const GemmSample&, int batches, int) override {
    return std::vector<double>(static_cast<std::size_t>(batches), 1e-3);
  }
  OverlapTimes time_overlap(sim::CommKind, std::int64_t bytes, int collectives, const GemmSample&,
                            int gemms) override {
    return {std::vector<double>(static_cast<std::size_t>(collectives), 2 * time(bytes)),
            std::vector<double>(static_cast<std::size_t>(gemms), 1.5e-3)};
  }

 private:
  double time(std::int64_t bytes) const {
    return (10e-6 + static_cast<double>(bytes) / 100e9) * (1 + 0.1 * rank_);
  }
  int left_;
  int rank_ = -1;
  int ids_ = 0;
  std::int64_t reserved_ = 0;
};

struct Outcome {
  SampleFile file;
  std::string error;
};

std::vector<Outcome> run(const std::vector<std::string>& hosts, const RunOptions& options,
                         int failing_rank = -1) {
  Socket listener = listen_on(0, true);
  const std::string address = "127.0.0.1:" + std::to_string(port_of(listener));
  std::vector<Outcome> outcomes(hosts.size());
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < hosts.size(); ++index) {
    threads.emplace_back([&, index] {
      RankIdentity identity;
      identity.rank = static_cast<int>(index);
      identity.size = static_cast<int>(hosts.size());
      TeamOptions team_options;
      team_options.address = address;
      team_options.step_timeout = Seconds(20);
      if (index == 0) {
        team_options.listener = std::move(listener);
      }
      FakeDevice device(static_cast<int>(index) == failing_rank ? 3 : -1);
      try {
        Team team(identity, std::move(team_options));
        outcomes[index].file = run_measurements(team, device, hosts[index], options);
      } catch (const Error& error) {
        outcomes[index].error = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return outcomes;
}

TEST(NcclRunner, MeasuresEveryPointOfThePlan) {
  RunOptions options;
  options.measure.max_bytes = 1 << 22;
  double last = -1;
  options.progress = [&](double share, const std::string&) {
    EXPECT_GE(share, last);
    last = share;
  };
  const std::vector<Outcome> outcomes = run({"a", "a", "b", "b"}, options);
  const SampleFile& file = outcomes.front().file;
  EXPECT_EQ(outcomes.front().error, "");
  EXPECT_TRUE(outcomes.back().file.samples.empty());
  EXPECT_GT(last, 0.9);
  EXPECT_EQ(file.header.gpu, "h100-sxm5-80gb");
  EXPECT_EQ(launch_mode(file.header), LaunchMode::ProcessPerGpu);
  EXPECT_THAT(file.header.notes, testing::Contains("ranks 2-3 on b"));
  std::size_t plain = 0;
  std::size_t beside = 0;
  for (const Sample& sample : file.samples) {
    const auto* collective = std::get_if<CollectiveSample>(&sample.shape);
    if (collective == nullptr) {
      continue;
    }
    plain += collective->beside ? 0 : 1;
    beside += collective->beside ? 1 : 0;
    if (!collective->beside) {  // the slowest rank of the group
      const double slowest = (10e-6 + static_cast<double>(collective->bytes) / 100e9) *
                             (1 + 0.1 * static_cast<double>(collective->ranks - 1));
      EXPECT_NEAR(sample.time.median.value(), slowest, 1e-9 * slowest);
    } else if (collective->times_gemm) {
      EXPECT_DOUBLE_EQ(sample.time.median.value(), 1.5e-3);
    }
  }
  const MeasurePlan plan = plan_measurements(regular_placement(2, 2), {}, options.measure);
  EXPECT_EQ(static_cast<std::int64_t>(plain + beside / 2), plan.num_points());
  EXPECT_GT(beside, 0U);
  EXPECT_EQ(read_samples(parse_json(sample_text(file), "again"), "again"), file);
}

TEST(NcclRunner, OneRankChecksTheMachinery) {
  RunOptions options;
  options.measure.max_bytes = 1 << 12;
  options.measure.interference = false;
  const std::vector<Outcome> outcomes = run({"a"}, options);
  EXPECT_EQ(outcomes.front().error, "");
  EXPECT_EQ(outcomes.front().file.samples.size(), 10U);  // five collectives, two sizes
}

TEST(NcclRunner, EveryRankLearnsWhoFailed) {
  RunOptions options;
  options.measure.max_bytes = 1 << 16;
  const std::vector<Outcome> outcomes = run({"a", "a", "a"}, options, 2);
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error, HasSubstr("unhandled system error"));
  }
  EXPECT_THAT(outcomes.front().error, HasSubstr("rank 2 (a)"));
}

TEST(NcclRunner, SlowPointsEndTheirSeries) {
  RunOptions options;
  options.measure.kinds = {sim::CommKind::AllReduce};
  options.measure.interference = false;
  options.measure.point_budget = Seconds(1e-4);
  const std::vector<Outcome> outcomes = run({"a", "a"}, options);
  const std::vector<Sample>& samples = outcomes.front().file.samples;
  ASSERT_FALSE(samples.empty());
  EXPECT_LT(samples.size(), 11U);
}

}  // namespace
}  // namespace orrery::calibrate
