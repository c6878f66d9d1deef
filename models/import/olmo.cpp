// SPDX-License-Identifier: Apache-2.0
// OLMo: LLaMA with layer norms; from OLMo 2 on norms of q and k, counted a head here, and norms
// behind attention and MLP instead of in front of them, which are as many; OLMo 3 slides in three
// of four layers.
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 3> kTypes = {"olmo", "olmo2", "olmo3"};

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_llama_like(config);
  if (model_type == "olmo") {
    spec.norm = NormKind::LayerNorm;
    return spec;
  }
  spec.qk_norm = true;
  if (model_type == "olmo3") {
    read_sliding_window(config, spec, /*window_if_absent=*/4096, /*interval=*/4);
  }
  return spec;
}

}  // namespace

extern const ConfigImporter importer_olmo{"olmo", kTypes, read};

}  // namespace orrery::models
