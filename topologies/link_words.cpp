// SPDX-License-Identifier: Apache-2.0
#include "topologies/link_words.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "base/text.hpp"
#include "base/words.hpp"
#include "topologies/network_clauses.hpp"
#include "topologies/words.hpp"

namespace orrery::topologies {
namespace {

struct Kind {
  std::string_view phrase;
  std::string_view link;
  // A cloud's name stands for its usual network, except beside a node, whose file knows its own.
  bool is_cloud = false;
};
constexpr auto kKinds = std::to_array<Kind>({{"efa", "efa"},
                                             {"aws", "efa", true},
                                             {"roce", "roce"},
                                             {"omni-path", "omni-path"},
                                             {"omni path", "omni-path"},
                                             {"omnipath", "omni-path"},
                                             {"tcp", "ethernet"},
                                             {"infiniband", "ib"}});

struct GenerationName {
  std::string_view word;
  double gigabits = 0;
  std::string_view link = "ib";
};

// Four lanes of an InfiniBand generation, and other links that come in one rate: Omni-Path 100, HPE
// Slingshot 10 and, without a release, its next one.
constexpr auto kGenerations = std::to_array<GenerationName>({{"fdr", 56},
                                                             {"edr", 100},
                                                             {"edr100", 100},
                                                             {"hdr100", 100},
                                                             {"hdr", 200},
                                                             {"hdr200", 200},
                                                             {"ndr200", 200},
                                                             {"ndr", 400},
                                                             {"ndr400", 400},
                                                             {"xdr", 800},
                                                             {"omni", 100, "omni-path"},
                                                             {"omnipath", 100, "omni-path"},
                                                             {"opa", 100, "omni-path"},
                                                             {"opa100", 100, "omni-path"},
                                                             {"slingshot10", 100, ""},
                                                             {"slingshot11", 200, ""},
                                                             {"slingshot", 200, ""}});

std::size_t end_of_word(std::string_view text, std::size_t begin) {
  const auto* const end = std::find_if_not(text.begin() + begin, text.end(), is_letter_or_digit);
  return static_cast<std::size_t>(end - text.begin());
}

// Of "slingshot-10" and "slingshot 10" behind the number, of others `end`.
std::size_t end_of_release(std::string_view text, std::size_t begin, std::size_t end) {
  constexpr auto kReleases = std::to_array<std::string_view>({"10", "11"});
  if (text.substr(begin, end - begin) != "slingshot" || end == text.size()) {
    return end;
  }
  const std::size_t last = end_of_word(text, end + 1);
  const std::string_view release = text.substr(end + 1, last - end - 1);
  const bool joined = text[end] == '-' || text[end] == ' ';
  const bool known = is_among(release, kReleases);
  return joined && known ? last : end;
}

}  // namespace

bool is_link_word(std::string_view word) {
  constexpr auto kWords =
      std::to_array<std::string_view>({"ib", "infiniband", "roce", "rocev2", "rdma", "efa",
                                       "ethernet", "edr", "hdr", "ndr", "xdr"});
  return is_among(word, kWords);
}

std::string_view link_of(std::string_view text) {
  const std::string lower = to_lower(text);
  const bool is_node_known = !find_node_in_words(text).empty();
  for (const Kind& kind : kKinds) {
    if (lower.find(kind.phrase) != lower.npos && !(kind.is_cloud && is_node_known)) {
      return kind.link;
    }
  }
  return holds_word(text, "opa") ? "omni-path" : holds_word(text, "ib") ? "ib" : std::string_view();
}

// A 64-byte message between CPUs on one leaf (DeepSeek, arXiv 2505.09343); EFA and kernel TCP as
// the node files have them.
std::string_view latency_of(std::string_view link) {
  return link == "ib"         ? "2.8 us"
         : link == "efa"      ? "15 us"
         : link == "ethernet" ? "25 us"
                              : "3.6 us";
}

std::optional<Generation> find_generation(std::string_view text) {
  const std::string lower = to_lower(text);
  for (std::size_t begin = 0; begin < lower.size(); ++begin) {
    std::size_t end = end_of_word(lower, begin);
    // "8xHDR" is a word as well.
    const std::size_t sign = lower.find_first_not_of("0123456789", begin);
    begin += sign > begin && sign < end && lower[sign] == 'x' ? sign + 1 - begin : 0;
    end = end_of_release(lower, begin, end);
    std::string name = lower.substr(begin, end - begin);
    std::erase_if(name, [](char c) { return !is_letter_or_digit(c); });
    for (const GenerationName& generation : kGenerations) {
      if (name == generation.word) {
        return Generation{generation.gigabits, generation.link, begin, end};
      }
    }
    begin = end;
  }
  return std::nullopt;
}

}  // namespace orrery::topologies
