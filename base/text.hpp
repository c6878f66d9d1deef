// SPDX-License-Identifier: Apache-2.0
// Small text helpers: nearest valid name, splitting, escaping of user text for terminals.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// The candidate with the smallest edit distance, or "" when more than a third would have to change.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);
// The candidate that a name is surely a misspelling of, or "": at most two characters off, one of a
// candidate of four, none of a shorter one ("sp" is not "cp"). For readers that pass over other
// names.
std::string misspelt_name(std::string_view name, std::span<const std::string> candidates);
// 'did you mean "x"?', 'did you mean one of a, b?' (parts of names) or 'known: a, b, c, ...' (12).
std::string nearest_hint(std::string_view name, std::span<const std::string> candidates);
std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// "1 plan", "2 plans"; a noun whose plural is no s more says it.
std::string counted(std::int64_t count, std::string_view noun, std::string_view plural = {});
// Of ASCII.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }
std::string to_lower(std::string_view text);
// In lower case: "All-Reduce" is "allreduce", "Megatron Core" and "Megatron-Core" are one.
std::string letters_and_digits(std::string_view text);
bool is_kebab_case(std::string_view name);
// The bytes of the first character of a text that is not empty; 0 when it is not valid UTF-8.
std::size_t utf8_length(std::string_view text);
// Escapes control characters and invalid UTF-8, and cuts to max_characters (counted in bytes), so
// that hostile names are harmless.
std::string printable(std::string_view text, int max_characters = 200);

}  // namespace orrery
