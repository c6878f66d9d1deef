// SPDX-License-Identifier: Apache-2.0
#include "topologies/documents.hpp"

#include <fmt/format.h>

#include <array>
#include <map>
#include <span>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"

namespace orrery::topologies {
namespace {

constexpr auto kGpuOptional = std::to_array<std::string_view>(
    {"aliases", "compute_capability", "sm_count", "boost_clock", "l2_cache", "pcie_bandwidth",
     "power_watts", "price", "sources", "note"});
constexpr auto kPeakOptional =
    std::to_array<std::string_view>({"fp32", "tf32", "bf16", "fp16", "fp8"});
constexpr auto kNodeOptional =
    std::to_array<std::string_view>({"aliases", "scale_out", "sources", "note"});
constexpr auto kScaleUpOptional = std::to_array<std::string_view>(
    {"links_per_gpu", "nccl_socket_bandwidth", "in_switch_reduction", "mesh", "switches", "boards", "board_links"});
constexpr auto kScaleOutOptional = std::to_array<std::string_view>(
    {"nics", "nic_bandwidth", "efficiency", "plugin_latency", "latency", "in_network_reduction"});
constexpr auto kHostOptional = std::to_array<std::string_view>(
    {"socket_bandwidth", "gpus_per_pcie_switch", "disk", "disk_bandwidth"});
constexpr auto kFabricOptional = std::to_array<std::string_view>(
    {"radix", "spine_radix", "nodes_per_leaf", "leaves_per_pod", "planes", "oversubscription",
     "core_oversubscription", "levels", "dimensions", "switch_latency", "ecmp_hash", "ecmp_seed"});
constexpr auto kClusterOptional =
    std::to_array<std::string_view>({"name", "overrides", "sources", "note"});

void add_absent(Json* object, std::span<const std::string_view> keys) {
  if (object == nullptr || !object->is_object()) {
    return;  // the reader names what is wrong
  }
  for (const std::string_view key : keys) {
    if (object->find(key) == nullptr) {
      object->set(key, Json());
    }
  }
}

void remove_member(Json& object, std::string_view key) {
  std::erase_if(object.as_object(),
                [&](const Json::Member& member) { return member.first == key; });
}

// Alias (lower case) to name, over one folder; built at the first name that is not a file.
std::map<std::string, std::string> read_aliases(const std::string& folder) {
  std::map<std::string, std::string> aliases;
  for (const std::string& name : data_names(folder)) {
    const std::string path = data_path(folder + "/" + name + ".json");
    const Json document = read_json_file(path);
    ObjectReader object = JsonReader(document, path).object();
    if (const auto list = object.optional("aliases")) {
      for (const JsonReader& alias : list->array(256)) {
        aliases.emplace(to_lower(alias.string()), name);
      }
    }
    object.ignore_rest();
    aliases[name] = name;
  }
  return aliases;
}

std::string find_name(const std::string& folder, const std::string& text,
                      const std::map<std::string, std::string>& (*aliases)()) {
  if (is_kebab_case(text)) {
    for (const std::string& name : data_names(folder)) {
      if (name == text) {
        return name;
      }
    }
  }
  const auto found = aliases().find(to_lower(text));
  return found == aliases().end() ? std::string() : found->second;
}

const std::map<std::string, std::string>& gpu_aliases() {
  static const std::map<std::string, std::string> aliases = read_aliases("topologies/gpus");
  return aliases;
}

const std::map<std::string, std::string>& node_aliases() {
  static const std::map<std::string, std::string> aliases = read_aliases("topologies/nodes");
  return aliases;
}

Json load(const std::string& folder, const std::string& name) {
  return read_json_file(data_path(folder + "/" + name + ".json"));
}

[[noreturn]] void unknown(std::string_view kind, const std::string& name, const std::string& where,
                          const std::map<std::string, std::string>& aliases,
                          const std::vector<std::string>& names) {
  std::vector<std::string> candidates;
  for (const auto& [alias, target] : aliases) {
    candidates.push_back(alias);
  }
  const bool near = !nearest_name(to_lower(name), candidates).empty();
  bad_input(where, fmt::format("unknown {} \"{}\"", kind, printable(name)),
            nearest_hint(to_lower(name), near ? candidates : names));
}

// A member that is a string is a name; it is replaced by the document of that name.
void inline_name(Json& cluster, const char* key, const std::string& where,
                 Json (*document)(const std::string&, const std::string&)) {
  if (Json* member = cluster.find(key); member != nullptr && member->is_string()) {
    *member = document(member->as_string(), where + ": /" + key);
  }
}

}  // namespace

Json gpu_document(const std::string& name, const std::string& where) {
  const std::string found = find_name("topologies/gpus", name, gpu_aliases);
  if (found.empty()) {
    unknown("GPU", name, where, gpu_aliases(), gpu_names());
  }
  return load("topologies/gpus", found);
}

std::string find_node_name(const std::string& name) {
  return find_name("topologies/nodes", name, node_aliases);
}

Json node_document(const std::string& name, const std::string& where) {
  const std::string found = find_node_name(name);
  if (found.empty()) {
    unknown("node", name, where, node_aliases(), node_names());
  }
  return load("topologies/nodes", found);
}

void complete(Json& cluster, const std::string& where) {
  if (!cluster.is_object()) {
    return;
  }
  inline_name(cluster, "node", where, node_document);
  if (Json* node = cluster.find("node"); node != nullptr && node->is_object()) {
    for (const char* key : {"gpu", "fabric"}) {
      const Json* usual = node->find(key);
      if (usual == nullptr) {
        continue;
      }
      Json value = *usual;
      remove_member(*node, key);
      if (const Json* given = cluster.find(key); given == nullptr || given->is_null()) {
        cluster.set(key, std::move(value));
        node = cluster.find("node");
      }
    }
  }
  inline_name(cluster, "gpu", where, gpu_document);
  add_absent(&cluster, kClusterOptional);
  if (Json* gpu = cluster.find("gpu")) {
    add_absent(gpu, kGpuOptional);
    add_absent(gpu->find("peak"), kPeakOptional);
  }
  add_absent(cluster.find("fabric"), kFabricOptional);
  if (Json* node = cluster.find("node")) {
    add_absent(node, kNodeOptional);
    add_absent(node->find("scale_up"), kScaleUpOptional);
    add_absent(node->find("scale_out"), kScaleOutOptional);
    add_absent(node->find("host"), kHostOptional);
  }
}

}  // namespace orrery::topologies
