// SPDX-License-Identifier: Apache-2.0
#include "calibrate/shapes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "models/network.hpp"

namespace orrery::calibrate {
namespace {

TEST(Shapes, FillEachOctaveOfEachDimension) {
  const auto gemms =
      space_filling_gemms(48, DType::Bf16, GemmLayout::TN, {.max_flops = 1e18, .max_bytes = 1e15});
  ASSERT_EQ(gemms.size(), 48U);
  std::map<int, int> octaves[3];
  for (const GemmSample& gemm : gemms) {
    int axis = 0;
    for (const std::int64_t extent : {gemm.m, gemm.n, gemm.k}) {
      EXPECT_GE(extent, 64);
      EXPECT_LE(extent, 65'536);
      EXPECT_EQ(extent % 16, 0);
      ++octaves[axis++][static_cast<int>(std::log2(static_cast<double>(extent)))];
    }
  }
  for (const auto& axis : octaves) {
    for (int octave = 6; octave < 16; ++octave) {  // 4.8 expected in each
      ASSERT_TRUE(axis.contains(octave));
      EXPECT_GE(axis.at(octave), 3) << octave;
      EXPECT_LE(axis.at(octave), 8) << octave;
    }
  }
}

TEST(Shapes, StayWithinTheLimits) {
  const ShapeLimits limits = {.max_flops = 1e12, .max_bytes = 1e9};
  for (const GemmSample& gemm : space_filling_gemms(48, DType::Fp32, GemmLayout::NT, limits)) {
    EXPECT_LE(gemm_flops(gemm), limits.max_flops);
    EXPECT_LE(gemm_bytes(gemm), limits.max_bytes);
    EXPECT_EQ(gemm.output, DType::Fp32);
  }
  for (const AttentionSample& attention : usual_attention(DType::Bf16, limits)) {
    EXPECT_LE(attention_flops(attention), limits.max_flops);
  }
}

// Where all heads would take too long, with fewer.
TEST(Shapes, AttentionReachesLongSequences) {
  const ShapeLimits limits = {.max_flops = 3e12, .max_bytes = 1e9};
  std::set<std::pair<std::int64_t, bool>> longest;
  for (const AttentionSample& attention : usual_attention(DType::Bf16, limits)) {
    if (attention.q_len == 32'768 && attention.causal) {
      longest.emplace(attention.head_dim, attention.backward);
    }
  }
  EXPECT_EQ(longest.size(), 6U);  // three head sizes, forward and backward
}

TEST(Shapes, EdgesComeInPairs) {
  const auto gemms = edge_gemms(DType::Bf16, GemmLayout::TN);
  ASSERT_EQ(gemms.size(), 8U);
  for (std::size_t i = 0; i < gemms.size(); i += 2) {
    EXPECT_EQ(gemms[i].m + 1, gemms[i + 1].m);
  }
}

// The GEMMs of one layer, forward, sum up to the matrix FLOPs of the network's own operators.
TEST(NetworkShapes, EqualTheOperatorsOfTheNetwork) {
  for (const char* name : {"llama3-8b", "gpt3-175b", "mixtral-8x7b"}) {
    const models::Network network = models::load_network(name);
    const NetworkRequest request = {.network = &network, .sequence = 1024, .micro_batch = 2};
    const std::vector<GemmSample> gemms = network_gemms(request);
    const models::Workload workload{2, 1024};
    for (const models::Block& block : network.blocks) {
      for (const models::Operator& op : block.operators) {
        if (op.kind != models::OpKind::Gemm && op.kind != models::OpKind::GroupedGemm) {
          continue;
        }
        const double flops = models::forward_flops(block, op, workload, false).value();
        for (const GemmLayout layout : {GemmLayout::TN, GemmLayout::NN, GemmLayout::NT}) {
          EXPECT_TRUE(std::any_of(gemms.begin(), gemms.end(),
                                  [&](const GemmSample& gemm) {
                                    return gemm.layout == layout &&
                                           std::abs(gemm_flops(gemm) / flops - 1) < 1e-9;
                                  }))
              << name << " " << op.name;
        }
      }
    }
  }
}

TEST(NetworkShapes, KnownShapesOfLlama) {
  const models::Network network = models::load_network("llama3-8b");
  const auto gemms = network_gemms(
      {.network = &network, .sequence = 8192, .micro_batch = 1, .tensor_parallel = {4}});
  const auto has = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    return std::any_of(gemms.begin(), gemms.end(), [&](const GemmSample& gemm) {
      return gemm.m == m && gemm.n == n && gemm.k == k && gemm.layout == layout;
    });
  };
  EXPECT_TRUE(has(8192, (4096 + 2 * 1024) / 4, 4096, GemmLayout::TN));  // q, k, v
  EXPECT_TRUE(has(8192, 2 * 14336 / 4, 4096, GemmLayout::TN));          // gate, up
  EXPECT_TRUE(has(8192, 4096, 14336 / 4, GemmLayout::TN));              // down
  EXPECT_TRUE(has(8192, 4096, 128256 / 4, GemmLayout::NN));             // head, input gradient
  EXPECT_TRUE(has(14336 / 4, 4096, 8192, GemmLayout::NT));              // down, weight gradient
  const auto attention = network_attention(
      {.network = &network, .sequence = 8192, .micro_batch = 1, .tensor_parallel = {16}});
  ASSERT_EQ(attention.size(), 2U);
  EXPECT_EQ(attention[0].heads, 2);
  EXPECT_EQ(attention[0].kv_heads, 1);
}

TEST(NetworkShapes, DegreesMustDivide) {
  const models::Network network = models::load_network("llama3-8b");
  try {
    network_gemms(
        {.network = &network, .sequence = 8192, .micro_batch = 1, .tensor_parallel = {3}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("do not divide into 3 ranks"));
  }
}

TEST(Shapes, FlopsByHand) {
  EXPECT_EQ(gemm_flops({.m = 2, .n = 3, .k = 5, .groups = 7}), 420);
  EXPECT_EQ(gemm_bytes({.m = 2, .n = 3, .k = 5, .output = DType::Fp32, .accumulate = true}),
            2 * (10 + 15) + 2 * 6 * 4);
  AttentionSample attention = {.batch = 2,
                               .heads = 4,
                               .kv_heads = 4,
                               .q_len = 8,
                               .kv_len = 8,
                               .head_dim = 16,
                               .value_head_dim = 16,
                               .causal = false};
  EXPECT_EQ(attention_flops(attention), 4.0 * 2 * 4 * 8 * 8 * 16);
  attention.causal = true;
  attention.backward = true;
  EXPECT_EQ(attention_flops(attention), 2.5 * 2 * 2 * 4 * 8 * 8 * 16);
}

TEST(Shapes, SizesAreEven) {
  EXPECT_EQ(log_sizes(64 << 10, 1LL << 30, 8),
            (std::vector<std::int64_t>{1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26,
                                       1 << 28, 1 << 30}));
}

TEST(Layouts, Fp8HasOneOnChipsWithoutTheOthers) {
  for (const GemmLayout layout : {GemmLayout::TN, GemmLayout::NN, GemmLayout::NT}) {
    for (const int capability : {89, 90, 100, 103, 120}) {
      EXPECT_TRUE(has_layout(DType::Bf16, layout, capability));
      const bool data_centre = capability == 100 || capability == 103;
      EXPECT_EQ(has_layout(DType::Fp8, layout, capability),
                layout == GemmLayout::TN || data_centre);
    }
  }
}

}  // namespace
}  // namespace orrery::calibrate
