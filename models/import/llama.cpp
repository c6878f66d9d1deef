// SPDX-License-Identifier: Apache-2.0
// LLaMA, and SmolLM 3, which leaves positions out in some layers.
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 2> kTypes = {"llama", "smollm3"};

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(config, {});
  return read_llama_like(config, {.tied_embeddings = model_type == "smollm3"});
}

}  // namespace

extern const ConfigImporter importer_llama{"llama", kTypes, read};

}  // namespace orrery::models
