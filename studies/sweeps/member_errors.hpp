// SPDX-License-Identifier: Apache-2.0
// Errors about options of the command line, in the words of a sweep's document.
#pragma once

#include <string>

#include "base/error.hpp"

namespace orrery::studies {

// With the members of the document in place of options: "sequence: ..." for "--seq: ...".
std::string member_message(const Error& error);
// The same without the option that the error begins with, where the place in the document is said.
std::string without_option(const Error& error);

}  // namespace orrery::studies
