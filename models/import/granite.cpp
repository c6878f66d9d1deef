// SPDX-License-Identifier: Apache-2.0
// Granite 3: LLaMA whose streams are scaled by constants; granitemoe has experts of width
// intermediate_size.
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 2> kTypes = {"granite", "granitemoe"};

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(config, {"num_local_experts", "num_experts_per_tok", "router_aux_loss_coef",
                                "output_router_logits"});
  NetworkSpec spec = read_llama_like(config);
  if (model_type == "granitemoe") {
    spec.moe = read_experts(config, {.experts = "num_local_experts", .width = "intermediate_size"});
  }
  return spec;
}

}  // namespace

extern const ConfigImporter importer_granite{"granite", kTypes, read};

}  // namespace orrery::models
