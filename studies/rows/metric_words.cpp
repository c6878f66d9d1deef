// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/metric_words.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/words.hpp"
#include "topologies/words.hpp"

namespace orrery::studies {
namespace {

struct Synonym {
  std::string_view word;
  std::string_view meaning;  // empty: says nothing; several words: all of them
};

constexpr auto kSynonyms = std::to_array<Synonym>({
    {"in", ""},
    {"of", ""},
    {"the", ""},
    {"to", ""},
    {"end", ""},
    {"e2e", ""},
    {"wall", ""},
    {"clock", ""},
    {"train", ""},
    {"training", ""},
    {"throughput", ""},
    {"speed", ""},
    {"timing", "time"},
    {"elapsed", "time"},
    {"latency", "time"},
    {"duration", "time"},
    {"walltime", "time"},
    {"for", "per"},
    {"sec", "s"},
    {"second", "s"},
    {"mins", "min"},
    {"minute", "min"},
    {"h", "hours"},
    {"hr", "hours"},
    {"hour", "hours"},
    {"d", "days"},
    {"day", "days"},
    {"msec", "ms"},
    {"millisecond", "ms"},
    {"microsecond", "us"},
    {"fwd", "forward"},
    {"bwd", "backward"},
    {"iter", "iteration"},
    {"iterations", "iteration"},
    {"it", "iteration"},
    {"step", "iteration"},
    {"batch", "iteration"},
    {"batches", "iteration"},
    {"sample", "samples"},
    {"seq", "samples"},
    {"sequence", "samples"},
    {"sentence", "samples"},
    {"example", "samples"},
    {"image", "samples"},
    {"img", "samples"},
    {"token", "tokens"},
    {"tok", "tokens"},
    {"ktok", "k tokens"},
    {"ktokens", "k tokens"},
    {"kilotokens", "k tokens"},
    {"mtok", "million tokens"},
    {"mtokens", "million tokens"},
    {"megatokens", "million tokens"},
    {"tgs", "tokens per s per gpu"},  // tokens a GPU and second
    {"device", "gpu"},
    {"gpus", "gpu"},
    {"chip", "gpu"},
    {"card", "gpu"},
    {"npu", "gpu"},
    {"p", "gpu"},  // "tokens/p/s": a processor of Ascend's tools
    {"rank", "gpu"},
    {"gcd", "gpu"},
    {"tpu", "gpu"},
    {"accelerator", "gpu"},
    {"server", "node"},
    {"machine", "node"},
    {"total", "all"},
    {"global", "all"},
    {"aggregate", "all"},
    {"aggregated", "all"},
    {"overall", "all"},
    {"cluster", "all"},
    {"system", "all"},
    {"flop", "flops"},
    {"gflop", "gflops"},
    {"gigaflops", "gflops"},
    {"tflop", "tflops"},
    {"teraflops", "tflops"},
    {"pflop", "pflops"},
    {"petaflops", "pflops"},
    {"eflop", "eflops"},
    {"exaflops", "eflops"},
    {"utilisation", "utilization"},
    {"util", "utilization"},
    {"pct", "%"},
    {"percent", "%"},
    {"percentage", "%"},
    {"fraction", "share"},
    {"theoretical", ""},
    {"memory", "mem"},
    {"vram", "mem"},
    {"hbm", "mem"},
    {"torch", ""},
    {"cuda", ""},
    {"usage", ""},
    {"used", ""},
    {"footprint", ""},
    {"consumption", ""},
    {"max", "peak"},
    {"maximum", "peak"},
    // Of steps alike: the middle of them, what a run reached.
    {"avg", ""},
    {"average", ""},
    {"mean", ""},
    {"median", ""},
    {"p50", ""},
    {"achieved", ""},
    // Where the figure is from.
    {"measured", ""},
    {"reported", ""},
    {"inferred", ""},
    {"derived", ""},
});

// In the singular or the plural, as either is listed; "gpu" of the name of one that is counted
// by: "/A100", "A100-hours".
std::string_view meaning_of(std::string_view word, bool of_one) {
  std::string other(word);
  if (word.ends_with('s')) {
    other.pop_back();
  } else {
    other += 's';
  }
  for (const std::string_view one : {word, std::string_view(other)}) {
    const auto* const found = std::ranges::find(kSynonyms, one, &Synonym::word);
    if (found != kSynonyms.end()) {
      return found->meaning;
    }
  }
  const bool model = of_one && std::ranges::any_of(word, is_digit);
  return model && !topologies::similar_gpu(word).empty() ? "gpu" : word;
}

}  // namespace

std::vector<std::string> metric_words(std::string_view text) {
  std::string apart;
  for (const char c : with_signs_as(to_lower(text), "-_()[],.", ' ')) {
    apart.append(c == '/' ? " per " : c == '%' ? " % " : std::string(1, c));
  }
  const bool of_hours = apart.find("hour") != apart.npos;
  std::vector<std::string> words;
  for (const std::string_view word : split(apart, ' ')) {
    const bool of_one = words.empty() ? of_hours : words.back() == "per";
    for (const std::string_view meaning : split(meaning_of(word, of_one), ' ')) {
      const bool share = meaning == "utilization" && words.size() > 1 && words.back() == "flops";
      if (share &&
          is_among(words[words.size() - 2], std::array<std::string_view, 2>{"model", "hardware"})) {
        const std::string_view name = words[words.size() - 2] == "model" ? "mfu" : "hfu";
        words.resize(words.size() - 2);
        words.emplace_back(name);
      } else if (!meaning.empty()) {
        words.emplace_back(meaning);
      }
    }
  }
  return words;
}

}  // namespace orrery::studies
