// SPDX-License-Identifier: Apache-2.0
#include "topologies/network_remarks.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "topologies/link_words.hpp"
#include "topologies/network_clauses.hpp"

namespace orrery::topologies {
namespace {

constexpr std::string_view kNumber = "0123456789.";

// What remarks speak of that has rates, too, or that a network only carries.
constexpr auto kOtherThings = std::to_array<std::string_view>(
    {"storage",    "nvme",       "nfs",        "lustre",     "nvlink",     "pcie",
     "memory",     "hbm",        "throughput", "filesystem", "measured",   "busbw",
     "nccl tests", "login",      "management", "mgmt",       "data",       "dataset",
     "datasets",   "loader",     "loading",    "loaded",     "traffic",    "use",
     "used",       "usage",      "uses",       "peak",       "average",    "avg",
     "step",       "parameters", "params",     "model",      "checkpoint", "checkpoints",
     "head node",  "frontend"});

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of(kNumber) == word.npos;
}

bool is_network(std::string_view word) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"tcp", "nic", "nics", "interconnect", "interconnected", "slingshot"});
  return is_link_word(word) || is_among(word, kNames);
}

bool joins_rate(std::string_view word) {
  constexpr auto kJoints =
      std::to_array<std::string_view>({"at", "of", "with", "x", "hdr", "ndr", "edr"});
  return is_among(word, kJoints);
}

// The unit that ends "100gb" or "8x200gb"; all of a word that begins with no number.
std::string_view unit_of(std::string_view word) {
  std::size_t unit = std::min(word.size(), word.find_first_not_of(kNumber));
  if (unit > 0 && word.substr(unit).starts_with('x')) {
    unit = std::min(word.size(), word.find_first_not_of(kNumber, unit + 1));
  }
  return word.substr(unit);
}

// Whether a word is a rate ("100g"), or the unit of one behind a number. "500 GB" is none.
bool is_rate(const std::vector<std::string>& words, std::size_t at) {
  constexpr auto kUnits = std::to_array<std::string_view>(
      {"gb/s", "gbps", "gbit", "gbit/s", "tb/s", "tbps", "gbe", "gb", "g"});
  if (at >= words.size()) {
    return false;
  }
  const std::string_view unit = unit_of(words[at]);
  if (!is_among(unit, kUnits)) {
    return false;
  }
  const bool apart = at > 0 && is_number(words[at - 1]) && unit == words[at];
  return is_digit(words[at].front()) || (apart && unit != "gb" && unit != "g");
}

}  // namespace

bool states_network(std::string_view clause) {
  if (std::any_of(kOtherThings.begin(), kOtherThings.end(),
                  [&](std::string_view thing) { return holds_word(clause, thing); })) {
    return false;
  }
  const std::vector<std::string> words = words_of_clause(clause);
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (!is_network(words[at])) {
      continue;
    }
    // "100 Gb/s Ethernet", "Ethernet 100 Gb/s", "Ethernet at 100G".
    const std::size_t next = at + 1 < words.size() && joins_rate(words[at + 1]) ? at + 2 : at + 1;
    const bool apart = next < words.size() && is_number(words[next]) && is_rate(words, next + 1);
    if ((at > 0 && is_rate(words, at - 1)) || is_rate(words, next) || apart) {
      return true;
    }
  }
  return false;
}

}  // namespace orrery::topologies
