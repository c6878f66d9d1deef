// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/random.hpp"
#include "calibrate/fit/kernels.hpp"
#include "calibrate/fit/plot.hpp"
#include "calibrate/fit/robust_fit.hpp"
#include "calibrate/reader.hpp"
#include "costmodel/device_model.hpp"
#include "tests/unit/costmodel/measured.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::DeviceModel;
using costmodel::Profile;
using ::testing::Contains;
using ::testing::HasSubstr;

topologies::Gpu h100() { return topologies::load_gpu("h100-sxm5-80gb"); }

// A chip that is exactly the formula, with other numbers than the base profile.
Profile truth() {
  Profile profile = costmodel::load_profile("", h100());
  profile.kernels = {};
  costmodel::GemmParameters& bf16 = profile.gemm[static_cast<std::size_t>(DType::Bf16)];
  bf16.compute_fraction = 0.66;
  bf16.memory_fraction = 0.9;
  bf16.launch = Seconds(4e-6);
  bf16.exponent = 3;
  return profile;
}

std::vector<Sample> gemm_samples(const Profile& profile, int count, double noise,
                                 std::uint64_t seed = 1) {
  const DeviceModel model(h100(), profile);
  Random random(seed);
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    const auto size = [&] { return std::int64_t{1} << (6 + random.below(8)) << random.below(2); };
    const GemmSample gemm{.m = size(), .n = size(), .k = size()};
    const Seconds time = model.gemm({.m = gemm.m, .n = gemm.n, .k = gemm.k});
    Sample sample;
    sample.shape = gemm;
    sample.time.median = time * std::exp(noise * random.normal());
    sample.implementation = "cublasLt";
    samples.push_back(sample);
  }
  return samples;
}

// On a base without tables, so that nothing but the samples speaks (few_samples_test.cpp: with).
KernelFit fitted(const std::vector<Sample>& samples, std::uint64_t seed = 1) {
  Profile base = costmodel::load_profile("", h100());
  base.kernels = {};
  return fit_kernels(h100(), base, samples, "a test of the fit", seed);
}

std::vector<costmodel::KernelAccuracy> errors_of(const Profile& profile, std::string_view kernel) {
  std::vector<costmodel::KernelAccuracy> rows = profile.kernels.accuracy;
  std::erase_if(rows, [&](const auto& row) { return !row.kernel.starts_with(kernel); });
  return rows;
}

const costmodel::GemmParameters& bf16_of(const Profile& profile) {
  return profile.gemm[static_cast<std::size_t>(DType::Bf16)];
}

TEST(RobustFitTest, FindsALineBesideOutliers) {
  const auto residuals = [](const std::vector<double>& p) {
    std::vector<double> errors;
    for (int i = 1; i <= 40; ++i) {
      const double measured = i % 8 == 0 ? 100 : 2.0 + 0.5 * i;
      errors.push_back(p[0] + p[1] * i - measured);
    }
    return errors;
  };
  const std::vector<double> best = robust_fit({{1, 0.01, 100}, {1, 0.01, 100}}, residuals);
  EXPECT_NEAR(best[0], 2.0, 0.05);
  EXPECT_NEAR(best[1], 0.5, 0.01);
}

TEST(RobustFitTest, StaysWithinBounds) {
  const auto residuals = [](const std::vector<double>& p) {
    return std::vector<double>{p[0] - 5, p[1] - 0.001};
  };
  const std::vector<double> best = robust_fit({{1, 0.5, 2}, {1, 0.1, 2}}, residuals);
  EXPECT_DOUBLE_EQ(best[0], 2);
  EXPECT_NEAR(best[1], 0.1, 1e-12);
}

TEST(FitKernelsTest, RecoversTheParametersOfAChipThatIsTheFormula) {
  const Profile profile = fitted(gemm_samples(truth(), 300, 0)).profile;
  EXPECT_NEAR(bf16_of(profile).compute_fraction, 0.66, 0.01);
  EXPECT_NEAR(bf16_of(profile).memory_fraction, 0.9, 0.02);
  EXPECT_NEAR(bf16_of(profile).launch.value(), 4e-6, 0.1e-6);
  EXPECT_NEAR(bf16_of(profile).exponent, 3, 0.2);
  // fp16 runs like bf16; fp32 was not measured.
  EXPECT_EQ(profile.gemm[static_cast<std::size_t>(DType::Fp16)].compute_fraction,
            bf16_of(profile).compute_fraction);
  EXPECT_EQ(profile.gemm[static_cast<std::size_t>(DType::Fp32)],
            truth().gemm[static_cast<std::size_t>(DType::Fp32)]);
}

// DeepBench waits once for 400 calls, so its times are those of kernels.
TEST(FitKernelsTest, LaunchesBehindEachOtherAreNotTakenOff) {
  std::vector<Sample> samples = gemm_samples(truth(), 300, 0);
  for (Sample& sample : samples) {
    sample.implementation = "cublas";
  }
  EXPECT_NEAR(bf16_of(fitted(samples).profile).launch.value(), 4e-6, 0.1e-6);
}

TEST(FitKernelsTest, OutliersDoNotMoveTheFormula) {
  std::vector<Sample> samples = gemm_samples(truth(), 300, 0.01);
  for (std::size_t i = 0; i < samples.size(); i += 15) {
    samples[i].time.median = samples[i].time.median * 8.0;
  }
  EXPECT_NEAR(bf16_of(fitted(samples).profile).compute_fraction, 0.66, 0.02);
}

TEST(FitKernelsTest, LeftOutErrorIsThatOfTheNoise) {
  const KernelFit fit = fitted(gemm_samples(truth(), 400, 0.05));
  const std::vector<costmodel::KernelAccuracy> rows = errors_of(fit.profile, "gemm bf16");
  ASSERT_EQ(rows.size(), 1U);
  const costmodel::KernelAccuracy& row = rows.front();
  EXPECT_EQ(row.kernel, "gemm bf16 tn burst");
  EXPECT_GT(row.median, 0.02);  // the noise of a point cannot be predicted from the others
  EXPECT_LT(row.median, 0.06);
  EXPECT_THAT(row.measured, HasSubstr("m 64 to 16384"));
  EXPECT_EQ(fit.left_out.size(), static_cast<std::size_t>(row.points));
}

TEST(FitKernelsTest, MeasuredShapesAreReproduced) {
  std::vector<Sample> samples = gemm_samples(truth(), 200, 0);
  // One family of shapes is 30 % slower than the formula.
  for (Sample& sample : samples) {
    if (std::get<GemmSample>(sample.shape).n <= 128) {
      sample.time.median = sample.time.median * 1.3;
    }
  }
  const Profile profile = fitted(samples).profile;
  const DeviceModel model(h100(), profile);
  for (const Sample& sample : samples) {
    const auto& gemm = std::get<GemmSample>(sample.shape);
    const Seconds time = model.gemm({.m = gemm.m, .n = gemm.n, .k = gemm.k});
    EXPECT_NEAR(time / sample.time.median, 1, 0.04) << gemm.m << " " << gemm.n << " " << gemm.k;
  }
}

TEST(FitKernelsTest, SameSamplesGiveTheSameProfile) {
  std::vector<Sample> samples = gemm_samples(truth(), 100, 0.05);
  const Profile once = fitted(samples).profile;
  std::reverse(samples.begin(), samples.end());
  EXPECT_EQ(fitted(samples).profile, once);
  EXPECT_NE(fitted(samples, 2).profile.kernels.accuracy, once.kernels.accuracy);  // other folds
}

TEST(FitKernelsTest, FewSamplesKeepTheFormulaOfTheBase) {
  const KernelFit fit = fitted(gemm_samples(truth(), 8, 0));
  const Profile base = costmodel::load_profile("", h100());
  EXPECT_EQ(bf16_of(fit.profile), bf16_of(base));
  EXPECT_FALSE(fit.profile.kernels.residuals.empty());
}

// Measuring 16-bit GEMMs says nothing of attention and fp8: there the profile stays what it was.
TEST(FitKernelsTest, WhatIsNotMeasuredStaysAsInTheBase) {
  const Profile base = costmodel::load_profile("", h100());
  const Profile fit =
      fit_kernels(h100(), base, gemm_samples(truth(), 60, 0.02), "a test of the fit", 1).profile;
  const DeviceModel before(h100(), base);
  const DeviceModel after(h100(), fit);
  const costmodel::AttentionShape attention{
      .batch = 2, .heads = 16, .kv_heads = 16, .q_len = 4096, .kv_len = 4096, .head_dim = 128};
  EXPECT_EQ(after.attention_forward(attention), before.attention_forward(attention));
  costmodel::GemmShape gemm{.m = 4096, .n = 4096, .k = 4096, .dtype = DType::Fp8};
  EXPECT_EQ(after.gemm(gemm), before.gemm(gemm));
  gemm.dtype = DType::Bf16;
  EXPECT_NE(after.gemm(gemm), before.gemm(gemm));
  EXPECT_FALSE(errors_of(base, "attention-forward").empty());
  EXPECT_EQ(errors_of(fit, "attention-forward"), errors_of(base, "attention-forward"));
  EXPECT_EQ(errors_of(fit, "gemm bf16").size(), 1U);
  EXPECT_FALSE(errors_of(base, "cast").empty());
  EXPECT_EQ(errors_of(fit, "cast"), errors_of(base, "cast"));
}

TEST(FitKernelsTest, SaysWhatItLeavesOut) {
  std::vector<Sample> samples = gemm_samples(truth(), 40, 0);
  samples[3].flags.throttled = true;
  samples[4].flags.above_ceiling = true;
  samples[5].implementation = "best of many shapes";
  const KernelFit fit = fitted(samples);
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("1 samples left out: timed while the clock fell")));
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("faster than the chip can be")));
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("best of many shapes")));
}

// Older kernels are known in every spelling, as `validate` knows them.
TEST(FitKernelsTest, LeavesOutOlderKernelsOfAttention) {
  std::vector<Sample> samples = gemm_samples(truth(), 40, 0);
  for (const char* impl : {"FA-2", "flash_attn 2.5.8", "flash_attn_v1", "flex_attention", "ck"}) {
    Sample sample = samples.front();
    sample.shape = AttentionSample{.batch = 2,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .q_len = 4096,
                                   .kv_len = 4096,
                                   .head_dim = 128,
                                   .value_head_dim = 128};
    sample.time.median = Seconds(8e-4);
    sample.implementation = impl;
    samples.push_back(sample);
  }
  const KernelFit fit = fitted(samples);
  for (std::size_t at = 40; at < samples.size(); ++at) {
    EXPECT_THAT(fit.remarks, Contains(HasSubstr("attention by " + samples[at].implementation)));
  }
}

// Short loops of a training table that ran at the clock which long ones had left count as sustained
// load: they do not slow bursts of other layouts down.
TEST(FitKernelsTest, LowClocksOfShortLoopsAreNotBursts) {
  const topologies::Gpu b200 = topologies::load_gpu("b200-sxm-180gb");
  Profile chip = costmodel::load_profile("", b200);
  chip.kernels = {};
  const DeviceModel burst(b200, chip);
  const DeviceModel hot(b200, chip, costmodel::Load::Sustained);
  std::vector<Sample> samples;
  Random random(3);
  const auto add = [&](const DeviceModel& model, GemmLayout layout, const char* implementation) {
    GemmSample gemm{.m = 2048 << random.below(2), .n = 0, .k = 0};
    gemm.n = static_cast<std::int64_t>(512 + 128 * random.below(40));
    gemm.k = static_cast<std::int64_t>(1024 + 128 * random.below(30));
    gemm.layout = layout;
    costmodel::GemmShape shape{.m = gemm.m, .n = gemm.n, .k = gemm.k};
    shape.layout = static_cast<costmodel::GemmLayout>(layout);
    Sample sample;
    sample.shape = gemm;
    sample.time.median = model.gemm(shape);
    sample.implementation = implementation;
    samples.push_back(sample);
  };
  for (int i = 0; i < 80; ++i) {
    add(burst, GemmLayout::TN, "aiconfigurator");
  }
  for (int i = 0; i < 40; ++i) {
    add(i % 2 == 0 ? burst : hot, GemmLayout::NN, "simumax");
  }
  const KernelFit fit = fit_kernels(b200, chip, samples, "two clocks", 1);
  for (const costmodel::ResidualSet& set : fit.profile.kernels.residuals.sets()) {
    if (set.key.layout == costmodel::GemmLayout::NN) {
      EXPECT_GE(set.points.size(), 15U);
      for (const costmodel::KernelPoint& point : set.points) {
        EXPECT_LT(std::abs(point.permille), 60) << costmodel::to_text(set.key.load);
      }
    }
  }
}

// Weight gradients of 16 and of 32 bits of one shape: training adds to the latter.
TEST(FitKernelsTest, WeightGradientsOf32BitsGoFirst) {
  const topologies::Gpu a100 = topologies::load_gpu("a100-sxm4-80gb");
  Profile chip = costmodel::load_profile("", a100);
  chip.kernels = {};
  std::vector<Sample> samples;
  for (const DType output : {DType::Bf16, DType::Fp32}) {
    GemmSample gemm{.m = 4096, .n = 4096, .k = 4096, .output = output, .accumulate = true};
    gemm.layout = GemmLayout::NT;
    Sample sample;
    sample.shape = gemm;
    sample.time.median = Seconds(output == DType::Fp32 ? 900e-6 : 600e-6);
    sample.implementation = "simumax";
    samples.push_back(sample);
  }
  const Profile profile = fit_kernels(a100, chip, samples, "two outputs", 1).profile;
  costmodel::GemmShape shape{.m = 4096, .n = 4096, .k = 4096, .output_bytes = 4};
  shape.layout = costmodel::GemmLayout::NT;
  const DeviceModel model(a100, profile, costmodel::Load::Sustained);
  EXPECT_NEAR(model.gemm(shape).value(), 900e-6, 30e-6);
}

// The worked case: H100 parameters with H200 bandwidth.
TEST(FitKernelsTest, TransferToH200ChangesOnlyWhatTheDataSheetChanges) {
  const topologies::Gpu h200 = topologies::load_gpu("h200-sxm5-141gb");
  const Profile from = costmodel::load_profile("h100-sxm5-80gb", h200);
  Profile to = costmodel::load_profile("", h200);
  std::erase_if(to.kernels.accuracy,  // as if no product had been timed on it
                [](const auto& row) { return row.kernel.starts_with("gemm "); });
  transfer_kernels(from, to);
  EXPECT_EQ(to.gemm, from.gemm);
  EXPECT_EQ(to.kernels.residuals, from.kernels.residuals);
  for (const auto& row : to.kernels.accuracy) {  // only casts were timed on this GPU
    EXPECT_TRUE(row.kernel.starts_with("cast")) << row.kernel;
  }
  EXPECT_GT(to.spread.gemm, 1.4 * from.spread.gemm);
  EXPECT_EQ(to.intra_node, costmodel::load_profile("", h200).intra_node);
  const DeviceModel old(h100(), from);
  const DeviceModel model(h200, to);
  const costmodel::GemmShape large{.m = 8192, .n = 8192, .k = 8192};
  const costmodel::GemmShape skinny{.m = 16, .n = 16384, .k = 16384};
  EXPECT_NEAR(model.gemm(large) / old.gemm(large), 1, 0.02);
  EXPECT_NEAR(old.gemm(skinny) / model.gemm(skinny), 4.8 / 3.35, 0.1);
  // The profile in the box is this transfer, and forward products and attention timed on it.
  const Profile box = costmodel::load_profile("", h200);
  EXPECT_EQ(box.kernels.residuals, to.kernels.residuals);
  EXPECT_EQ(box.spread, to.spread);
  std::vector<std::string> timed;
  for (const auto& row : box.kernels.accuracy) {
    if (std::find(to.kernels.accuracy.begin(), to.kernels.accuracy.end(), row) ==
        to.kernels.accuracy.end()) {
      timed.push_back(row.kernel);
    }
  }
  EXPECT_THAT(timed,
              ::testing::ElementsAre("gemm bf16 tn burst", "gemm fp8 tn burst",
                                     "attention-forward bf16 burst", "fp8 attention over 16 bits"));
}

// The profile in the box is what the fit gives from the public table.
TEST(FitKernelsTest, RepeatsTheAttentionOfA100) {
  const std::string path =
      testing::shared_path("kernels/attention-a100-sxm4-80gb-fwd-aiconfigurator.csv");
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  const topologies::Gpu a100 = topologies::load_gpu("a100-sxm4-80gb");
  const Profile box = costmodel::load_profile("", a100);
  const Reading reading = read_foreign(path, "", {});
  ASSERT_EQ(reading.files.size(), 1U);
  const KernelFit fit = fit_kernels(a100, box, reading.files[0].samples, "attention table", 1);
  EXPECT_EQ(fit.profile.attention.forward_fraction, box.attention.forward_fraction);
  const auto rows = errors_of(fit.profile, "attention-forward");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(box.kernels.accuracy, Contains(rows.front()));
  EXPECT_LE(rows.front().median, 0.06);
}

TEST(FitPlotTest, DrawsEveryClassAndEscapesItsTitle) {
  const std::vector<LeftOut> points = {{"gemm bf16 tn burst", 1e-5, 1.1e-5},
                                       {"memory copy", 1e-3, 0.9e-3}};
  const std::string svg = fit_plot(points, "a < b");
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("gemm bf16 tn burst: median error 10.0 %, 1 point<"));
  EXPECT_THAT(svg, HasSubstr("memory copy"));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

TEST(FitPlotTest, SaysThatNoPointsWereTested) {
  const std::string svg = fit_plot({}, "nothing");
  EXPECT_THAT(svg, HasSubstr("no points were tested"));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("shaded")));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

}  // namespace
}  // namespace orrery::calibrate
