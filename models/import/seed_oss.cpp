// SPDX-License-Identifier: Apache-2.0
// Seed-OSS: LLaMA with biases of q, k and v.
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"seed_oss"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_llama_like(config, {.kv_heads = 8, .head_dim = 128});
  spec.attention_bias = config.boolean_or("attention_bias", true);
  spec.attention_output_bias = config.boolean_or("attention_out_bias", false);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_seed_oss{"seed-oss", kTypes, read};

}  // namespace orrery::models
