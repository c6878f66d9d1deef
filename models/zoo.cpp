// SPDX-License-Identifier: Apache-2.0
// NETWORK of the command line: a name or alias of the zoo, a native file, or a config.json.
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"
#include "models/config_import.hpp"
#include "models/network.hpp"
#include "models/network_names.hpp"
#include "models/overrides.hpp"

namespace orrery::models {
namespace {

bool looks_like_path(const std::string& text) {
  return text == "-" || text.ends_with(".json") || text.find('/') != std::string::npos;
}

std::string zoo_path(const std::string& name) {
  return std::string(kZooFolder) + "/" + name + ".json";
}

bool is_zoo_name(const std::string& text) {
  return text.find('/') == std::string::npos && is_data(zoo_path(text));
}

[[noreturn]] void unknown(const std::string& text) {
  std::vector<std::string> spellings;
  for (const auto& [spelling, name] : network_names()) {
    spellings.push_back(spelling);
  }
  const std::string wanted = to_lower(text);
  const bool near = !nearest_name(wanted, spellings).empty();
  bad_input("network", "no network is called \"" + printable(text) + "\"",
            nearest_hint(wanted, near ? spellings : zoo_names()));
}

Json zoo_document(const std::string& text) {
  const std::string name = is_zoo_name(text) ? text : find_network(text);
  if (name.empty()) {
    unknown(text);
  }
  return read_json_file(data_path(zoo_path(name)));
}

constexpr std::string_view kNetworkKinds =
    "a native document, a Hugging Face config.json or a name of `orrery list networks`";

// A folder that is named as a network: the config.json in it is meant.
[[noreturn]] void fail_as_folder(const std::string& text) {
  std::error_code ignored;
  const std::string config = (std::filesystem::path(text) / "config.json").string();
  bad_input("network", printable(text) + " is a folder",
            std::filesystem::is_regular_file(config, ignored) ? "give " + printable(config)
                                                              : std::string(kNetworkKinds));
}

Json load_document(const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::is_directory(text, ignored) && !is_zoo_name(text)) {
    fail_as_folder(text);
  }
  if (!looks_like_path(text) && !std::filesystem::is_regular_file(text, ignored)) {
    return zoo_document(text);
  }
  if (text != "-" && !std::filesystem::exists(text, ignored)) {
    throw Error(ErrorKind::InputOutput, printable(text), "no such file",
                std::string(kNetworkKinds));
  }
  Json document = read_json_file(text);
  return is_hugging_face_config(document) ? to_json(import_hugging_face(document, text)) : document;
}

// "path=value"; the members moe, mla and adapters may be absent until an override sets one of their
// fields.
void apply_override(Json& document, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    bad_input("--set", "\"" + printable(text) + "\" is not an assignment", "name=value");
  }
  const std::string path = text.substr(0, equals);
  for (const std::string_view part : {"moe", "mla", "adapters"}) {
    const bool addressed = path.starts_with(std::string(part) + ".");
    if (addressed && document.is_object() && document.find(part) == nullptr) {
      document.set(part, Json::object());
    }
  }
  set_path(document, path, text.substr(equals + 1), /*may_add=*/true);
}

}  // namespace

void apply_overrides(Json& document, const std::vector<std::string>& overrides) {
  for (const std::string& assignment : overrides) {
    apply_override(document, assignment);
  }
}

Network load_network(const std::string& text, const std::vector<std::string>& overrides) {
  Json document = load_document(text);
  apply_overrides(document, overrides);
  const std::string where = overrides.empty() ? text : text + " with --set";
  Network network = read_network(document, where);
  network.overrides = overrides;
  return network;
}

}  // namespace orrery::models
