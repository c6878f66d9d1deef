// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/network_names.hpp"

#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "base/words.hpp"
#include "models/network.hpp"

namespace orrery::studies {
namespace {

std::map<std::string, std::string> read_names() {
  std::map<std::string, std::string> names;
  for (const std::string& name : models::zoo_names()) {
    names.emplace(letters_and_digits(name), name);
  }
  return names;
}

// Names by size or version where the list has them by another.
constexpr auto kOtherNames = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"gpt2small", "gpt2"},
     {"gpt2117m", "gpt2"},
     {"gpt2124m", "gpt2"},
     {"gpt2345m", "gpt2-medium"},
     {"gpt2355m", "gpt2-medium"},
     {"gpt2774m", "gpt2-large"},
     {"gpt215b", "gpt2-xl"},
     {"gpt3", "gpt3-175b"},
     {"gpt3small", "gpt3-125m"},
     {"gpt3medium", "gpt3-350m"},
     {"gpt3large", "gpt3-760m"},
     {"gpt3xl", "gpt3-1.3b"},
     {"gpt67b", "gpt3-6.7b"},
     {"gpt145b", "gpt-145.6b"},
     {"gpt39b", "gpt-39.1b"},
     {"gpt18b", "gpt-18.4b"},
     {"gpt1008b", "gpt-1t"},
     {"gptneox", "gpt-neox-20b"},
     {"neox20b", "gpt-neox-20b"},
     {"gptj", "gpt-j-6b"},
     {"mtnlg", "megatron-turing-530b"},
     {"megatronturingnlg", "megatron-turing-530b"},
     {"megatron530b", "megatron-turing-530b"},
     {"megatron1t", "gpt-1t"},
     {"bloom", "bloom-176b"},
     {"bloomz", "bloom-176b"},
     {"bloom71b", "bloom-7b1"},
     {"llama30b", "llama-33b"},
     {"vicuna7b", "llama-7b"},
     {"vicuna13b", "llama-13b"},
     {"alpaca7b", "llama-7b"},
     {"llama3370b", "llama3.1-70b"},
     {"llama4scout17b16e", "llama4-scout"},
     {"llama4maverick17b128e", "llama4-maverick"},
     {"mixtral", "mixtral-8x7b"},
     {"mistralnemo", "mistral-nemo-12b"},
     {"tinyllama", "tinyllama-1.1b"},
     {"starcoder", "starcoder-15b"},
     {"phi35mini", "phi-3-mini"},
     {"granite308b", "granite3-8b"},
     {"granite318b", "granite3-8b"},
     {"granite328b", "granite3-8b"},
     {"qwen157b", "qwen-7b"},  // the same layers
     {"qwen1514b", "qwen-14b"},
     {"qwen1572b", "qwen-72b"},
     {"qwen330b", "qwen3-30b-a3b"},
     {"qwen3moe30b", "qwen3-30b-a3b"},
     {"qwen3235b", "qwen3-235b-a22b"},
     {"qwen3moe235b", "qwen3-235b-a22b"},
     {"qwen25coder7b", "qwen2.5-7b"},
     {"qwen25coder14b", "qwen2.5-14b"},
     {"qwen25coder32b", "qwen2.5-32b"},
     {"qwen25math7b", "qwen2.5-7b"},
     {"qwen25math72b", "qwen2.5-72b"},
     {"deepseekr1distillqwen7b", "qwen2.5-7b"},
     {"deepseekr1distillqwen14b", "qwen2.5-14b"},
     {"deepseekr1distillqwen32b", "qwen2.5-32b"},
     {"deepseekr1distillllama8b", "llama3.1-8b"},
     {"deepseekr1distillllama70b", "llama3.1-70b"},
     {"deepseekv31", "deepseek-v3"},  // later releases of the same layers
     {"deepseekv30324", "deepseek-v3"},
     {"deepseekr10528", "deepseek-v3"},
     {"deepseek67b", "deepseek-llm-67b"},
     {"deepseek7b", "deepseek-llm-7b"},
     {"deepseekv167b", "deepseek-llm-67b"},
     {"deepseekv17b", "deepseek-llm-7b"},
     {"glm45", "glm4.5-355b"},
     {"chatglm26b", "chatglm3-6b"},
     {"internlm257b", "internlm2-7b"},
     {"internlm2520b", "internlm2-20b"},
     {"yi156b", "yi-6b"},
     {"yi1534b", "yi-34b"},
     {"exaone4032b", "exaone4-32b"},
     {"smollm3", "smollm3-3b"},
     {"nemotron38b", "nemotron-8b"},
     {"codegemma7b", "gemma-7b"},
     {"codegemma2b", "gemma-2b"},
     {"mistralsmall3", "mistral-small-24b"},
     {"qwq32b", "qwen2.5-32b"},
     {"deepseekr1", "deepseek-v3"},
     {"dbrx", "dbrx-132b"},
     {"bertbaseuncased", "bert-base"},
     {"bertlargeuncased", "bert-large"},
     {"bertl", "bert-large"},
     {"bertb", "bert-base"},
     {"t5220m", "t5-base"},
     {"t5770m", "t5-large"},
     {"t5xl", "t5-v1.1-xl"},
     {"t5xxl", "t5-v1.1-xxl"},
     {"flant5xl", "t5-v1.1-xl"},
     {"flant5xxl", "t5-v1.1-xxl"},
     {"vitb16", "vit-base-16"},
     {"vitl", "vit-large-16"},
     {"vitl16", "vit-large-16"},
     {"vith", "vit-huge-14"},
     {"vith14", "vit-huge-14"},
     {"vitg14", "vit-bigg-14"},
     {"vithuge", "vit-huge-14"}});

}  // namespace

std::string known_name(const std::string& key) {
  static const std::map<std::string, std::string> kNames = [] {
    std::map<std::string, std::string> names = read_names();
    for (const auto& [other, name] : kOtherNames) {
      names.emplace(other, name);
    }
    return names;
  }();
  const auto found = kNames.find(key);
  return found == kNames.end() ? std::string() : found->second;
}

}  // namespace orrery::studies
