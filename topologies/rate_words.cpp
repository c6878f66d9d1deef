// SPDX-License-Identifier: Apache-2.0
#include "topologies/rate_words.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "topologies/adapter_counts.hpp"
#include "topologies/network_clauses.hpp"
#include "topologies/words.hpp"

namespace orrery::topologies {
namespace {

using RateOf = StatedNetwork::RateOf;

// What a text says of the rate before it: up to the next clause, but for "(per GPU)".
std::string_view own_clause(std::string_view after) {
  constexpr std::size_t kNear = 48;
  constexpr auto kGoesOn = std::to_array<std::string_view>({"per ", "one ", "1 ", "each "});
  std::size_t end = after.find_first_of(",;(+");
  while (end != after.npos) {
    const std::string next = to_lower(trim(after.substr(end + 1, kNear)));
    if (std::none_of(kGoesOn.begin(), kGoesOn.end(),
                     [&](std::string_view word) { return next.starts_with(word); })) {
      break;
    }
    end = after.find_first_of(",;(+", end + 1);
  }
  return after.substr(0, std::min(end, kNear));
}

using Words = std::vector<std::string>;

std::string_view word_at(const Words& words, std::size_t at) {
  return at < words.size() ? std::string_view(words[at]) : std::string_view();
}

bool is_gpu(std::string_view word) {
  return word.starts_with("gpu") || word == "gcd" || word == "gcds";
}

// Of "per 2 GPUs", "per pair of GPUs" and the like from the word at `at` on; 0 of others.
int gpus_from(const Words& words, std::size_t at) {
  if (word_at(words, at) != "per" && word_at(words, at) != "every") {
    return 0;
  }
  std::size_t next = at + 1;
  int gpus = count_in_words(word_at(words, next));
  next += gpus > 0 ? 1 : 0;
  if (gpus == 0 && word_at(words, next) == "pair" && word_at(words, next + 1) == "of") {
    gpus = 2;
    next += 2;
  }
  if (!is_gpu(word_at(words, next)) || is_node_word(word_at(words, next + 1))) {
    return 0;
  }
  return gpus > 0 ? gpus : word_at(words, next + 1) == "pair" ? 2 : 1;
}

// "2 GPUs per NIC", "two GPUs of a node share a 200 Gb/s NIC"; 0 where the clause does not end so.
int gpus_before_adapter(std::string_view clause) {
  const Words words = words_of_clause(clause);
  if (words.empty() || !is_adapter_word(words.back())) {
    return 0;
  }
  const bool shared = std::any_of(words.begin(), words.end(),
                                  [](std::string_view word) { return word.starts_with("shar"); });
  for (std::size_t at = 1; at + 2 < words.size(); ++at) {
    const bool per = words[at + 1] == "per" && !is_node_word(words[at + 2]);
    if (is_gpu(words[at]) && (shared || per)) {
      return count_in_words(words[at - 1]);
    }
  }
  return 0;
}

int gpus_sharing(std::string_view clause) {
  const Words words = words_of(clause);
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (const int gpus = gpus_from(words, at); gpus > 0) {
      return gpus;
    }
  }
  return 0;
}

// GPUs of each of the adapters that `nics` counts; 0 where the words behind say nothing of it. The
// counted adapters may be a node's, with one for each GPU or so in a bracket: "8x HDR (1 per GPU)".
int gpus_of_each(std::string_view after, int nics) {
  if (nics <= 1) {
    return gpus_sharing(own_clause(after));
  }
  const int gpus = gpus_sharing(after.substr(0, after.find_first_of(",;(+")));
  return gpus > 1 && gpus % nics == 0 ? gpus / nics : 0;
}

bool says_unit(std::string_view words, std::string_view unit) {
  const auto found = [&](const char* joint) {
    return words.find(std::string(joint).append(unit)) != words.npos;
  };
  return found("per ") || found("/");
}

// Whether "4x200" between these texts is a count of adapters and their rate. More than one for each
// GPU may be meant of a node or of the GPU; "A100 8x40" may be its memory.
bool is_rate_between(std::string_view before, int nics, std::string_view after) {
  if (nics > 1 && gpus_sharing(after.substr(0, after.find_first_of(",;(+"))) == 1) {
    return false;
  }
  after = trim(after);
  const std::string_view word = after.substr(0, after.find_first_of(" ,;()+/"));
  if (!word.empty()) {
    return word == "per" || is_network_word(word);
  }
  const std::size_t clause = before.find_last_of(",;(+");
  const std::string_view own = before.substr(clause == before.npos ? 0 : clause + 1);
  return (!after.starts_with('/') || is_per_node(after)) && similar_gpu(own).empty();
}

// The number that ends a text, apart from any word and from other dimensions ("2x4"); 0 when none
// does.
int number_at_end(std::string_view text) {
  const std::size_t before = text.find_last_not_of("0123456789");
  const std::string_view number = text.substr(before == text.npos ? 0 : before + 1);
  const bool apart = before == text.npos ||
                     std::string_view(" (,;+:").find(text[before]) != std::string_view::npos;
  const std::string_view rest = trim(text.substr(0, before == text.npos ? 0 : before + 1));
  return apart && !rest.ends_with('x') && !rest.ends_with('*') ? count_in_words(number) : 0;
}

}  // namespace

double unit_of_rate(std::string_view text) {
  constexpr std::size_t kLongest = 14;  // with blanks before it
  text = trim(text.substr(0, std::min(text.size(), kLongest)));
  text.remove_prefix(text.starts_with('-') ? 1 : 0);  // "400-Gb/s"
  constexpr auto kWords = std::to_array<std::pair<std::string_view, double>>({{"gigabit", 1},
                                                                              {"gbit", 1},
                                                                              {"gige", 1},
                                                                              {"terabit", 1000},
                                                                              {"megabit", 1e-3},
                                                                              {"gigabyte/s", 8},
                                                                              {"gigabytes/s", 8}});
  const std::string lower = to_lower(text);
  for (const auto& [word, gigabits] : kWords) {
    if (lower.starts_with(word)) {
      return gigabits;
    }
  }
  constexpr auto kUnits = std::to_array<std::pair<std::string_view, double>>(
      {{"Gb", 1}, {"gb", 1}, {"Tb", 1000}, {"Mb", 1e-3}, {"GB/s", 8}, {"GBps", 8}});
  for (const auto& [unit, gigabits] : kUnits) {
    if (text.starts_with(unit)) {
      return gigabits;
    }
  }
  return text.starts_with('G') && (text.size() == 1 || !is_letter(text[1])) ? 1 : 0;
}

RateShare share_of_rate(std::string_view after, int nics) {
  const std::string words = to_lower(own_clause(after));
  if (const int gpus = gpus_of_each(after, nics); gpus > 0) {
    return {RateOf::Gpu, gpus};
  }
  const bool each = trim(words).ends_with(" each");  // not "each node"
  if (nics > 0 || each || says_unit(words, "nic") || says_unit(words, "hca")) {
    return {RateOf::Nic};
  }
  return {says_whole_node(after) ? RateOf::Node : RateOf::Unstated};
}

bool says_whole_node(std::string_view after) {
  constexpr auto kUnits =
      std::to_array<std::string_view>({"node", "server", "machine", "instance", "tray"});
  constexpr auto kSums = std::to_array<std::string_view>({"aggregate", "total"});
  const std::string words = to_lower(own_clause(after));
  return std::any_of(kUnits.begin(), kUnits.end(),
                     [&](std::string_view unit) { return says_unit(words, unit); }) ||
         std::any_of(kSums.begin(), kSums.end(),
                     [&](std::string_view word) { return holds_word(words, word); });
}

bool says_per_port(std::string_view after) {
  return says_unit(to_lower(own_clause(after)), "port");
}

int gpus_of_adapter(std::string_view text) {
  constexpr auto kAdapters = std::to_array<std::string_view>({"nic", "hca", "adapter", "rail"});
  const Words words = words_of(text);
  for (std::size_t at = 0; at + 1 < words.size(); ++at) {
    const bool adapter = is_among(words[at], kAdapters);
    if (const int gpus = adapter ? gpus_from(words, at + 1) : 0; gpus > 0) {
      return gpus;
    }
  }
  for (const std::string_view clause : plain_clauses(text)) {
    if (const int gpus = gpus_before_adapter(clause); gpus > 0) {
      return gpus;
    }
  }
  return 0;
}

std::optional<StatedNetwork> rate_without_unit(std::string_view text) {
  constexpr auto kRates = std::to_array<int>({25, 40, 50, 100, 200, 400, 800});
  constexpr std::size_t kNear = 32;
  const std::string lower = to_lower(text);
  const std::string_view all = lower;
  for (std::size_t at = all.find_first_of("x*"); at != all.npos;
       at = all.find_first_of("x*", at + 1)) {
    const std::size_t begin = std::min(all.size(), all.find_first_not_of(' ', at + 1));
    int rate = 0;
    const auto read = std::from_chars(all.data() + begin, all.data() + all.size(), rate);
    const std::string_view after =
        all.substr(static_cast<std::size_t>(read.ptr - all.data()), kNear);
    if (std::find(kRates.begin(), kRates.end(), rate) == kRates.end() ||
        (!after.empty() && std::string_view(" ,;()+/").find(after[0]) == std::string_view::npos)) {
      continue;
    }
    const std::size_t near = std::min(at, kNear);
    const std::string_view before = trim(all.substr(at - near, near));
    const int nics = number_at_end(before);
    if (nics > 0 && nics <= kMostAdaptersOfNode && is_rate_between(before, nics, after)) {
      const RateShare share = share_of_rate(after, nics);
      return StatedNetwork{
          .nics = nics, .gigabits = 1.0 * rate, .of = share.of, .gpus_each = share.gpus};
    }
  }
  return std::nullopt;
}

}  // namespace orrery::topologies
