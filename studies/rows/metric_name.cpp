// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/metric_name.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/metric_words.hpp"

namespace orrery::studies {
namespace {

using NameWords = std::vector<std::string>;
using Bag = std::set<std::string, std::less<>>;

// Tools count memory "GB" in units of 2^30 bytes (metric.cpp).
constexpr double kMebibyte = 1.0 / 1024.0;
constexpr double kByte = kMebibyte / 1024.0 / 1024.0;

using Factor = std::pair<std::string_view, double>;

constexpr auto kTimeUnits = std::to_array<Factor>(
    {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"hours", 3600}, {"days", 86400}});
constexpr auto kMultipliers = std::to_array<Factor>({{"k", 1e3},
                                                     {"thousand", 1e3},
                                                     {"m", 1e6},
                                                     {"million", 1e6},
                                                     {"b", 1e9},
                                                     {"billion", 1e9},
                                                     {"t", 1e12},
                                                     {"trillion", 1e12}});
constexpr auto kFlops = std::to_array<Factor>(
    {{"gflops", 1e-3}, {"tflops", 1}, {"pflops", 1e3}, {"eflops", 1e6}});  // TFLOP/s
constexpr auto kItems = std::to_array<std::string_view>({"iteration", "samples", "tokens"});

std::optional<double> factor_of(std::string_view word, std::span<const Factor> factors) {
  const auto known = std::ranges::find(factors, word, &Factor::first);
  return known == factors.end() ? std::nullopt : std::optional(known->second);
}

// "1T", "300", "645k" before what they count; no value for other words.
std::optional<double> multiplier_of(std::string_view word) {
  double number = 1;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
  const std::string_view unit = word.substr(static_cast<std::size_t>(read.ptr - word.data()));
  const std::optional<double> factor =
      unit.empty() ? std::optional(1.0) : factor_of(unit, kMultipliers);
  return word.empty() || !factor ? std::nullopt : std::optional(number * *factor);
}

// Takes the numbers before what is counted off the words; no value where two of them differ.
std::optional<double> take_multiplier(NameWords& words, std::string_view item) {
  std::optional<double> all;
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (words[at] != item) {
      continue;
    }
    double here = 1;
    while (at > 0 && multiplier_of(words[at - 1])) {
      here *= *multiplier_of(words[--at]);
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
    }
    if (all && *all != here) {
      return std::nullopt;
    }
    all = here;
  }
  return all;
}

// Whether the words are of a time for the item: "s per sample", "sample time ms", "days (300B
// tokens)", not "samples per s". An iteration has a time unless something is counted by it.
bool is_time_of(const NameWords& words, std::string_view item) {
  const auto per_time = [&] {
    for (std::size_t at = 0; at + 1 < words.size(); ++at) {
      const bool of_gpu = words[at + 1] == "gpu" && at + 2 < words.size();  // "per GPU-hour"
      const std::string& unit = words[at + (of_gpu ? 2 : 1)];
      if (words[at] == "per" && (factor_of(unit, kTimeUnits) || unit == "time")) {
        return true;
      }
    }
    return false;
  };
  bool time = false;
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (words[at] == "per" && at + 1 < words.size() && words[at + 1] == item && time) {
      return true;
    }
    time = time || words[at] == "time" || factor_of(words[at], kTimeUnits);
  }
  const bool named = std::ranges::find(words, "time") != words.end();
  if (item != "iteration") {
    const auto is_unit = [](const std::string& word) {
      return factor_of(word, kTimeUnits).has_value();
    };
    const bool unit_first = std::ranges::find(words, "per") == words.end() &&
                            std::any_of(words.begin(), std::ranges::find(words, item), is_unit);
    return unit_first || (named && !per_time());
  }
  for (std::size_t at = 1; at < words.size(); ++at) {
    if (words[at] == "per" && words[at - 1] == item) {
      return false;
    }
  }
  return true;
}

// The one unit of time of a bag, in seconds, which it takes off.
std::optional<double> take_time(Bag& bag) {
  std::optional<double> seconds;
  for (const auto& [word, unit] : kTimeUnits) {
    if (bag.erase(std::string(word)) > 0) {
      if (seconds) {
        return std::nullopt;
      }
      seconds = unit;
    }
  }
  return seconds;
}

bool take(Bag& bag, std::string_view word) { return bag.erase(std::string(word)) > 0; }

// Of iterations, samples and tokens.
std::optional<MetricName> counted_name(NameWords words, std::string_view item) {
  const std::optional<double> multiplier = take_multiplier(words, item);
  const bool inverse = is_time_of(words, item);
  Bag bag(words.begin(), words.end());
  const std::optional<double> seconds = take_time(bag);
  for (const std::string_view word : {"per", "time", "all"}) {
    take(bag, word);
  }
  take(bag, item);
  const bool iteration = item == "iteration";
  const bool of_gpu = !iteration && take(bag, "gpu");
  const bool of_node = !iteration && !of_gpu && take(bag, "node");
  if (!multiplier || !seconds || !bag.empty()) {
    return std::nullopt;
  }
  if (iteration) {
    return inverse ? MetricName{"iteration_s", *seconds / *multiplier}
                   : MetricName{"iterations_per_s", *multiplier / *seconds};
  }
  const std::string_view share = of_gpu ? "_per_gpu" : of_node ? "_per_node" : "";
  return MetricName{.name = std::string(item).append("_per_s").append(share),
                    .scale = inverse ? *seconds / *multiplier : *multiplier / *seconds,
                    .is_inverse = inverse};
}

// Of FLOPs a second and of shares of a peak.
std::optional<MetricName> rate_name(Bag bag) {
  take(bag, "per");
  const bool share = bag.contains("mfu") || bag.contains("hfu") || bag.contains("peak");
  if (share) {
    const double scale = take(bag, "%") ? 0.01 : 1;
    const bool peak = (take(bag, "share") || scale != 1) && bag == Bag{"peak"};
    return bag.size() == 1 && (peak || !bag.contains("peak"))
               ? std::optional(MetricName{peak ? "peak_share" : *bag.begin(), scale})
               : std::nullopt;
  }
  for (const auto& [word, scale] : kFlops) {
    if (take(bag, word)) {
      take(bag, "s");
      const std::string_view name = bag.empty()          ? "tflops_of_some"
                                    : bag == Bag{"gpu"}  ? "tflops_per_gpu"
                                    : bag == Bag{"node"} ? "tflops_per_node"
                                    : bag == Bag{"all"}  ? "tflops"
                                                         : "";
      return name.empty() ? std::nullopt : std::optional(MetricName{std::string(name), scale});
    }
  }
  return std::nullopt;
}

// "peak_mem_reserved_gib": which counter of the allocator the words name; takes it from them.
std::string_view take_counter(Bag& bag) {
  for (const std::string_view counter : {"reserved", "allocated"}) {
    if (take(bag, counter)) {
      bag.emplace("mem");
      return counter;
    }
  }
  return {};
}

std::optional<MetricName> memory_name(Bag bag) {
  constexpr auto kUnits =
      std::to_array<std::pair<std::string_view, Factor>>({{"gib", {"gib", 1}},
                                                          {"gb", {"gb", 1}},
                                                          {"mib", {"gib", kMebibyte}},
                                                          {"mb", {"gb", kMebibyte}},
                                                          {"bytes", {"gib", kByte}}});
  const std::string_view counter = take_counter(bag);
  if (!take(bag, "mem")) {
    return std::nullopt;
  }
  for (const std::string_view word : {"peak", "per", "gpu"}) {  // whose else
    take(bag, word);
  }
  for (const auto& [word, unit] : kUnits) {
    if (bag.size() == 1 && *bag.begin() == word) {
      return MetricName{std::string("peak_mem_")
                            .append(counter)
                            .append(counter.empty() ? "" : "_")
                            .append(unit.first),
                        unit.second};
    }
  }
  return std::nullopt;
}

std::optional<MetricName> layer_name(Bag bag) {
  const std::optional<double> seconds = take_time(bag);
  take(bag, "per");
  take(bag, "time");
  const bool forward = bag == Bag{"layer", "forward"};
  if (!seconds || (!forward && bag != Bag{"layer", "backward"})) {
    return std::nullopt;
  }
  return MetricName{forward ? "layer_forward_ms" : "layer_backward_ms", *seconds * 1e3};
}

std::optional<MetricName> name_of_words(const NameWords& words) {
  const Bag bag(words.begin(), words.end());
  for (const std::string_view item : kItems) {
    if (bag.contains(item)) {
      return counted_name(words, item);
    }
  }
  for (const auto name : {layer_name, memory_name, rate_name}) {
    if (const std::optional<MetricName> known = name(bag)) {
      return known;
    }
  }
  return std::nullopt;
}

}  // namespace

MetricName metric_name(std::string_view text) {
  NameWords words = metric_words(text);
  // Tokens (fairseq: words) a second, of one GPU or of all unless a word says which.
  for (const auto& [rate, name] :
       {std::pair("tps", "tokens_per_s_of_some"), std::pair("wps", "tokens_per_s_of_words")}) {
    const auto at = std::ranges::find(words, rate);
    if (at != words.end() && words.size() == 1) {
      return {name};
    }
    if (at != words.end()) {
      *at = "tokens";
      words.emplace_back("s");
    }
  }
  return name_of_words(words).value_or(MetricName{to_lower(text), 1.0, false});
}

std::string likely_metric(std::string_view unknown) {
  constexpr auto kUsual = std::to_array<std::string_view>(
      {"iteration_s", "layer_forward_ms", "layer_backward_ms", "samples_per_s",
       "samples_per_s_per_gpu", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "hfu",
       "tflops_per_gpu", "peak_mem_gib", "peak_mem_gb"});
  const std::vector<std::string> names(kUsual.begin(), kUsual.end());
  if (std::string misspelt = misspelt_name(unknown, names); !misspelt.empty()) {
    return misspelt;
  }
  // "step time", "tokens": the first that says all of it and more.
  const auto bag_of = [](std::string_view text) {
    const NameWords words = metric_words(text);
    Bag bag(words.begin(), words.end());
    take(bag, "time");
    take(bag, "per");
    return bag;
  };
  const NameWords words = metric_words(unknown);
  const Bag bag = bag_of(unknown);
  const auto* const longer = std::ranges::find_if(kUsual, [&](std::string_view one) {
    const Bag own = bag_of(one);
    return std::ranges::includes(own, bag);
  });
  const bool rate = bag.contains("iteration") && !is_time_of(words, "iteration");
  return bag.empty() || rate || longer == kUsual.end() ? "" : std::string(*longer);
}

}  // namespace orrery::studies
