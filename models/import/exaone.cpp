// SPDX-License-Identifier: Apache-2.0
// EXAONE 4: norms of q and k, norms behind attention and MLP instead of in front of them, a sliding
// window in three of four layers of the large ones.
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"exaone4"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_llama_like(config);
  spec.qk_norm = true;
  read_sliding_window(config, spec, /*window_if_absent=*/0, /*interval=*/4);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_exaone{"exaone", kTypes, read};

}  // namespace orrery::models
