// SPDX-License-Identifier: Apache-2.0
#include "base/words.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace orrery {

bool is_among(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::size_t find_word(std::string_view text, std::string_view word, std::size_t from) {
  for (std::size_t at = text.find(word, from); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_letter_or_digit(text[at - 1])) &&
        (end == text.size() || !is_letter_or_digit(text[end]))) {
      return at;
    }
  }
  return text.npos;
}

bool has_word(std::string_view text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [text](std::string_view word) { return find_word(text, word) != text.npos; });
}

bool says_any(std::string_view text, std::span<const std::string_view> phrases) {
  return std::any_of(phrases.begin(), phrases.end(),
                     [text](std::string_view phrase) { return text.find(phrase) != text.npos; });
}

bool mentions(std::string_view text, std::string_view phrase) {
  return to_lower(text).find(to_lower(phrase)) != std::string::npos;
}

std::string with_signs_as(std::string_view text, std::string_view signs, char instead) {
  std::string plain(text);
  std::replace_if(
      plain.begin(), plain.end(), [signs](char c) { return signs.find(c) != signs.npos; }, instead);
  return plain;
}

}  // namespace orrery
