// SPDX-License-Identifier: Apache-2.0
// Restrictions of a space as members of a document, in the words of the command line:
//
//   {"schema": "orrery-restrictions", "version": 1,
//    "fix": {"tp": 8, "recompute": "full"}, "forbid": {"zero": [2, 3]},
//    "allow": ["offload"], "schedule": ["1f1b", "mine.json"]}
//
// Each is a text ("tp=8,pp=4"), a list of texts, or, of fix and forbid, an object of values by
// field; of forbid also a list of values.
#pragma once

#include <string>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "search/space/constraints.hpp"

namespace orrery::search {

// Whether errors about two restrictions name the options or the places in the document.
enum class NamedBy { Option, Place };

// A number, a text, true or false as the command line has it.
std::string scalar_text(const JsonReader& value);

// Reads these members of an object; whether they restrict anything. `words` says what an error of
// an option is in a document; errors say where it stands.
bool read_restrictions(ObjectReader& object, Constraints& constraints, NamedBy named_by,
                       std::string (*words)(const Error&));

// A file of nothing else (--restrict). Errors: unknown members, or none.
void read_restrictions(const std::string& path, Constraints& constraints);

}  // namespace orrery::search
