// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace orrery {
namespace {

constexpr std::size_t kMaxComparedBytes = 128;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}

// Characters to insert, delete, replace or swap with the next one (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  std::vector<std::size_t> next(b.size() + 1);
  for (std::size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      next[j + 1] = std::min({next[j] + 1, row[j + 1] + 1, row[j] + (a[i] == b[j] ? 0 : 1)});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
      }
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t length = 0;  // 0: not valid UTF-8
};

CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) {
    return {};
  }
  std::uint32_t value = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) {
      return {};
    }
    value = (value << 6U) | (byte(i) & 0x3FU);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) {
    return {};
  }
  return {value, length};
}

// C0, DEL and C1 controls, line separators, and the marks that reorder text on a terminal.
bool is_control(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x2028 || c == 0x2029 || c == 0x200E ||
         c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string escaped(std::uint32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return c < 0x80 ? fmt::format("\\x{:02x}", c) : fmt::format("\\u{:04x}", c);
  }
}

// The candidates that begin with the name or, when none does and it is no mere fragment, hold it.
std::vector<std::string> names_with(std::string_view name,
                                    std::span<const std::string> candidates) {
  constexpr std::size_t kFragment = 2;
  std::vector<std::string> beginning;
  std::vector<std::string> holding;
  const std::string lower_name = to_lower(name);
  for (const std::string& candidate : candidates) {
    const std::size_t at =
        lower_name.empty() ? candidate.npos : to_lower(candidate).find(lower_name);
    if (at == 0) {
      beginning.push_back(candidate);
    } else if (at != candidate.npos && name.size() > kFragment) {
      holding.push_back(candidate);
    }
  }
  return beginning.empty() ? holding : beginning;
}

std::string listed(std::span<const std::string> names, std::size_t most) {
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) {
    list += (i == 0 ? "" : ", ") + printable(names[i], 60);
  }
  return list + (names.size() > most ? ", ..." : "");
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  if (name.empty() || name.size() > kMaxComparedBytes) {
    return "";
  }
  const std::string lower_name = to_lower(name);
  std::size_t best_distance = (name.size() + 2) / 3 + 1;
  const std::string* best = nullptr;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 2 * kMaxComparedBytes) {
      continue;
    }
    const std::size_t distance = edit_distance(lower_name, to_lower(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best == nullptr ? "" : *best;
}

std::string misspelt_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string nearest = nearest_name(name, candidates);
  const std::size_t slips = nearest.size() < 4 ? 0 : nearest.size() == 4 ? 1 : 2;
  const bool differs = nearest != name;
  return differs && edit_distance(to_lower(name), to_lower(nearest)) <= slips ? nearest : "";
}

std::string nearest_hint(std::string_view name, std::span<const std::string> candidates) {
  constexpr std::size_t kMaxListed = 12;
  const std::string nearest = nearest_name(name, candidates);
  if (!nearest.empty()) {
    return fmt::format("did you mean \"{}\"?", printable(nearest));
  }
  const std::vector<std::string> containing = names_with(name, candidates);
  if (containing.size() == 1) {
    return fmt::format("did you mean \"{}\"?", printable(containing.front()));
  }
  if (!containing.empty() && containing.size() <= kMaxListed) {
    return fmt::format("did you mean one of {}?", listed(containing, kMaxListed));
  }
  return candidates.empty() ? "" : "known: " + listed(candidates, kMaxListed);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

std::string counted(std::int64_t count, std::string_view noun, std::string_view plural) {
  if (count == 1) {
    return fmt::format("1 {}", noun);
  }
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return lower;
}

std::string letters_and_digits(std::string_view text) {
  std::string key = to_lower(text);
  std::erase_if(key, [](char c) { return !is_letter(c) && !is_digit(c); });
  return key;
}

bool is_kebab_case(std::string_view name) {
  char previous = '-';
  for (const char c : name) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!is_word && (c != '-' || previous == '-')) {
      return false;
    }
    previous = c;
  }
  return previous != '-';
}

std::size_t utf8_length(std::string_view text) { return decode_utf8(text).length; }

std::string printable(std::string_view text, int max_characters) {
  constexpr std::string_view kCut = "...";
  const auto limit = static_cast<std::size_t>(std::max(max_characters, 0));
  std::string result;
  std::size_t cut_at = 0;  // the longest prefix of whole characters that leaves room for kCut
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    const std::size_t length = std::max<std::size_t>(point.length, 1);
    if (point.length == 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (is_control(point.value)) {
      result += escaped(point.value);
    } else {
      result += text.substr(0, length);
    }
    if (result.size() > limit) {
      result.resize(cut_at);
      return result + std::string(kCut.substr(0, limit - cut_at));
    }
    if (result.size() + kCut.size() <= limit) {
      cut_at = result.size();
    }
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace orrery
