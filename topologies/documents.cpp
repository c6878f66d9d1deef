// SPDX-License-Identifier: Apache-2.0
#include "topologies/documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"
#include "base/words.hpp"

namespace orrery::topologies {
namespace {

constexpr auto kGpuOptional = std::to_array<std::string_view>(
    {"aliases", "compute_capability", "sm_count", "boost_clock", "l2_cache", "pcie_bandwidth",
     "power_watts", "picojoules_per_flop", "persistent_products", "short_fp8_sums",
     "any_fp8_layout", "price", "pci_devices", "stands_for_others", "usual_node", "sources",
     "note"});
constexpr auto kPeakOptional =
    std::to_array<std::string_view>({"fp32", "tf32", "bf16", "fp16", "fp8", "nvfp4"});
constexpr auto kNodeOptional =
    std::to_array<std::string_view>({"aliases", "scale_out", "sources", "note"});
constexpr auto kScaleUpOptional = std::to_array<std::string_view>(
    {"links_per_gpu", "nccl_socket_bandwidth", "nccl_gpus", "in_switch_reduction", "mesh",
     "switches", "boards", "board_links"});
constexpr auto kScaleOutOptional = std::to_array<std::string_view>(
    {"nics", "nic_bandwidth", "efficiency", "plugin_latency", "latency", "in_network_reduction",
     "low_latency", "low_latency_128"});
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

// What a folder calls its documents.
struct Names {
  std::map<std::string, std::string> spellings;  // names and aliases in lower case
  std::map<std::string, std::string> keys;       // the same without separators and makers
  std::map<std::string, std::string> sorted;     // words in order; empty where two names share them
};

// Letters and digits in lower case, without the words that makers put before a product's name:
// "NVIDIA A100-SXM4-80GB" and "A100 SXM4 80GB" are one.
std::string key_of(std::string_view text) {
  constexpr auto kMakers =
      std::to_array<std::string_view>({"nvidia", "tesla", "geforce", "amd", "instinct"});
  const auto part_of_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const std::string lower = to_lower(text);
  std::string key;
  for (std::size_t begin = 0; begin < lower.size(); ++begin) {
    std::size_t end = begin;
    while (end < lower.size() && part_of_word(lower[end])) {
      ++end;
    }
    const std::string_view word = std::string_view(lower).substr(begin, end - begin);
    if (!is_among(word, kMakers)) {
      key += word;
    }
    begin = end;
  }
  return key;
}

// The words of a name in alphabetical order, whatever generation of socket it names and however it
// shortens gigabytes: "H200 SXM 141GB" and "H200-141G-SXM5" are one.
std::string sorted_words(std::string_view text) {
  constexpr auto kSystems = std::to_array<std::string_view>({"dgx", "hgx", "cloud", "nvidia"});
  std::vector<std::string> words;
  std::string word;
  for (const char c : to_lower(text) + " ") {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += c;
      continue;
    }
    if (word.starts_with("sxm")) {
      word = "sxm";
    } else if (word.size() > 1 && word.ends_with('g') &&
               word.find_first_not_of("0123456789") == word.size() - 1) {
      word += 'b';
    }
    if (!word.empty() && !is_among(word, kSystems)) {
      words.push_back(word);
    }
    word.clear();
  }
  std::sort(words.begin(), words.end());
  return words.empty() ? std::string() : fmt::format("{}", fmt::join(words, " "));
}

// Built at the first name that is not a file.
Names read_names(const std::string& folder) {
  Names names;
  const auto add = [&](const std::string& spelling, const std::string& name) {
    names.spellings.emplace(to_lower(spelling), name);
    names.keys.emplace(key_of(spelling), name);
    const auto [other, first] = names.sorted.emplace(sorted_words(spelling), name);
    if (!first && other->second != name) {
      other->second.clear();
    }
  };
  for (const std::string& name : data_names(folder)) {
    add(name, name);
  }
  for (const std::string& name : data_names(folder)) {
    const std::string path = data_path(folder + "/" + name + ".json");
    const Json document = read_json_file(path);
    ObjectReader object = JsonReader(document, path).object();
    if (const auto list = object.optional("aliases")) {
      for (const JsonReader& alias : list->array(256)) {
        add(alias.string(), name);
      }
    }
    object.ignore_rest();
  }
  return names;
}

// Exactly, else as written elsewhere, else without remarks in brackets.
std::string find_name(const std::string& folder, const std::string& text, const Names& (*all)()) {
  if (is_kebab_case(text) && is_data(folder + "/" + text + ".json")) {
    return text;
  }
  const Names& names = all();
  const std::string_view before_remark = std::string_view(text).substr(0, text.find('('));
  for (const std::string_view part : {std::string_view(text), before_remark}) {
    const auto found = names.keys.find(key_of(part));
    if (found != names.keys.end()) {
      return found->second;
    }
  }
  return {};
}

const Names& names_of_gpus() {
  static const Names names = read_names("topologies/gpus");
  return names;
}

const Names& names_of_nodes() {
  static const Names names = read_names("topologies/nodes");
  return names;
}

Json load(const std::string& folder, const std::string& name) {
  return read_json_file(data_path(folder + "/" + name + ".json"));
}

[[noreturn]] void unknown(std::string_view kind, const std::string& name, const std::string& where,
                          const Names& all, const std::vector<std::string>& names) {
  std::vector<std::string> candidates;
  for (const auto& [spelling, target] : all.spellings) {
    candidates.push_back(spelling);
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

std::string find_gpu_name(const std::string& name) {
  return find_name("topologies/gpus", name, names_of_gpus);
}

std::string find_gpu_in_words(const std::string& text) {
  const std::string exact = find_gpu_name(text);
  const Names& names = names_of_gpus();
  const auto found = names.sorted.find(sorted_words(text.substr(0, text.find('('))));
  return !exact.empty() || found == names.sorted.end() ? exact : found->second;
}

Json gpu_document(const std::string& name, const std::string& where) {
  const std::string found = find_gpu_name(name);
  if (found.empty()) {
    unknown("GPU", name, where, names_of_gpus(), gpu_names());
  }
  return load("topologies/gpus", found);
}

std::string find_node_name(const std::string& name) {
  return find_name("topologies/nodes", name, names_of_nodes);
}

Json node_document(const std::string& name, const std::string& where) {
  const std::string found = find_node_name(name);
  if (found.empty()) {
    unknown("node", name, where, names_of_nodes(), node_names());
  }
  return load("topologies/nodes", found);
}

namespace {

// A node's usual GPU or fabric, in its own place: a cluster that states another one drops it.
void check_usual(const Json& usual, const char* key, const std::string& where) {
  const bool is_gpu = std::string_view(key) == "gpu";
  if (is_gpu && usual.is_string()) {
    (void)gpu_document(usual.as_string(), where + ": /node/gpu");
    return;
  }
  Json node = Json::object();
  node.set(key, usual);
  Json document = Json::object();
  document.set("node", std::move(node));
  ObjectReader cluster = JsonReader(document, where).object();
  ObjectReader members = cluster.required("node").object();
  if (is_gpu) {
    (void)read_gpu(members.required(key));
  } else {
    (void)read_fabric(members.required(key));
  }
  members.finish();
  cluster.finish();
}

}  // namespace

void complete(Json& cluster, const std::string& where) {
  if (!cluster.is_object()) {
    return;
  }
  const Json* stated = cluster.find("node");
  const bool is_own_node = stated != nullptr && stated->is_object();
  inline_name(cluster, "node", where, node_document);
  if (Json* node = cluster.find("node"); node != nullptr && node->is_object()) {
    for (const char* key : {"gpu", "fabric"}) {
      const Json* usual = node->find(key);
      if (usual == nullptr) {
        continue;
      }
      if (is_own_node && !usual->is_null()) {
        check_usual(*usual, key, where);
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

std::string_view overridden_path(std::string_view override_text) {
  return trim(override_text.substr(0, override_text.find('=')));
}

}  // namespace orrery::topologies
