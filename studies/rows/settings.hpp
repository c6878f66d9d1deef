// SPDX-License-Identifier: Apache-2.0
// What remarks set, in the notations of scripts, files and prose: "key = value", "key: value",
// "--key value", "--no-key", "key of value", "key (off)". Any case; '_' and '-' are blanks. Linear
// in the length of the text.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace orrery::studies {

using SettingNames = std::span<const std::string_view>;

// A text in lower case with single blanks for '_' and for hyphens, but for the sign of a number.
// Names of settings are in this form.
std::string with_blanks(std::string_view text);

// Without what its clauses deny (denials.hpp): for phrases in any notation.
std::string asserted_with_blanks(std::string_view text);

// "true", "off", "0", "never", ...; no value for other words.
std::optional<bool> truth_of(std::string_view word);

// The number that a text sets under one of the names, the first that it holds; no value where it
// names none, no number or denies it ("no capacity factor 2.0"). A number of one of the nouns (by
// their beginnings) is none: "HSDP (2 replicas)" does not size its groups.
std::optional<double> number_set(std::string_view text, SettingNames names,
                                 SettingNames nouns = {});

// Whether a text switches on what it names: "key=True", "key", "key: off", "no key"; no value where
// it names none.
std::optional<bool> switch_set(std::string_view text, SettingNames names);

}  // namespace orrery::studies
