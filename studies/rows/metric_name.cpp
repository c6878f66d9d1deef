// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/metric_name.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "base/text.hpp"

namespace orrery::studies {
namespace {

// Tools count memory "GB" in units of 2^30 bytes (metric.cpp).
constexpr double kMebibyte = 1.0 / 1024.0;
constexpr double kByte = kMebibyte / 1024.0 / 1024.0;

struct Spelling {
  std::string_view words;  // in any order
  std::string_view name;
  double scale = 1.0;
};

constexpr auto kSpellings = std::to_array<Spelling>({
    {"iteration s", "iteration_s"},
    {"iteration ms", "iteration_s", 1e-3},
    {"layer forward ms", "layer_forward_ms"},
    {"layer backward ms", "layer_backward_ms"},
    {"samples s", "samples_per_s"},
    {"samples s gpu", "samples_per_s_per_gpu"},
    {"tokens s", "tokens_per_s"},
    {"ktokens s", "tokens_per_s", 1e3},
    {"ktokens s gpu", "tokens_per_s_per_gpu", 1e3},
    {"wps", "tokens_per_s"},  // fairseq's words a second
    {"wps gpu", "tokens_per_s_per_gpu"},
    {"tokens s gpu", "tokens_per_s_per_gpu"},
    {"tps gpu", "tokens_per_s_per_gpu"},
    {"tgs", "tokens_per_s_per_gpu"},  // tokens a GPU and second
    {"mfu", "mfu"},
    {"mfu %", "mfu", 0.01},
    {"hfu", "hfu"},
    {"hfu %", "hfu", 0.01},
    {"tflops gpu", "tflops_per_gpu"},
    {"tflops s gpu", "tflops_per_gpu"},
    {"peak mem gib", "peak_mem_gib"},
    {"peak mem gb", "peak_mem_gb"},
    {"peak mem mib", "peak_mem_gib", kMebibyte},
    {"peak mem mb", "peak_mem_gb", kMebibyte},
    {"peak mem bytes", "peak_mem_gib", kByte},
    {"mem gib", "peak_mem_gib"},
    {"mem gb", "peak_mem_gb"},
    {"mem mib", "peak_mem_gib", kMebibyte},
    {"mem mb", "peak_mem_gb", kMebibyte},
});

struct Synonym {
  std::string_view word;
  std::string_view meaning;  // empty: says nothing
};

constexpr auto kSynonyms = std::to_array<Synonym>({
    {"per", ""},
    {"time", ""},
    {"timing", ""},
    {"in", ""},
    {"train", ""},
    {"training", ""},
    {"throughput", ""},
    {"sec", "s"},
    {"secs", "s"},
    {"second", "s"},
    {"seconds", "s"},
    {"minute", "min"},
    {"msec", "ms"},
    {"millisecond", "ms"},
    {"milliseconds", "ms"},
    {"iter", "iteration"},
    {"iters", "iteration"},
    {"iterations", "iteration"},
    {"it", "iteration"},
    {"its", "iteration"},
    {"elapsed", ""},
    {"step", "iteration"},
    {"steps", "iteration"},
    {"sample", "samples"},
    {"seq", "samples"},
    {"sequences", "samples"},
    {"image", "samples"},
    {"images", "samples"},
    {"img", "samples"},
    {"imgs", "samples"},
    {"seqs", "samples"},
    {"token", "tokens"},
    {"tok", "tokens"},
    {"toks", "tokens"},
    {"ktok", "ktokens"},
    {"ktoks", "ktokens"},
    {"kilotokens", "ktokens"},
    {"device", "gpu"},
    {"gpus", "gpu"},
    {"chip", "gpu"},
    {"card", "gpu"},
    {"tflop", "tflops"},
    {"teraflops", "tflops"},
    {"memory", "mem"},
    {"vram", "mem"},
    {"max", "peak"},
    {"maximum", "peak"},
    // Of steps alike: the middle of them, what a run reached.
    {"avg", ""},
    {"average", ""},
    {"mean", ""},
    {"median", ""},
    {"p50", ""},
    {"achieved", ""},
});

std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> words;
  std::string lower = to_lower(text);
  std::replace_if(
      lower.begin(), lower.end(),
      [](char c) { return std::string_view("/ -()[]").find(c) != std::string_view::npos; }, '_');
  for (const std::string_view word : split(lower, '_')) {
    const auto* found = std::find_if(kSynonyms.begin(), kSynonyms.end(),
                                     [&](const Synonym& one) { return one.word == word; });
    const std::string_view meaning = found == kSynonyms.end() ? word : found->meaning;
    if (!meaning.empty()) {
      words.emplace(meaning);
    }
  }
  return words;
}

// "it/s", "steps per second": not the time of one.
bool is_iteration_rate(std::string_view text) {
  constexpr auto kNouns = std::to_array<std::string_view>(
      {"it", "its", "iter", "iters", "iteration", "iterations", "step", "steps"});
  std::string lower = to_lower(text);
  std::replace(lower.begin(), lower.end(), '_', ' ');
  std::string apart;
  for (const char c : lower) {
    apart.append(c == '/' ? " per " : std::string(1, c));
  }
  const std::vector<std::string_view> words = split(apart, ' ');
  std::string_view before;
  for (const std::string_view word : words) {
    if (word == "per" && std::find(kNouns.begin(), kNouns.end(), before) != kNouns.end()) {
      return true;
    }
    before = word.empty() ? before : word;
  }
  return false;
}

// "peak_mem_reserved_gib": which counter of the allocator the words name; takes it from them.
std::string_view take_counter(std::set<std::string>& words) {
  constexpr auto kCounters = std::to_array<std::string_view>({"reserved", "allocated"});
  for (const std::string_view counter : kCounters) {
    if (words.erase(std::string(counter)) > 0) {
      words.emplace("mem");
      return counter;
    }
  }
  return {};
}

// "peak_mem_gib" as "peak_mem_reserved_gib".
std::string with_counter(std::string_view name, std::string_view counter) {
  constexpr std::string_view kMemory = "peak_mem_";
  return counter.empty()
             ? std::string(name)
             : std::string(kMemory).append(counter).append("_").append(name.substr(kMemory.size()));
}

}  // namespace

MetricName metric_name(std::string_view text) {
  std::set<std::string> words = words_of(trim(text));
  const std::string_view counter = take_counter(words);
  if (words.contains("mem")) {
    words.erase("gpu");  // whose else
  } else if (words.contains("tokens") || words.contains("ktokens") || words.contains("samples")) {
    words.erase("total");
    words.erase("global");
  }
  if (words.contains("iteration") && is_iteration_rate(text)) {
    const bool seconds = words == std::set<std::string>{"iteration", "s"};
    const bool minutes = words == std::set<std::string>{"iteration", "min"};
    return {seconds || minutes ? "iterations_per_s" : to_lower(text), minutes ? 1.0 / 60 : 1.0,
            seconds || minutes};
  }
  for (const Spelling& spelling : kSpellings) {
    const std::vector<std::string_view> own = split(spelling.words, ' ');
    if (words.size() == own.size() && std::all_of(own.begin(), own.end(), [&](auto word) {
          return words.contains(std::string(word));
        })) {
      return {with_counter(spelling.name, counter), spelling.scale};
    }
  }
  return {to_lower(text), 1.0, false};
}

std::string likely_metric(std::string_view unknown) {
  std::vector<std::string> names;
  for (const Spelling& spelling : kSpellings) {
    names.emplace_back(spelling.name);
  }
  if (std::string misspelt = misspelt_name(unknown, names); !misspelt.empty()) {
    return misspelt;
  }
  // "TFLOPs", "step time": the first that says all of it and more.
  const std::set<std::string> words = words_of(unknown);
  const auto* const longer =
      std::find_if(kSpellings.begin(), kSpellings.end(), [&](const auto& one) {
        const std::vector<std::string_view> own = split(one.words, ' ');
        return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
          return std::find(own.begin(), own.end(), word) != own.end();
        });
      });
  const bool rate = is_iteration_rate(unknown);
  return words.empty() || rate || longer == kSpellings.end() ? "" : std::string(longer->name);
}

}  // namespace orrery::studies
