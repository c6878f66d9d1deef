// SPDX-License-Identifier: Apache-2.0
#include "topologies/network_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/text.hpp"
#include "topologies/adapter_counts.hpp"
#include "topologies/network_clauses.hpp"
#include "topologies/rate_words.hpp"
#include "topologies/words.hpp"

namespace orrery::topologies {
namespace {

using RateOf = StatedNetwork::RateOf;

bool mentions(std::string_view text, std::string_view phrase) {
  return to_lower(text).find(phrase) != std::string::npos;
}

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
                                                      {"omnipath", "omni-path"},
                                                      {"tcp", "ethernet"},
                                                      {"infiniband", "ib"}});

std::string_view link_of(std::string_view text) {
  const bool is_node_known = !find_node_in_words(text).empty();
  for (const LinkWords& words : kLinkWords) {
    if (mentions(text, words.phrase) && !(words.is_cloud && is_node_known)) {
      return words.link;
    }
  }
  return holds_word(text, "opa") ? "omni-path" : holds_word(text, "ib") ? "ib" : std::string_view();
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

double rate_of_generation(std::string_view text);

// "1:1 400 Gb/s": the number right before a rate is no count.
bool ends_in_ratio(std::string_view before) {
  before = trim(before);
  const std::size_t sign = before.find_last_not_of("0123456789");
  return sign != before.npos && sign > 0 && before[sign] == ':' && is_digit(before[sign - 1]);
}

// Adapters that the words around a rate count.
AdapterCount adapters_around(std::string_view before, std::string_view rest) {
  const bool named = names_adapters_behind(rest) && !ends_in_ratio(before);
  AdapterCount count = adapters_before(before, named);
  count.nics = count.nics > 0 ? count.nics : adapters_behind(trim(rest));
  return count;
}

// A rate with the words around it. Of a count outside the bracket that it opens it may be the sum:
// "4x HDR (800 Gb/s)", "2x dual-port HDR100 (400 Gb/s)", "4 NICs (800 Gb/s per node)". What one
// adapter of the named generation has is none.
StatedNetwork network_of_rate(std::string_view before, double gigabits, std::string_view rest) {
  const AdapterCount count = adapters_around(before, rest);
  const int ports = count.nics * count.ports;
  const bool bracket = count.nics > 0 && trim(before).ends_with('(');
  const double each = bracket ? rate_of_generation(before) : 0;
  if (each > 0 && ports * each == gigabits) {
    return {.nics = ports, .gigabits = gigabits, .of = RateOf::Node};
  }
  const int nics = says_per_port(rest) ? ports : count.nics;
  const RateShare share = share_of_rate(rest, nics);
  const bool whole = bracket && each != gigabits && says_whole_node(rest);
  return {.nics = nics,
          .gigabits = gigabits,
          .of = whole ? RateOf::Node : share.of,
          .gpus_each = share.gpus};
}

// The numbers with a unit of bits a second, the first few.
std::vector<StatedNetwork> stated_rates(std::string_view text) {
  constexpr std::size_t kMostCharacters = 6;
  constexpr std::size_t kMostRates = 4;
  std::vector<StatedNetwork> rates;
  for (std::size_t at = 0; at < text.size() && rates.size() < kMostRates; ++at) {
    if (!is_digit(text[at]) || (at > 0 && (is_digit(text[at - 1]) || text[at - 1] == '.'))) {
      continue;
    }
    const std::string_view digits = text.substr(at, kMostCharacters);
    double number = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number,
                                      std::chars_format::fixed);
    const std::string_view rest = text.substr(static_cast<std::size_t>(read.ptr - text.data()));
    const double unit = read.ec == std::errc() ? unit_of_rate(rest) : 0;
    if (unit > 0) {
      rates.push_back(network_of_rate(text.substr(0, at), number * unit, rest));
    }
  }
  return rates;
}

struct Generation {
  std::string_view word;
  double gigabits = 0;
  std::string_view link = "ib";
};

// Around the word from `begin` to `end`.
AdapterCount adapters_of_generation(std::string_view text, std::size_t begin, std::size_t end,
                                    double gigabits) {
  AdapterCount count = adapters_before(text.substr(0, begin), true);
  if (count.nics == 0) {
    count.nics = adapters_behind(text.substr(end));
  }
  if (count.nics == 0) {
    count.nics = adapters_of_rate(text, gigabits);
  }
  return count;
}

// A generation is that of a port: "2x dual-port HDR100", "dual-port HDR100 x2".
StatedNetwork network_of_generation(const Generation& generation, std::string_view text,
                                    std::size_t begin, std::size_t end) {
  const AdapterCount count = adapters_of_generation(text, begin, end, generation.gigabits);
  const RateShare share = share_of_rate(text.substr(end), count.nics);
  StatedNetwork network{.nics = count.nics * count.ports,
                        .gigabits = generation.gigabits,
                        .of = share.of == RateOf::Gpu ? RateOf::Gpu : RateOf::Nic,
                        .gpus_each = share.gpus,
                        .link = generation.link};
  if (network.of == RateOf::Gpu) {
    network.nics = count.nics;
    network.gigabits *= count.ports;
  } else if (count.nics == 0 && count.ports > 1) {
    network.nics = std::max(1, adapters_named(text)) * count.ports;
  }
  return network;
}

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
                                                           {"omnipath", 100, "omni-path"},
                                                           {"opa", 100, "omni-path"},
                                                           {"opa100", 100, "omni-path"},
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
    for (const Generation& generation : kGenerations) {
      if (word == generation.word) {
        return network_of_generation(generation, text, begin, end);
      }
    }
    begin = end;
  }
  return std::nullopt;
}

// 0 where the text names none.
double rate_of_generation(std::string_view text) {
  const std::optional<StatedNetwork> generation = stated_generation(text);
  return generation ? generation->gigabits : 0;
}

// What counts the adapters of a rate that nothing near it does: a further rate that adds up to it,
// "800 Gb/s (4 x 200 Gb/s)", or the adapters of another clause, "4 NICs, 200 Gb/s each", "4 HCAs,
// 200 Gb/s HDR".
void find_count(std::string_view text, const std::vector<StatedNetwork>& rates,
                const std::optional<StatedNetwork>& generation, StatedNetwork& network) {
  const auto part = std::find_if(rates.begin(), rates.end(), [&](const StatedNetwork& rate) {
    return rate.nics * rate.gigabits == network.gigabits;
  });
  const bool adapters = generation && generation->gigabits == network.gigabits;
  if (part != rates.end()) {
    network = *part;
  } else if (network.of == RateOf::Nic || network.of == RateOf::Node) {
    network.nics = adapters_named(text);
  } else if (const int named = adapters_named(text); adapters && named > 0) {
    network.nics = named;
    network.of = RateOf::Nic;
  }
}

// "800 Gb/s OSFP x 4 (8x400 Gb/s)": a bracket with more of them, of whose rate the one before it is
// a multiple, states the ports; lanes are none.
void find_ports(std::string_view text, StatedNetwork& network) {
  const std::size_t bracket = text.find('(');
  const bool of_adapter = network.of == RateOf::Nic && network.nics > 0;
  if (bracket == text.npos || !(of_adapter || network.of == RateOf::Unstated) ||
      mentions(text.substr(bracket), "lane")) {
    return;
  }
  const auto whole_times = [](double whole, double part) {
    return std::round(whole / part) * part == whole;
  };
  for (const StatedNetwork& ports : stated_rates(text.substr(bracket))) {
    const double sum = ports.nics * ports.gigabits;
    const bool same =
        of_adapter ? sum == network.nics * network.gigabits : whole_times(sum, network.gigabits);
    if (ports.of == RateOf::Nic && ports.nics > std::max(1, network.nics) && ports.gigabits > 0 &&
        same && whole_times(network.gigabits, ports.gigabits)) {
      network = ports;
      return;
    }
  }
}

// Whose rate it is that says so nowhere near: "NDR per GPU (400 Gb/s)", "one NIC per GPU, 400
// Gb/s", "400 Gb/s, 3.2 Tb/s per node".
void find_share(std::string_view text, const std::vector<StatedNetwork>& rates,
                const std::optional<StatedNetwork>& generation, StatedNetwork& network) {
  const int gpus = gpus_of_adapter(text);
  if (gpus > 0 || (generation && generation->of == RateOf::Gpu)) {
    network.of = RateOf::Gpu;
    network.gpus_each = gpus > 0 ? gpus : generation->gpus_each;
    return;
  }
  const auto whole = std::find_if(rates.begin(), rates.end(), [](const StatedNetwork& rate) {
    return rate.of == RateOf::Node;
  });
  constexpr double kMost = 64;
  const double nics = whole == rates.end() ? 0 : whole->gigabits / network.gigabits;
  if (nics >= 1 && nics <= kMost && nics == std::round(nics)) {
    network.nics = static_cast<int>(nics);
    network.of = RateOf::Nic;
  }
}

// A rate of a whole node is that of adapters as its type has them, as few as carry it. A rate that
// is not said to be a node's is an adapter's where the type has adapters of just that rate.
int adapters_for(double gigabits, const ScaleOut& out, int most) {
  const double each = out.nic_bandwidth.value() * 8 / 1e9;
  const double enough = each > 0 ? std::ceil(gigabits / each) : most;
  return static_cast<int>(std::clamp(enough, 1.0, 1.0 * most));
}

}  // namespace

std::optional<StatedNetwork> parse_network(std::string_view words) {
  const std::string text = without_side_networks(plain_signs(trim(words)));
  const std::vector<StatedNetwork> rates = stated_rates(text);
  const std::optional<StatedNetwork> generation = stated_generation(text);
  std::optional<StatedNetwork> network = !rates.empty() ? rates.front()
                                         : generation   ? generation
                                                        : rate_without_unit(text);
  // "8x NDR400 IB (ib_write_bw 45 GB/s)": what is counted are the adapters.
  if (network && network->nics == 0 && generation && generation->nics > 0) {
    network = generation;
  }
  if (!network || network->gigabits <= 0) {
    return std::nullopt;
  }
  if (network->nics == 0) {
    find_count(text, rates, generation, *network);
  }
  find_ports(text, *network);
  if (network->nics == 0 && network->of == RateOf::Unstated) {
    find_share(text, rates, generation, *network);
  }
  network->link = network->link.empty() ? link_of(text) : network->link;
  network->delay_ms = delay_of(text);
  network->unread_count = network->nics == 0 && network->of != RateOf::Gpu && counts_adapters(text);
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
  const int nics = stated.of == RateOf::Gpu ? (gpus + stated.gpus_each - 1) / stated.gpus_each
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
