// SPDX-License-Identifier: Apache-2.0
// The dense blocks against the closed forms published for them.
#include <gtest/gtest.h>

#include "tests/unit/models/specs.hpp"

namespace orrery::models {
namespace {

constexpr double kB = 2;
constexpr double kS = 32;
const Workload kWork{.batch = 2, .sequence = 32};
constexpr SavedPolicy kUnfused{.fused_attention = false};
constexpr SavedPolicy kSelective{.fused_attention = false, .selective = true};
constexpr SavedPolicy kFused{};

// Bytes of the saved tensors that have none (or some) of the variables tensor parallelism shards.
double saved_with_head_or_ffn(const Block& block, bool wanted) {
  double bytes = 0;
  for (const Operator& op : block.operators) {
    for (const Saved& saved : op.saved) {
      const Tensor& tensor = tensor_at(block, saved.tensor);
      bool sharded = false;
      for (const Dim& dim : tensor.dims) {
        sharded = sharded || dim.var == Var::Head || dim.var == Var::KvHead || dim.var == Var::Ffn;
      }
      if (sharded == wanted && !saved.attention_core && !saved.fused_only) {
        bytes += num_elements(tensor, kWork) * saved.copies *
                 (saved.element == Element::Mask ? 1.0 : 2.0);
      }
    }
  }
  return bytes;
}

TEST(GptBlock, HasTheParametersAndFlopsOfTheClosedForms) {
  const Network network = build_network(small_spec(Family::Gpt), "test");
  const Block& block = block_named(network, "dense");
  const double h = 64;
  EXPECT_EQ(num_parameters(block), 12 * 64 * 64 + 13 * 64);
  EXPECT_EQ(forward_flops(block, kWork, false).value(),
            24 * kB * kS * h * h + 4 * kB * kS * kS * h);
  EXPECT_EQ(forward_flops(block, kWork, true).value(), 24 * kB * kS * h * h + 2 * kB * kS * kS * h);
}

TEST(GptBlock, SavesWhatKorthikantiCounts) {
  const Network network = build_network(with_dropout(small_spec(Family::Gpt)), "test");
  const Block& block = block_named(network, "dense");
  const double bsh = kB * kS * 64;
  const double scores = kB * 4 * kS * kS;
  EXPECT_EQ(saved_bytes(block, kWork, kUnfused), 34 * bsh + 5 * scores);
  EXPECT_EQ(saved_bytes(block, kWork, kSelective), 34 * bsh);
  EXPECT_EQ(saved_bytes(block, kWork, kFused), 34 * bsh + 4 * kB * 4 * kS);
}

TEST(GptBlock, TenPartsOfTheSavedActivationsAreNotSharded) {
  const Network network = build_network(with_dropout(small_spec(Family::Gpt)), "test");
  const Block& block = block_named(network, "dense");
  const double bsh = kB * kS * 64;
  EXPECT_EQ(saved_with_head_or_ffn(block, false), 10 * bsh);
  EXPECT_EQ(saved_with_head_or_ffn(block, true), 24 * bsh);
}

TEST(GptBlock, HasNoMasksWithoutDropout) {
  const Network network = build_network(small_spec(Family::Gpt), "test");
  const Block& block = block_named(network, "dense");
  for (const Tensor& tensor : block.tensors) {
    EXPECT_NE(tensor.element, Element::Mask) << tensor.name;
  }
  EXPECT_EQ(saved_bytes(block, kWork, kUnfused), 32 * kB * kS * 64 + 2 * kB * 4 * kS * kS);
}

TEST(GptBlock, PublishedActivationTotalsOfTheLargeNetworks) {
  struct Row {
    const char* name;
    std::int64_t batch;
    double gibibytes;  // tensor parallel 8, baseline, first pipeline stage
    double layers;     // held by the first stage under 1F1B, interleaving included
  };
  const double kGib = 1024.0 * 1024.0 * 1024.0;
  const Row rows[] = {{"gpt-22b", 4, 59.25, 48},
                      {"gpt-175b", 1, 66.84375, 96 * (1 + 7.0 / 24.0)},
                      {"gpt-530b", 1, 114.0234, 105 * (1 + 34.0 / 105.0)},
                      {"gpt-1t", 1, 131.25, 128}};
  for (const Row& row : rows) {
    const Network network = load_network(row.name);
    const Block& block = block_named(network, "dense");
    const Workload work{.batch = row.batch, .sequence = 2048};
    const double h = static_cast<double>(network.spec.hidden);
    const double sbh = 2048.0 * static_cast<double>(row.batch) * h;
    const double whole = saved_bytes(block, work, kUnfused);
    const double a_s_over_h = (whole / sbh - 34.0) / 5.0;
    const double tp8 = sbh * (10 + 24 / 8.0 + 5 * a_s_over_h / 8.0);
    EXPECT_NEAR(tp8 * row.layers / kGib, row.gibibytes, 5e-5 * row.gibibytes) << row.name;
  }
}

TEST(LlamaBlock, HasTheClosedFormsOfGroupedQueries) {
  NetworkSpec spec = small_spec(Family::Llama);
  spec.kv_heads = 2;
  const Network network = build_network(spec, "test");
  const Block& block = block_named(network, "dense");
  const double h = 64;
  const double f = 192;
  const double kv = 2 * 16;
  EXPECT_EQ(num_parameters(block), 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 192 + 2 * 64);
  EXPECT_EQ(forward_flops(block, kWork, false).value(),
            2 * kB * kS * (2 * h * h + 2 * h * kv + 3 * h * f) + 4 * kB * kS * kS * h);
  EXPECT_EQ(saved_bytes(block, kWork, kFused),
            12 * kB * kS * h + 4 * kB * kS * kv + 6 * kB * kS * f + 4 * kB * 4 * kS);
}

TEST(LlamaBlock, ProjectsQueriesKeysAndValuesInOneGemm) {
  NetworkSpec spec = small_spec(Family::Llama);
  spec.kv_heads = 2;
  const Network network = build_network(spec, "test");
  const Block& block = block_named(network, "dense");
  const Operator& qkv = operator_named(block, "qkv");
  ASSERT_EQ(qkv.weights.size(), 3U);
  ASSERT_EQ(qkv.outputs.size(), 3U);
  EXPECT_EQ(qkv.reduced, std::vector<Var>{Var::Hidden});
  EXPECT_EQ(tensor_at(block, qkv.weights[0]).dims[1].var, Var::Head);
  EXPECT_EQ(tensor_at(block, qkv.weights[1]).dims[1].var, Var::KvHead);
  EXPECT_EQ(tensor_at(block, qkv.weights[1]).dims[1].extent, 2);
  EXPECT_EQ(operator_named(block, "mlp_up").weights.size(), 2U);
  EXPECT_EQ(operator_named(block, "attention_projection").reduced,
            (std::vector<Var>{Var::Head, Var::HeadDim}));
}

TEST(LlamaBlock, WindowLimitsTheAttentionFlops) {
  NetworkSpec spec = small_spec(Family::Llama);
  const double full =
      forward_flops(block_named(build_network(spec, "t"), "dense"),
                    operator_named(block_named(build_network(spec, "t"), "dense"), "attention"),
                    kWork, false)
          .value();
  spec.sliding_window = 8;
  spec.global_attention_interval = 3;
  const Network network = build_network(spec, "t");
  const Block& block = block_named(network, "dense_window");
  const Operator& attention = operator_named(block, "attention");
  EXPECT_EQ(forward_flops(block, attention, kWork, false).value(), full / 4);
  EXPECT_EQ(forward_flops(block, attention, kWork, true).value(), full / 4 * (32.0 - 4.0) / 32.0);
  EXPECT_EQ(network.chain, (std::vector<int>{0, 1, 1, 2, 3}));
}

TEST(DenseBlock, NormsOfTheVariantsAreCounted) {
  const auto norms = [](const NetworkSpec& spec) {
    int count = 0;
    const Network network = build_network(spec, "test");
    for (const Operator& op : network.blocks[1].operators) {
      count += op.kind == OpKind::Norm ? 1 : 0;
    }
    return count;
  };
  NetworkSpec spec = small_spec(Family::Llama);
  EXPECT_EQ(norms(spec), 2);
  spec.qk_norm = true;
  EXPECT_EQ(norms(spec), 4);
  spec.sandwich_norm = true;
  EXPECT_EQ(norms(spec), 6);
  NetworkSpec parallel = small_spec(Family::Gpt);
  parallel.parallel_block = true;
  EXPECT_EQ(norms(parallel), 1);
  parallel.parallel_mlp_norm = true;
  EXPECT_EQ(norms(parallel), 2);
}

TEST(BertBlock, SavesAndCostsAsMuchAsGptWithNormsBehind) {
  const Network bert = build_network(with_dropout(small_spec(Family::Bert)), "test");
  const Block& block = block_named(bert, "dense");
  EXPECT_EQ(num_parameters(block), 12 * 64 * 64 + 13 * 64);
  EXPECT_EQ(saved_bytes(block, kWork, kSelective), 34 * kB * kS * 64);
  EXPECT_FALSE(block.attention.causal);
  EXPECT_EQ(block.operators.front().name, "qkv");
  EXPECT_EQ(block.operators.back().kind, OpKind::Norm);
}

}  // namespace
}  // namespace orrery::models
