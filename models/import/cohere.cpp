// SPDX-License-Identifier: Apache-2.0
// Command R: attention and MLP in parallel behind one layer norm (whose bias, which it lacks,
// counts); Command R7B and A slide in three of four layers.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 2> kTypes = {"cohere", "cohere2"};

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_llama_like(config, {.tied_embeddings = true});
  spec.norm = NormKind::LayerNorm;
  spec.parallel_block = true;
  spec.qk_norm = config.boolean_or("use_qk_norm", false);
  if (model_type == "cohere2") {
    const std::int64_t interval =
        config.integer_or("sliding_window_pattern", 4, 1, limits::kMaxLayers);
    read_sliding_window(config, spec, /*window_if_absent=*/4096, interval);
  }
  return spec;
}

}  // namespace

extern const ConfigImporter importer_cohere{"cohere", kTypes, read};

}  // namespace orrery::models
