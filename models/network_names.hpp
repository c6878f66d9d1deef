// SPDX-License-Identifier: Apache-2.0
// The networks of models/zoo and the names that they go by: their own, and the `aliases` of their
// documents.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.hpp"

namespace orrery::models {

inline constexpr std::string_view kZooFolder = "models/zoo";

// Checked where any document is read; they mean something in the zoo's alone.
std::vector<JsonReader> read_aliases(ObjectReader& document);

// Every name and alias, as its file spells it, with the network's own name; Error where two
// networks go by one.
const std::map<std::string, std::string>& network_names();

// The network that a text names in any case and with any separators, but with all those between
// digits ("Llama 3 70B" is llama3-70b, "gpt3-13b" is not gpt3-1.3b); "" where none is called so.
std::string find_network(std::string_view text);

}  // namespace orrery::models
