// SPDX-License-Identifier: Apache-2.0
// Forward products that were timed on a GPU whose kernels are those of a relative.
#include "calibrate/fit/relative_gemm.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "costmodel/device_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::DeviceModel;
using costmodel::GemmParameters;
using costmodel::GemmShape;
using costmodel::Profile;
using ::testing::HasSubstr;

topologies::Gpu products_gpu() { return topologies::load_gpu("b300-sxm-288gb"); }

GemmParameters& of(Profile& profile, DType dtype) {
  return profile.gemm[static_cast<std::size_t>(dtype)];
}

// B200's kernels on B300, of which nothing was timed.
Profile with_kernels_of_b200() {
  Profile profile = costmodel::load_profile("", products_gpu());
  profile.kernels.accuracy.clear();
  transfer_kernels(costmodel::load_profile("b200-sxm-180gb", products_gpu()), profile);
  return profile;
}

std::vector<Sample> products_of(const Profile& profile, DType dtype) {
  const DeviceModel model(products_gpu(), profile);
  std::vector<Sample> samples;
  for (const std::int64_t n : {512, 1024, 2048, 4096, 8192, 16384}) {
    for (const std::int64_t k : {512, 1536, 4096, 12288}) {
      for (const std::int64_t m : {16, 256, 2048, 8192}) {
        const GemmShape shape{
            .m = m, .n = n, .k = k, .dtype = dtype, .casts_activations = is_quantised(dtype)};
        Sample sample;
        sample.shape = GemmSample{.m = m, .n = n, .k = k, .dtype = dtype, .output = DType::Bf16};
        sample.time.median = model.gemm(shape);
        sample.implementation = "aiconfigurator";
        samples.push_back(sample);
      }
    }
  }
  return samples;
}

KernelFit fitted_to(const std::vector<Sample>& samples) {
  KernelFit fit;
  fit.profile = with_kernels_of_b200();
  fit_relative_gemm(products_gpu(), samples, "a test", 1, fit);
  return fit;
}

TEST(RelativeGemm, FindsTheFormulaUnderTheSetsOfTheRelative) {
  Profile truth = with_kernels_of_b200();
  of(truth, DType::Bf16).compute_fraction *= 1.1;
  KernelFit fit = fitted_to(products_of(truth, DType::Bf16));
  const Profile before = with_kernels_of_b200();
  const GemmParameters& found = of(fit.profile, DType::Bf16);
  EXPECT_NEAR(found.compute_fraction, of(truth, DType::Bf16).compute_fraction, 0.01);
  EXPECT_EQ(of(fit.profile, DType::Fp16), found);
  EXPECT_EQ(of(fit.profile, DType::Tf32), found);
  EXPECT_EQ(fit.profile.kernels.residuals, before.kernels.residuals);
  EXPECT_EQ(fit.profile.spread, before.spread);
  ASSERT_EQ(fit.profile.kernels.accuracy.back().kernel, "gemm bf16 tn burst");
  EXPECT_LT(fit.profile.kernels.accuracy.back().p90, 0.02);
  for (const costmodel::ProfileSource& source : fit.profile.sources) {
    if (source.section == "gemm") {
      EXPECT_THAT(source.text, HasSubstr("a test; layouts, experts, sustained load and residuals"));
    }
  }
}

// Its casts move fewer bytes, and the sets of fp8 say nothing of it.
TEST(RelativeGemm, Nvfp4HasAFormulaOfItsOwn) {
  Profile truth = with_kernels_of_b200();
  of(truth, DType::Nvfp4).compute_fraction = 0.35;
  of(truth, DType::Nvfp4).cast_fraction = 0.6;
  KernelFit fit = fitted_to(products_of(truth, DType::Nvfp4));
  EXPECT_NEAR(of(fit.profile, DType::Nvfp4).compute_fraction, 0.35, 0.005);
  EXPECT_NEAR(of(fit.profile, DType::Nvfp4).cast_fraction, 0.6, 0.02);
  Profile before = with_kernels_of_b200();
  EXPECT_EQ(of(fit.profile, DType::Fp8), of(before, DType::Fp8));
}

// Where nothing else is known of nvfp4 it reaches the shares that fp8 reaches, also new ones.
TEST(RelativeGemm, Nvfp4FollowsFp8) {
  KernelFit fit;
  fit.profile = with_kernels_of_b200();
  of(fit.profile, DType::Nvfp4) = of(fit.profile, DType::Fp8);
  Profile truth = fit.profile;
  of(truth, DType::Fp8).compute_fraction *= 0.8;
  fit_relative_gemm(products_gpu(), products_of(truth, DType::Fp8), "a test", 1, fit);
  EXPECT_NE(of(fit.profile, DType::Fp8), of(truth, DType::Nvfp4));
  EXPECT_TRUE(nvfp4_as_fp8(fit.profile.gemm));
}

TEST(RelativeGemm, NothingMeasuredChangesNothing) {
  EXPECT_EQ(fitted_to({}).profile, with_kernels_of_b200());
}

// The project holds no table of these products: a transfer that is repeated without them keeps what
// they said, but for what experts lose, which is the relative's.
TEST(RelativeGemm, StaysWhenKernelsAreTransferredAgain) {
  const Profile b200 = costmodel::load_profile("b200-sxm-180gb", products_gpu());
  Profile box = costmodel::load_profile("", products_gpu());
  const Profile before = box;
  of(box, DType::Bf16).grouped_fraction = 0.5;
  transfer_kernels(b200, box);
  EXPECT_EQ(box.gemm, before.gemm);
  EXPECT_EQ(box.kernels.accuracy.size(), 3U);  // bf16, fp8 and nvfp4; attention is fitted again
  // Under other sets the formula says nothing.
  box.kernels.residuals = costmodel::load_kernel_residuals("h100-sxm5-80gb");
  transfer_kernels(b200, box);
  EXPECT_EQ(box.gemm, b200.gemm);
  EXPECT_TRUE(box.kernels.accuracy.empty());
}

}  // namespace
}  // namespace orrery::calibrate
