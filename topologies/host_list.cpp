// SPDX-License-Identifier: Apache-2.0
#include "topologies/host_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery::topologies {
namespace {

constexpr std::size_t kMaxDigits = 18;
constexpr std::size_t kMaxBrackets = 8;

struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::size_t width = 0;  // digits of the first number, so that zeros are kept
};

// Text, then a number out of the ranges (none at the end of a name).
struct Piece {
  std::string text;
  std::vector<Range> ranges;
};

[[noreturn]] void fail(std::string_view text, std::string_view where, std::string_view message) {
  bad_input(where, fmt::format("host list \"{}\": {}", printable(text), message),
            "for example node[001-128,200],login1");
}

std::int64_t parse_digits(std::string_view digits, std::string_view text, std::string_view where) {
  std::int64_t value = -1;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (digits.size() > kMaxDigits || error != std::errc() || stop != end || value < 0) {
    fail(text, where, fmt::format("\"{}\" is not a number", printable(digits, 40)));
  }
  return value;
}

std::vector<Range> parse_ranges(std::string_view inside, std::string_view text,
                                std::string_view where) {
  std::vector<Range> ranges;
  for (const std::string_view part : split(inside, ',')) {
    const std::size_t dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    Range range;
    range.first = parse_digits(first, text, where);
    range.width = first.size();
    range.last = dash == std::string_view::npos ? range.first
                                                : parse_digits(part.substr(dash + 1), text, where);
    if (range.last < range.first) {
      fail(text, where, fmt::format("the range \"{}\" runs backwards", printable(part, 40)));
    }
    ranges.push_back(range);
  }
  return ranges;
}

std::vector<Piece> parse_name(std::string_view name, std::string_view text,
                              std::string_view where) {
  std::vector<Piece> pieces;
  while (true) {
    const std::size_t open = name.find('[');
    const std::string_view literal = name.substr(0, open);
    if (literal.find(']') != std::string_view::npos) {
      fail(text, where, "\"]\" without \"[\"");
    }
    pieces.push_back({std::string(literal), {}});
    if (open == std::string_view::npos) {
      return pieces;
    }
    const std::size_t close = name.find(']', open);
    if (close == std::string_view::npos) {
      fail(text, where, "\"[\" without \"]\"");
    }
    if (pieces.size() > kMaxBrackets) {
      fail(text, where, fmt::format("more than {} brackets in a name", kMaxBrackets));
    }
    pieces.back().ranges = parse_ranges(name.substr(open + 1, close - open - 1), text, where);
    name.remove_prefix(close + 1);
  }
}

// Commas outside brackets separate names.
std::vector<std::vector<Piece>> parse(std::string_view text, std::string_view where) {
  std::vector<std::vector<Piece>> names;
  std::size_t start = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != ',') {
      inside = text[i] == '[' || (inside && text[i] != ']');
      continue;
    }
    if (i < text.size() && inside) {
      continue;
    }
    const std::string_view name = trim(text.substr(start, i - start));
    if (name.empty()) {
      fail(text, where, "an empty name");
    }
    names.push_back(parse_name(name, text, where));
    start = i + 1;
  }
  return names;
}

std::int64_t count(const std::vector<Piece>& pieces) {
  std::int64_t names = 1;
  for (const Piece& piece : pieces) {
    std::int64_t numbers = piece.ranges.empty() ? 1 : 0;
    for (const Range& range : piece.ranges) {
      numbers = std::min(numbers + (range.last - range.first) + 1, limits::kMaxHostListNames + 1);
    }
    names = std::min(names * numbers, limits::kMaxHostListNames + 1);
  }
  return names;
}

void expand(const std::vector<Piece>& pieces, std::size_t at, const std::string& prefix,
            std::vector<std::string>& names) {
  if (at == pieces.size()) {
    names.push_back(prefix);
    return;
  }
  const std::string text = prefix + pieces[at].text;
  if (pieces[at].ranges.empty()) {
    expand(pieces, at + 1, text, names);
    return;
  }
  for (const Range& range : pieces[at].ranges) {
    for (std::int64_t number = range.first; number <= range.last; ++number) {
      expand(pieces, at + 1, fmt::format("{}{:0{}}", text, number, range.width), names);
    }
  }
}

std::int64_t count_all(const std::vector<std::vector<Piece>>& names, std::string_view text,
                       std::string_view where) {
  std::int64_t total = 0;
  for (const std::vector<Piece>& pieces : names) {
    total += count(pieces);
    if (total > limits::kMaxHostListNames) {
      fail(text, where, fmt::format("more than {} names", limits::kMaxHostListNames));
    }
  }
  return total;
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view text, std::string_view where) {
  const std::vector<std::vector<Piece>> parsed = parse(text, where);
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(count_all(parsed, text, where)));
  for (const std::vector<Piece>& pieces : parsed) {
    expand(pieces, 0, "", names);
  }
  return names;
}

}  // namespace orrery::topologies
