// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"llama"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  return read_llama_like(config);
}

}  // namespace

extern const ConfigImporter importer_llama{"llama", kTypes, read};

}  // namespace orrery::models
