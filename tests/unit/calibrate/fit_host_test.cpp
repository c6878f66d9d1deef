// SPDX-License-Identifier: Apache-2.0
// Launches and copies between host and device in a profile.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "calibrate/fit/host.hpp"

namespace orrery::calibrate {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Sample host_sample(Shape shape, double seconds) {
  return {.shape = std::move(shape),
          .time = {.median = Seconds(seconds), .p25 = Seconds(seconds), .p75 = Seconds(seconds)}};
}

// As a link with such a latency and share of `rate` would have shown.
std::vector<Sample> copies(double latency, double share, double rate, std::int64_t largest) {
  std::vector<Sample> samples;
  for (std::int64_t bytes = 64 << 10; bytes <= largest; bytes *= 4) {
    const double time = latency + static_cast<double>(bytes) / (share * rate);
    samples.push_back(host_sample(HostCopySample{bytes, CopyDirection::HostToDevice, true}, time));
    samples.push_back(host_sample(HostCopySample{bytes, CopyDirection::DeviceToHost, true}, time));
    samples.push_back(
        host_sample(HostCopySample{bytes, CopyDirection::HostToDevice, false}, 2 * time));
    samples.push_back(host_sample(HostCopySample{bytes, CopyDirection::Both, true}, 1.25 * time));
  }
  return samples;
}

KernelFit fit_of(const std::vector<Sample>& samples) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  KernelFit fit;
  fit.profile = costmodel::load_profile("", gpu);
  fit_launch(samples, fit);
  fit_host_copies(gpu, samples, fit);
  return fit;
}

const costmodel::KernelAccuracy* row_of(const KernelFit& fit, const std::string& kernel) {
  for (const costmodel::KernelAccuracy& row : fit.profile.kernels.accuracy) {
    if (row.kernel == kernel) {
      return &row;
    }
  }
  return nullptr;
}

TEST(FitHost, CopiesTellLatencyAndShareOfTheLink) {
  const KernelFit fit = fit_of(copies(5e-6, 0.7, 63e9, 256 << 20));
  EXPECT_NEAR(fit.profile.host_copy.latency.value(), 5e-6, 0.1e-6);
  EXPECT_NEAR(fit.profile.host_copy.fraction, 0.7, 0.01);
  EXPECT_TRUE(fit.sections.contains("host_copy"));
  const costmodel::KernelAccuracy* row = row_of(fit, "host copy pinned");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->points, 14);
  EXPECT_LT(row->p90, 0.02);
  EXPECT_THAT(row->measured, HasSubstr("64"));
  EXPECT_EQ(fit.left_out.size(), 14U);
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("pageable 0.5, ")).Times(0));
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("pageable 0.50, both ways at once, each way 0.80")));
}

TEST(FitHost, CopiesThatSayNothingOfTheLinkAreRefused) {
  const costmodel::HostCopyParameters base = fit_of({}).profile.host_copy;
  const KernelFit small = fit_of(copies(5e-6, 0.7, 63e9, 4 << 20));
  EXPECT_EQ(small.profile.host_copy, base);
  EXPECT_THAT(small.remarks, Contains(HasSubstr("none of 16 MiB or more")));
  const KernelFit other = fit_of(copies(5e-6, 0.9, 450e9, 256 << 20));
  EXPECT_EQ(other.profile.host_copy, base);
  EXPECT_THAT(other.remarks, Contains(HasSubstr("GB/s, where the link of hgx-h100 has")));
  EXPECT_THAT(other.left_out, IsEmpty());
  const KernelFit few = fit_of({copies(5e-6, 0.7, 63e9, 256 << 20).back()});
  EXPECT_THAT(few.remarks, Contains(HasSubstr("0 sizes, where 4 are needed")));
}

TEST(FitHost, OneKernelByTheWallClockIsTheLaunch) {
  const KernelFit fit = fit_of({host_sample(LaunchSample{1, false, false}, 7e-6),
                                host_sample(LaunchSample{1, false, false}, 8e-6),
                                host_sample(LaunchSample{1, false, false}, 8.4e-6),
                                host_sample(LaunchSample{1, false, true}, 2e-6),
                                host_sample(LaunchSample{100, false, false}, 2e-4),
                                host_sample(LaunchSample{1, true, false}, 6e-6)});
  EXPECT_NEAR(fit.profile.kernel_launch.value(), 8e-6, 1e-9);
  EXPECT_TRUE(fit.sections.contains("kernel_launch"));
  const costmodel::KernelAccuracy* row = row_of(fit, "launch");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->points, 3);
  EXPECT_GT(row->p90, 0.1);
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("3 launch samples by graph, in a row")));
}

TEST(FitHost, AnErrorOfOneSampleIsNotKnown) {
  const KernelFit fit = fit_of({host_sample(LaunchSample{1, false, false}, 7e-6)});
  EXPECT_EQ(fit.profile.kernel_launch, Seconds(7e-6));
  EXPECT_EQ(row_of(fit, "launch"), nullptr);
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("its error is not known")));
  const KernelFit events = fit_of({[] {
    Sample sample = host_sample(LaunchSample{1, false, false}, 5e-6);
    sample.implementation = "gpu event";
    return sample;
  }()});
  EXPECT_FALSE(events.sections.contains("kernel_launch"));
}

}  // namespace
}  // namespace orrery::calibrate
