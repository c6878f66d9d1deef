// SPDX-License-Identifier: Apache-2.0
// Which build of the program this is. Two builds with the same text plan alike; with another one
// the same inputs may cost something else, so that nothing that one has kept is of use to the
// other.
#pragma once

#include <string>

namespace orrery::search {

// "0.1.0 (g++ 12.2.0) build 3f9ac2..." of all sources that a search is made of
// (cmake/source_hash.cmake).
std::string build_text();

}  // namespace orrery::search
