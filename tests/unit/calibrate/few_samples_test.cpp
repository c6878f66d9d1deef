// SPDX-License-Identifier: Apache-2.0
// Fits to few samples: what stays of the base, and what is said of it.
#include <gmock/gmock.h>

#include <cmath>

#include "calibrate/fit/kernels.hpp"
#include "costmodel/device_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::DeviceModel;
using costmodel::GemmShape;
using costmodel::Profile;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

topologies::Gpu a100() { return topologies::load_gpu("a100-sxm4-80gb"); }
Profile a100_profile() { return costmodel::load_profile("", a100()); }

// A site whose products take `slower` times what the profile says.
std::vector<Sample> products(const std::vector<std::array<std::int64_t, 3>>& shapes, double slower,
                             const Profile& profile = a100_profile(), DType dtype = DType::Bf16) {
  const DeviceModel model(a100(), profile);
  std::vector<Sample> samples;
  for (const auto& [m, n, k] : shapes) {
    Sample sample;
    sample.shape = GemmSample{.m = m, .n = n, .k = k, .dtype = dtype, .output = dtype};
    sample.time.median = slower * model.gemm({.m = m, .n = n, .k = k, .dtype = dtype});
    sample.implementation = "cublasLt";
    samples.push_back(sample);
  }
  return samples;
}

const std::vector<std::array<std::int64_t, 3>> kNine = {
    {1024, 1100, 1300}, {2560, 1536, 8192},  {1024, 2560, 5200},
    {1536, 3584, 1638}, {3585, 5120, 5120},  {3329, 7168, 2560},
    {3585, 9000, 2560}, {2817, 12288, 6553}, {3200, 5120, 8192}};

KernelFit fit_to(const std::vector<Sample>& samples, const Profile& base = a100_profile()) {
  return fit_kernels(a100(), base, samples, "a test", 1);
}

double slower_at(const Profile& after, const GemmShape& shape) {
  return DeviceModel(a100(), after).gemm(shape) / DeviceModel(a100(), a100_profile()).gemm(shape);
}

TEST(FewSamplesTest, TheDenseTableMovesAsFarAsTheyTell) {
  const Profile base = a100_profile();
  const KernelFit fit = fit_to(products(kNine, 1.1));
  EXPECT_EQ(fit.profile.gemm, base.gemm);
  EXPECT_EQ(fit.sections, std::set<std::string>{"kernels"});
  // Nine of a spread as wide as that of A100 (0.104 / 1.645, and 0.057 between stacks) weigh about
  // 9 / (9 + 6.8) of the shift of 1.1.
  EXPECT_NEAR(slower_at(fit.profile, {.m = 8192, .n = 28672, .k = 4096}), std::pow(1.1, 0.57),
              0.01);
  // Their own shapes, but for what the neighbours say.
  EXPECT_NEAR(slower_at(fit.profile, {.m = 3585, .n = 5120, .k = 5120}), 1.1, 0.02);
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("9 shapes of gemm bf16 tn burst beside the")));
  EXPECT_THAT(fit.profile.kernels.residuals.source(),
              HasSubstr("a test; gemm bf16 tn burst, "));  // and where the table is from
  // Layouts that were not measured keep their sets, which are ratios to it.
  const GemmShape gradient{.m = 4096, .n = 4096, .k = 4096, .layout = costmodel::GemmLayout::NN};
  const auto sustained = [&](const Profile& profile) {
    return DeviceModel(a100(), profile, costmodel::Load::Sustained).gemm(gradient);
  };
  EXPECT_NEAR(sustained(fit.profile) / sustained(base), std::pow(1.1, 0.57), 0.01);
}

TEST(FewSamplesTest, ManyMoveTheTableAllTheWay) {
  std::vector<std::array<std::int64_t, 3>> shapes;
  for (std::int64_t i = 0; i < 300; ++i) {
    shapes.push_back({1100 + 37 * (i % 60), 1000 + 128 * (i % 50), 1024 + 64 * (i % 70)});
  }
  const KernelFit fit = fit_to(products(shapes, 0.9));
  EXPECT_NEAR(slower_at(fit.profile, {.m = 8192, .n = 28672, .k = 8192}), 0.9, 0.01);
}

TEST(FewSamplesTest, FormatsOf16BitsStandForEachOther) {
  const KernelFit fit = fit_to(products(kNine, 1.1, a100_profile(), DType::Fp16));
  const GemmShape shape{.m = 8192, .n = 28672, .k = 4096, .dtype = DType::Fp16};
  EXPECT_NEAR(slower_at(fit.profile, shape), std::pow(1.1, 0.57), 0.01);
  EXPECT_NEAR(slower_at(fit.profile, {.m = 8192, .n = 28672, .k = 4096}), 1, 1e-9);
}

// No fold can test shapes that differ in rows alone against each other.
TEST(FewSamplesTest, ClassesThatNoFoldTestsStayAsInTheBase) {
  std::vector<std::array<std::int64_t, 3>> shapes;
  for (std::int64_t m = 1; m <= 30; ++m) {
    shapes.push_back({64 * m, 4096, 4096});
  }
  const KernelFit fit = fit_to(products(shapes, 1.3));
  EXPECT_EQ(fit.profile, a100_profile());
  EXPECT_THAT(fit.left_out, IsEmpty());
  EXPECT_THAT(fit.sections, IsEmpty());
  EXPECT_EQ(fit.sampled, std::set<std::string>{"gemm bf16 tn burst"});
  EXPECT_THAT(fit.remarks,
              Contains("30 samples of gemm bf16 tn burst: too few to test, as in a100-sxm4-80gb"));
}

// Neither do they say what a formula needs, however many there are.
TEST(FewSamplesTest, AFormulaNeedsGroupsOfShapes) {
  Profile base = a100_profile();
  base.kernels = {};
  std::vector<std::array<std::int64_t, 3>> shapes;
  for (std::int64_t i = 0; i < 60; ++i) {
    shapes.push_back({64 * (i + 1), 1024 * (1 + i % 6), 4096});
  }
  EXPECT_EQ(fit_to(products(shapes, 1.3, base), base).profile.gemm, base.gemm);
  for (auto& shape : shapes) {
    shape[2] = 1024 * (1 + shape[0] % 7);
  }
  EXPECT_NE(fit_to(products(shapes, 1.3, base), base).profile.gemm, base.gemm);
}

TEST(FewSamplesTest, ParametersAtTheirBoundsAreSaid) {
  Profile base = a100_profile();
  base.kernels = {};
  Profile ideal = base;
  ideal.gemm[static_cast<std::size_t>(DType::Bf16)].compute_fraction = 1.0;
  std::vector<std::array<std::int64_t, 3>> shapes;
  for (std::int64_t i = 0; i < 60; ++i) {
    shapes.push_back({512 * (1 + i % 8), 512 * (1 + i % 5), 512 * (1 + i % 9)});
  }
  const auto at_bound = HasSubstr("gemm bf16 tn burst: compute_fraction ends at its bound, 1");
  EXPECT_THAT(fit_to(products(shapes, 0.9, ideal), base).remarks, Contains(at_bound));
  EXPECT_THAT(fit_to(products(shapes, 1.2, ideal), base).remarks, Not(Contains(at_bound)));
}

TEST(FewSamplesTest, ProductsOfABatchAreNoExperts) {
  std::vector<Sample> samples = products(kNine, 1);
  for (Sample& sample : samples) {
    std::get<GemmSample>(sample.shape).groups = 16;
    std::get<GemmSample>(sample.shape).batched = true;
  }
  const KernelFit fit = fit_to(samples);
  EXPECT_EQ(fit.profile, a100_profile());
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("9 samples left out: products of a batch")));
}

}  // namespace
}  // namespace orrery::calibrate
