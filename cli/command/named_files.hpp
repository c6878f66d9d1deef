// SPDX-License-Identifier: Apache-2.0
// The files that a question is made of.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"

namespace orrery::cli {

// Those that a text of the document names, as a whole or in a part of it ("schedule=FILE",
// "FILE,FILE", "NODE@FILE", "NODE:8+FILE"), and those that JSON documents among them name
// themselves. Sorted; O(bytes of all of them).
std::vector<std::string> named_files(const Json& document);

}  // namespace orrery::cli
