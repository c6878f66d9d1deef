// SPDX-License-Identifier: Apache-2.0
// Without a device: what can be checked up to the first device call. With one: a short real run.
#include "calibrate/gpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"
#include "calibrate/gpu_report.hpp"
#include "calibrate/nvml.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

Sample timed(Shape shape, double seconds) {
  Sample sample;
  sample.shape = std::move(shape);
  sample.time = {Seconds(seconds), Seconds(seconds), Seconds(seconds), 1};
  sample.implementation = "x";
  return sample;
}

TEST(GpuRun, NamesOfBenchmarksAreUnique) {
  std::set<std::string> names;
  for (const GpuBenchmarkInfo& info : gpu_benchmarks()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.description.empty());
  }
}

TEST(GpuRun, UnknownBenchmarkNamesTheNearest) {
  if (gpu_benchmarks().empty()) {
    GTEST_SKIP() << "no CUDA in this build";
  }
  GpuOptions options;
  options.only = {"gem"};
  try {
    measure_gpu(options, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.what(), HasSubstr("\"gemm\""));
  }
}

TEST(GpuRun, MeasuresOrSaysWhatIsMissing) {
  GpuOptions options;
  options.only = {"launch", "copy"};
  options.budget_seconds = 2;
  GpuRun run;
  try {
    run = measure_gpu(options, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::DeviceMissing);
    EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr("no CUDA device or driver"),
                                             HasSubstr("this build has no CUDA")));
    GTEST_SKIP() << error.what();
  }
  EXPECT_FALSE(run.file.samples.empty());
  EXPECT_EQ(run.above_ceiling, 0);
  EXPECT_EQ(read_samples(parse_json(sample_text(run.file), "run"), "run"), run.file);
}

TEST(Nvml, UnknownWithoutTheLibrary) {
  const Nvml nvml("0000:ff:1f.7");  // no such device
  EXPECT_FALSE(nvml.available());
  EXPECT_EQ(nvml.sm_clock_mhz(), 0);
  EXPECT_EQ(nvml.power_limit_w(), 0);
  EXPECT_FALSE(nvml.slowed());
}

TEST(GpuReport, GroupsByKernel) {
  SampleFile file;
  file.header.device = "H100";
  GemmSample gemm;
  gemm.m = gemm.n = gemm.k = 4096;
  const double flops = 2.0 * 4096 * 4096 * 4096;
  file.samples = {timed(gemm, flops / 494.7e12), timed(gemm, flops / 400e12),
                  timed(LaunchSample{100, false, true}, 5e-4)};
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  const auto groups = report_groups(file, &gpu);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].name, "gemm bf16 tn");
  EXPECT_EQ(groups[0].samples, 2);
  EXPECT_NEAR(groups[0].best_fraction, 0.5, 1e-3);
  EXPECT_EQ(groups[1].name, "launch stream, host");
  EXPECT_NEAR(groups[1].fastest_seconds, 5e-6, 1e-12);
  EXPECT_THAT(report_text(groups), HasSubstr("50.0 %"));
  EXPECT_EQ(report_groups(file, nullptr)[0].best_fraction, 0);
}

}  // namespace
}  // namespace orrery::calibrate
