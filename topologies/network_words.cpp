// SPDX-License-Identifier: Apache-2.0
#include "topologies/network_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/text.hpp"
#include "topologies/words.hpp"

namespace orrery::topologies {
namespace {

using RateOf = StatedNetwork::RateOf;

bool mentions(std::string_view text, std::string_view phrase) {
  return to_lower(text).find(phrase) != std::string::npos;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

struct LinkWords {
  std::string_view phrase;
  std::string_view link;
  // A cloud's name stands for its usual network, except beside a node, whose file knows its own.
  bool is_cloud = false;
};
constexpr auto kLinkWords = std::to_array<LinkWords>({{"efa", "efa"},
                                                      {"aws", "efa", true},
                                                      {"roce", "roce"},
                                                      {"omni-path", "omni-path"},
                                                      {"tcp", "ethernet"},
                                                      {"infiniband", "ib"},
                                                      {" ib", "ib"}});

std::string_view link_of(std::string_view text) {
  const bool is_node_known = !find_node_in_words(text).empty();
  for (const LinkWords& words : kLinkWords) {
    if (mentions(text, words.phrase) && !(words.is_cloud && is_node_known)) {
      return words.link;
    }
  }
  return to_lower(text).starts_with("ib ") ? "ib" : std::string_view();
}

// Latency of a 64-byte message between CPUs on one leaf (DeepSeek, arXiv 2505.09343), of EFA and of
// kernel TCP as the node files have them.
std::string_view latency_of(std::string_view link) {
  return link == "ib"         ? "2.8 us"
         : link == "efa"      ? "15 us"
         : link == "ethernet" ? "25 us"
                              : "3.6 us";
}

// Takes a number of at most `most` digits off the end of a text, which may end in blanks.
std::optional<int> take_number(std::string_view& text, std::size_t most) {
  text = trim(text);
  std::size_t begin = text.size();
  while (begin > 0 && text.size() - begin < most && is_digit(text[begin - 1])) {
    --begin;
  }
  if (begin == text.size()) {
    return std::nullopt;
  }
  const int number = std::stoi(std::string(text.substr(begin)));
  text.remove_suffix(text.size() - begin);
  return number;
}

int delay_of(std::string_view text) {
  const std::size_t unit = text.find("ms");
  if (!mentions(text, "delay ") || unit == text.npos) {
    return 0;
  }
  std::string_view before = text.substr(0, unit);
  return take_number(before, 4).value_or(0);
}

// Words between a count and a rate: "8x HDR 200Gb", "8 ConnectX-7 NICs of 400 Gb/s".
constexpr auto kPlainWords = std::to_array<std::string_view>(
    {"ib",         "infiniband", "hdr",  "ndr",  "edr",      "xdr",    "roce",       "rocev2",
     "rdma",       "efa",        "of",   "at",   "mellanox", "nvidia", "connectx-5", "connectx-6",
     "connectx-7", "connectx-8", "cx-5", "cx-6", "cx-7",     "cx-8",   "omni-path",  "ethernet"});
constexpr std::size_t kLongestUnit = 8;  // "Gbit/s"
constexpr auto kAdapterWords =
    std::to_array<std::string_view>({"nic", "nics", "hca", "hcas", "adapter", "adapters", "link",
                                     "links", "port", "ports", "rail", "rails"});

template <std::size_t kSize>
bool is_one_of(const std::array<std::string_view, kSize>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string_view without_sign(std::string_view text) {
  constexpr std::string_view kTimes = "\xC3\x97";  // in UTF-8
  text = trim(text);
  const std::size_t sign = text.ends_with(kTimes) ? kTimes.size()
                           : text.ends_with('x') || text.ends_with('X') || text.ends_with('*') ? 1
                                                                                               : 0;
  return text.substr(0, text.size() - sign);
}

// The count of adapters that ends a text: "8x", "8x HDR", "8 NICs of", "8 NICs x"; 0 when there is
// none.
int adapters_before(std::string_view text) {
  text = trim(text);
  text.remove_suffix(text.ends_with('(') ? 1 : 0);  // "8x IB (400Gb)"
  std::string_view counted = without_sign(text);
  bool adapters = false;
  while (true) {
    counted = trim(counted);
    std::size_t begin = counted.size();
    while (begin > 0 && (is_letter(counted[begin - 1]) || is_digit(counted[begin - 1]) ||
                         counted[begin - 1] == '-')) {
      --begin;
    }
    const std::string word = to_lower(counted.substr(begin));
    adapters = adapters || is_one_of(kAdapterWords, word);
    if (!is_one_of(kPlainWords, word) && !is_one_of(kAdapterWords, word)) {
      break;
    }
    counted.remove_suffix(counted.size() - begin);
  }
  const std::string_view number = without_sign(counted);
  const bool times = number.size() < counted.size() || counted.size() < trim(text).size();
  std::string_view left = number;
  return times || adapters ? take_number(left, 4).value_or(0) : 0;
}

// "x8", "HDR x8", "InfiniBand (8 NICs)": without the plain words before the count.
std::string_view without_plain_words(std::string_view text) {
  text = trim(text);
  std::string_view word = text.substr(0, text.find_first_of(" ("));
  while (!word.empty() && is_one_of(kPlainWords, to_lower(word))) {
    text = trim(text.substr(word.size()));
    word = text.substr(0, text.find_first_of(" ("));
  }
  return text;
}

// "... x8", "... x 8", "... HDR x8", "... (8 NICs)" right behind a rate; 0 when there is none.
int adapters_behind(std::string_view text) {
  text = trim(text);
  std::size_t at = text.find_first_of(" x*(");
  if (at == text.npos || at > kLongestUnit) {
    return 0;
  }
  text = without_plain_words(text.substr(at));
  const bool sign = text.starts_with('x') || text.starts_with('*');
  const bool bracket = text.starts_with('(');
  if (!sign && !bracket) {
    return 0;
  }
  text = trim(text.substr(1));
  int count = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), count);
  std::string_view rest = trim(text.substr(static_cast<std::size_t>(read.ptr - text.data())));
  if (read.ec != std::errc() || count < 1) {
    return 0;
  }
  const std::string word = to_lower(rest.substr(0, rest.find_first_of(" ,;)")));
  const bool ends = word.empty() || word == "per";  // "x4 per node"
  return is_one_of(kAdapterWords, word) || (sign && ends) ? count : 0;
}

// Gbit/s of a unit that begins a text; 0 when it is none.
double unit_of(std::string_view text) {
  text = trim(text.substr(0, std::min<std::size_t>(text.size(), 8)));
  constexpr auto kUnits = std::to_array<std::pair<std::string_view, double>>(
      {{"Gb", 1}, {"gb", 1}, {"Tb", 1000}, {"Mb", 1e-3}, {"GB/s", 8}, {"GBps", 8}});
  for (const auto& [unit, gigabits] : kUnits) {
    if (text.starts_with(unit)) {
      return gigabits;
    }
  }
  return text.starts_with('G') && (text.size() == 1 || !is_letter(text[1])) ? 1 : 0;
}

RateOf rate_of(std::string_view after, int nics) {
  const std::string words = to_lower(after.substr(0, std::min<std::size_t>(after.size(), 32)));
  const auto says = [&](std::string_view unit) {
    return words.find(fmt::format("per {}", unit)) != words.npos ||
           words.find(fmt::format("/{}", unit)) != words.npos;
  };
  if (says("gpu") && nics <= 1) {
    return RateOf::Gpu;
  }
  if (nics > 0 || says("nic") || says("hca")) {
    return RateOf::Nic;
  }
  const bool whole =
      says("node") || says("server") || says("machine") || says("instance") || says("tray");
  return whole ? RateOf::Node : RateOf::Unstated;
}

// The first number with a unit of bits a second.
std::optional<StatedNetwork> stated_rate(std::string_view text) {
  constexpr std::size_t kMostCharacters = 6;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!is_digit(text[at]) || (at > 0 && (is_digit(text[at - 1]) || text[at - 1] == '.'))) {
      continue;
    }
    const std::string_view digits = text.substr(at, kMostCharacters);
    double number = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number,
                                      std::chars_format::fixed);
    const std::string_view rest = text.substr(static_cast<std::size_t>(read.ptr - text.data()));
    const double unit = read.ec == std::errc() ? unit_of(rest) : 0;
    if (unit > 0) {
      StatedNetwork network;
      network.gigabits = number * unit;
      network.nics = adapters_before(text.substr(0, at));
      network.nics = network.nics > 0 ? network.nics : adapters_behind(rest);
      network.of = rate_of(rest, network.nics);
      return network;
    }
  }
  return std::nullopt;
}

// "4x200", "(4 x 200)": the adapters before just that rate; 0 when the text does not count it.
int adapters_of_rate(std::string_view text, double gigabits) {
  const std::string rate = fmt::format("{}", gigabits);
  for (std::size_t at = text.find(rate); at != text.npos; at = text.find(rate, at + 1)) {
    const std::string_view before = trim(text.substr(0, at));
    std::string_view counted = without_sign(before);
    const std::size_t end = at + rate.size();
    if (counted.size() < before.size() && (end == text.size() || !is_digit(text[end]))) {
      return take_number(counted, 4).value_or(0);
    }
  }
  return 0;
}

struct Generation {
  std::string_view word;
  double gigabits = 0;
  std::string_view link = "ib";
};

// Four lanes of an InfiniBand generation, and of other links that come in one rate (Omni-Path 100,
// HPE Slingshot 11).
std::optional<StatedNetwork> stated_generation(std::string_view text) {
  constexpr auto kGenerations = std::to_array<Generation>({{"fdr", 56},
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
                                                           {"opa", 100, "omni-path"},
                                                           {"slingshot11", 200, ""},
                                                           {"slingshot", 200, ""}});
  const std::string lower = to_lower(text);
  for (std::size_t begin = 0; begin < lower.size(); ++begin) {
    std::size_t end = begin;
    while (end < lower.size() && (is_letter(lower[end]) || is_digit(lower[end]))) {
      ++end;
    }
    // "8xHDR" is a word as well.
    const std::size_t sign = lower.find_first_not_of("0123456789", begin);
    begin += sign > begin && sign < end && lower[sign] == 'x' ? sign + 1 - begin : 0;
    const std::string_view word = std::string_view(lower).substr(begin, end - begin);
    for (const auto& [name, gigabits, link] : kGenerations) {
      if (word == name) {
        const int before = adapters_before(text.substr(0, begin));
        return StatedNetwork{.nics = before > 0 ? before : adapters_of_rate(text, gigabits),
                             .gigabits = gigabits,
                             .of = RateOf::Nic,
                             .link = link};
      }
    }
    begin = end;
  }
  return std::nullopt;
}

// A rate of a whole node is that of adapters as its type has them, as few as carry it. A rate that
// is not said to be a node's is an adapter's where the type has adapters of just that rate.
int adapters_for(double gigabits, const ScaleOut& out, int most) {
  const double each = out.nic_bandwidth.value() * 8 / 1e9;
  const double enough = each > 0 ? std::ceil(gigabits / each) : most;
  return static_cast<int>(std::clamp(enough, 1.0, 1.0 * most));
}

}  // namespace

std::optional<StatedNetwork> parse_network(std::string_view text) {
  text = trim(text);
  // "8x NDR400 IB (ib_write_bw 45 GB/s)": what is counted are the adapters.
  std::optional<StatedNetwork> network = stated_rate(text);
  const std::optional<StatedNetwork> generation = stated_generation(text);
  if (!network || (network->nics == 0 && generation && generation->nics > 0)) {
    network = generation;
  }
  if (!network || network->gigabits <= 0) {
    return std::nullopt;
  }
  network->link = network->link.empty() ? link_of(text) : network->link;
  network->delay_ms = delay_of(text);
  return network;
}

bool is_of_node(const StatedNetwork& stated, const Cluster& usual) {
  const double usual_rate = usual.node.scale_out.nic_bandwidth.value() * 8 / 1e9;
  return stated.of == RateOf::Node ||
         (stated.of == RateOf::Unstated && stated.gigabits != std::round(usual_rate));
}

std::vector<std::string> network_overrides(const StatedNetwork& stated, const Cluster& usual,
                                           int gpus) {
  const ScaleOut& out = usual.node.scale_out;
  const int most = std::clamp(out.nics, 1, std::max(1, gpus));
  const bool of_node = is_of_node(stated, usual);
  const int nics = stated.of == RateOf::Gpu ? gpus
                   : stated.nics > 0        ? stated.nics
                   : of_node                ? adapters_for(stated.gigabits, out, most)
                                            : most;
  const double rate = of_node ? stated.gigabits / nics : stated.gigabits;
  std::vector<std::string> overrides = {
      fmt::format("node.scale_out.nics={}", nics),
      fmt::format("node.scale_out.nic_bandwidth={} Gbit/s", rate)};
  if (!stated.link.empty() && !mentions(out.link, stated.link)) {
    overrides.push_back(fmt::format("node.scale_out.link={}", stated.link));
    overrides.push_back(fmt::format("node.scale_out.latency={}", latency_of(stated.link)));
  }
  if (stated.delay_ms > 0) {
    overrides.push_back(fmt::format("node.scale_out.latency={} ms", stated.delay_ms));
  }
  return overrides;
}

}  // namespace orrery::topologies
