// SPDX-License-Identifier: Apache-2.0
#include "topologies/adapter_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "topologies/link_words.hpp"
#include "topologies/network_clauses.hpp"
#include "topologies/words.hpp"

namespace orrery::topologies {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::size_t kLongestUnit = 10;  // "gigabits/s"
constexpr int kMostAdapters = 9999;

// Beside the names of links.
constexpr auto kPlainWords = std::to_array<std::string_view>(
    {"of", "at", "mellanox", "nvidia", "connectx-5", "connectx-6", "connectx-7", "connectx-8",
     "cx-5", "cx-6", "cx-7", "cx-8", "omni-path", "osfp", "qsfp", "qsfp28", "qsfp56", "qsfp112"});
constexpr auto kAdapterWords =
    std::to_array<std::string_view>({"nic", "nics", "hca", "hcas", "adapter", "adapters", "link",
                                     "links", "port", "ports", "rail", "rails"});
constexpr auto kNodeWords =
    std::to_array<std::string_view>({"node", "server", "machine", "host", "instance", "tray"});

template <std::size_t kSize>
bool starts_with_any(const std::array<std::string_view, kSize>& words, std::string_view word) {
  return std::any_of(words.begin(), words.end(),
                     [word](std::string_view one) { return word.starts_with(one); });
}

bool is_plain_word(std::string_view word) {
  return is_link_word(word) || is_among(word, kPlainWords);
}

bool is_count(std::string_view word) {
  constexpr std::size_t kMost = 4;
  return !word.empty() && word.size() <= kMost && word.find_first_not_of(kDigits) == word.npos;
}

int number_of(std::string_view word) {
  int number = 0;
  std::from_chars(word.data(), word.data() + word.size(), number);
  return std::clamp(number, 0, kMostAdapters);
}

// "two", "dual", "quad".
int spelt_number(std::string_view word) {
  constexpr auto kNumbers = std::to_array<std::pair<std::string_view, int>>({{"one", 1},
                                                                             {"single", 1},
                                                                             {"two", 2},
                                                                             {"three", 3},
                                                                             {"dual", 2},
                                                                             {"four", 4},
                                                                             {"quad", 4},
                                                                             {"five", 5},
                                                                             {"six", 6},
                                                                             {"seven", 7},
                                                                             {"eight", 8}});
  const auto* const found = std::find_if(kNumbers.begin(), kNumbers.end(),
                                         [word](const auto& one) { return one.first == word; });
  return found == kNumbers.end() ? 0 : found->second;
}

// What a count before it counts in place of adapters, and words that join other things.
bool is_other_thing(std::string_view word) {
  constexpr auto kThings = std::to_array<std::string_view>(
      {"gpu",   "node",     "server", "machine",  "host",  "switch", "spine",
       "leaf",  "instance", "tray",   "rack",     "pod",   "cpu",    "core",
       "level", "tier",     "nvlink", "nvswitch", "pcie",  "socket", "cable",
       "dgx",   "hgx",      "island", "lane",     "group", "ssd",    "nvme"});
  constexpr auto kJoints =
      std::to_array<std::string_view>({"and", "with", "plus", "&", "/", "per"});
  const bool thing = starts_with_any(kThings, word) && !word.starts_with("gpudirect");
  return thing || is_among(word, kJoints) || !similar_gpu(word).empty();
}

// "4x", "4xHDR", "4-rail", "dual-rail": the count that a word is by itself; 0 for other words.
int count_in(std::string_view word) {
  const std::size_t end = std::min(word.size(), word.find_first_not_of(kDigits));
  const std::string_view tail = word.substr(end);
  if (is_count(word.substr(0, end)) && (tail.starts_with('x') || tail.starts_with('*'))) {
    const std::string_view counted = tail.substr(1);
    const bool size = counted.starts_with("large");  // "24xlarge"
    const bool adapters = counted.empty() || (!size && !is_other_thing(counted) &&
                                              counted.find_first_of(kDigits) != 0);
    return adapters ? number_of(word) : 0;
  }
  const std::size_t hyphen = word.find('-');
  if (hyphen != word.npos && word.substr(hyphen + 1).starts_with("rail")) {
    const std::string_view number = word.substr(0, hyphen);
    return is_count(number) ? number_of(number) : spelt_number(number);
  }
  return 0;
}

// "4-port", "dual-port"; 0 for other words.
int ports_in(std::string_view word) {
  const std::size_t hyphen = word.find("-port");
  return hyphen == word.npos ? 0 : count_in_words(word.substr(0, hyphen));
}

// "Slingshot 11": a number that belongs to the name before it.
bool is_product_line(std::string_view word) {
  constexpr auto kLines = std::to_array<std::string_view>(
      {"slingshot", "connectx", "bluefield", "cx", "bf", "thor", "cassini"});
  return is_among(word, kLines);
}

std::string_view last_word(std::string_view text) {
  const std::size_t blank = text.find_last_of(' ');
  return blank == text.npos ? text : text.substr(blank + 1);
}

std::string_view first_word(std::string_view text) {
  return text.substr(0, text.find_first_of(" ,;()"));
}

// The clause that ends a text, in which a count may stand: "8x IB (" says "8x IB".
std::string_view last_clause(std::string_view text) {
  text = trim(text);
  text.remove_suffix(text.ends_with('(') ? 1 : 0);
  const std::size_t end = text.find_last_of(",;:+()");
  return trim(end == text.npos ? text : text.substr(end + 1));
}

// Goes back word by word; only a count with its sign ("4x") counts what no word here knows.
class BackwardCount {
 public:
  BackwardCount(std::string_view clause, bool before_adapter)
      : clause_(clause), before_adapter_(before_adapter) {}

  AdapterCount read() {
    constexpr int kMostWords = 8;
    for (int words = 0; words < kMostWords && !clause_.empty() && !ends_; ++words) {
      const std::string_view word = last_word(clause_);
      clause_ = trim(clause_.substr(0, clause_.size() - word.size()));
      take(word);
    }
    // Ports that no count of adapters multiplies are counted themselves: "4-port HDR".
    return count_.nics == 0 && counted_ports_ > 0 ? AdapterCount{counted_ports_} : count_;
  }

 private:
  void take(std::string_view word) {
    if (const int counted = count_in(word); counted > 0) {
      finish(counted);
    } else if (word == "x" || word == "*") {
      sign_ = true;
    } else if (is_count(word)) {
      take_number(number_of(word));
    } else if (const int spelt = spelt_number(word); spelt > 0) {
      finish(known_ ? spelt : 0);
    } else if (word == "port" && count_in_words(last_word(clause_)) > 1) {  // "dual port"
      const std::string_view number = last_word(clause_);
      clause_ = trim(clause_.substr(0, clause_.size() - number.size()));
      take_ports(number, count_in_words(number));
    } else if (is_adapter_word(word)) {
      adapters_ = true;
    } else if (!is_plain_word(word)) {
      take_unknown(word);
    }
  }

  void take_number(int number) {
    const bool of_name = !sign_ && is_product_line(last_word(clause_));
    if (!of_name) {
      finish(sign_ || adapters_ || (before_adapter_ && known_) ? number : 0);
    }
  }

  void take_unknown(std::string_view word) {
    if (const int ports = ports_in(word); ports > 0) {
      take_ports(word, ports);
      return;
    }
    ends_ = is_other_thing(word) || kDigits.find(word.front()) != kDigits.npos;
    known_ = known_ && is_product_line(word);
  }

  // "dual-port" may say of each of a node's adapters what it is.
  void take_ports(std::string_view word, int ports) {
    counted_ports_ = kDigits.find(word.front()) != kDigits.npos ? ports : counted_ports_;
    count_.ports = ports;
  }

  void finish(int nics) {
    count_.nics = nics;
    ends_ = true;
  }

  std::string_view clause_;
  bool before_adapter_;
  bool adapters_ = false;  // a word for them was passed
  bool sign_ = false;      // an "x" stands alone
  bool known_ = true;      // every word that was passed is about adapters
  bool ends_ = false;
  int counted_ports_ = 0;
  AdapterCount count_;
};

// Without "per NIC" or "each", which say again that the rate is an adapter's.
std::string_view without_share(std::string_view text) {
  text = trim(text);
  if (first_word(text) == "each") {
    return trim(text.substr(4));
  }
  const std::string_view unit = first_word(text) == "per" ? trim(text.substr(3)) : "";
  const std::string_view word = first_word(unit);
  return is_adapter_word(word) ? trim(unit.substr(word.size())) : text;
}

// "x8", "HDR x8", "InfiniBand (8 NICs)", "11 x8", "NIC x4", "per port, 8 ports": without the words
// before the count.
std::string_view without_plain_words(std::string_view text) {
  text = without_share(text);
  std::string_view word = text.substr(0, text.find_first_of(" (,"));
  while (!word.empty() && (is_plain_word(word) || is_adapter_word(word) || is_count(word))) {
    text = without_share(text.substr(word.size()));
    word = text.substr(0, text.find_first_of(" (,"));
  }
  return text;
}

// Takes the number that begins a text, in digits or letters; 0 when none does.
int take_front_number(std::string_view& text) {
  text = trim(text);
  if (const int spelt = spelt_number(first_word(text)); spelt > 0) {
    text = trim(text.substr(first_word(text).size()));
    return spelt;
  }
  const std::size_t end = std::min(text.size(), text.find_first_not_of(kDigits));
  const int number = is_count(text.substr(0, end)) ? number_of(text) : 0;
  text = trim(text.substr(end));
  return number;
}

}  // namespace

int count_in_words(std::string_view word) {
  return is_count(word) ? number_of(word) : spelt_number(word);
}

bool is_node_word(std::string_view word) { return starts_with_any(kNodeWords, word); }

bool is_adapter_word(std::string_view word) { return is_among(word, kAdapterWords); }

bool is_network_word(std::string_view word) { return is_plain_word(word) || is_adapter_word(word); }

bool is_per_node(std::string_view text) {
  if (text.starts_with('/')) {
    return starts_with_any(kNodeWords, trim(text.substr(1)));
  }
  return first_word(text) == "per" && starts_with_any(kNodeWords, trim(text.substr(3)));
}

// The clauses before a rate count its adapters, too: "4 NICs, 200 Gb/s each".
int adapters_named(std::string_view text) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"nic", "nics", "hca", "hcas", "adapter", "adapters"});
  const std::vector<std::string> words = words_of(text);
  const auto number = [&](std::size_t at) { return count_in_words(words[at]); };
  // "4 RoCE NICs": the number may stand before one or two words for their kind.
  const auto number_before = [&](std::size_t noun) {
    constexpr std::size_t kMostKinds = 2;
    std::size_t at = noun - 1;
    while (at > 0 && noun - at <= kMostKinds && number(at) == 0 && !is_other_thing(words[at]) &&
           words[at].find_first_of("0123456789") == std::string::npos) {
      --at;
    }
    return at;
  };
  for (std::size_t noun = 1; noun < words.size(); ++noun) {
    const std::size_t at = number_before(noun) + 1;
    const bool of_gpu = noun + 2 < words.size() && words[noun + 1] == "per" &&
                        !starts_with_any(kNodeWords, words[noun + 2]);
    // "two GPUs share one NIC", "Slingshot 10 NICs", "PCIe gen 4, RoCE NICs".
    const bool apart =
        at < noun && at >= 2 && (is_other_thing(words[at - 2]) || words[at - 2].starts_with("gen"));
    const bool other =
        at >= 2 && (words[at - 2].starts_with("shar") || is_product_line(words[at - 2]) || apart);
    if (!is_among(words[noun], kNames) || of_gpu || other || number(at - 1) == 0) {
      continue;
    }
    const bool part = at >= 3 && words[at - 2] == "of";  // "4 of 8 NICs"
    return part ? number(at - 3) : number(at - 1);
  }
  return 0;
}

int adapters_of_node(std::string_view text) {
  for (const std::string_view clause : plain_clauses(text)) {
    const std::vector<std::string> words = words_of_clause(clause);
    if (words.size() == 4 && is_adapter_word(words[1]) && words[2] == "per" &&
        is_node_word(words[3])) {
      return count_in_words(words[0]);
    }
  }
  return 0;
}

bool names_adapters_behind(std::string_view text) {
  const std::string lower = to_lower(text.substr(0, text.find_first_of(",;()+")));
  const std::vector<std::string_view> words = split(lower, ' ');
  const auto per = std::find(words.begin(), words.end(), "per");
  const bool of_others = per != words.end() && (per + 1 == words.end() || !is_node_word(per[1]));
  return words.size() > 1 && !of_others &&
         std::any_of(words.begin() + 1, words.end(),
                     [](std::string_view word) { return is_adapter_word(word); });
}

AdapterCount adapters_before(std::string_view text, bool before_adapter) {
  const std::string lower = to_lower(last_clause(text));
  return BackwardCount(lower, before_adapter).read();
}

int adapters_behind(std::string_view text) {
  const std::string lower = to_lower(text);
  text = lower;
  const std::size_t at = text.find_first_of(" x*(,");
  if (at == text.npos || at > kLongestUnit) {
    return 0;
  }
  text = without_plain_words(text.substr(at));
  const bool sign = text.starts_with('x') || text.starts_with('*');
  if (!sign && !text.starts_with('(') && !text.starts_with(',')) {
    return 0;
  }
  text.remove_prefix(1);
  const int count = take_front_number(text);
  if (const bool part = first_word(text) == "of"; part) {  // "(4 of 8 NICs)"
    text.remove_prefix(2);
    take_front_number(text);
  }
  const std::string_view word = first_word(text);
  const bool ends =  // "x4 per node", "x 4 RoCE"
      sign && (word.empty() || word == "per" || is_plain_word(word));
  const bool adapters = is_adapter_word(word.substr(0, word.find('/')));  // "HCAs/node"
  const bool counts = ends || adapters || is_per_node(text);
  return counts && count <= kMostAdaptersOfNode ? count : 0;  // "HDR InfiniBand 4 x 200": a rate
}

int adapters_of_rate(std::string_view text, double gigabits) {
  const std::string lower = to_lower(text);
  const std::string rate = fmt::format("{}", gigabits);
  for (std::size_t at = lower.find(rate); at != lower.npos; at = lower.find(rate, at + 1)) {
    std::string_view before = trim(std::string_view(lower).substr(0, at));
    const bool sign = before.ends_with('x') || before.ends_with('*');
    const std::size_t end = at + rate.size();
    if (sign && (end == lower.size() || kDigits.find(lower[end]) == kDigits.npos)) {
      before = trim(before.substr(0, before.size() - 1));
      const std::size_t digits = before.find_last_not_of(kDigits);
      const std::string_view number = before.substr(digits == before.npos ? 0 : digits + 1);
      return is_count(number) ? number_of(number) : 0;
    }
  }
  return 0;
}

bool counts_adapters(std::string_view text) {
  const std::string lower = to_lower(text);
  std::string_view before;
  for (std::string_view word : split(lower, ' ')) {
    word.remove_prefix(std::min(word.size(), word.find_first_not_of("(,;:")));
    word = first_word(word);
    word = word.substr(0, word.find('/'));
    const bool number = is_count(before) || spelt_number(before) > 0;
    const bool sign = count_in(before) > 0 && !word.empty() && !is_other_thing(word);
    if (sign || (number && is_adapter_word(word)) || word.find("-rail") != word.npos) {
      return true;
    }
    before = word;
  }
  return false;
}

}  // namespace orrery::topologies
