// SPDX-License-Identifier: Apache-2.0
// Attention that was timed on a GPU whose kernels are those of a relative, and in fp8.
#include "calibrate/fit/relative_attention.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>

#include "base/math.hpp"
#include "calibrate/fit/fp8_attention.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/reader.hpp"
#include "costmodel/device_model.hpp"
#include "tests/folders.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::AttentionShape;
using costmodel::DeviceModel;
using costmodel::Profile;
using ::testing::HasSubstr;

topologies::Gpu b300() { return topologies::load_gpu("b300-sxm-288gb"); }

// B200's kernels on B300.
Profile transferred() {
  Profile profile = costmodel::load_profile("", b300());
  transfer_kernels(costmodel::load_profile("b200-sxm-180gb", b300()), profile);
  return profile;
}

// Forward calls of heads of many sizes, as `profile` has them.
std::vector<Sample> forward_calls(const Profile& profile, bool in_fp8) {
  const DeviceModel model(b300(), profile);
  std::vector<Sample> samples;
  for (const std::int64_t heads : {4, 8, 12, 16, 24, 32, 40, 48, 64}) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      for (const std::int64_t tokens : {512, 2048, 8192}) {
        const AttentionShape shape{.batch = 4,
                                   .heads = heads,
                                   .kv_heads = 4,
                                   .q_len = tokens,
                                   .kv_len = tokens,
                                   .head_dim = head_dim,
                                   .value_head_dim = head_dim};
        AttentionSample attention{.batch = shape.batch,
                                  .heads = heads,
                                  .kv_heads = shape.kv_heads,
                                  .q_len = tokens,
                                  .kv_len = tokens,
                                  .head_dim = head_dim,
                                  .value_head_dim = head_dim};
        Sample sample;
        sample.time.median = model.attention_forward(shape);
        sample.implementation = "a kernel of inference";
        if (in_fp8) {
          attention.dtype = DType::Fp8;
          attention.in_16_bits_s = sample.time.median.value();
          sample.time.median =
              sample.time.median / (1.3 * std::pow(as_double(head_dim) / 128, 0.2));
        }
        sample.shape = attention;
        samples.push_back(sample);
      }
    }
  }
  return samples;
}

TEST(RelativeAttention, FindsTheFormulaUnderTheSetsOfTheRelative) {
  Profile truth = transferred();
  truth.attention.forward_fraction *= 1.2;
  truth.attention.head_dim_exponent *= 0.8;
  KernelFit fit;
  fit.profile = transferred();
  const Profile before = fit.profile;
  fit_relative_attention(b300(), forward_calls(truth, false), "a test", 1, fit);
  EXPECT_NEAR(fit.profile.attention.forward_fraction, truth.attention.forward_fraction, 0.01);
  EXPECT_NEAR(fit.profile.attention.head_dim_exponent, truth.attention.head_dim_exponent, 0.02);
  EXPECT_EQ(fit.profile.attention.backward_rate_fraction, before.attention.backward_rate_fraction);
  EXPECT_EQ(fit.profile.kernels.residuals, before.kernels.residuals);
  EXPECT_EQ(fit.profile.spread, before.spread);
  ASSERT_EQ(fit.profile.kernels.accuracy.back().kernel, "attention-forward bf16 burst");
  EXPECT_LT(fit.profile.kernels.accuracy.back().p90, 0.02);
  for (const costmodel::ProfileSource& source : fit.profile.sources) {
    if (source.section == "attention") {
      EXPECT_THAT(source.text,
                  HasSubstr("a test; backward over forward and residuals transferred"));
    }
  }
}

TEST(RelativeAttention, NothingMeasuredChangesNothing) {
  KernelFit fit;
  fit.profile = transferred();
  fit_relative_attention(b300(), {}, "a test", 1, fit);
  EXPECT_EQ(fit.profile, transferred());
}

TEST(Fp8Attention, FindsTheRateAndWhatHeadsDoToIt) {
  KernelFit fit;
  fit_fp8_attention(forward_calls(transferred(), true), 1, fit);
  EXPECT_NEAR(fit.profile.attention.fp8_forward_rate, 1.3, 0.001);
  EXPECT_NEAR(fit.profile.attention.fp8_head_dim_exponent, 0.2, 0.001);
  ASSERT_EQ(fit.profile.kernels.accuracy.size(), 1U);
  EXPECT_EQ(fit.profile.kernels.accuracy.front().points, 81);
  EXPECT_LT(fit.profile.kernels.accuracy.front().p90, 0.001);
}

TEST(Fp8Attention, TablesOfTheProjectAreRead) {
  std::map<std::string, int> calls;
  for (const char* name : {"attention-fwd-aiconfigurator", "attention-fp8-fwd-aiconfigurator"}) {
    const auto path = source_folder() / "calibrate/tables" / (std::string(name) + ".csv");
    const SampleReader& reader = detect_reader(path.string());
    for (const SampleFile& file : reader.read(path.string(), {}).files) {
      calls[std::string(reader.name) + " " + gpu_of(file.header.device)] +=
          static_cast<int>(file.samples.size());
      EXPECT_EQ(read_samples(parse_json(sample_text(file), "again"), "again"), file);
    }
  }
  EXPECT_EQ(calls["aiconfigurator-attention gb300-288gb"], 516);
  EXPECT_EQ(calls["aiconfigurator-fp8-attention h100-sxm5-80gb"], 240);
  EXPECT_EQ(calls.size(), 10U);
}

TEST(Fp8Attention, PairsAreNoPointsOfAFormula) {
  const Profile base = transferred();
  const KernelFit fit = fit_kernels(b300(), base, forward_calls(base, true), "a test", 1);
  EXPECT_EQ(fit.profile.attention.forward_fraction, base.attention.forward_fraction);
  EXPECT_EQ(fit.profile.kernels.residuals, base.kernels.residuals);
  EXPECT_NEAR(fit.profile.attention.fp8_forward_rate, 1.3, 0.001);
}

}  // namespace
}  // namespace orrery::calibrate
