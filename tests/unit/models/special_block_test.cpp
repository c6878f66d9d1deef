// SPDX-License-Identifier: Apache-2.0
// Experts, latent attention, encoder-decoder, embedding and head against hand-written formulas.
#include <gtest/gtest.h>

#include "tests/unit/models/specs.hpp"

namespace orrery::models {
namespace {

constexpr double kBatch = 2;
constexpr double kSequence = 32;
const Workload kSmallWork{.batch = 2, .sequence = 32};

NetworkSpec moe_spec() {
  NetworkSpec spec = small_spec(Family::Llama);
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 48, .shared_ffn_hidden = 96};
  return spec;
}

double operator_flops(const Block& block, const std::string& name) {
  return forward_flops(block, operator_named(block, name), kSmallWork, false).value();
}

double saved_of(const Block& block, const std::string& name) {
  Block alone = block;
  alone.operators = {operator_named(block, name)};
  return saved_bytes(alone, kSmallWork, {});
}

TEST(MoeBlock, FlopsParametersAndSavedActivations) {
  const Network network = build_network(moe_spec(), "test");
  const Block& block = block_named(network, "moe");
  const double bs = kBatch * kSequence;
  EXPECT_EQ(block.experts, 8);
  EXPECT_EQ(block.top_k, 2);
  EXPECT_EQ(operator_flops(block, "router"), 2 * bs * 64 * 8);
  EXPECT_EQ(operator_flops(block, "experts_up") + operator_flops(block, "experts_down"),
            6 * bs * 2 * 64 * 48);
  EXPECT_EQ(saved_of(block, "router"), 2 * bs * 64);
  EXPECT_EQ(saved_of(block, "top_k"), 4 * bs * 8);
  EXPECT_EQ(saved_of(block, "experts_up"), 2 * bs * 2 * 64);
  EXPECT_EQ(saved_of(block, "expert_activation") + saved_of(block, "experts_down"),
            6 * bs * 2 * 48);
  EXPECT_EQ(saved_of(block, "combine"), 4 * bs * 2);  // router weights met the activations
  EXPECT_EQ(saved_of(block, "shared_mlp_up"), 0);     // the router keeps this input
  EXPECT_EQ(num_parameters(block), 4 * 64 * 64 + 2 * 64 + 64 * 8 + 8 * 3 * 64 * 48 + 3 * 64 * 96);
}

TEST(MoeBlock, CapacityFactorPadsTheRowsOfTheExperts) {
  NetworkSpec spec = moe_spec();
  spec.moe.capacity_factor = 1.25;
  const Network network = build_network(spec, "test");
  const Block& block = block_named(network, "moe");
  EXPECT_EQ(operator_flops(block, "experts_up"), 1.25 * 4 * kBatch * kSequence * 2 * 64 * 48);
  EXPECT_EQ(operator_flops(block, "router"), 2 * kBatch * kSequence * 64 * 8);
}

TEST(MoeBlock, RouterIsNotShardedWithTheExperts) {
  const Network network = build_network(moe_spec(), "test");
  const Block& block = block_named(network, "moe");
  for (const Dim& dim : tensor_named(block, "w_router_logits").dims) {
    EXPECT_NE(dim.var, Var::Expert);
  }
  EXPECT_EQ(tensor_named(block, "w_expert_up").dims[0].var, Var::Expert);
  EXPECT_EQ(tensor_named(block, "permuted").dims[2].var, Var::Choice);
}

TEST(MoeBlock, DenseLayersComeFirstAndByFrequency) {
  NetworkSpec spec = moe_spec();
  spec.layers = 6;
  spec.moe.first_dense_layers = 2;
  spec.moe.layer_frequency = 2;
  const Network network = build_network(spec, "test");
  std::vector<std::string> names;
  for (const int index : network.chain) {
    names.push_back(network.blocks[static_cast<std::size_t>(index)].name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "dense", "dense", "moe", "dense", "moe",
                                             "dense", "head"}));
}

TEST(MlaBlock, FlopsParametersAndSavedActivations) {
  NetworkSpec spec = small_spec(Family::Llama);
  spec.mla = {.q_lora_rank = 24,
              .kv_lora_rank = 16,
              .qk_nope_head_dim = 8,
              .qk_rope_head_dim = 4,
              .v_head_dim = 10};
  const Network network = build_network(spec, "test");
  const Block& block = block_named(network, "dense");
  const double bs = kBatch * kSequence;
  const std::int64_t attention_weights =
      64 * (16 + 4 + 24) + 24 * 4 * 12 + 16 * 4 * (8 + 10) + 4 * 10 * 64;
  EXPECT_EQ(num_parameters(block), attention_weights + 16 + 24 + 3 * 64 * 192 + 2 * 64);
  EXPECT_EQ(operator_flops(block, "attention"), 2 * kBatch * 4 * kSequence * kSequence * (12 + 10));
  EXPECT_EQ(forward_flops(block, kSmallWork, false).value(),
            2 * bs * static_cast<double>(attention_weights + 3 * 64 * 192) +
                2 * kBatch * 4 * kSequence * kSequence * (12 + 10));
  EXPECT_EQ(saved_of(block, "attention"), 2 * bs * 4 * (12 + 12 + 10) + 4 * bs * 4);
  EXPECT_EQ(saved_of(block, "latent_down"), 2 * bs * 64);
  EXPECT_EQ(saved_of(block, "kv_latent_norm") + saved_of(block, "kv_up"), 2 * bs * (16 + 16));
  EXPECT_EQ(block.attention.head_dim, 12);
  EXPECT_EQ(block.attention.value_head_dim, 10);
}

TEST(MlaBlock, FullRankQueriesReadTheNormalisedStream) {
  NetworkSpec spec = small_spec(Family::Llama);
  spec.mla = {.kv_lora_rank = 16, .qk_nope_head_dim = 8, .qk_rope_head_dim = 4, .v_head_dim = 8};
  const Network network = build_network(spec, "test");
  const Block& block = block_named(network, "dense");
  EXPECT_EQ(operator_named(block, "q_up").reduced, std::vector<Var>{Var::Hidden});
  EXPECT_EQ(operator_named(block, "latent_down").weights.size(), 2U);
  EXPECT_EQ(saved_of(block, "q_up"), 0);  // kept by latent_down
}

TEST(T5Blocks, DecoderHasCrossAttentionToTheEncodersOutput) {
  const Network network = build_network(with_dropout(small_spec(Family::T5)), "test");
  const Block& encoder = block_named(network, "encoder");
  const Block& first = block_named(network, "decoder_first");
  const Block& decoder = block_named(network, "decoder");
  EXPECT_EQ(num_parameters(encoder), 12 * 64 * 64 + 2 * 64);
  EXPECT_EQ(num_parameters(decoder), 16 * 64 * 64 + 3 * 64);
  EXPECT_FALSE(encoder.attention.causal);
  EXPECT_TRUE(decoder.attention.causal);
  EXPECT_TRUE(operator_named(decoder, "cross_attention").cross_attention);
  EXPECT_EQ(tensor_at(decoder, decoder.memory).name, "memory");
  EXPECT_GE(first.memory, 0);
  EXPECT_TRUE(tensor_named(first, "decoder_w_tokens").tied);
  EXPECT_EQ(network.chain.size(), 7U);
  // Cross-attention: 9 parts of the decoder's stream, keys and values 4, scores 5; the encoder's
  // output (2) once, in the first decoder block.
  const SavedPolicy unfused{.fused_attention = false};
  const double bsh = kBatch * kSequence * 64;
  const double scores = kBatch * 4 * kSequence * kSequence;
  EXPECT_EQ(saved_bytes(decoder, kSmallWork, unfused) - saved_bytes(encoder, kSmallWork, unfused),
            (9 + 4) * bsh + 5 * scores);
  EXPECT_EQ(saved_of(first, "cross_kv"), 2 * bsh);
  EXPECT_EQ(saved_of(decoder, "cross_kv"), 0);
}

TEST(T5Blocks, DecoderCanHaveALengthOfItsOwn) {
  NetworkSpec spec = with_dropout(small_spec(Family::T5));
  spec.sequence = 512;
  spec.decoder_sequence = 128;
  const Network network = build_network(spec, "test");
  const double share = 0.25;  // kept where the workload has another sequence
  const double bsh = kBatch * kSequence * 64;
  const Block& first = block_named(network, "decoder_first");
  const Block& decoder = block_named(network, "decoder");
  EXPECT_EQ(operator_flops(block_named(network, "encoder"), "attention"), 4 * bsh * kSequence);
  for (const Block* block : {&first, &decoder}) {
    EXPECT_EQ(operator_flops(*block, "qkv"), share * 6 * bsh * 64);
    EXPECT_EQ(operator_flops(*block, "attention"), share * share * 4 * bsh * kSequence);
    EXPECT_EQ(operator_flops(*block, "cross_kv"), 4 * bsh * 64);
    EXPECT_EQ(operator_flops(*block, "cross_attention"), share * 4 * bsh * kSequence);
    EXPECT_EQ(num_elements(tensor_at(*block, block->memory), kSmallWork), bsh);
    EXPECT_EQ(num_elements(tensor_named(*block, "attention_scores"), kSmallWork),
              share * share * kBatch * 4 * kSequence * kSequence);
    EXPECT_EQ(num_elements(tensor_named(*block, "cross_attention_scores"), kSmallWork),
              share * kBatch * 4 * kSequence * kSequence);
    EXPECT_EQ(num_elements(tensor_at(*block, block->output), kSmallWork), share * bsh);
  }
  EXPECT_EQ(num_elements(tensor_at(first, first.input), kSmallWork), bsh);
  EXPECT_EQ(operator_flops(block_named(network, "head"), "lm_head"),
            share * 2 * bsh * static_cast<double>(spec.vocab));
}

// One table a stack, a weight of its first layer's attention.
TEST(T5Blocks, TheFirstLayerOfAStackHoldsItsTableOfPositions) {
  const NetworkSpec spec = small_spec(Family::T5);
  const Network network = build_network(spec, "test");
  for (const Block& block : network.blocks) {
    const bool first = block.name == "encoder_first" || block.name == "decoder_first";
    for (const Operator& op : block.operators) {
      EXPECT_EQ(op.kind == OpKind::Attention && !op.weights.empty(),
                first && op.name == "attention")
          << block.name << " " << op.name;
      EXPECT_TRUE(op.kind != OpKind::Embedding || op.weights.size() == 1) << block.name;
    }
  }
  const Tensor& table = tensor_named(block_named(network, "encoder_first"), "w_relative_bias");
  EXPECT_EQ(num_elements(table, kSmallWork), 32.0 * static_cast<double>(spec.heads));
  EXPECT_EQ(network.chain.size(), 7U);
  EXPECT_EQ(network.chain[1] + 1, network.chain[2]);  // then the other layers
}

TEST(T5Blocks, CausalHalfLeavesCrossAttentionWhole) {
  const Network network = build_network(small_spec(Family::T5), "test");
  const Block& decoder = block_named(network, "decoder");
  const double whole = 4 * kBatch * kSequence * kSequence * 64;
  const auto flops = [&](const char* name) {
    return forward_flops(decoder, operator_named(decoder, name), kSmallWork, true).value();
  };
  EXPECT_EQ(flops("cross_attention"), whole);
  EXPECT_EQ(flops("attention"), whole / 2);
}

TEST(EmbeddingBlock, HoldsTheTokenTableAndPositions) {
  NetworkSpec spec = small_spec(Family::Gpt);
  spec.max_positions = 48;
  const Network network = build_network(spec, "test");
  const Block& block = block_named(network, "embedding");
  EXPECT_EQ(block.kind, BlockKind::Embedding);
  EXPECT_EQ(block.input, -1);
  EXPECT_EQ(num_parameters(block), (1000 + 48) * 64);
  EXPECT_EQ(operator_named(block, "token_gather").reduced, std::vector<Var>{Var::Vocab});
  EXPECT_EQ(saved_bytes(block, kSmallWork, {}), 0);
  const Network noisy = build_network(with_dropout(spec), "test");
  EXPECT_EQ(saved_bytes(block_named(noisy, "embedding"), kSmallWork, {}), kBatch * kSequence * 64);
}

TEST(HeadBlock, KeepsItsInputsAndFp32Logits) {
  const Network network = build_network(small_spec(Family::Gpt), "test");
  const Block& block = block_named(network, "head");
  EXPECT_EQ(block.output, -1);
  EXPECT_EQ(forward_flops(block, kSmallWork, false).value(), 2 * kBatch * kSequence * 64 * 1000);
  EXPECT_EQ(saved_bytes(block, kSmallWork, {}),
            4 * kBatch * kSequence * 64 + 4 * kBatch * kSequence * 1000);
  EXPECT_TRUE(operator_named(block, "lm_head").logits_in_fp32);
  EXPECT_TRUE(tensor_named(block, "w_logits").tied);
  EXPECT_EQ(num_parameters(network), (1000 + 32) * 64 + 3 * (12 * 64 * 64 + 13 * 64) + 2 * 64);
}

TEST(HeadBlock, BertProjectsTheMaskedPositionsOnly) {
  NetworkSpec spec = small_spec(Family::Bert);
  spec.masked_fraction = 0.25;
  const Network network = build_network(spec, "test");
  const Block& block = block_named(network, "head");
  EXPECT_EQ(operator_flops(block, "lm_head"), 2 * kBatch * kSequence * 0.25 * 64 * 1000);
  EXPECT_EQ(operator_flops(block, "head_transform"), 2 * kBatch * kSequence * 0.25 * 64 * 64);
  EXPECT_EQ(operator_flops(block, "pooler"), 2 * kBatch * 64 * 64);
}

TEST(VitBlocks, ProjectPatchesAndClassifyOneToken) {
  const Network network = build_network(small_spec(Family::Vit), "test");
  EXPECT_EQ(operator_flops(block_named(network, "embedding"), "patch_projection"),
            2 * kBatch * kSequence * 3 * 16 * 64);
  EXPECT_EQ(operator_flops(block_named(network, "head"), "classifier"), 2 * kBatch * 64 * 10);
  EXPECT_FALSE(block_named(network, "dense").attention.causal);
}

// A decoder that classifies sequences reads one token of each, too.
TEST(DecoderBlocks, ClassifyOneToken) {
  NetworkSpec spec = small_spec(Family::Gpt);
  spec.tied_embeddings = false;
  const std::int64_t whole = num_parameters(build_network(spec, "test"));
  spec.classes = 2;
  const Network network = build_network(spec, "test");
  EXPECT_EQ(operator_flops(block_named(network, "head"), "classifier"), 2 * kBatch * 64 * 2);
  EXPECT_EQ(num_parameters(network), whole - 1000 * 64 + 2 * 64 + 2);
  spec.tied_embeddings = true;
  EXPECT_THROW(build_network(spec, "test"), Error);
}

// Neither pixels nor the features of a frozen encoder have a gradient.
TEST(EmbeddingBlock, DataHaveNoGradient) {
  const Network vit = build_network(small_spec(Family::Vit), "test");
  const Block& patches = vit.blocks[static_cast<std::size_t>(vit.chain.front())];
  EXPECT_FALSE(gives_input_gradient(patches, operator_named(patches, "patch_projection")));
  EXPECT_TRUE(gives_weight_gradient(patches, operator_named(patches, "patch_projection")));
  for (const bool frozen : {false, true}) {
    const Network network =
        build_network(behind_encoder(small_spec(Family::Llama), 2, 1, frozen), "test");
    const Block& embedding = block_named(network, "embedding");
    EXPECT_NE(gives_input_gradient(embedding, operator_named(embedding, "projector_up")), frozen);
    EXPECT_TRUE(gives_weight_gradient(embedding, operator_named(embedding, "projector_up")));
  }
}

}  // namespace
}  // namespace orrery::models
