// SPDX-License-Identifier: Apache-2.0
#include "costmodel/kernel_residuals.hpp"

#include <gmock/gmock.h>

#include "costmodel/device_model.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery::costmodel {
namespace {

using ::testing::HasSubstr;

const ResidualKey kForward{KernelKind::Gemm, DType::Bf16, GemmLayout::TN, Load::Burst};

KernelResiduals example() {
  ResidualSet gemm{kForward, {}};
  gemm.points.push_back({{4096, 1024, 17}, -120});
  gemm.points.push_back({{4096, 1024, 256}, 80});
  gemm.points.push_back({{8192, 1024, 256}, 5});
  ResidualSet attention{
      {KernelKind::AttentionForward, DType::Bf16, GemmLayout::TN, Load::Sustained}, {}};
  attention.points.push_back({{128, 128, 1, 32, 8, 2, 0, 4096}, 50});
  return {"", 132, "a test", {gemm, attention}};
}

Json with_rows(const std::string& row) {
  Json document = to_json(example());
  Json rows = Json::array();
  rows.push(row);
  document.find("sets")->as_array()[0].set("points", rows);
  return document;
}

std::string message_of(const Json& document) {
  return testing::message_of([&] { read_kernel_residuals(JsonReader(document, "r.json"), ""); });
}

TEST(KernelResidualsTest, ReadsBackEqual) {
  const Json document = to_json(example());
  EXPECT_EQ(read_kernel_residuals(JsonReader(document, "r.json"), ""), example());
  const std::string text = document.dump();
  const Json parsed = parse_json(text, "r.json");
  EXPECT_EQ(read_kernel_residuals(JsonReader(parsed, "r.json"), ""), example());
  EXPECT_EQ(to_json(read_kernel_residuals(JsonReader(parsed, "r.json"), "")).dump(), text);
  EXPECT_THAT(text, HasSubstr("\"4096 1024: 17 -120 256 80\""));
}

TEST(KernelResidualsTest, AnswersMeasuredShapesAndNothingElse) {
  const KernelResiduals residuals = example();
  EXPECT_NEAR(residuals.log_factor(kForward, {4096, 1024, 17}, 132), -0.12, 0.02);
  EXPECT_NEAR(residuals.log_factor(kForward, {4096, 1024, 256}, 0), 0.08, 0.02);
  ResidualKey key = kForward;
  key.dtype = DType::Fp16;  // stands for bf16
  EXPECT_NEAR(residuals.log_factor(key, {4096, 1024, 256}, 132), 0.08, 0.02);
  key.dtype = DType::Fp8;
  EXPECT_EQ(residuals.log_factor(key, {4096, 1024, 256}, 132), 0);
  key = kForward;
  key.load = Load::Sustained;
  EXPECT_EQ(residuals.log_factor(key, {4096, 1024, 256}, 132), 0);
  EXPECT_EQ(KernelResiduals().log_factor(kForward, {1, 1, 1}, 132), 0);
  EXPECT_LT(std::abs(residuals.log_factor(kForward, {64, 1 << 30, 1 << 30}, 132)), 0.03);
}

// 1,229 tokens an expert are a mean, not an unaligned matrix.
TEST(KernelResidualsTest, TokensOfAnExpertNeedNoAlignment) {
  const ResidualKey key{KernelKind::GroupedGemm, DType::Bf16, GemmLayout::NT, Load::Sustained};
  ResidualSet set{key, {}};
  set.points.push_back({{1232, 1536, 20, 5120}, 130});
  set.points.push_back({{616, 1536, 40, 5120}, -60});
  const KernelResiduals residuals("", 148, "a test", {set});
  const double measured = residuals.log_factor(key, {1232, 1536, 20, 5120}, 148);
  EXPECT_NEAR(measured, 0.13, 0.02);
  EXPECT_NEAR(residuals.log_factor(key, {1229, 1536, 20, 5120}, 148), measured, 1e-6);
}

TEST(KernelResidualsTest, HostileDocumentsAreRefusedWithTheirPlace) {
  EXPECT_THAT(message_of(with_rows("4096 1024 17 -120")), HasSubstr("/sets/0/points/0"));
  EXPECT_THAT(message_of(with_rows("4096: 17 -120")), HasSubstr("whole number"));
  EXPECT_THAT(message_of(with_rows("4096 1024 5: 17 -120")), HasSubstr("more than 2 sizes"));
  EXPECT_THAT(message_of(with_rows("4096 1024: 17 -120 18")), HasSubstr("whole number"));
  EXPECT_THAT(message_of(with_rows("4096 1024: 17 9999")), HasSubstr("9999"));
  EXPECT_THAT(message_of(with_rows("4096 -1: 17 1")), HasSubstr("-1"));
  EXPECT_THAT(message_of(with_rows("4096 1024: 17 1 17 2")), HasSubstr("twice"));
  EXPECT_THAT(message_of(with_rows("4096 1024: 17 1e3")), HasSubstr("e3"));
  Json twice = to_json(example());
  twice.find("sets")->push(twice.find("sets")->as_array()[0]);
  EXPECT_THAT(message_of(twice), HasSubstr("second set"));
  Json version = to_json(example());
  version.set("version", 7);
  EXPECT_THAT(message_of(version), HasSubstr("version 7"));
  EXPECT_THAT(testing::message_of([] { load_kernel_residuals("h100-sxm5-80g"); }),
              HasSubstr("h100-sxm5-80gb"));
  EXPECT_THROW(load_kernel_residuals("../profiles/l40s"), Error);
  EXPECT_THAT(testing::message_of([] { load_kernel_residuals("none", "p.json: residuals"); }),
              HasSubstr("p.json: residuals"));
}

TEST(KernelResidualsTest, TravelWithTheProfileThatEmbedsThem) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  Profile profile = load_profile("", gpu);
  EXPECT_EQ(profile.kernels.residuals.name(), "h100-sxm5-80gb");
  EXPECT_LT(to_json(profile).dump().size(), 20'000U);  // named, not copied
  profile.kernels.residuals = example();
  EXPECT_EQ(read_profile(parse_json(to_json(profile).dump(), "p"), "p", gpu), profile);
  const DeviceModel with(gpu, profile);
  profile.kernels = {};
  const DeviceModel without(gpu, profile);
  const GemmShape shape{.m = 256, .n = 1024, .k = 4096};
  EXPECT_NEAR(with.gemm(shape) / without.gemm(shape), std::exp(0.08), 0.02);
}

}  // namespace
}  // namespace orrery::costmodel
