// SPDX-License-Identifier: Apache-2.0
// The networks that names and aliases of the zoo mean.
#include "models/network_names.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "models/network.hpp"

namespace orrery::models {
namespace {

TEST(NetworkNames, InAnyCaseWithAnySeparators) {
  EXPECT_EQ(find_network("llama3-70b"), "llama3-70b");
  EXPECT_EQ(find_network("Llama 3 70B"), "llama3-70b");
  EXPECT_EQ(find_network("llama-3-70b"), "llama3-70b");
  EXPECT_EQ(find_network("LLaMA_3.1_8B"), "llama3.1-8b");
  EXPECT_EQ(find_network("GPT-2 345M"), "gpt2-medium");
  EXPECT_EQ(find_network("MT-NLG"), "megatron-turing-530b");
  EXPECT_EQ(find_network("ViT-L/16"), "vit-large-16");
  EXPECT_EQ(load_network("llama-3-70b").spec.name, "llama3-70b");
}

// 1.3 billion parameters are not 13, and the second release is not part of a size.
TEST(NetworkNames, WhatStandsBetweenDigitsCounts) {
  EXPECT_EQ(find_network("GPT-3 13B"), "gpt3-13b");
  EXPECT_EQ(find_network("GPT-3 1.3B"), "gpt3-1.3b");
  EXPECT_EQ(find_network("GPT 21B"), "gpt-21b");
  EXPECT_EQ(find_network("GPT2 1B"), "gpt2-1b");
  EXPECT_EQ(find_network("llama370b"), "");
  EXPECT_EQ(find_network("llama-31-8b"), "");
  EXPECT_EQ(find_network("gpt-1.8b"), "");
  EXPECT_EQ(find_network("gpt-67b"), "");
  EXPECT_EQ(find_network(""), "");
}

TEST(NetworkNames, AliasesAreNotPartOfANetwork) {
  const auto document = [](std::string_view aliases) {
    return parse_json(R"({"schema": "orrery-network", "version": 1, "name": "n", "family": "gpt",
                          "layers": 2, "hidden": 64, "heads": 4, "sequence": 128, "vocab": 100,
                          "aliases": )" +
                          std::string(aliases) + "}",
                      "aliases");
  };
  const NetworkSpec spec = read_network_spec(document(R"(["the n", "n-100k"])"), "n.json");
  EXPECT_EQ(to_json(spec).find("aliases"), nullptr);
  for (const char* wrong : {R"("n-100k")", R"([1])", R"([""])", R"(["-"])", R"(["vit/16"])"}) {
    EXPECT_THROW(read_network_spec(document(wrong), "n.json"), Error) << wrong;
  }
}

}  // namespace
}  // namespace orrery::models
