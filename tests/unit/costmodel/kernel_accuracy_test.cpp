// SPDX-License-Identifier: Apache-2.0
// Default profiles against public kernel tables. Measured shapes come back nearly as they were; the
// errors to expect of others are those the fit cross-validated.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "costmodel/device_model.hpp"
#include "tests/unit/costmodel/measured.hpp"

namespace orrery::costmodel {
namespace {

using testing::Errors;
using testing::number;

CsvTable kernels(const std::string& file) {
  return read_csv_file(testing::shared_path("kernels/" + file));
}

DeviceModel model_of_gpu(const std::string& name) {
  const topologies::Gpu gpu = topologies::load_gpu(name);
  return {gpu, load_profile("", gpu)};
}

std::int64_t integer(const CsvTable& table, std::size_t row, std::string_view column) {
  return static_cast<std::int64_t>(number(table, row, column));
}

GemmShape gemm_shape(const CsvTable& table, std::size_t row) {
  return {
      .m = integer(table, row, "m"), .n = integer(table, row, "n"), .k = integer(table, row, "k")};
}

struct Bands {
  const char* file;
  const char* gpu;
  double all;
  double large;  // m, n and k >= 1024; attention of more than a millisecond
  double tail;   // 90th percentile of all
};

// `predict` and `is_large` of a row of the table, whose times are in microseconds.
void expect_within(const Bands& bands, std::size_t rows,
                   const std::function<Seconds(const CsvTable&, std::size_t)>& predict,
                   const std::function<bool(const CsvTable&, std::size_t)>& is_large) {
  const CsvTable table = kernels(bands.file);
  Errors all;
  Errors large;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    const double predicted = predict(table, row).value() * 1e6;
    all.add(predicted, number(table, row, "time_us"));
    if (is_large(table, row)) {
      large.add(predicted, number(table, row, "time_us"));
    }
  }
  EXPECT_GT(all.size(), rows);
  EXPECT_LE(all.median(), bands.all);
  EXPECT_LE(all.quantile(0.9), bands.tail);
  EXPECT_LE(large.median(), bands.large);
}

class GemmAccuracyTest : public ::testing::TestWithParam<Bands> {};

TEST_P(GemmAccuracyTest, MedianIsWithinTheBand) {
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  const DeviceModel model = model_of_gpu(GetParam().gpu);
  expect_within(
      GetParam(), 6000,
      [&](const CsvTable& table, std::size_t row) { return model.gemm(gemm_shape(table, row)); },
      [](const CsvTable& table, std::size_t row) {
        const GemmShape shape = gemm_shape(table, row);
        return std::min({shape.m, shape.n, shape.k}) >= 1024;
      });
}

INSTANTIATE_TEST_SUITE_P(
    Tables, GemmAccuracyTest,
    ::testing::Values(
        Bands{"gemm-a100-sxm4-80gb-bf16-aiconfigurator.csv", "a100-sxm4-80gb", 0.01, 0.01, 0.03},
        Bands{"gemm-h100-sxm-bf16-aiconfigurator.csv", "h100-sxm5-80gb", 0.01, 0.01, 0.035},
        Bands{"gemm-b200-bf16-aiconfigurator.csv", "b200-sxm-180gb", 0.01, 0.01, 0.035},
        Bands{"gemm-l40s-bf16-aiconfigurator.csv", "l40s", 0.015, 0.02, 0.08}),
    [](const auto& test) {
      std::string name = test.param.gpu;
      std::erase(name, '-');
      return name;
    });

// What the profiles promise for shapes that were not measured: cross-validated by the fit.
TEST(KernelAccuracyTest, CrossValidatedErrorsAreWithinTheBars) {
  struct Bar {
    const char* gpu;
    const char* kernel;
    double median;
    double large_median;
  };
  for (const Bar& bar : {Bar{"a100-sxm4-80gb", "gemm bf16 tn burst", 0.05, 0.03},
                         Bar{"h100-sxm5-80gb", "gemm bf16 tn burst", 0.05, 0.03},
                         Bar{"b200-sxm-180gb", "gemm bf16 tn burst", 0.05, 0.03},
                         Bar{"l40s", "gemm bf16 tn burst", 0.08, 0.06},
                         Bar{"h100-sxm5-80gb", "gemm fp8 tn burst", 0.05, 0.035},
                         Bar{"b200-sxm-180gb", "gemm fp8 tn burst", 0.05, 0.055},
                         Bar{"l40s", "gemm fp8 tn burst", 0.08, 0.06},
                         Bar{"a100-sxm4-80gb", "attention-forward bf16 burst", 0.06, 1},
                         Bar{"h100-sxm5-80gb", "attention-forward bf16 burst", 0.06, 1},
                         Bar{"b200-sxm-180gb", "attention-forward bf16 burst", 0.10, 1}}) {
    const std::vector<KernelAccuracy> rows = model_of_gpu(bar.gpu).profile().kernels.accuracy;
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const auto& item) { return item.kernel == bar.kernel; });
    ASSERT_NE(row, rows.end()) << bar.gpu << " " << bar.kernel;
    EXPECT_LE(row->median, bar.median) << bar.gpu << " " << bar.kernel;
    EXPECT_LE(row->large_median, bar.large_median) << bar.gpu << " " << bar.kernel;
  }
}

// Exact shapes of training, in bursts or at the clock that the power limit leaves, whichever is
// nearer. Long loops ran at that limit and are not limited by it a second time.
TEST(KernelAccuracyTest, TrainingGemmsOfSimuMax) {
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  const CsvTable table = kernels("gemm-b200-bf16-simumax.csv");
  const topologies::Gpu gpu = topologies::load_gpu("b200-sxm-180gb");
  const Profile profile = load_profile("", gpu);
  const DeviceModel burst(gpu, profile);
  const DeviceModel sustained(gpu, profile, Load::Sustained);
  std::map<std::string, Errors> errors;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    GemmShape shape = gemm_shape(table, row);
    const std::string& layout = table.cell(row, "layout");
    shape.layout = layout == "TN"   ? GemmLayout::TN
                   : layout == "NN" ? GemmLayout::NN
                                    : GemmLayout::NT;
    shape.output_bytes = table.cell(row, "out_dtype") == "fp32" ? 4 : 2;
    const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                         static_cast<double>(shape.k);
    const double measured = flops / (number(table, row, "tflops") * 1e12);
    const Load load = load_of_timing(Seconds(measured), kSimumaxGemmLaunches, burst.gemm(shape),
                                     sustained.gemm(shape));
    const DeviceModel& model = load == Load::Burst ? burst : sustained;
    errors[layout].add(model.gemm(shape).value(), measured);
  }
  for (auto& [layout, of] : errors) {
    // Neighbours that disagree are smoothed.
    EXPECT_LE(of.median(), 0.04) << layout;
  }
}

TEST(KernelAccuracyTest, DeepBenchOnV100) {
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  const CsvTable table = kernels("gemm-deepbench-v100-p100-others.csv");
  const DeviceModel model = model_of_gpu("v100-sxm2-16gb");
  Errors half;
  Errors single;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    if (table.cell(row, "gpu").find("V100") == std::string::npos) {
      continue;
    }
    // Column-major: C[M,N] is C^T[N,M] of row-major code.
    GemmShape shape = gemm_shape(table, row);
    std::swap(shape.m, shape.n);
    const bool a = table.cell(row, "trans_a") == "T";
    const bool b = table.cell(row, "trans_b") == "T";
    if (a && b) {
      continue;
    }
    shape.layout = a ? GemmLayout::TN : b ? GemmLayout::NT : GemmLayout::NN;
    const bool fp32 = table.cell(row, "dtype") == "fp32";
    shape.dtype = fp32 ? DType::Fp32 : DType::Fp16;
    // These times include the host launch.
    const Seconds time = model.gemm(shape) + model.profile().kernel_launch;
    (fp32 ? single : half).add(time.value() * 1e6, number(table, row, "time_us"));
  }
  EXPECT_LE(half.median(), 0.08);
  EXPECT_LE(single.median(), 0.08);
}

class AttentionAccuracyTest : public ::testing::TestWithParam<Bands> {};

TEST_P(AttentionAccuracyTest, MedianIsWithinTheBand) {
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  const DeviceModel model = model_of_gpu(GetParam().gpu);
  expect_within(
      GetParam(), 1500,
      [&](const CsvTable& table, std::size_t row) {
        return model.attention_forward({.batch = integer(table, row, "batch"),
                                        .heads = integer(table, row, "heads"),
                                        .kv_heads = integer(table, row, "kv_heads"),
                                        .q_len = integer(table, row, "seqlen"),
                                        .kv_len = integer(table, row, "seqlen"),
                                        .head_dim = integer(table, row, "head_dim"),
                                        .value_head_dim = integer(table, row, "head_dim")});
      },
      [](const CsvTable& table, std::size_t row) { return number(table, row, "time_us") > 1000; });
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionAccuracyTest,
                         ::testing::Values(Bands{"attention-a100-sxm4-80gb-fwd-aiconfigurator.csv",
                                                 "a100-sxm4-80gb", 0.01, 0.01, 0.05},
                                           Bands{"attention-h100-sxm-fwd-aiconfigurator.csv",
                                                 "h100-sxm5-80gb", 0.015, 0.015, 0.06},
                                           Bands{"attention-b200-fwd-aiconfigurator.csv",
                                                 "b200-sxm-180gb", 0.015, 0.015, 0.06}),
                         [](const auto& test) {
                           std::string name = test.param.gpu;
                           std::erase(name, '-');
                           return name;
                         });

TEST(KernelAccuracyTest, TrainingAttentionOfSimuMax) {
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  const CsvTable table = kernels("attention-simumax-fwd-bwd.csv");
  const DeviceModel a100 = model_of_gpu("a100-pcie-80gb");
  const DeviceModel b200 = model_of_gpu("b200-sxm-180gb");
  Errors forward;
  Errors backward;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    const AttentionShape shape{.batch = integer(table, row, "batch"),
                               .heads = integer(table, row, "head_num"),
                               .kv_heads = integer(table, row, "kv_head_num"),
                               .q_len = integer(table, row, "seq_len"),
                               .kv_len = integer(table, row, "seq_len"),
                               .head_dim = integer(table, row, "qk_head_dim"),
                               .value_head_dim = integer(table, row, "v_head_dim")};
    const bool is_forward = table.cell(row, "op") == "sdp_fwd";
    // The table counts the FLOPs of full attention.
    const double flops = 2.0 * static_cast<double>(shape.batch * shape.heads) *
                         static_cast<double>(shape.q_len * shape.kv_len) *
                         static_cast<double>(shape.head_dim + shape.value_head_dim) *
                         (is_forward ? 1 : 2.5);
    const double measured = flops / (number(table, row, "tflops") * 1e12);
    const DeviceModel& model = table.cell(row, "gpu") == "B200" ? b200 : a100;
    if (is_forward) {
      forward.add(model.attention_forward(shape).value(), measured);
    } else {
      backward.add(model.attention_backward(shape).value(), measured);
    }
  }
  EXPECT_LE(forward.median(), 0.15);
  EXPECT_LE(backward.median(), 0.17);
}

// Forward figures on H100: the newest kernel as training calls it, and the older one by its own
// rows lost and rate.
TEST(KernelAccuracyTest, FiguresOfFlashAttention) {
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  const CsvTable table = kernels("attention-flashattention-figures.csv");
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  const DeviceModel model(gpu, load_profile("", gpu), Load::Sustained);
  std::map<std::string, Errors> errors;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    if (!table.cell(row, "gpu").starts_with("H100") || table.cell(row, "pass_") != "fwd") {
      continue;
    }
    AttentionShape shape{.batch = integer(table, row, "batch"),
                         .heads = integer(table, row, "heads"),
                         .kv_heads = integer(table, row, "heads"),
                         .q_len = integer(table, row, "seqlen"),
                         .kv_len = integer(table, row, "seqlen"),
                         .head_dim = integer(table, row, "head_dim"),
                         .value_head_dim = integer(table, row, "head_dim")};
    shape.causal = integer(table, row, "causal") == 1;
    const std::string& kernel = table.cell(row, "impl");
    shape.flash_version = kernel == "FlashAttention-2" ? 2 : 0;
    const double flops =
        (shape.causal ? 2.0 : 4.0) * static_cast<double>(shape.batch * shape.heads) *
        static_cast<double>(shape.q_len * shape.kv_len) * static_cast<double>(shape.head_dim);
    errors[kernel].add(model.attention_forward(shape).value(),
                       flops / (number(table, row, "tflops") * 1e12));
  }
  EXPECT_LE(errors["FlashAttention-3"].median(), 0.03);
  EXPECT_LE(errors["FlashAttention-2"].median(), 0.06);
  EXPECT_LE(errors["FlashAttention-2"].quantile(0.9), 0.15);
}

TEST(KernelAccuracyTest, Casts) {
  if (!testing::has_shared()) {
    GTEST_SKIP() << "no measured tables";
  }
  const CsvTable table = kernels("membound-quantise-aiconfigurator.csv");
  const std::map<std::string, DeviceModel> models = {{"H100-SXM", model_of_gpu("h100-sxm5-80gb")},
                                                     {"H200-SXM", model_of_gpu("h200-sxm5-141gb")},
                                                     {"B200", model_of_gpu("b200-sxm-180gb")}};
  Errors errors;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    const double elements = number(table, row, "m") * number(table, row, "k");
    const CastScale scale =
        table.cell(row, "op") == "amax_scale" ? CastScale::Found : CastScale::Known;
    errors.add(models.at(table.cell(row, "gpu")).cast(elements, scale).value() * 1e6,
               number(table, row, "time_us"));
  }
  EXPECT_GT(errors.size(), 2000U);
  EXPECT_LE(errors.median(), 0.03);
  EXPECT_LE(errors.quantile(0.9), 0.12);
}

}  // namespace
}  // namespace orrery::costmodel
