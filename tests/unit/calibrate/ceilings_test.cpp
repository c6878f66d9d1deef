// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ceilings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace orrery::calibrate {
namespace {

Sample sample_of(Shape shape, double seconds) {
  return {.shape = std::move(shape),
          .time = {Seconds(seconds), Seconds(seconds), Seconds(seconds), 1}};
}

TEST(Ceilings, FlagsWhatNoChipCanDo) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  const double flops = 2.0 * 4096 * 4096 * 4096;
  const GemmSample gemm = {.m = 4096, .n = 4096, .k = 4096};
  const MemorySample copy = {
      .operation = "copy", .bytes_read = 1LL << 30, .bytes_written = 1LL << 30};
  SampleFile file = {.header = {.device = "H100"},
                     .samples = {sample_of(gemm, flops / 700e12), sample_of(gemm, flops / 1100e12),
                                 sample_of(copy, 2 * 1073741824.0 / 3.0e12),
                                 sample_of(copy, 2 * 1073741824.0 / 4.0e12)}};
  EXPECT_EQ(flag_impossible(file, gpu), 2);
  EXPECT_FALSE(file.samples[0].flags.above_ceiling);
  EXPECT_TRUE(file.samples[1].flags.above_ceiling);
  EXPECT_FALSE(file.samples[2].flags.above_ceiling);
  EXPECT_TRUE(file.samples[3].flags.above_ceiling);
  // 1,100 TFLOP/s are possible at 2,100 MHz, since 989 are stated for 1,830.
  file.header.max_sm_clock_mhz = 2100;
  EXPECT_EQ(flag_impossible(file, gpu), 1);
}

TEST(Ceilings, DropsWhatIsTwiceAsFast) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  const GemmSample gemm = {.m = 4096, .n = 4096, .k = 4096};
  SampleFile file;
  file.samples = {sample_of(gemm, 1e-9), sample_of(gemm, 200e-6)};
  EXPECT_THROW((void)drop_impossible(file, gpu, "x.json", false), Error);
  const std::vector<std::string> dropped = drop_impossible(file, gpu, "x.json", true);
  ASSERT_EQ(dropped.size(), 1U);
  EXPECT_TRUE(dropped.front().starts_with("x.json: 137 EFLOP/s, but a h100-sxm5-80gb"))
      << dropped.front();
  EXPECT_EQ(file.samples.size(), 1U);
}

// Microseconds written as seconds, and kernels that would outrun the memory.
TEST(Ceilings, DropsTimesInAnotherUnit) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  const auto dropped = [&](Shape shape, double seconds) {
    SampleFile file;
    file.samples = {sample_of(std::move(shape), seconds)};
    const std::vector<std::string> texts = drop_impossible(file, gpu, "x.json", true);
    return texts.empty() ? std::string() : texts.front();
  };
  const GemmSample gemm = {.m = 4096, .n = 4096, .k = 4096};
  EXPECT_THAT(dropped(gemm, 200), testing::HasSubstr("x.json: 200 s, where h100-sxm5-80gb needs"));
  EXPECT_THAT(dropped(gemm, 200), testing::HasSubstr(R"("m": 4096)"));
  EXPECT_EQ(dropped(gemm, 0.02), "");
  EXPECT_EQ(dropped(GemmSample{.m = 1, .n = 1, .k = 1}, 900e-6), "");
  EXPECT_NE(dropped(GemmSample{.m = 1, .n = 1, .k = 1}, 5e-3), "");
  const AttentionSample attention = {.batch = 1,
                                     .heads = 8,
                                     .kv_heads = 8,
                                     .q_len = 4096,
                                     .kv_len = 4096,
                                     .head_dim = 128,
                                     .value_head_dim = 128};
  EXPECT_NE(dropped(attention, 1), "");
  EXPECT_EQ(dropped(attention, 1e-3), "");
  const MemorySample copy = {
      .operation = "copy", .bytes_read = 1LL << 30, .bytes_written = 1LL << 30};
  EXPECT_THAT(dropped(copy, 0.7e-6), testing::HasSubstr("the memory of a h100-sxm5-80gb moves no"));
  EXPECT_NE(dropped(copy, 700), "");
  EXPECT_EQ(dropped(copy, 0.7e-3), "");
  // What fits in the cache knows no peak.
  const MemorySample small = {.operation = "copy", .bytes_read = 1 << 16, .bytes_written = 1 << 16};
  EXPECT_THAT(dropped(small, 3e-9), testing::HasSubstr("3e-09 s for one kernel"));
  EXPECT_EQ(dropped(small, 3e-6), "");
}

TEST(Ceilings, DropsHostTimesInAnotherUnit) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  const auto dropped = [&](Shape shape, double seconds) {
    return implausible_time(sample_of(std::move(shape), seconds), gpu);
  };
  const LaunchSample one = {.count = 1};
  EXPECT_EQ(dropped(one, 7e-6), "");
  EXPECT_THAT(dropped(one, 7e-3), testing::HasSubstr("0.007 s for one kernel"));
  EXPECT_NE(dropped(one, 7e-9), "");
  const LaunchSample many = {.count = 1000};
  EXPECT_EQ(dropped(many, 7e-3), "");
  EXPECT_NE(dropped(many, 7), "");
  const HostCopySample copy = {.bytes = 1 << 30, .pinned = true};
  EXPECT_EQ(dropped(copy, 0.02), "");
  EXPECT_THAT(dropped(copy, 0.02e-3), testing::HasSubstr("a copy at 53.7 TB/s, but the memory"));
  EXPECT_THAT(dropped(copy, 20e3), testing::HasSubstr("in another unit?"));
  EXPECT_EQ(dropped(HostCopySample{.bytes = 8}, 3e-6), "");
  EXPECT_NE(dropped(HostCopySample{.bytes = 8}, 3e-3), "");
  EXPECT_EQ(dropped(CollectiveSample{}, 1e-12), "");
}

TEST(Ceilings, RatesByHand) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  const Achieved copy = achieved(
      sample_of(HostCopySample{.bytes = 1'000'000, .direction = CopyDirection::Both}, 1e-3), gpu);
  EXPECT_DOUBLE_EQ(copy.bandwidth.value(), 2e9);
  EXPECT_EQ(copy.fraction, 0);
}

TEST(Ceilings, KnowsDevicesByTheirDriverNames) {
  constexpr double kMiB = 1024 * 1024;
  EXPECT_EQ(gpu_of_device("NVIDIA H100 80GB HBM3", 81559 * kMiB, 132), "h100-sxm5-80gb");
  EXPECT_EQ(gpu_of_device("NVIDIA H100 PCIe", 81559 * kMiB, 114), "h100-pcie-80gb");
  EXPECT_EQ(gpu_of_device("NVIDIA H200", 143771 * kMiB, 132), "h200-sxm5-141gb");
  EXPECT_EQ(gpu_of_device("NVIDIA A100-SXM4-80GB", 81920 * kMiB, 108), "a100-sxm4-80gb");
  EXPECT_EQ(gpu_of_device("NVIDIA A100-SXM4-40GB", 40960 * kMiB, 108), "a100-sxm4-40gb");
  EXPECT_EQ(gpu_of_device("NVIDIA L40S", 46068 * kMiB, 142), "l40s");
  EXPECT_EQ(gpu_of_device("Some other device", 81559 * kMiB, 132), "");
}

}  // namespace
}  // namespace orrery::calibrate
