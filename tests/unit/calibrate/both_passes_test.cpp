// SPDX-License-Identifier: Apache-2.0
// Attention whose passes were timed together: figures of FlashAttention.
#include <gmock/gmock.h>

#include "calibrate/fit/kernels.hpp"
#include "costmodel/device_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::DeviceModel;
using costmodel::Profile;

// FlashAttention-2 on `gpu`, both passes in one time.
KernelFit fit_of_both_passes(const topologies::Gpu& gpu, Profile chip, double products_slower) {
  chip.kernels = {};
  std::vector<Sample> samples;
  Sample both;
  both.shape = AttentionSample{.batch = 2,
                               .heads = 16,
                               .kv_heads = 16,
                               .q_len = 8192,
                               .kv_len = 8192,
                               .head_dim = 64,
                               .value_head_dim = 64,
                               .dtype = DType::Fp16,
                               .both_passes = true};
  both.time.median = Seconds(9e-3);
  both.implementation = "FlashAttention-2";
  samples.push_back(both);
  const DeviceModel burst(gpu, chip);
  for (const std::int64_t m : {2048, 4096, 8192}) {
    Sample product;
    product.shape = GemmSample{.m = m, .n = 4096, .k = 4096};
    product.time.median =
        products_slower * burst.gemm(costmodel::GemmShape{.m = m, .n = 4096, .k = 4096});
    product.implementation = "simumax";
    samples.push_back(product);
  }
  return fit_kernels(gpu, chip, samples, "both passes", 1);
}

// Each pass has its share by the formula, and both are as much slower as products are.
TEST(BothPasses, PassesTimedTogetherAreToldApart) {
  const topologies::Gpu a100 = topologies::load_gpu("a100-sxm4-80gb");
  const costmodel::AttentionShape shape{
      .batch = 2, .heads = 16, .q_len = 8192, .kv_len = 8192, .head_dim = 64, .causal = true};
  for (const double slower : {1.0, 1.1}) {
    Profile chip = costmodel::load_profile("", a100);
    chip.kernels = {};
    const Profile profile = fit_of_both_passes(a100, chip, slower).profile;
    const DeviceModel model(a100, profile, costmodel::Load::Sustained);
    const double forward = model.attention_forward(shape).value();
    const double backward = model.attention_backward(shape).value();
    EXPECT_NEAR(forward + backward, slower * 9e-3, 0.01 * 9e-3);
    Profile formula = profile;
    formula.kernels = {};
    const DeviceModel bare(a100, formula, costmodel::Load::Sustained);
    EXPECT_NEAR(backward / forward, bare.attention_backward(shape) / bare.attention_forward(shape),
                0.01);
  }
}

// A shape whose passes were timed by themselves, and one that was timed in both formats, have one
// residual; passes together by a kernel that is not known say nothing.
TEST(BothPasses, PassesTimedTogetherJoinThoseTimedApart) {
  const topologies::Gpu a100 = topologies::load_gpu("a100-sxm4-80gb");
  Profile chip = costmodel::load_profile("", a100);
  chip.kernels = {};
  std::vector<Sample> samples;
  const auto add = [&](std::int64_t tokens, DType dtype, bool both, double seconds,
                       const char* implementation) {
    AttentionSample shape{.batch = 2,
                          .heads = 16,
                          .kv_heads = 16,
                          .q_len = tokens,
                          .kv_len = tokens,
                          .head_dim = 64,
                          .value_head_dim = 64,
                          .dtype = dtype};
    shape.both_passes = both;
    Sample sample;
    sample.shape = shape;
    sample.time.median = Seconds(seconds);
    sample.implementation = implementation;
    samples.push_back(sample);
  };
  add(4096, DType::Bf16, false, 0.8e-3, "simumax");
  add(4096, DType::Fp16, true, 9e-3, "FlashAttention-2");
  add(8192, DType::Fp16, true, 9e-3, "FlashAttention-2");
  add(8192, DType::Bf16, true, 10e-3, "FlashAttention-2");
  add(2048, DType::Bf16, true, 1e-3, "mine");
  const KernelFit fit = fit_kernels(a100, chip, samples, "both passes", 1);
  EXPECT_THAT(fit.remarks, testing::Contains(testing::HasSubstr("passes together")));
  const std::vector<costmodel::ResidualSet>& sets = fit.profile.kernels.residuals.sets();
  ASSERT_EQ(sets.size(), 2U);  // both in bf16
  EXPECT_EQ(sets[0].points.size(), 2U);
  EXPECT_EQ(sets[1].points.size(), 2U);
  costmodel::AttentionShape alone{
      .batch = 2, .heads = 16, .q_len = 4096, .kv_len = 4096, .head_dim = 64, .causal = true};
  const DeviceModel model(a100, fit.profile, costmodel::Load::Sustained);
  EXPECT_NEAR(model.attention_forward(alone).value(), 0.8e-3, 0.01e-3);
}

Profile bare_chip(const topologies::Gpu& gpu) {
  Profile chip = costmodel::load_profile("", gpu);
  chip.kernels = {};
  chip.attention.backward_rate_fraction = 0.86;
  return chip;
}

// As many backward passes timed by themselves in bursts, twice as slow as the formula's 0.86, three
// under load, three times as slow, and a forward with its backward.
std::vector<Sample> backward_passes(const topologies::Gpu& gpu, int bursts) {
  AttentionSample shape{.batch = 2,
                        .heads = 16,
                        .kv_heads = 16,
                        .q_len = 8192,
                        .kv_len = 8192,
                        .head_dim = 64,
                        .value_head_dim = 64};
  const DeviceModel bare(gpu, bare_chip(gpu));
  std::vector<Sample> samples;
  const auto add = [&](std::int64_t batch, double slower, const char* implementation) {
    Sample sample;
    shape.batch = batch;
    shape.backward = true;
    sample.shape = shape;
    sample.time.median =
        slower * bare.attention_backward(
                     {.batch = batch, .heads = 16, .q_len = 8192, .kv_len = 8192, .head_dim = 64});
    sample.implementation = implementation;
    samples.push_back(sample);
  };
  for (int index = 0; index < 3; ++index) {
    if (index < bursts) {
      add(4 + 2 * index, 2.0, "mine");
    }
    add(4 + 2 * index, 3.0, "simumax");
  }
  Sample both;
  shape.batch = 2;
  shape.backward = false;
  shape.both_passes = true;
  both.shape = shape;
  both.time.median = Seconds(9e-3);
  both.implementation = "FlashAttention-2";
  samples.push_back(both);
  return samples;
}

// Bursts say what the rate of the backward is where there are two, and load where it is alone.
TEST(BothPasses, OneBurstGivesNoRate) {
  const topologies::Gpu a100 = topologies::load_gpu("a100-sxm4-80gb");
  for (const auto& [bursts, rate] : {std::pair(0, 0.287), {1, 0.287}, {2, 0.43}, {3, 0.43}}) {
    const Profile profile =
        fit_kernels(a100, bare_chip(a100), backward_passes(a100, bursts), "bursts", 1).profile;
    EXPECT_NEAR(profile.attention.backward_rate_fraction, rate, 0.01) << bursts;
  }
}

// The share of the backward pass follows from backward passes that were timed by themselves.
TEST(BothPasses, SharesFollowTheBackwardTimedApart) {
  const topologies::Gpu a100 = topologies::load_gpu("a100-sxm4-80gb");
  const Profile profile =
      fit_kernels(a100, bare_chip(a100), backward_passes(a100, 3), "both passes", 1).profile;
  Profile formula = profile;
  formula.kernels = {};
  const DeviceModel rates(a100, formula, costmodel::Load::Sustained);
  const DeviceModel model(a100, profile, costmodel::Load::Sustained);
  const costmodel::AttentionShape measured{
      .batch = 2, .heads = 16, .q_len = 8192, .kv_len = 8192, .head_dim = 64, .causal = true};
  const double share = rates.attention_forward(measured) /
                       (rates.attention_forward(measured) + rates.attention_backward(measured));
  EXPECT_NEAR(model.attention_forward(measured).value(), share * 9e-3, 0.01 * 9e-3);
}

// Where a newer kernel is better, FlashAttention-2 says nothing of the best: the profile tells.
TEST(BothPasses, OlderAttentionIsLeftOut) {
  const topologies::Gpu h100 = topologies::load_gpu("h100-sxm5-80gb");
  const auto left_out = testing::Contains(testing::HasSubstr("attention by FlashAttention-2"));
  Profile chip = costmodel::load_profile("", h100);
  EXPECT_THAT(fit_of_both_passes(h100, chip, 1.0).remarks, left_out);
  chip.attention.flash2_forward_fraction = chip.attention.flash2_backward_fraction = 1;
  EXPECT_THAT(fit_of_both_passes(h100, chip, 1.0).remarks, testing::Not(left_out));
}

}  // namespace
}  // namespace orrery::calibrate
