// SPDX-License-Identifier: Apache-2.0
// Words and phrases in prose that people wrote: cells of tables, remarks, names. Linear in the
// length of the text for each word that is asked for.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace orrery {

bool is_among(std::string_view word, std::span<const std::string_view> words);

// Where a text in lower case holds a word, not as part of another, from a place on; npos: nowhere.
std::size_t find_word(std::string_view text, std::string_view word, std::size_t from = 0);
// Whether it holds one of the words.
bool has_word(std::string_view text, std::span<const std::string_view> words);

// Whether a text holds one of the phrases, also within a word.
bool says_any(std::string_view text, std::span<const std::string_view> phrases);
// Whether it holds a phrase, of any case.
bool mentions(std::string_view text, std::string_view phrase);

// The text with one character in the place of each of the signs.
std::string with_signs_as(std::string_view text, std::string_view signs, char instead);

}  // namespace orrery
