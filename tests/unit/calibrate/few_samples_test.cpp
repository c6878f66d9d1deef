// SPDX-License-Identifier: Apache-2.0
// Fits to few samples: what stays of the base, and what is said of it.
#include <gmock/gmock.h>

#include <algorithm>
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
  // 9 / (9 + 2.0) of the shift of 1.1, as sites spread by 0.076.
  EXPECT_NEAR(slower_at(fit.profile, {.m = 8192, .n = 28672, .k = 4096}), std::pow(1.1, 0.82),
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
  EXPECT_NEAR(sustained(fit.profile) / sustained(base), std::pow(1.1, 0.82), 0.01);
}

TEST(FewSamplesTest, ManyMoveTheTableAllTheWay) {
  std::vector<std::array<std::int64_t, 3>> shapes;
  for (std::int64_t i = 0; i < 300; ++i) {
    shapes.push_back({1100 + 37 * (i % 60), 1000 + 128 * (i % 50), 1024 + 64 * (i % 70)});
  }
  const KernelFit fit = fit_to(products(shapes, 0.9));
  EXPECT_NEAR(slower_at(fit.profile, {.m = 8192, .n = 28672, .k = 8192}), 0.9, 0.01);
}

// Twice as slow no software stack is: such a site is another one.
TEST(FewSamplesTest, AFarSiteIsFollowedWhole) {
  for (const double slower : {1.4, 1.6, 2.0}) {
    const KernelFit fit = fit_to(products(kNine, slower));
    EXPECT_NEAR(slower_at(fit.profile, {.m = 8192, .n = 28672, .k = 4096}) / slower, 1, 0.02)
        << slower;
  }
}

std::vector<std::array<std::int64_t, 3>> scattered(std::int64_t count) {
  std::vector<std::array<std::int64_t, 3>> shapes;
  for (std::int64_t i = 0; i < count; ++i) {
    shapes.push_back({64 << (i % 7), 128 << (i % 5) << (i % 3), 256 << (i % 4) << (i / 9 % 3)});
  }
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  return shapes;
}

// Kernels that are a roofline of their own, which the table of the box is not.
Profile roofline() {
  Profile ideal = a100_profile();
  ideal.kernels = {};
  costmodel::GemmParameters& bf16 = ideal.gemm[static_cast<std::size_t>(DType::Bf16)];
  bf16.compute_fraction = 0.6;
  bf16.memory_fraction = 0.7;
  bf16.launch = Seconds(9e-6);
  return ideal;
}

TEST(FewSamplesTest, ATableOfOtherKernelsGoes) {
  const KernelFit fit = fit_to(products(scattered(100), 1, roofline()));
  EXPECT_NEAR(fit.profile.gemm[static_cast<std::size_t>(DType::Bf16)].compute_fraction, 0.6, 0.01);
  EXPECT_THAT(fit.remarks, Contains(HasSubstr("gemm bf16 tn burst without the table of a100")));
  for (const std::int64_t m : {100, 3000, 9000}) {
    const GemmShape unseen{.m = m, .n = 6000, .k = 3000};
    EXPECT_NEAR(DeviceModel(a100(), fit.profile).gemm(unseen) /
                    DeviceModel(a100(), roofline()).gemm(unseen),
                1, 0.03)
        << m;
  }
  EXPECT_LT(fit.profile.spread.gemm, a100_profile().spread.gemm);
}

// Left-out points are near those that stayed; what lies elsewhere is as unknown as before.
TEST(FewSamplesTest, SpreadsNarrowWithTheFormulaAlone) {
  EXPECT_EQ(fit_to(products(scattered(100), 1.05)).profile.spread, a100_profile().spread);
  Profile base = a100_profile();
  base.kernels = {};
  base.spread.gemm = 0.45;
  std::vector<std::array<std::int64_t, 3>> shapes;
  for (std::int64_t i = 1; i <= 24; ++i) {
    shapes.push_back({128 * i, i % 2 == 0 ? 4096 : 8192, 4096});
  }
  const KernelFit few = fit_to(products(shapes, 1, roofline()), base);
  EXPECT_EQ(few.profile.spread.gemm, 0.45);
  EXPECT_LT(few.profile.kernels.accuracy.front().p90, 0.3);
  EXPECT_LT(fit_to(products(scattered(100), 1, roofline()), base).profile.spread.gemm, 0.06);
}

TEST(FewSamplesTest, SpreadsWidenWithTheErrorsOfAFew) {
  std::vector<Sample> samples = products(kNine, 1);
  for (std::size_t i = 0; i < samples.size(); i += 2) {
    samples[i].time.median = 2.5 * samples[i].time.median;
  }
  const Profile profile = fit_to(samples).profile;
  EXPECT_GT(profile.kernels.accuracy.back().median, 0.2);
  EXPECT_GT(profile.spread.gemm, 0.3);
}

// As many as tell a formula: folds leave fewer, and test it all the same.
TEST(FewSamplesTest, FoldsTestTheFormulaThatIsFitted) {
  Profile base = a100_profile();
  base.kernels = {};
  std::vector<std::array<std::int64_t, 3>> shapes;
  for (std::int64_t i = 0; i < 24; ++i) {
    shapes.push_back({512 + 300 * i, 1024 * (1 + i % 12), 1024 * (1 + i % 5)});
  }
  const KernelFit fit = fit_to(products(shapes, 1, roofline()), base);
  EXPECT_NE(fit.profile.gemm, base.gemm);
  EXPECT_LT(fit.profile.kernels.accuracy.front().p90, 0.02);
}

// One time of a run that was disturbed says nothing of the shapes around it.
TEST(FewSamplesTest, DisturbedTimesAreNoPartOfTheTable) {
  std::vector<Sample> samples = products(scattered(100), 1);
  samples[40].time.median = 4 * samples[40].time.median;
  const auto& gemm = std::get<GemmSample>(samples[40].shape);
  EXPECT_NEAR(slower_at(fit_to(samples).profile, {.m = gemm.m, .n = gemm.n, .k = gemm.k}), 1, 0.05);
}

TEST(FewSamplesTest, FormatsOf16BitsStandForEachOther) {
  const KernelFit fit = fit_to(products(kNine, 1.1, a100_profile(), DType::Fp16));
  const GemmShape shape{.m = 8192, .n = 28672, .k = 4096, .dtype = DType::Fp16};
  EXPECT_NEAR(slower_at(fit.profile, shape), std::pow(1.1, 0.82), 0.01);
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
