// SPDX-License-Identifier: Apache-2.0
#include "costmodel/device_model.hpp"

#include <gmock/gmock.h>

#include <map>

#include "tests/unit/base/testing.hpp"
#include "tests/unit/costmodel/shapes.hpp"

namespace orrery::costmodel {
namespace {

using ::testing::HasSubstr;

DeviceModel device_model_of(const std::string& name) {
  const topologies::Gpu gpu = topologies::load_gpu(name);
  return {gpu, load_profile("", gpu)};
}

Seconds sustained_gemm(const std::vector<std::string>& overrides, DType dtype) {
  const topologies::Gpu gpu = topologies::load_cluster("hgx-h100", overrides).gpu;
  const DeviceModel model(gpu, load_profile("", gpu), Load::Sustained);
  return model.gemm({.m = 8192, .n = 8192, .k = 8192, .dtype = dtype});
}

TEST(DeviceModelTest, AFasterChipIsAsMuchMoreEfficient) {
  const Seconds usual = sustained_gemm({}, DType::Bf16);
  const Seconds doubled = sustained_gemm({"gpu.peak.bf16=1978.8 TFLOP/s"}, DType::Bf16);
  EXPECT_NEAR(usual / doubled, 2, 0.1);
  // Only the precision whose peak is stated changes, and no chip gains from a lower peak.
  EXPECT_EQ(sustained_gemm({"gpu.peak.bf16=1978.8 TFLOP/s"}, DType::Fp8),
            sustained_gemm({}, DType::Fp8));
  EXPECT_GT(sustained_gemm({"gpu.peak.bf16=500 TFLOP/s"}, DType::Bf16), usual);
  // The power limit still acts.
  EXPECT_GT(sustained_gemm({"gpu.power_watts=350"}, DType::Bf16), 1.8 * usual);
}

// A product of 0.5 ms that a table repeats for 35 ms runs at 1.45 PFLOP/s on B200; in training it
// shares the power limit with what runs before and after it.
TEST(DeviceModelTest, ShortKernelsOfTrainingAreLimitedByPower) {
  const topologies::Gpu gpu = topologies::load_gpu("b200-sxm-180gb");
  const Profile profile = load_profile("", gpu);
  const double limit = gpu.power_watts / (profile.power.picojoules_per_flop * 1e-12);
  const DeviceModel burst(gpu, profile);
  const DeviceModel sustained(gpu, profile, Load::Sustained);
  const GemmShape gemm{.m = 10240,
                       .n = 8192,
                       .k = 4096,
                       .dtype = DType::Bf16,
                       .output_bytes = 4,
                       .layout = GemmLayout::NT};
  const double flops = 2.0 * 4096 * 10240 * 8192;
  EXPECT_GT(flops / burst.gemm(gemm).value(), 1.15 * limit);
  EXPECT_LT(flops / sustained.gemm(gemm).value(), 1.1 * limit);

  const AttentionShape attention = causal_attention(1, 8, 1, 32768);
  const double pairs = 8.0 * 32768 * 32769 / 2;
  EXPECT_GT(512 * pairs / burst.attention_forward(attention).value(), 1.1 * limit);
  EXPECT_LT(512 * pairs / sustained.attention_forward(attention).value(), 1.1 * limit);
}

TEST(DeviceModelTest, LoopsLongerThanThePowerControlAreSustained) {
  EXPECT_EQ(load_of_loop(Seconds(0.4e-3), 100), Load::Burst);
  EXPECT_EQ(load_of_loop(Seconds(0.6e-3), 100), Load::Sustained);
  EXPECT_EQ(load_of_loop(Seconds(1), 0), Load::Burst);
}

// The clock does not recover between kernels: products that stay below the power limit by
// themselves slow down as much as large ones. Memory keeps its speed.
TEST(DeviceModelTest, SmallProductsRunAtTheClockOfLargeOnes) {
  const topologies::Gpu gpu = topologies::load_gpu("b200-sxm-180gb");
  Profile profile = load_profile("", gpu);
  profile.kernels = {};
  const DeviceModel burst(gpu, profile);
  const DeviceModel sustained(gpu, profile, Load::Sustained);
  const double powered = gpu.power_watts / (profile.power.picojoules_per_flop * 1e-12);
  const double clock =
      powered / (gpu.peak_of(DType::Bf16).value() *
                 profile.gemm[static_cast<std::size_t>(DType::Bf16)].compute_fraction);
  ASSERT_LT(clock, 0.75);
  const GemmShape middle{.m = 4096, .n = 2048, .k = 4096, .dtype = DType::Bf16};
  EXPECT_NEAR(burst.gemm(middle) / sustained.gemm(middle), clock, 0.06);
  const GemmShape skinny{.m = 16, .n = 16384, .k = 16384, .dtype = DType::Bf16};
  EXPECT_NEAR(burst.gemm(skinny) / sustained.gemm(skinny), 1, 0.01);
  // Where no power limit is known both loads are the same.
  profile.power.picojoules_per_flop = 0;
  EXPECT_EQ(DeviceModel(gpu, profile, Load::Sustained).gemm(middle), burst.gemm(middle));
}

TEST(DeviceModelTest, ShortLoopsAtALowClockAreSustained) {
  EXPECT_EQ(load_of_timing(Seconds(100e-6), 100, Seconds(95e-6), Seconds(140e-6)), Load::Burst);
  EXPECT_EQ(load_of_timing(Seconds(130e-6), 100, Seconds(95e-6), Seconds(140e-6)), Load::Sustained);
  EXPECT_EQ(load_of_timing(Seconds(600e-6), 100, Seconds(590e-6), Seconds(800e-6)),
            Load::Sustained);  // a long loop
  EXPECT_EQ(load_of_timing(Seconds(130e-6), 100, Seconds(95e-6), Seconds(95e-6)),
            Load::Burst);  // no limit is known
}

// Attention without launch, tiles or idle SMs: time is proportional to the visible pairs.
DeviceModel ideal_attention() {
  topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  gpu.hbm_bandwidth = BytesPerSecond(1e22);
  Profile profile = load_profile("", gpu);
  profile.attention.launch = Seconds(0);
  profile.attention.row_overhead = 0;
  profile.attention.idle_waves = 0;
  profile.kernels = {};
  return {gpu, profile};
}

AttentionShape attention_shape(std::int64_t q, std::int64_t kv, bool causal, std::int64_t window) {
  return {.batch = 2,
          .heads = 16,
          .kv_heads = 4,
          .q_len = q,
          .kv_len = kv,
          .head_dim = 128,
          .value_head_dim = 128,
          .causal = causal,
          .window = window,
          .dtype = DType::Bf16};
}

double brute_force_pairs(const AttentionShape& shape) {
  double pairs = 0;
  for (std::int64_t row = 0; row < shape.q_len; ++row) {
    std::int64_t keys = shape.kv_len;
    if (shape.causal) {
      keys = std::max<std::int64_t>(0, shape.kv_len - (shape.q_len - 1 - row));
    }
    pairs += static_cast<double>(shape.window > 0 ? std::min(keys, shape.window) : keys);
  }
  return pairs;
}

TEST(DeviceModelTest, LargeGemmReachesTheComputeFraction) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  Profile formula = load_profile("", gpu);
  const double share = formula.gemm[static_cast<std::size_t>(DType::Bf16)].compute_fraction;
  const DeviceModel measured(gpu, formula);
  formula.kernels = {};
  const double side = 32768;
  const auto reached = [&](const DeviceModel& model) {
    const Seconds time = model.gemm({.m = 32768, .n = 32768, .k = 32768});
    return 2 * side * side * side / time.value() / 989.4e12;
  };
  EXPECT_NEAR(reached({gpu, formula}), share, 0.01);
  EXPECT_NEAR(reached(measured), share, 0.06);
}

TEST(DeviceModelTest, SkinnyGemmRunsAtMemorySpeed) {
  const DeviceModel h100 = device_model_of("h100-sxm5-80gb");
  const Seconds time = h100.gemm({.m = 1, .n = 16384, .k = 16384});
  EXPECT_NEAR(2 * 16384.0 * 16384 / time.value() / 1e12, 2.9, 0.15);
}

// Measured: one row more than m = 256 costs 1.16 in the median on A100, 1.01 to 1.06 on H100.
TEST(DeviceModelTest, AnExtraRowCostsMoreOnA100) {
  const auto cost_of_a_row = [](const DeviceModel& model) {
    double sum = 0;
    for (const std::int64_t n : {1024, 2048, 4096, 8192}) {
      for (const std::int64_t k : {1024, 2048, 4096, 8192}) {
        sum += model.gemm({.m = 257, .n = n, .k = k}) / model.gemm({.m = 256, .n = n, .k = k});
      }
    }
    return sum / 16;
  };
  const double a100 = cost_of_a_row(device_model_of("a100-sxm4-80gb"));
  const double h100 = cost_of_a_row(device_model_of("h100-sxm5-80gb"));
  EXPECT_GT(a100, 1.08);
  EXPECT_LT(h100, 1.06);
}

TEST(DeviceModelTest, GroupedGemmPadsRowsOfEachGroup) {
  const DeviceModel b200 = device_model_of("b200-sxm-180gb");
  const GemmShape aligned{.m = 4096, .n = 4096, .k = 7168, .groups = 8};
  GemmShape ragged = aligned;
  ragged.m = 4097;
  EXPECT_GT(b200.gemm(ragged) / b200.gemm(aligned), 1.02);
  EXPECT_GT(b200.gemm(aligned), b200.gemm({.m = 8 * 4096, .n = 4096, .k = 7168}));
}

// Few rows of each of 256 experts take what reading the weights does, where tiles of 128 outlast
// it.
TEST(DeviceModelTest, GroupedGemmOfFewRowsHasSmallTiles) {
  const DeviceModel h100 = device_model_of("h100-sxm5-80gb");
  GemmShape shape{.m = 8, .n = 512, .k = 7168, .groups = 256, .dtype = DType::Fp8};
  EXPECT_LT(h100.gemm(shape).value(), 1.5 * 256 * 512 * 7168 / 3.35e12);
  shape.m = 128;
  EXPECT_GT(h100.gemm(shape).value(), 1.7 * 256 * 512 * 7168 / 3.35e12);
}

// Rows of 128 and of 512 elements take the same time: 213 and 214 us on B200 where 32,768 rows are
// cast and multiplied.
TEST(DeviceModelTest, CastsOfShortRowsTakeTimeByTheRow) {
  const DeviceModel model = device_model_of("b200-sxm-180gb");
  const auto casts = [&](std::int64_t rows, std::int64_t elements) {
    GemmShape shape{.m = rows, .n = 128, .k = elements, .dtype = DType::Fp8};
    const Seconds bare = model.gemm(shape);
    shape.casts_activations = true;
    return (model.gemm(shape) - bare).value() * 1e6;
  };
  EXPECT_GT(casts(32768, 128), 150);
  EXPECT_LT(casts(32768, 512), 1.25 * casts(32768, 128));
  EXPECT_NEAR(casts(32768, 128), 4 * casts(8192, 128), 15);
  EXPECT_GT(casts(32768, 8192), 3 * casts(32768, 128));  // bytes count where rows are long
}

// Casts to nvfp4 with a known scale move 2 9/16 bytes an element; threads share rows.
TEST(DeviceModelTest, CastsToNvfp4TakeTimeByTheByte) {
  const DeviceModel model = device_model_of("b200-sxm-180gb");
  const auto casts = [&](std::int64_t rows, std::int64_t elements) {
    GemmShape shape{.m = rows, .n = 128, .k = elements, .dtype = DType::Nvfp4};
    const Seconds bare = model.gemm(shape);
    shape.casts_activations = true;
    return (model.gemm(shape) - bare).value() * 1e6;
  };
  EXPECT_NEAR(casts(32768, 128), casts(8192, 512), 0.1);
  const topologies::Gpu gpu = topologies::load_gpu("b200-sxm-180gb");
  const double rate =
      gpu.hbm_bandwidth.value() / 1e6 *
      load_profile("", gpu).gemm[static_cast<std::size_t>(DType::Nvfp4)].cast_fraction;
  EXPECT_NEAR(casts(32768, 8192) - casts(16384, 8192), 2.5625 * 16384 * 8192 / rate, 0.1);
}

// Products of the backward pass promote fp8 sums to fp32, which Hopper does by further
// instructions.
TEST(DeviceModelTest, PreciseSumsOfFp8CostTimeOnHopperAlone) {
  const auto slowdown = [](const std::string& gpu, DType dtype) {
    const DeviceModel model = device_model_of(gpu);
    GemmShape shape{.m = 8192, .n = 8192, .k = 8192, .dtype = dtype};
    const Seconds forward = model.gemm(shape);
    shape.layout = GemmLayout::NN;
    return model.gemm(shape) / forward;
  };
  EXPECT_NEAR(slowdown("h100-sxm5-80gb", DType::Fp8), 1.15, 0.02);
  EXPECT_NEAR(slowdown("h200-sxm5-141gb", DType::Fp8), 1.15, 0.02);
  EXPECT_NEAR(slowdown("b200-sxm-180gb", DType::Fp8), 1.0, 0.1);
  EXPECT_NEAR(slowdown("h100-sxm5-80gb", DType::Bf16), 1.0, 0.1);
}

TEST(DeviceModelTest, ForwardProductsMayAskForPreciseSums) {
  const auto slowdown = [](const std::string& gpu, DType dtype) {
    const DeviceModel model = device_model_of(gpu);
    GemmShape shape{.m = 8192, .n = 8192, .k = 8192, .dtype = dtype};
    const Seconds fast = model.gemm(shape);
    shape.precise_sums = true;
    return model.gemm(shape) / fast;
  };
  EXPECT_NEAR(slowdown("h100-sxm5-80gb", DType::Fp8), 1.15, 0.02);
  EXPECT_DOUBLE_EQ(slowdown("b200-sxm-180gb", DType::Fp8), 1.0);
  EXPECT_DOUBLE_EQ(slowdown("h100-sxm5-80gb", DType::Bf16), 1.0);
}

// Hopper transposes no operands of 32 bits; other chips read tf32 in either order.
TEST(DeviceModelTest, Tf32GradientsTakeSlowerKernelsOnHopperAlone) {
  const auto slowdown = [](const std::string& gpu, DType dtype, GemmLayout layout) {
    const DeviceModel model = device_model_of(gpu);
    GemmShape shape{.m = 8192, .n = 8192, .k = 8192, .dtype = dtype, .output_bytes = 4};
    const Seconds forward = model.gemm(shape);
    shape.layout = layout;
    return model.gemm(shape) / forward;
  };
  for (const GemmLayout layout : {GemmLayout::NN, GemmLayout::NT}) {
    EXPECT_NEAR(slowdown("h100-sxm5-80gb", DType::Tf32, layout), 1.39, 0.02);
    EXPECT_NEAR(slowdown("h100-sxm5-80gb", DType::Fp32, layout), 1.0, 0.1);
    EXPECT_NEAR(slowdown("a100-sxm4-80gb", DType::Tf32, layout), 1.0, 0.1);
    EXPECT_NEAR(slowdown("b200-sxm-180gb", DType::Tf32, layout), 1.0, 0.1);
  }
}

// Layers of 8,192 in fp8 reach 2,377 TFLOP/s for 0.1 s on B200, casts included, and products that
// take 19 to 37 ms by themselves 2,160 to 2,320 in the table; the limit leaves them about that.
TEST(DeviceModelTest, LongLoopsOfFp8ReachWhatTheLayersDo) {
  const auto rate = [](const std::string& name) {
    const topologies::Gpu gpu = topologies::load_gpu(name);
    const DeviceModel model(gpu, load_profile("", gpu), Load::Sustained);
    const Seconds time = model.gemm({.m = 16384, .n = 16384, .k = 16384, .dtype = DType::Fp8});
    return 2.0 * 16384 * 16384 * 16384 / time.value() * 1e-12;
  };
  EXPECT_NEAR(rate("b200-sxm-180gb"), 2377, 0.1 * 2377);
  EXPECT_GT(rate("gb200-186gb"), rate("b200-sxm-180gb"));  // 1,200 W
  EXPECT_LT(rate("h100-sxm5-80gb"), 2 / 1.01 * 700);       // half the energy of 16 bits
}

// 32,768 x 51,200 x 51,200, 0.2 s a call, on normal numbers: 705 and 695 TFLOP/s in the two stacks
// of the table that fill both operands.
TEST(DeviceModelTest, LongProductsOfH100ReachWhatStacksWithRandomOperandsDo) {
  const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  const DeviceModel model(gpu, load_profile("", gpu), Load::Sustained);
  const GemmShape shape{.m = 32768, .n = 51200, .k = 51200};
  EXPECT_NEAR(flops_of(shape) / model.gemm(shape) / FlopsPerSecond(1e12), 700, 0.03 * 700);
}

// Square products reach 19 TFLOP/s in fp32 outside tensor cores (chsasank/device-benchmarks).
TEST(DeviceModelTest, ProductsInFp32ReachWhatA100Does) {
  const DeviceModel model = device_model_of("a100-sxm4-80gb");
  const GemmShape shape{.m = 8192, .n = 8192, .k = 8192, .dtype = DType::Fp32, .output_bytes = 4};
  EXPECT_NEAR(flops_of(shape) / model.gemm(shape) / FlopsPerSecond(1e12), 19, 0.4);
}

TEST(DeviceModelTest, EmptyShapesAreFree) {
  const DeviceModel h100 = device_model_of("h100-sxm5-80gb");
  EXPECT_EQ(h100.gemm({}), Seconds(0));
  EXPECT_EQ(h100.attention_forward({}), Seconds(0));
  EXPECT_EQ(h100.memory_bound(Bytes(0), MemoryKernel::Norm), Seconds(0));
  EXPECT_EQ(h100.host_copy(Bytes(0), BytesPerSecond(1e9)), Seconds(0));
}

TEST(DeviceModelTest, PrecisionThatTheGpuLacksIsAnError) {
  const DeviceModel a100 = device_model_of("a100-sxm4-80gb");
  EXPECT_THAT(
      testing::message_of([&] { a100.gemm({.m = 64, .n = 64, .k = 64, .dtype = DType::Fp8}); }),
      HasSubstr("fp8"));
  const DeviceModel v100 = device_model_of("v100-sxm2-32gb");
  EXPECT_GT(v100.gemm({.m = 64, .n = 64, .k = 64, .dtype = DType::Tf32}), Seconds(0));
}

TEST(DeviceModelTest, AttentionCountsVisiblePairs) {
  const DeviceModel model = ideal_attention();
  const Seconds unit = model.attention_forward(attention_shape(1, 1024, false, 0)) / 1024.0;
  for (const auto& [q, kv] : {std::pair{512, 512}, {512, 2048}, {2048, 512}, {1, 777}}) {
    for (const std::int64_t window : {0, 1, 100, 600, 5000}) {
      for (const bool causal : {true, false}) {
        const AttentionShape shape = attention_shape(q, kv, causal, window);
        const double tiles = causal ? static_cast<double>(q) * 127 / 2 : 0;
        EXPECT_NEAR(model.attention_forward(shape) / unit, brute_force_pairs(shape) + tiles, 1e-3)
            << q << " x " << kv << " window " << window << " causal " << causal;
      }
    }
  }
}

TEST(DeviceModelTest, CausalHalvesLongAttention) {
  const DeviceModel h100 = device_model_of("h100-sxm5-80gb");
  const double ratio = h100.attention_forward(attention_shape(65536, 65536, true, 0)) /
                       h100.attention_forward(attention_shape(65536, 65536, false, 0));
  EXPECT_NEAR(ratio, 0.5, 0.01);
}

TEST(DeviceModelTest, BackwardTakesAboutThreeTimesForward) {
  // 2.6 to 3.5, median 2.9 for FlashAttention-2.
  const DeviceModel a100 = device_model_of("a100-sxm4-80gb");
  const AttentionShape shape = attention_shape(8192, 8192, true, 0);
  const double ratio = a100.attention_backward(shape) / a100.attention_forward(shape);
  EXPECT_NEAR(ratio, 2.9, 0.1);
}

TEST(DeviceModelTest, ValueHeadSizeCounts) {
  const DeviceModel model = ideal_attention();
  AttentionShape shape = attention_shape(4096, 4096, true, 0);
  shape.head_dim = 192;
  const double narrow = model.attention_forward(shape).value();
  shape.value_head_dim = 192;
  EXPECT_GT(model.attention_forward(shape).value(), narrow);
  shape.value_head_dim = 0;  // the same as head_dim
  EXPECT_GT(model.attention_forward(shape).value(), narrow);
}

TEST(DeviceModelTest, OptimizerStepOfMetis) {
  // 1.2 B parameters, 30 B each: 39.3 ms on an A100.
  const DeviceModel a100 = device_model_of("a100-sxm4-80gb");
  const Seconds time = a100.memory_bound(Bytes(2405502976.0 / 2 * 30), MemoryKernel::Optimizer);
  EXPECT_NEAR(time.value(), 39.3e-3, 0.5e-3);
}

TEST(DeviceModelTest, HostCopyOfPinnedMemory) {
  const DeviceModel v100 = device_model_of("v100-sxm2-32gb");
  const double rate = 1e9 / v100.host_copy(Bytes(1e9), BytesPerSecond(15.75e9)).value() / 1e9;
  EXPECT_GT(rate, 12.4);
  EXPECT_LT(rate, 13.5);
}

TEST(DeviceModelTest, OverlapTakesTheSmsOfTheCollective) {
  EXPECT_DOUBLE_EQ(device_model_of("a100-sxm4-80gb").overlap_speed_fraction(), 1 - 24.0 / 108);
}

TEST(DeviceModelTest, QuantiseReadsTwoBytesAndWritesTwo) {
  const DeviceModel h100 = device_model_of("h100-sxm5-80gb");
  EXPECT_EQ(h100.quantise(Bytes(1e9)), h100.memory_bound(Bytes(2e9), MemoryKernel::Cast));
}

// Of chips whose tables were taken at the limit: the rates of those tables.
TEST(DeviceModelTest, ChipsHaveEnergiesOfTheirOwn) {
  const std::map<std::string, double> teraflops = {
      {"a10-24gb", 55}, {"rtx-a6000-48gb", 95}, {"l4-24gb", 65.5}, {"h100-pcie-80gb", 442}};
  for (const auto& [name, rate] : teraflops) {
    const topologies::Gpu gpu = topologies::load_gpu(name);
    const DeviceModel model(gpu, load_profile("", gpu), Load::Sustained);
    const GemmShape shape{16384, 16384, 16384, 1, DType::Fp16};
    EXPECT_NEAR(flops_of(shape) / model.gemm(shape) / FlopsPerSecond(1e12), rate, 0.05 * rate)
        << name;
  }
  const topologies::Gpu sxm = topologies::load_gpu("h100-sxm5-80gb");
  EXPECT_EQ(load_profile("", sxm).power.picojoules_per_flop, 1.01);
}

}  // namespace
}  // namespace orrery::costmodel
