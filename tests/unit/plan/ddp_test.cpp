// SPDX-License-Identifier: Apache-2.0
// DDP's buckets and overlap (Li et al., PyTorch Distributed, arXiv 2006.15704).
#include "plan/block/ddp.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/files.hpp"

namespace orrery::plan {
namespace {

std::vector<ReadyGradient> gradients(const std::vector<std::int64_t>& sizes) {
  std::vector<ReadyGradient> ready;
  for (const std::int64_t size : sizes) {
    ready.push_back({ByteCount(size), 1.0});
  }
  return ready;
}

TEST(Ddp, ABucketClosesOnceItHoldsItsCap) {
  DdpOptions options{.bucket = ByteCount(10), .small = SmallBucket::None};
  EXPECT_EQ(assign_buckets(gradients({4, 4, 4, 9, 1, 3}), options), (std::vector<int>{3, 2, 1}));
  EXPECT_EQ(assign_buckets(gradients({30}), options), (std::vector<int>{1}));
}

TEST(Ddp, OneBucketIsSmall) {
  DdpOptions options{.bucket = ByteCount(10), .small_bucket = ByteCount(4)};
  options.small = SmallBucket::First;
  EXPECT_EQ(assign_buckets(gradients({4, 4, 4, 4, 4}), options), (std::vector<int>{1, 3, 1}));
  options.small = SmallBucket::Last;  // filled from the other end
  EXPECT_EQ(assign_buckets(gradients({4, 4, 4, 4, 4}), options), (std::vector<int>{1, 3, 1}));
  EXPECT_EQ(assign_buckets(gradients({1, 9, 9, 2, 2}), options), (std::vector<int>{1, 2, 2}));
}

TEST(Ddp, ReadyOrderIsRegistrationReversed) {
  const std::vector<ReadyGradient> ready = ready_order(gradients({1, 2, 3}));
  EXPECT_EQ(ready.front().bytes.value(), 3);
  EXPECT_EQ(ready.back().bytes.value(), 1);
}

class DdpTimes : public testing::Test {
 protected:
  DdpTimes()
      : cluster_(topologies::load_cluster("dgx-1v:32")),
        profile_(costmodel::load_profile("", cluster_.gpu)),
        device_(cluster_.gpu, profile_, costmodel::Load::Sustained),
        collectives_(cluster_, profile_) {
    const std::string path = data_path("studies/gradients/resnet50.json");
    resnet_ = read_gradients(read_json_file(path), path);
  }

  DdpTime run(int ranks, const DdpOptions& options, Seconds single = Seconds(0.097)) {
    const auto group = costmodel::make_group(ranks, 1, cluster_.node.gpus);
    return ddp_iteration(resnet_, single * (1.0 / 3), single * (2.0 / 3), Seconds(), group, device_,
                         collectives_, options);
  }

  topologies::Cluster cluster_;
  costmodel::Profile profile_;
  costmodel::DeviceModel device_;
  costmodel::CollectiveModel collectives_;
  DdpNetwork resnet_;
};

TEST_F(DdpTimes, TheNetworkIsResNet50) {
  std::int64_t bytes = 0;
  for (const ReadyGradient& gradient : resnet_.ready) {
    bytes += gradient.bytes.value();
  }
  EXPECT_EQ(bytes, 4 * 25'557'032);
  EXPECT_EQ(resnet_.buffers, 159);
}

// finish_k = max(finish_k-1, ready_k) + reduction_k, where reductions and kernels do not slow each
// other and nothing is copied.
TEST_F(DdpTimes, FollowsTheRecurrence) {
  resnet_.buffers = 0;
  DdpOptions options;
  options.copies = false;
  options.processors_shared = false;
  const auto group = costmodel::make_group(16, 1, 8);
  double work = 0;
  for (const ReadyGradient& gradient : resnet_.ready) {
    work += gradient.work;
  }
  double ready = 0.01;
  double finish = 0;
  std::size_t next = 0;
  for (const int count : assign_buckets(resnet_.ready, options)) {
    ByteCount bytes;
    for (int index = 0; index < count; ++index, ++next) {
      ready += 0.02 * resnet_.ready[next].work / work;
      bytes += resnet_.ready[next].bytes;
    }
    finish = std::max(finish, ready) +
             collectives_.time(sim::CommKind::AllReduce, bytes.bytes(), group).value();
  }
  const DdpTime time = ddp_iteration(resnet_, Seconds(0.01), Seconds(0.02), Seconds(0.003), group,
                                     device_, collectives_, options);
  EXPECT_NEAR(time.iteration.value(), std::max(finish, ready) + 0.003, 1e-9);
  EXPECT_NEAR(time.exposed.value(), std::max(0.0, finish - ready), 1e-9);
}

TEST_F(DdpTimes, OneBucketHidesNothing) {
  DdpOptions options{.bucket = ByteCount(1LL << 40), .small = SmallBucket::None};
  const DdpTime time = run(16, options);
  EXPECT_EQ(time.buckets, 1);
  EXPECT_NEAR(time.exposed.value(), time.reductions.value(), 1e-9);
}

TEST_F(DdpTimes, OverlapIsWhatMakesItScale) {
  DdpOptions options;
  const double alone = run(1, options).iteration.value();
  EXPECT_GT(alone / run(16, options).iteration.value(), 0.92);
  const double overlapped = run(16, options).iteration.value();
  options.overlap = false;
  EXPECT_GT(run(16, options).iteration.value(), 1.03 * overlapped);
}

TEST_F(DdpTimes, EfficiencyFallsSlowlyTo256Gpus) {
  double last = 1;
  const double alone = run(1, {.gpu_variation = 0.08}).iteration.value();
  for (const int ranks : {8, 16, 32, 64, 128, 256}) {
    const double efficiency = alone / run(ranks, {.gpu_variation = 0.08}).iteration.value();
    EXPECT_LE(efficiency, last + 1e-12) << ranks;
    last = efficiency;
  }
  EXPECT_GT(last, 0.8);
}

TEST(SlowestOf, GrowsAsTheLargestOfNormalValues) {
  EXPECT_NEAR(slowest_of(1, 0.08), 1, 1e-9);
  EXPECT_NEAR(slowest_of(2, 5.4), 1 + 0.56419, 1e-4);
  EXPECT_NEAR(slowest_of(16, 5.4), 1 + 1.76599, 1e-4);
}

}  // namespace
}  // namespace orrery::plan
