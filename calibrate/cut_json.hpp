// SPDX-License-Identifier: Apache-2.0
// JSON documents that were cut off or damaged while they were written or copied: what they hold are
// lists of samples, so the whole members before the damage can be used. One parse of the text, and
// where it fails one for each halving of its members.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace orrery::calibrate {

struct CutJson {
  Json document;
  std::string fault;  // what is wrong and how much stands before it; "": the document is whole
};

// Of text that ceases to be JSON, what stands before that place: up to the last whole object in a
// list of this name ("results"). Error where there is none.
CutJson parse_up_to_damage(const std::string& text, const std::string& path, std::string_view list);

}  // namespace orrery::calibrate
