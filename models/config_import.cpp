// SPDX-License-Identifier: Apache-2.0
#include "models/config_import.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::models {
namespace {

std::vector<std::string> known_model_types() {
  std::vector<std::string> types;
  for (const ConfigImporter* importer : importer_table()) {
    types.insert(types.end(), importer->model_types.begin(), importer->model_types.end());
  }
  return types;
}

const ConfigImporter& importer_of(const std::string& model_type, const JsonReader& value,
                                  bool has_text_part) {
  for (const ConfigImporter* importer : importer_table()) {
    const auto& types = importer->model_types;
    if (std::find(types.begin(), types.end(), model_type) != types.end()) {
      return *importer;
    }
  }
  value.fail("networks of type \"" + printable(model_type) + "\" are not modelled",
             has_text_part
                 ? "for its text part alone, a file with what its member text_config holds"
                 : nearest_hint(model_type, known_model_types()));
}

// Weights of 8 or 4 bits with a scale a block are how some networks store their checkpoint
// (DeepSeek-V3, gpt-oss): the layers are those of the network. Other methods pack, replace or
// calibrate layers afterwards.
void check_quantisation(ObjectReader& config) {
  const auto value = config.optional("quantization_config");
  if (!value) {
    return;
  }
  ObjectReader storage = value->object();
  const std::string method = storage.string_or("quant_method", "");
  if (method != "fp8" && method != "mxfp4") {
    value->fail(fmt::format("networks quantised by \"{}\" are not modelled", printable(method)),
                "fp8 or mxfp4 storage, or the config.json of the unquantised network");
  }
  storage.ignore_rest();
}

}  // namespace

bool is_hugging_face_config(const Json& document) {
  return document.find("schema") == nullptr &&
         (document.find("model_type") != nullptr || document.find("architectures") != nullptr);
}

NetworkSpec import_hugging_face(const Json& document, const std::string& where) {
  ObjectReader config = JsonReader(document, where).object();
  const JsonReader type = config.required("model_type");
  const std::string model_type = type.string();
  const ConfigImporter& importer =
      importer_of(model_type, type, config.optional("text_config").has_value());
  check_quantisation(config);
  NetworkSpec spec = importer.read(config, model_type);
  if (spec.head_dim == 0) {
    config.value().fail(
        fmt::format("hidden size {} is not divisible by {} heads", spec.hidden, spec.heads));
  }
  config.ignore_rest();
  const std::string path = config.string_or("_name_or_path", "");
  spec.name = path.empty() || path.size() > 200 ? model_type : path;
  spec.source = "config.json";
  return spec;
}

}  // namespace orrery::models
