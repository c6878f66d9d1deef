// SPDX-License-Identifier: Apache-2.0
// The files that a document is made of beside itself.
#pragma once

#include <set>
#include <string>

#include "base/json.hpp"

namespace orrery {

// Every text of a document that is the path of a file, and what those that are documents name
// themselves. O(bytes of all of them).
std::set<std::string> named_files(const Json& document);

}  // namespace orrery
