// SPDX-License-Identifier: Apache-2.0
// Mistral: LLaMA with a sliding window, 4,096 tokens where the file does not say (null: none).
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"mistral"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_llama_like(config, {.kv_heads = 8});
  read_sliding_window(config, spec, /*window_if_absent=*/4096, /*interval=*/0);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_mistral{"mistral", kTypes, read};

}  // namespace orrery::models
