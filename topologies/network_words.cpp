// SPDX-License-Identifier: Apache-2.0
#include "topologies/network_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/text.hpp"
#include "base/words.hpp"
#include "topologies/adapter_counts.hpp"
#include "topologies/link_words.hpp"
#include "topologies/network_clauses.hpp"
#include "topologies/rate_words.hpp"
#include "topologies/words.hpp"

namespace orrery::topologies {
namespace {

using RateOf = StatedNetwork::RateOf;

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

// 0 where the text names none.
double rate_of_generation(std::string_view text) {
  const std::optional<Generation> generation = find_generation(text);
  return generation ? generation->gigabits : 0;
}

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

AdapterCount adapters_of_generation(std::string_view text, const Generation& generation) {
  AdapterCount count = adapters_before(text.substr(0, generation.begin), true);
  if (count.nics == 0) {
    count.nics = adapters_behind(text.substr(generation.end));
  }
  if (count.nics == 0) {
    count.nics = adapters_of_rate(text, generation.gigabits);
  }
  return count;
}

// A generation is that of a port: "2x dual-port HDR100", "dual-port HDR100 x2".
std::optional<StatedNetwork> stated_generation(std::string_view text) {
  const std::optional<Generation> generation = find_generation(text);
  if (!generation) {
    return std::nullopt;
  }
  const AdapterCount count = adapters_of_generation(text, *generation);
  const RateShare share = share_of_rate(text.substr(generation->end), count.nics);
  StatedNetwork network{.nics = count.nics * count.ports,
                        .gigabits = generation->gigabits,
                        .of = share.of == RateOf::Gpu ? RateOf::Gpu : RateOf::Nic,
                        .gpus_each = share.gpus,
                        .link = generation->link};
  if (network.of == RateOf::Gpu) {
    network.nics = count.nics;
    network.gigabits *= count.ports;
  } else if (count.nics == 0 && count.ports > 1) {
    network.nics = std::max(1, adapters_named(text)) * count.ports;
  }
  return network;
}

// What counts the adapters of a rate that nothing near it does: a further rate that adds up to it,
// "800 Gb/s (4 x 200 Gb/s)", or another clause, "4 NICs, 200 Gb/s each", "4 HCAs, 200 Gb/s HDR", "4
// NICs per node, 200 Gb/s".
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
  } else if (const int named = adapters ? adapters_named(text) : adapters_of_node(text);
             named > 0 && network.of == RateOf::Unstated) {
    network.nics = named;
    network.of = RateOf::Nic;
  }
}

// "200 Gb/s, 2 GPUs per NIC", "two GPUs share one 200 Gb/s NIC", "HDR, one NIC per GPU".
void find_sharers(std::string_view text, StatedNetwork& network) {
  const bool open = network.of == RateOf::Unstated || network.of == RateOf::Nic;
  if (const int gpus = open && network.nics <= 1 ? gpus_of_adapter(text) : 0; gpus > 0) {
    network.of = RateOf::Gpu;
    network.gpus_each = gpus;
    network.nics = 0;
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

// Whose rate it is that says so nowhere near: "NDR per GPU (400 Gb/s)", "400 Gb/s, 3.2 Tb/s per
// node".
void find_share(const std::vector<StatedNetwork>& rates,
                const std::optional<StatedNetwork>& generation, StatedNetwork& network) {
  if (generation && generation->of == RateOf::Gpu) {
    network.of = RateOf::Gpu;
    network.gpus_each = generation->gpus_each;
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

// "8x2x200 Gb/s": two adapters of each of eight GPUs are sixteen. More than a node has are those of
// several nodes, of which the second count is one's.
std::string with_joined_counts(std::string text) {
  for (std::size_t at = text.find('x'); at != text.npos; at = text.find('x', at + 1)) {
    const std::size_t next = text.find('x', at + 1);
    const std::string_view whole = text;
    std::string_view before = whole.substr(0, at);
    std::string_view between =
        next == text.npos ? std::string_view() : trim(whole.substr(at + 1, next - at - 1));
    const auto second = take_number(between, 2);
    const auto first = second && between.empty() ? take_number(before, 2) : std::nullopt;
    if (first && *first * *second <= kMostAdaptersOfNode &&
        !stated_rates(whole.substr(next + 1)).empty() &&
        is_digit(trim(whole.substr(next + 1)).front())) {
      text.replace(before.size(), next - before.size(), std::to_string(*first * *second));
    }
  }
  return text;
}

}  // namespace

std::optional<StatedNetwork> parse_network(std::string_view words) {
  const std::string text = with_joined_counts(without_side_networks(plain_signs(trim(words))));
  const std::vector<StatedNetwork> rates = stated_rates(text);
  const std::optional<StatedNetwork> generation = stated_generation(text);
  std::optional<StatedNetwork> network;
  if (!rates.empty()) {
    network = rates.front();
  } else {  // "NDR InfiniBand, 8 x 200" has no adapters of the generation's rate
    const auto bare = generation && generation->nics > 0 ? std::nullopt : rate_without_unit(text);
    network = bare ? bare : generation;
  }
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
  find_sharers(text, *network);
  if (network->nics == 0 && network->of == RateOf::Unstated) {
    find_share(rates, generation, *network);
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
