// SPDX-License-Identifier: Apache-2.0
// What every network of the zoo, every importer and every generated block must satisfy.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/text.hpp"
#include "models/config_import.hpp"
#include "models/network.hpp"
#include "models/network_names.hpp"
#include "models/positions.hpp"
#include "tests/folders.hpp"

namespace orrery::models {
namespace {

const Tensor& tensor_at(const Block& block, int index) {
  return block.tensors.at(static_cast<std::size_t>(index));
}

bool has_var(const Tensor& tensor, Var var) {
  return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                     [&](const Dim& dim) { return dim.var == var; });
}

void check_stream(const Block& block, int index) {
  const Tensor& tensor = tensor_at(block, index);
  ASSERT_EQ(tensor.dims.size(), 3U) << block.name << " " << tensor.name;
  EXPECT_EQ(tensor.dims[0].var, Var::Batch);
  EXPECT_EQ(tensor.dims[1].var, Var::Seq);
  EXPECT_EQ(tensor.dims[2].var, Var::Hidden);
}

// Every activation has one producer, which stands before its readers.
void check_order(const Block& block) {
  std::set<int> produced;
  std::set<int> outside;
  for (const Operator& op : block.operators) {
    for (const int input : op.inputs) {
      EXPECT_EQ(tensor_at(block, input).kind, TensorKind::Activation);
      if (!produced.contains(input)) {
        outside.insert(input);
      }
    }
    for (const int output : op.outputs) {
      EXPECT_TRUE(produced.insert(output).second) << op.name;
      EXPECT_FALSE(outside.contains(output)) << op.name << " is read before it runs";
    }
    for (const Saved& saved : op.saved) {
      EXPECT_GE(saved.tensor, 0);
      EXPECT_EQ(tensor_at(block, saved.tensor).kind, TensorKind::Activation);
    }
  }
  for (const int index : outside) {
    const std::string& name = tensor_at(block, index).name;
    const bool known = index == block.input || index == block.memory || name == "pixels" ||
                       name == "features" || name.ends_with("tokens");
    EXPECT_TRUE(known) << block.name << ": nothing produces " << name;
  }
}

void check_operators(const Block& block) {
  for (const Operator& op : block.operators) {
    for (const int weight : op.weights) {
      EXPECT_EQ(tensor_at(block, weight).kind, TensorKind::Weight) << op.name;
    }
    EXPECT_FALSE(op.outputs.empty()) << op.name;
    const bool gemm = op.kind == OpKind::Gemm || op.kind == OpKind::GroupedGemm;
    if (gemm) {
      EXPECT_EQ(op.flops_per_point, 2.0) << op.name;
      EXPECT_EQ(op.inputs.size(), 1U) << op.name;
      for (std::size_t i = 0; i < op.outputs.size(); ++i) {
        for (const Var var : op.reduced) {
          EXPECT_TRUE(has_var(tensor_at(block, op.weights[i]), var)) << op.name;
          EXPECT_TRUE(has_var(tensor_at(block, op.inputs[0]), var)) << op.name;
        }
      }
    }
    if (op.kind == OpKind::Attention) {
      EXPECT_EQ(op.inputs.size(), 3U);
      EXPECT_TRUE(has_var(tensor_at(block, op.inputs[0]), Var::Head));
      EXPECT_TRUE(has_var(tensor_at(block, op.inputs[1]), Var::KvHead));
    }
  }
}

// Each activation is saved once, apart from the attention core's copies.
void check_saved_once(const Block& block) {
  std::set<int> saved_tensors;
  for (const Operator& op : block.operators) {
    for (const Saved& saved : op.saved) {
      if (!saved.attention_core) {
        EXPECT_TRUE(saved_tensors.insert(saved.tensor).second)
            << block.name << ": " << tensor_at(block, saved.tensor).name << " is saved twice";
      }
    }
  }
}

void check_block(const Block& block) {
  std::set<std::string> names;
  for (const Tensor& tensor : block.tensors) {
    EXPECT_TRUE(names.insert(tensor.name).second) << block.name << ": " << tensor.name;
    for (const Dim& dim : tensor.dims) {
      const bool workload = dim.var == Var::Batch || dim.var == Var::Seq || dim.var == Var::KeySeq;
      // Features of an encoder have its tokens, whatever the sequence.
      const bool features = dim.var == Var::Seq && block.kind == BlockKind::Embedding;
      EXPECT_TRUE((dim.extent == kFromWorkload) == workload || features) << tensor.name;
    }
  }
  check_order(block);
  check_operators(block);
  check_saved_once(block);
  if (block.kind != BlockKind::Embedding) {
    EXPECT_EQ(tensor_at(block, block.input).name, "hidden");
    check_stream(block, block.input);
  }
  if (block.kind != BlockKind::Head) {
    check_stream(block, block.output);
  }
}

class Zoo : public testing::TestWithParam<std::string> {};

TEST_P(Zoo, IsASoundNetwork) {
  const Network network = load_network(GetParam());
  EXPECT_EQ(network.spec.name, GetParam());
  EXPECT_GE(network.spec.source.size(), 10U) << "a source is missing";
  std::string kebab = GetParam();
  std::replace(kebab.begin(), kebab.end(), '.', '-');
  EXPECT_TRUE(is_kebab_case(kebab));
  for (const Block& block : network.blocks) {
    check_block(block);
  }
  EXPECT_EQ(network.blocks.at(static_cast<std::size_t>(network.chain.front())).kind,
            BlockKind::Embedding);
  EXPECT_EQ(network.blocks.at(static_cast<std::size_t>(network.chain.back())).kind,
            BlockKind::Head);
  const std::int64_t encoder = network.spec.encoder.layers;
  EXPECT_EQ(
      static_cast<std::int64_t>(network.chain.size()),
      network.spec.layers + network.spec.encoder_layers + 2 + (encoder > 0 ? encoder + 1 : 0));
  EXPECT_LE(num_active_parameters(network), num_parameters(network));
  check_positions(network.spec, network.spec.sequence, "zoo");
}

TEST_P(Zoo, DocumentReadsBackEqual) {
  const Network network = load_network(GetParam());
  EXPECT_EQ(read_network_spec(parse_json(network.document.dump(), "again"), "again"), network.spec);
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Zoo, testing::ValuesIn(zoo_names()), test_name);

TEST(ZooNames, CoverWhatPeopleAskFor) {
  const std::vector<std::string> names = zoo_names();
  EXPECT_GE(names.size(), 55U);
  for (const char* name : {"gpt3-175b", "gpt-1t", "gpt-22b", "gpt-530b", "llama2-7b", "llama3-8b",
                           "llama3-70b", "llama3-405b", "mixtral-8x7b", "deepseek-v3",
                           "bert-huge-32", "vit-huge-32", "t5-large-32"}) {
    EXPECT_TRUE(std::binary_search(names.begin(), names.end(), name)) << name;
  }
}

TEST(ZooNames, EveryAliasFindsItsNetwork) {
  const auto& names = network_names();
  EXPECT_GT(names.size(), zoo_names().size());
  for (const auto& [spelling, name] : names) {
    EXPECT_EQ(find_network(spelling), name) << spelling;
    EXPECT_EQ(load_network(spelling).spec.name, name) << spelling;
  }
}

// What their publishers count in the files of weights.
TEST(ZooNames, PublishedCountsOfParameters) {
  const std::map<std::string, std::int64_t> kPublished = {
      {"pythia-70m", 70'426'624},
      {"pythia-160m", 162'322'944},
      {"pythia-410m", 405'334'016},
      {"pythia-1b", 1'011'781'632},
      {"bloom-560m", 559'214'592},
      {"bloom-1b1", 1'065'314'304},
      {"bloom-1b7", 1'722'408'960},
      {"bloom-3b", 3'002'557'440},
      {"gemma3-1b", 999'885'952},
      {"starcoder2-3b", 3'030'371'328},
      {"qwen1.5-1.8b", 1'836'828'672},
      {"qwen1.5-4b", 3'950'369'280},
      {"qwen1.5-32b", 32'512'218'112},
      {"qwen1.5-110b", 111'209'914'368},
      {"yi-9b", 8'829'407'232},
      {"deepseek-coder-1.3b", 1'346'471'936},
      {"deepseek-coder-6.7b", 6'740'512'768},
      {"deepseek-coder-33b", 33'342'991'360},
      {"baichuan-7b", 7'000'559'616},
      {"baichuan-13b", 13'264'901'120},
      {"open-llama-3b", 3'426'473'600},
      {"ministral-8b", 8'019'808'256},
      {"codestral-22b", 22'247'282'688},
      {"mistral-large-123b", 122'610'069'504},
      {"smollm2-135m", 134'515'008},
      {"smollm2-360m", 361'821'120},
      {"stablelm-2-1.6b", 1'644'515'328},
      {"gpt-neo-1.3b", 1'315'575'808},
      {"gpt-neo-125m", 125'198'592},
      {"phi-1.5", 1'418'270'720},
      {"phi-3.5-mini", 3'821'079'552},
      {"phi-3.5-moe", 41'873'153'344},
      {"phi-4-mini", 3'836'021'760},
      {"glm4-32b", 32'566'081'536},
      {"internlm3-8b", 8'804'241'408},
      {"qwen3-coder-480b-a35b", 480'154'875'392}};
  for (const auto& [name, parameters] : kPublished) {
    EXPECT_EQ(num_parameters(load_network(name)), parameters) << name;
  }
}

// Samples of config.json and the zoo network each describes ("" where the zoo has none: its mpt-7b
// is that of llm-foundry, with biases).
struct Sample {
  const char* file;
  const char* zoo;
  // As published where that is stated so closely (of GLM-4.5, Llama 4 and MiniMax-M2 it is not, or
  // counts parts that are left out); else the sum of the products that the widths give, by hand.
  double billions;
};

constexpr Sample kSamples[] = {
    {"llama3.1-8b", "llama3.1-8b", 8.03},
    {"mistral-7b", "mistral-7b", 7.24},
    {"mixtral-8x7b", "mixtral-8x7b", 46.70},
    {"qwen2-7b", "qwen2-7b", 7.616},
    {"qwen1.5-moe-a2.7b", "qwen1.5-moe-a2.7b", 14.32},
    {"qwen3-8b", "qwen3-8b", 8.19},
    {"qwen3-30b-a3b", "qwen3-30b-a3b", 30.53},
    {"gemma-2b", "gemma-2b", 2.506},
    {"gemma2-9b", "gemma2-9b", 9.24},
    {"gemma3-27b", "gemma3-27b", 27.01},
    {"gpt2", "gpt2", 0.1244},
    {"gpt-neox-20b", "gpt-neox-20b", 20.55},
    {"opt-1.3b", "opt-1.3b", 1.316},
    {"phi-2", "phi-2", 2.780},
    {"phi-3-mini", "phi-3-mini", 3.821},
    {"deepseek-v2-lite", "deepseek-v2-lite", 15.71},
    {"deepseek-v3", "deepseek-v3", 671.03},
    {"t5-base", "t5-base", 0.2229},
    {"bert-base", "bert-base", 0.1101},
    {"vit-base-16", "vit-base-16", 0.0866},
    {"olmo2-7b", "olmo2-7b", 7.299},
    {"glm4-9b", "glm4-9b", 9.4},
    {"glm4.5-355b", "glm4.5-355b", 352.8},
    {"kimi-k2", "kimi-k2", 1026.4},
    {"llama4-scout", "llama4-scout", 107.77},
    {"granite3-8b", "granite3-8b", 8.171},
    {"command-r-35b", "command-r-35b", 34.98},
    {"falcon-40b", "falcon-40b", 41.3},
    {"bloom-7b1", "bloom-7b1", 7.069},
    {"gpt-j-6b", "gpt-j-6b", 6.053},
    {"starcoder2-7b", "starcoder2-7b", 7.174},
    {"mpt-7b", "", 6.649},
    {"gpt-oss-20b", "gpt-oss-20b", 20.91},
    {"nemotron-4-15b", "nemotron-4-15b", 15.63},
    {"dbrx-132b", "dbrx-132b", 131.6},
    {"ernie4.5-21b", "ernie4.5-21b", 21.83},
    {"exaone4-32b", "exaone4-32b", 32.0},
    {"minimax-m2", "minimax-m2", 228.7},
    {"stablelm-3b", "stablelm-3b", 2.795},
    {"seed-oss-36b", "seed-oss-36b", 36.15},
    {"smollm3-3b", "smollm3-3b", 3.075},
    {"olmo-7b", "", 6.888},
    {"olmo3-7b", "", 7.298},
    {"glm4-9b-2024", "", 9.4},
    {"granite3-3b-a800m", "", 3.299},
    {"command-r7b", "", 8.028},
    {"codegen-350m", "", 0.3567},
    {"starcoder-15b", "", 15.52},
    {"ernie4.5-0.3b", "", 0.3607},
    {"mt5-small", "", 0.3002},
};

std::string sample_path(const std::string& file) {
  return orrery::test_folder().string() + "/data/hf/" + file + ".json";
}

class Importers : public testing::TestWithParam<Sample> {};

TEST_P(Importers, AgreeWithTheZoo) {
  const Network network = load_network(sample_path(GetParam().file));
  for (const Block& block : network.blocks) {
    check_block(block);
  }
  const auto total = static_cast<double>(num_parameters(network));
  EXPECT_NEAR(total / 1e9, GetParam().billions, 1e-3 * GetParam().billions);
  if (*GetParam().zoo == '\0') {
    return;
  }
  const Network zoo = load_network(GetParam().zoo);
  const Workload work{.batch = 1, .sequence = 512};
  EXPECT_EQ(num_parameters(network), num_parameters(zoo));
  EXPECT_EQ(num_active_parameters(network), num_active_parameters(zoo));
  EXPECT_EQ(model_flops(network, work).value(), model_flops(zoo, work).value());
}

INSTANTIATE_TEST_SUITE_P(All, Importers, testing::ValuesIn(kSamples),
                         [](const testing::TestParamInfo<Sample>& sample) {
                           return test_name({std::string(sample.param.file), sample.index});
                         });

TEST(ImporterTable, EveryTypeHasASample) {
  std::set<std::string> sampled;
  for (const Sample& sample : kSamples) {
    const Json document = read_json_file(sample_path(sample.file));
    sampled.insert(document.find("model_type")->as_string());
  }
  std::set<std::string_view> types;
  for (const ConfigImporter* importer : importer_table()) {
    for (const std::string_view type : importer->model_types) {
      EXPECT_TRUE(types.insert(type).second) << type << " is claimed twice";
      EXPECT_TRUE(sampled.contains(std::string(type))) << importer->name << ": " << type;
    }
  }
}

}  // namespace
}  // namespace orrery::models
