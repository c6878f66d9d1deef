// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "calibrate/fit/casts.hpp"
#include "costmodel/device_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CastParameters;
using costmodel::CastScale;
using costmodel::DeviceModel;

CastParameters truth(double launch) {
  return {.launch = Seconds(launch),
          .cache_fraction = 1.5,
          .memory_fraction = 0.8,
          .cached = 0.7,
          .missed = 1.1};
}

Sample cast_sample(double elements, CastScale scale, Seconds time, bool cold) {
  const auto count = static_cast<std::int64_t>(elements);
  const bool known = scale == CastScale::Known;
  Sample sample{.shape = MemorySample{.kernel = costmodel::MemoryKernel::Cast,
                                      .operation = known ? "cast-fp8" : "amax-cast-fp8",
                                      .bytes_read = (known ? 2 : 4) * count,
                                      .bytes_written = count,
                                      .rows = count / 1024,
                                      .columns = 1024 + count % 7},
                .time = {.median = time, .p25 = time, .p75 = time}};
  sample.flags.cold_l2 = cold;
  return sample;
}

// What a chip with the true parameters would have shown, and twice the time where cold.
std::vector<Sample> samples_of(const topologies::Gpu& gpu, bool cold) {
  costmodel::Profile profile;
  profile.casts = {truth(1.4e-6), truth(7.5e-6)};
  const DeviceModel model(gpu, profile);
  std::vector<Sample> samples;
  for (const CastScale scale : {CastScale::Known, CastScale::Found}) {
    for (double elements = 8192; elements < 1e9; elements *= 1.37) {
      const auto whole = static_cast<double>(static_cast<std::int64_t>(elements));
      samples.push_back(cast_sample(whole, scale, model.cast(whole, scale), cold));
    }
  }
  return samples;
}

TEST(FitCastsTest, FindsWhatMadeTheTimes) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  KernelFit fit;
  fit_casts(gpu, samples_of(gpu, false), 1, fit);
  const CastParameters& known = fit.profile.casts[0];
  EXPECT_NEAR(known.launch.value(), 1.4e-6, 0.1e-6);
  EXPECT_NEAR(known.memory_fraction, 0.8, 0.03);
  EXPECT_NEAR(known.cache_fraction, 1.5, 0.1);
  EXPECT_NEAR(fit.profile.casts[1].launch.value(), 7.5e-6, 0.3e-6);
  ASSERT_EQ(fit.profile.kernels.accuracy.size(), 2U);
  EXPECT_EQ(fit.profile.kernels.accuracy[0].kernel, "cast fp8 known scale");
  EXPECT_LT(fit.profile.kernels.accuracy[0].median, 0.05);
  EXPECT_FALSE(fit.left_out.empty());
}

TEST(FitCastsTest, ColdKernelsSayNothingOfTheCache) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  KernelFit fit;
  fit_casts(gpu, samples_of(gpu, true), 1, fit);
  EXPECT_EQ(fit.profile.casts, costmodel::Profile{}.casts);
}

TEST(FitCastsTest, RelativesTakeThemOver) {
  costmodel::Profile from;
  from.name = "a";
  from.casts = {truth(1e-6), truth(7e-6)};
  costmodel::Profile to;
  transfer_kernels(from, to);
  EXPECT_EQ(to.casts, from.casts);
  to.casts = {truth(2e-6), truth(8e-6)};
  to.kernels.accuracy.resize(2);
  to.kernels.accuracy[0].kernel = "gemm bf16 tn burst";
  to.kernels.accuracy[1].kernel = "cast fp8 known scale";
  const auto own = to.casts;
  transfer_kernels(from, to);
  EXPECT_EQ(to.casts, own);
  EXPECT_EQ(to.kernels.accuracy.size(), 1U);
}

// The cache helps small operands, and no operand takes less time for being larger.
TEST(CastTest, GrowsWithItsOperand) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  costmodel::Profile profile;
  profile.casts = {truth(1e-6), truth(7e-6)};
  const DeviceModel model(gpu, profile);
  Seconds before;
  for (double elements = 1024; elements < 1e10; elements *= 1.1) {
    const Seconds time = model.cast(elements, CastScale::Known);
    EXPECT_GT(time, before);
    EXPECT_LT(time, model.cast(elements, CastScale::Found));
    before = time;
  }
  const double large = 1e9;
  EXPECT_NEAR(model.cast(large, CastScale::Known).value(),
              1e-6 + 3 * large / (0.8 * gpu.hbm_bandwidth.value()), 1e-9);
}

}  // namespace
}  // namespace orrery::calibrate
