// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cut_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::calibrate {
namespace {

struct Bracket {
  char open = '{';
  std::string_view name;  // of the member that it is the value of; "" inside a list
};

// Where an object in the list ends, and the brackets that close what is open there.
struct MemberEnd {
  std::size_t end = 0;
  std::string closing;
};

// The first string at or behind `at`, a quote; at its closing quote afterwards.
std::string_view quoted_at(std::string_view text, std::size_t& at) {
  const std::size_t begin = at + 1;
  for (at = begin; at < text.size() && text[at] != '"'; ++at) {
    at += text[at] == '\\' ? 1 : 0;
  }
  return text.substr(begin, std::min(at, text.size()) - begin);
}

std::string closing_of(const std::vector<Bracket>& open) {
  std::string closing;
  for (auto bracket = open.rbegin(); bracket != open.rend(); ++bracket) {
    closing += bracket->open == '{' ? '}' : ']';
  }
  return closing;
}

std::vector<MemberEnd> member_ends(std::string_view text, std::string_view list) {
  std::vector<MemberEnd> ends;
  std::vector<Bracket> open;
  std::string_view name;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      name = quoted_at(text, at);
    } else if (c == '{' || c == '[') {
      const bool in_list = open.empty() || open.back().open == '[';
      open.push_back({c, in_list ? std::string_view() : name});
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
      if (open.empty()) {
        break;  // what follows is another document
      }
      if (c == '}' && open.back().open == '[' && open.back().name == list) {
        ends.push_back({at + 1, closing_of(open)});
      }
    }
  }
  return ends;
}

std::optional<Json> parsed_up_to(std::string_view text, const MemberEnd& member,
                                 const std::string& path) {
  try {
    return parse_json(std::string(text.substr(0, member.end)) + member.closing, path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

CutJson parse_up_to_damage(const std::string& text, const std::string& path,
                           std::string_view list) {
  try {
    return {parse_json(text, path), ""};
  } catch (const Error& error) {
    const std::vector<MemberEnd> ends = member_ends(text, list);
    // What follows damage may look like members, too: the last one before it is found by halving.
    std::optional<Json> document;
    std::size_t whole = 0;
    std::size_t beyond = ends.size() + 1;
    for (std::size_t trial = ends.size(); trial > whole; trial = whole + (beyond - whole) / 2) {
      if (std::optional<Json> part = parsed_up_to(text, ends[trial - 1], path)) {
        document = std::move(part);
        whole = trial;
      } else {
        beyond = trial;
      }
    }
    if (!document) {
      throw;
    }
    const std::string one = fmt::format("whole {}", list.substr(0, list.size() - 1));
    return {std::move(*document), fmt::format("{}; {} before it", error.what(),
                                              counted(static_cast<std::int64_t>(whole), one))};
  }
}

}  // namespace orrery::calibrate
