// SPDX-License-Identifier: Apache-2.0
// From JSON documents to the structs of cluster.hpp, shared by the loader and the data tests.
// A cluster document may name its GPU and node or hold them; `complete` replaces names by their
// files, takes the usual GPU and fabric from the node, and writes every absent optional member as
// null, so that --set can reach it and a stored document needs no other file.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "topologies/cluster.hpp"

namespace orrery::topologies {

Gpu read_gpu(const JsonReader& value);
Node read_node(const JsonReader& value);
Fabric read_fabric(const JsonReader& value);
// Where the numbers come from: member or topic to text, and a note. Read for its form only.
void read_sources(ObjectReader& object);

// Error naming all of these members that an object lacks, where it lacks several.
void require_keys(const ObjectReader& object, std::span<const std::string_view> keys);
// These members, all of them; the same error.
template <std::size_t N>
std::array<JsonReader, N> required_members(ObjectReader& object,
                                           const std::string_view (&keys)[N]) {
  require_keys(object, keys);
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<JsonReader, N>{object.required(keys[I])...};
  }
  (std::make_index_sequence<N>());
}

// The documents of topologies/gpus and nodes by name or alias (compared by letters and digits, any
// case, without makers' names and remarks in brackets); Error with the nearest names. `where` is
// the option or document that names it.
Json gpu_document(const std::string& name, const std::string& where);
Json node_document(const std::string& name, const std::string& where);
// The name as in the folder, or "" when it is neither name nor alias.
std::string find_gpu_name(const std::string& name);
// The same, or the only GPU that the words name in another order or shortened.
std::string find_gpu_in_words(const std::string& text);
std::string find_node_name(const std::string& name);

void complete(Json& cluster, const std::string& where);

// "gpu.power_watts" of "gpu.power_watts = 300".
std::string_view overridden_path(std::string_view override_text);

// What --set does to a cluster's document, in order: NCCL's rings follow the links, NICs the GPUs,
// unless they are set themselves. Applying the same list twice changes nothing.
void apply_overrides(Json& document, const std::vector<std::string>& overrides,
                     const std::string& where);

}  // namespace orrery::topologies
