// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/network_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

constexpr std::string_view kDigits = "0123456789";

// "1", "two"; 0 for other words.
int number_of(std::string_view word) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"one", "two", "three", "four", "five", "six", "seven", "eight"});
  const auto* const named = std::find(kWords.begin(), kWords.end(), word);
  if (named != kWords.end()) {
    return static_cast<int>(named - kWords.begin()) + 1;
  }
  const bool digits =
      !word.empty() && word.size() < 3 && word.find_first_not_of(kDigits) == word.npos;
  return digits ? std::stoi(std::string(word)) : 0;
}

// Words of a clause without signs, "per" for "/" between words: "4 NICs/node".
std::vector<std::string> words_of_clause(std::string_view clause) {
  std::vector<std::string> words(1);
  for (std::size_t at = 0; at < clause.size(); ++at) {
    const bool slash = clause[at] == '/' && clause.substr(at + 1, 1) != "s";
    if (clause[at] == ' ' || slash) {
      words.emplace_back();
    } else {
      words.back() += clause[at];
    }
    if (slash) {
      words.back() = "per";
      words.emplace_back();
    }
  }
  std::erase(words, "");
  return words;
}

bool is_adapter(std::string_view word) {
  constexpr auto kWords =
      std::to_array<std::string_view>({"nic", "nics", "hca", "hcas", "adapter", "adapters"});
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

bool is_gpu(std::string_view word) { return word == "gpu" || word == "gpus"; }

bool is_rate(std::string_view word) {
  constexpr auto kUnits = std::to_array<std::string_view>(
      {"gb/s", "gbps", "gbit", "gbit/s", "tb/s", "tbps", "gbe", "gb", "g"});
  std::size_t unit = std::min(word.size(), word.find_first_not_of("0123456789."));
  if (unit > 0 && word.substr(unit).starts_with('x')) {  // "8x200Gb"
    unit = std::min(word.size(), word.find_first_not_of("0123456789.", unit + 1));
  }
  const std::string_view behind = word.substr(unit);
  return std::find(kUnits.begin(), kUnits.end(), behind) != kUnits.end();
}

bool has_rate(std::string_view clause) {
  const std::vector<std::string> words = words_of_clause(clause);
  for (std::size_t at = 0; at < words.size(); ++at) {
    const bool counted = is_digit(words[at].front()) || (at > 0 && is_digit(words[at - 1].back()));
    if (counted && is_rate(words[at])) {
      return true;
    }
  }
  return false;
}

bool is_fabric(std::string_view word) {
  constexpr auto kKinds = std::to_array<std::string_view>(
      {"ethernet", "infiniband", "ib", "roce", "rocev2", "efa", "tcp", "nic", "nics",
       "interconnect", "interconnected", "slingshot", "hdr", "ndr", "edr", "rdma"});
  return std::find(kKinds.begin(), kKinds.end(), word) != kKinds.end();
}

bool joins_rate(std::string_view word) {
  constexpr auto kJoints =
      std::to_array<std::string_view>({"at", "of", "with", "x", "hdr", "ndr", "edr"});
  return std::find(kJoints.begin(), kJoints.end(), word) != kJoints.end();
}

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789.") == word.npos;
}

// Whether a word is a rate per second, or its unit behind a number, or "100G": what "500 GB" is
// not.
bool is_pace(const std::vector<std::string>& words, std::size_t at) {
  const std::string& word = words[at];
  const std::string_view unit =
      std::string_view(word).substr(std::min(word.size(), word.find_first_not_of("0123456789.x")));
  const bool attached = is_digit(word.front()) && is_rate(word);
  const bool behind = at > 0 && is_number(words[at - 1]) && is_rate(word) && unit == word;
  return attached ? true : behind && unit != "gb" && unit != "g";
}

// Clauses end at commas, semicolons and brackets.
std::vector<std::string> clauses_of_network(std::string_view text) {
  std::string plain(text);
  std::replace_if(
      plain.begin(), plain.end(),
      [](char c) { return std::string_view(",()").find(c) != std::string_view::npos; }, ';');
  std::vector<std::string> clauses;
  for (const std::string_view clause : split(plain, ';')) {
    clauses.emplace_back(trim(clause));
  }
  std::erase(clauses, "");
  return clauses;
}

// "4 nics per node" and nothing else: 4; else 0.
int adapters_of_node(std::string_view clause) {
  const std::vector<std::string> words = words_of_clause(clause);
  const bool node = words.size() == 4 && words[2] == "per" && words[3] == "node";
  return node && is_adapter(words[1]) ? number_of(words[0]) : 0;
}

// "2 gpus per nic", "two gpus share one nic"; 0 where the clause says no such thing.
int gpus_of_adapter(std::string_view clause) {
  const std::vector<std::string> words = words_of_clause(clause);
  for (std::size_t at = 1; at + 2 < words.size(); ++at) {
    const bool shares = words[at + 1] == "per" || words[at + 1].starts_with("shar");
    if (is_gpu(words[at]) && shares && is_adapter(words.back())) {
      return number_of(words[at - 1]);
    }
  }
  return 0;
}

// The number and its unit, as they are written: "GB/s" are no bits.
std::string rate_in(std::string_view clause) {
  const std::vector<std::string> words = words_of_clause(clause);
  for (std::size_t at = 0; at < words.size(); ++at) {
    const bool rate = is_rate(to_lower(words[at]));
    if (rate && is_digit(words[at].front())) {
      return words[at];
    }
    if (at > 0 && rate && is_digit(words[at - 1].back())) {
      return fmt::format("{} {}", words[at - 1], words[at]);
    }
  }
  return "";
}

// "Slingshot-10" has adapters of 100 Gb/s; the name without a release is that of the next one.
std::string with_whole_names(std::string_view cell) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"slingshot-10", "slingshot 10", "slingshot10"});
  std::string text(cell);
  const std::string lower = to_lower(cell);
  for (const std::string_view name : kNames) {
    const std::size_t at = find_word(lower, name);
    if (at != lower.npos && !has_rate(lower)) {
      return text.replace(at, name.size(), "Slingshot 100 Gb/s");
    }
  }
  return text;
}

}  // namespace

std::string plain_network(std::string_view cell) {
  constexpr auto kSums = std::to_array<std::string_view>({"total", "aggregate", "each", "per gpu"});
  const std::vector<std::string> clauses = clauses_of_network(cell);
  const std::string lower = to_lower(cell);
  if (says_any(lower, kSums)) {
    return with_whole_names(cell);
  }
  for (const std::string& clause : clauses) {
    const auto other = std::find_if(clauses.begin(), clauses.end(), [&](const std::string& one) {
      return &one != &clause && has_rate(to_lower(one));
    });
    if (const int nics = adapters_of_node(to_lower(clause)); nics > 0 && other != clauses.end()) {
      const bool said = mentions(*other, "node") || mentions(*other, "nic");
      return said ? with_whole_names(cell) : fmt::format("{}x {}", nics, *other);
    }
    const int gpus = gpus_of_adapter(to_lower(clause));
    const bool within = has_rate(to_lower(clause));
    if (gpus > 0 && (within || other != clauses.end())) {
      return fmt::format("{} per {} GPUs", within ? rate_in(clause) : rate_in(*other), gpus);
    }
  }
  return with_whole_names(cell);
}

bool states_network(std::string_view clause) {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"storage",    "nvme",       "nfs",        "lustre",     "nvlink",     "pcie",
       "memory",     "hbm",        "throughput", "filesystem", "measured",   "busbw",
       "nccl tests", "login",      "management", "mgmt",       "data",       "dataset",
       "datasets",   "loader",     "loading",    "loaded",     "traffic",    "use",
       "used",       "usage",      "uses",       "peak",       "average",    "avg",
       "step",       "parameters", "params",     "model",      "checkpoint", "checkpoints",
       "head node",  "frontend"});
  const std::vector<std::string> words = words_of_clause(clause);
  const auto is_rate_at = [&](std::size_t at) { return at < words.size() && is_pace(words, at); };
  if (has_word(clause, kOthers)) {
    return false;
  }
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (!is_fabric(words[at])) {
      continue;
    }
    // "100 Gb/s Ethernet", "Ethernet 100 Gb/s", "Ethernet at 100G".
    const std::size_t next = at + 1 < words.size() && joins_rate(words[at + 1]) ? at + 2 : at + 1;
    const bool split = next < words.size() && is_number(words[next]) && is_rate_at(next + 1);
    if ((at > 0 && is_rate_at(at - 1)) || is_rate_at(next) || split) {
      return true;
    }
  }
  return false;
}

}  // namespace orrery::studies
