// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters: their parameters and FLOPs against sums written down by hand, what is kept for
// their gradients, and where the backward ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "tests/unit/models/specs.hpp"

namespace orrery::models {
namespace {

using ::testing::HasSubstr;

NetworkSpec adapted(NetworkSpec spec, std::int64_t rank = 4) {
  spec.adapters.rank = rank;
  return spec;
}

Network llama(const AdapterSpec& adapters) {
  NetworkSpec spec = small_spec(Family::Llama);
  spec.kv_heads = 2;
  spec.adapters = adapters;
  return build_network(spec, "test");
}

// Names of the tensors that the operators of a block keep.
std::multiset<std::string> kept(const Block& block) {
  std::multiset<std::string> names;
  for (const Operator& op : block.operators) {
    for (const Saved& saved : op.saved) {
      names.insert(block.tensors[static_cast<std::size_t>(saved.tensor)].name);
    }
  }
  return names;
}

std::string refusal(const NetworkSpec& spec) {
  try {
    build_network(spec, "test");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Hidden 64, 4 heads of 16, 2 of keys and values, feed-forward 192.
TEST(Adapters, AreTheOnlyTrainedParameters) {
  const Network plain = llama({});
  EXPECT_EQ(num_trained_parameters(plain), num_parameters(plain));
  const std::int64_t qkv = 64 + (64 + 2 * 32);
  const std::int64_t o = 64 + 64;
  const std::int64_t up = 64 + 2 * 192;
  const std::int64_t down = 192 + 64;
  const Network all = llama({.rank = 4});
  EXPECT_EQ(num_trained_parameters(all), 3 * 4 * (qkv + o + up + down));
  EXPECT_EQ(num_parameters(all), num_parameters(plain) + num_trained_parameters(all));
  const Network some = llama({.rank = 8, .o = false, .up = false});
  EXPECT_EQ(num_trained_parameters(some), 3 * 8 * (qkv + down));
  for (const Block& block : all.blocks) {
    for (const Tensor& tensor : block.tensors) {
      if (tensor.kind == TensorKind::Weight) {
        const bool adapter = tensor.name.find("lora") != std::string::npos;
        EXPECT_EQ(tensor.frozen, !adapter) << tensor.name;
      }
    }
  }
}

// Frozen products have a forward and an input gradient, adapters a weight gradient, too; attention
// has a backward of two forwards, and the head only hands its gradient on. Below the first layer's
// adapters there is no backward: its base products run once, attention and what follows as usual.
TEST(Adapters, LeaveOutTheWeightGradientsOfTheRest) {
  const double tokens = 32;
  const double qkv = 2 * tokens * 64 * 128;
  const double rest = 2 * tokens * (64 * 64 + 3 * 64 * 192);
  const double attention = 4 * tokens * 32 * 64;
  const double head = 2 * tokens * 64 * 1000;
  const double of_qkv = 2 * tokens * 4 * (64 + 128);
  const double lora = of_qkv + 2 * tokens * 4 * ((64 + 64) + (64 + 2 * 192) + (192 + 64));
  const double layers = 3 * (2 * (qkv + rest) + 3 * (attention + lora)) - qkv;
  const double first = 2 * tokens * 4 * 64;  // no gradient of the input of the first A
  const double flops = model_flops(llama({.rank = 4}), {1, 32}).value();
  EXPECT_NEAR(flops, layers - first + 2 * head, 1e-9 * flops);
  EXPECT_LT(flops, 0.75 * model_flops(llama({}), {1, 32}).value());
}

TEST(Adapters, KeepWhatTheirGradientsRead) {
  const Network network = llama({.rank = 4});
  const Block& layer = block_named(network, "dense");
  // As without adapters, and the low-rank products: each A reads what its product would have kept.
  std::multiset<std::string> expected = kept(block_named(llama({}), "dense"));
  for (const char* low :
       {"qkv_lora_low", "attention_projection_lora_low", "mlp_up_lora_low", "mlp_down_lora_low"}) {
    expected.insert(low);
  }
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"v", "v_adapted"}, {"gate", "gate_adapted"}, {"up", "up_adapted"}}) {
    ASSERT_EQ(expected.erase(from), 1U) << from;
    expected.insert(to);
  }
  EXPECT_EQ(kept(layer), expected);

  // Without adapters of the projections out of attention and down, their inputs are not kept but
  // by attention itself, whose fused backward reads its result.
  const Network some = llama({.rank = 4, .o = false, .down = false});
  const std::multiset<std::string> fewer = kept(block_named(some, "dense"));
  EXPECT_EQ(fewer.count("mlp_activation"), 0U);
  EXPECT_EQ(fewer.count("attention_context"), 1U);
  const Block& block = block_named(some, "dense");
  const auto attention = std::find_if(block.operators.begin(), block.operators.end(),
                                      [](const Operator& op) { return op.name == "attention"; });
  EXPECT_TRUE(attention->saved.back().fused_only);
}

TEST(Adapters, EndTheBackwardAtTheFirstOfThem) {
  const Network network = llama({.rank = 4, .qkv = false, .o = false});
  EXPECT_TRUE(block_named(network, "embedding").frozen);
  EXPECT_EQ(network.chain.size(), 5U);
  const Block& first = network.blocks[static_cast<std::size_t>(network.chain[1])];
  EXPECT_EQ(first.name, "dense_first");
  EXPECT_NE(network.chain[1], network.chain[2]);
  EXPECT_EQ(network.chain[2], network.chain[3]);
  for (const Operator& op : first.operators) {
    if (op.name == "mlp_up_lora_a") {
      EXPECT_FALSE(gives_input_gradient(first, op));
      EXPECT_TRUE(gives_weight_gradient(first, op));
      break;
    }
    EXPECT_FALSE(has_backward(first, op)) << op.name;
    EXPECT_TRUE(op.saved.empty()) << op.name;
  }
  const Workload work{1, 32};
  EXPECT_LT(saved_bytes(first, work, {}), saved_bytes(block_named(network, "dense"), work, {}));
  EXPECT_EQ(saved_bytes(block_named(network, "embedding"), work, {}), 0.0);
}

TEST(Adapters, OfExpertsLatentsAndOtherFamilies) {
  NetworkSpec moe = small_spec(Family::Llama);
  moe.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 32, .shared_ffn_hidden = 32};
  const std::int64_t attention = (64 + 3 * 64) + (64 + 64);
  const std::int64_t expert = (64 + 2 * 32) + (32 + 64);
  EXPECT_EQ(num_trained_parameters(build_network(adapted(moe), "test")),
            3 * 4 * (attention + 8 * expert + expert));

  NetworkSpec mla = small_spec(Family::Llama);
  mla.mla = {.q_lora_rank = 24,
             .kv_lora_rank = 16,
             .qk_nope_head_dim = 8,
             .qk_rope_head_dim = 4,
             .v_head_dim = 8};
  mla.adapters = {.rank = 4, .up = false, .down = false};
  const std::int64_t latents = (64 + 16 + 4 + 24) + (24 + 4 * 12) + (16 + 4 * (8 + 8));
  EXPECT_EQ(num_trained_parameters(build_network(mla, "test")), 3 * 4 * (latents + (4 * 8 + 64)));

  for (const Family family : {Family::Gpt, Family::Bert, Family::T5, Family::Vit}) {
    const Network network = build_network(adapted(with_dropout(small_spec(family))), "test");
    EXPECT_GT(num_trained_parameters(network), 0);
    const double share = model_flops(network, {1, 32}).value() /
                         model_flops(build_network(small_spec(family), "test"), {1, 32}).value();
    EXPECT_GT(share, 0.6);
    EXPECT_LT(share, 1.0);
  }
}

TEST(Adapters, LeaveTheProjectionOfAnEncoderTrained) {
  NetworkSpec spec = behind_encoder(small_spec(Family::Llama), 2, 1, /*frozen=*/true);
  const std::int64_t projection = 512 * 64 + 64 + 64 * 64 + 64;
  EXPECT_EQ(num_trained_parameters(build_network(adapted(spec), "test")) -
                num_trained_parameters(build_network(adapted(small_spec(Family::Llama)), "test")),
            projection);
  spec.encoder.frozen = false;
  EXPECT_THAT(refusal(adapted(spec)), HasSubstr("set encoder.frozen to true"));
}

// Of experts of width 32 each has a pair for its up and gate, and one for its down; or all have the
// same. The copies of a token go through as many products either way.
TEST(Adapters, MayBeSharedByTheExperts) {
  NetworkSpec spec = small_spec(Family::Llama);
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 32};
  spec.adapters = {.rank = 4, .qkv = false, .o = false};
  const Network own = build_network(spec, "test");
  spec.adapters.shared_by_experts = true;
  const Network shared = build_network(spec, "test");
  const std::int64_t pair = 4 * ((64 + 2 * 32) + (32 + 64));
  EXPECT_EQ(num_trained_parameters(own), 3 * 8 * pair);
  EXPECT_EQ(num_trained_parameters(shared), 3 * pair);
  EXPECT_EQ(model_flops(own, {4, 64}), model_flops(shared, {4, 64}));
  EXPECT_EQ(read_network_spec(to_json(spec), "again"), spec);
  spec.moe = {};
  EXPECT_THAT(refusal(spec), HasSubstr("no experts are adapted"));
}

TEST(Adapters, AreFieldsOfTheDocument) {
  NetworkSpec spec = adapted(small_spec(Family::Llama));
  spec.adapters.dropout = 0.1;
  EXPECT_EQ(read_network_spec(to_json(spec), "again"), spec);
  spec.adapters.qkv = false;
  EXPECT_EQ(read_network_spec(to_json(spec), "again"), spec);
  const Network small = load_network("llama3-8b", {"adapters.rank=16"});
  EXPECT_EQ(small.spec.adapters, (AdapterSpec{.rank = 16}));

  Json document = to_json(spec);
  document.set("adapters", parse_json(R"({"rank": 4, "targets": ["qvk"]})", "test"));
  try {
    read_network_spec(document, "test");
    ADD_FAILURE() << "a target that does not exist";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"qvk\""));
    EXPECT_THAT(error.what(), HasSubstr("qkv"));
  }
  document.set("adapters", parse_json(R"({"rank": 4, "targets": ["o", "o"]})", "test"));
  EXPECT_THROW(read_network_spec(document, "test"), Error);
  document.set("adapters", parse_json(R"({"rank": 4, "targets": []})", "test"));
  EXPECT_THROW(read_network_spec(document, "test"), Error);
}

TEST(Adapters, AreRefusedWhereTheyAreWiderThanTheProduct) {
  EXPECT_EQ(refusal(adapted(small_spec(Family::Llama), 64)), "");
  EXPECT_THAT(refusal(adapted(small_spec(Family::Llama), 65)), HasSubstr("adapters.rank is 65"));
  NetworkSpec spec = small_spec(Family::Llama);
  spec.adapters.dropout = 0.1;
  EXPECT_THAT(refusal(spec), HasSubstr("set adapters.rank"));
}

TEST(Adapters, DropTheirInputsOutWhereThatIsStated) {
  const Network network =
      llama({.rank = 4, .dropout = 0.1, .o = false, .up = false, .down = false});
  const std::multiset<std::string> names = kept(block_named(network, "dense"));
  EXPECT_EQ(names.count("qkv_lora_dropout_mask"), 1U);
  EXPECT_EQ(names.count("qkv_lora_dropout_out"), 1U);
  EXPECT_EQ(names.count("attention_norm_out"), 0U);
}

}  // namespace
}  // namespace orrery::models
