// SPDX-License-Identifier: Apache-2.0
// The network of models/zoo that a row names: "meta-llama/Llama-3.1-8B" is llama3.1-8b. It
// completes the widths that the row leaves blank, and is the whole network of families whose layers
// the architecture columns cannot state (T5, ViT).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/network.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Nothing where no network has that name, or one whose widths or size are not those that the row
// states. The depth may differ: sources cut networks short to fit a few GPUs.
std::optional<models::NetworkSpec> named_network(const Measurement& row);

// Why the name of a row does not fill its blanks: nobody knows it, or its network has other widths;
// "" where it does or there is none.
std::string why_unnamed(const Measurement& row);

// ' (did you mean "llama2-70b"?)' for a name that nobody knows; "" where none is near.
std::string nearest_network_hint(std::string_view name);

// Fills the architecture cells that are blank; the columns that were.
std::vector<std::string_view> complete_from_name(Measurement& row);

}  // namespace orrery::studies
