// SPDX-License-Identifier: Apache-2.0
#include "topologies/network_clauses.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"

namespace orrery::topologies {
namespace {

bool is_letter_at(std::string_view text, std::size_t at) {
  return at < text.size() && is_letter(text[at]);
}

bool is_digit_at(std::string_view text, std::size_t at) {
  return at < text.size() && is_digit(text[at]);
}

bool has_digit(std::string_view text) {
  return text.find_first_of("0123456789") != std::string_view::npos;
}

// In lower case, "front-end" as "front end".
std::string plain_words(std::string_view text) {
  std::string words = to_lower(text);
  std::replace(words.begin(), words.end(), '-', ' ');
  return words;
}

template <std::size_t kSize>
bool holds_any(std::string_view text, const std::array<std::string_view, kSize>& words) {
  return std::any_of(words.begin(), words.end(),
                     [text](std::string_view word) { return holds_word(text, word); });
}

constexpr auto kSideWords =
    std::to_array<std::string_view>({"storage", "frontend", "front end", "management", "mgmt",
                                     "in band", "inband", "out of band", "oob"});

// That a network is of training's messages, too.
bool names_main(std::string_view text) {
  constexpr auto kMain =
      std::to_array<std::string_view>({"compute", "backend", "back end", "training"});
  return holds_any(plain_words(text), kMain);
}

// "NVLink 600 GB/s", unless the clause names a network between nodes as well.
bool is_in_node(std::string_view text) {
  constexpr auto kLinks = std::to_array<std::string_view>({"nvlink", "nvswitch", "xgmi"});
  constexpr auto kBetween = std::to_array<std::string_view>(
      {"ib",  "infiniband", "roce", "rocev2", "rdma", "efa",  "ethernet",
       "gbe", "slingshot",  "omni", "fdr",    "edr",  "hdr",  "ndr",
       "xdr", "nic",        "nics", "hca",    "hcas", "rail", "rails"});
  return holds_any(text, kLinks) && !holds_any(text, kBetween);
}

bool is_side(std::string_view text) {
  const std::string words = plain_words(text);
  return (holds_any(words, kSideWords) && !names_main(words)) || is_in_node(words);
}

// "(frontend)", "(for storage)": a bracket that says nothing but what the clause before it is of.
bool is_side_label(std::string_view bracket) {
  constexpr auto kFillers = std::to_array<std::string_view>(
      {"for", "network", "networks", "traffic", "only", "fabric", "plane", "access", "and"});
  std::string words = plain_words(bracket);
  if (!holds_any(words, kSideWords)) {
    return false;
  }
  for (const std::string_view side : kSideWords) {
    const std::size_t at = words.find(side);
    words.erase(std::min(at, words.size()), side.size());
  }
  words = with_signs_as(words, "/,&", ' ');
  const std::vector<std::string_view> rest = split(words, ' ');
  return std::all_of(rest.begin(), rest.end(), [&](std::string_view word) {
    return word.empty() || is_among(word, kFillers);
  });
}

bool begins_clause(std::string_view text) {
  constexpr auto kJoints = std::to_array<std::string_view>(
      {",", ";", "+", "&", "|", " and ", " with ", " plus ", " without ", " excluding ", " / "});
  return std::any_of(kJoints.begin(), kJoints.end(), [text](std::string_view joint) {
    return to_lower(text.substr(0, joint.size())) == joint;
  });
}

// Each with the joint that begins it; brackets belong to the clause that they stand in.
std::vector<std::string_view> clauses_of(std::string_view text) {
  std::vector<std::string_view> clauses;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    depth += text[at] == '(' ? 1 : text[at] == ')' && depth > 0 ? -1 : 0;
    if (depth == 0 && at > begin && begins_clause(text.substr(at))) {
      clauses.push_back(text.substr(begin, at - begin));
      begin = at;
    }
  }
  clauses.push_back(text.substr(begin));
  return clauses;
}

// "8 compute, 2 storage" of a bracket as "8 compute".
std::string main_part(std::string_view bracket) {
  std::string main;
  for (const std::string_view clause : clauses_of(bracket)) {
    main += has_digit(clause) && is_side(clause) ? std::string_view() : clause;
  }
  return main;
}

struct ReadClause {
  std::string text;     // without the brackets' clauses that are of a side network
  std::string outside;  // of any bracket
  bool labelled = false;
};

ReadClause read_clause(std::string_view clause) {
  ReadClause read;
  std::size_t at = 0;
  while (at < clause.size()) {
    const std::size_t open = std::min(clause.find('(', at), clause.size());
    read.outside += clause.substr(at, open - at);
    read.text += clause.substr(at, open - at);
    if (open == clause.size()) {
      break;
    }
    const std::size_t close = std::min(clause.find(')', open), clause.size());
    const std::string_view bracket = clause.substr(open + 1, close - open - 1);
    const std::string main = main_part(bracket);
    read.labelled = read.labelled || is_side_label(bracket);
    if (!main.empty() || bracket.empty()) {
      read.text += '(' + main + (close < clause.size() ? ")" : "");
    }
    at = close + 1;
  }
  return read;
}

}  // namespace

bool holds_word(std::string_view text, std::string_view word) {
  const std::string lower = to_lower(text);
  for (std::size_t at = lower.find(word); at != lower.npos; at = lower.find(word, at + 1)) {
    if ((at == 0 || !is_letter_at(lower, at - 1)) && !is_letter_at(lower, at + word.size())) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> words_of_clause(std::string_view clause) {
  const std::string lower = to_lower(clause);
  std::string plain;
  for (std::size_t at = 0; at < lower.size(); ++at) {
    const bool of_rate = lower.substr(at, 2) == "/s" && !is_letter_at(lower, at + 2);
    const bool hyphen = lower[at] == '-' && plain.ends_with("per");
    plain += lower[at] == '/' && !of_rate ? std::string(" per ")
                                          : std::string(1, hyphen ? ' ' : lower[at]);
  }
  const std::vector<std::string_view> parts = split(plain, ' ');
  std::vector<std::string> words(parts.begin(), parts.end());
  std::erase(words, std::string());
  return words;
}

std::vector<std::string> words_of(std::string_view text) {
  return words_of_clause(with_signs_as(text, ",;:()+", ' '));
}

std::vector<std::string_view> plain_clauses(std::string_view text) {
  std::vector<std::string_view> clauses;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(",;()"), text.size());
    clauses.push_back(trim(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::erase(clauses, std::string_view());
  return clauses;
}

std::string plain_signs(std::string_view text) {
  constexpr std::string_view kTimes = "\xC3\x97";  // in UTF-8
  std::string plain;
  std::size_t digits = 0;  // in a row, up to the end of `plain`
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto digit = [&](std::size_t next) { return is_digit_at(text, next); };
    const bool decimals = at > digits && text[at - digits - 1] == '.';
    const bool thousands = text[at] == ',' && (digits == 1 || digits == 2) && !decimals &&
                           digit(at + 1) && digit(at + 2) && digit(at + 3) && !digit(at + 4);
    if (text.substr(at).starts_with(kTimes)) {
      plain += 'x';
      ++at;
    } else if (!thousands) {
      plain += text[at];
    }
    digits = digit(at) ? digits + 1 : 0;
  }
  return plain;
}

std::string without_side_networks(std::string_view text) {
  const std::vector<std::string_view> clauses = clauses_of(text);
  // "200 Gb/s for storage and compute": a clause of no number is a label of its neighbour.
  const auto is_main_label = [&](std::size_t at) {
    return at < clauses.size() && !has_digit(clauses[at]) && names_main(clauses[at]);
  };
  std::string main;
  for (std::size_t at = 0; at < clauses.size(); ++at) {
    const ReadClause clause = read_clause(clauses[at]);
    const bool side = clause.labelled || is_side(clause.outside);
    if (!side || is_main_label(at + 1) || (at > 0 && is_main_label(at - 1))) {
      main += clause.text;
    }
  }
  return main;
}

}  // namespace orrery::topologies
