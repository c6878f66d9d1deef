// SPDX-License-Identifier: Apache-2.0
// Importers of Hugging Face config.json, one model family a file in models/import/, each one
// constant `importer_<file name>`. Foreign documents: keys that do not matter are ignored, a key
// that changes the network in a way Orrery does not model is an Error.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json_reader.hpp"
#include "models/network.hpp"

namespace orrery::models {

struct ConfigImporter {
  std::string_view name;                          // file name: "llama"
  std::span<const std::string_view> model_types;  // values of "model_type" it reads
  NetworkSpec (*read)(ObjectReader& config, std::string_view model_type);
};

std::span<const ConfigImporter* const> importer_table();  // generated
bool is_hugging_face_config(const Json& document);
NetworkSpec import_hugging_face(const Json& document, const std::string& where);

}  // namespace orrery::models
