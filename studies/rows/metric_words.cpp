// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/metric_words.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/words.hpp"

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
    {"secs", "s"},
    {"second", "s"},
    {"seconds", "s"},
    {"mins", "min"},
    {"minute", "min"},
    {"minutes", "min"},
    {"h", "hours"},
    {"hr", "hours"},
    {"hrs", "hours"},
    {"hour", "hours"},
    {"d", "days"},
    {"day", "days"},
    {"msec", "ms"},
    {"millisecond", "ms"},
    {"milliseconds", "ms"},
    {"microseconds", "us"},
    {"iter", "iteration"},
    {"iters", "iteration"},
    {"iterations", "iteration"},
    {"it", "iteration"},
    {"its", "iteration"},
    {"step", "iteration"},
    {"steps", "iteration"},
    {"batch", "iteration"},
    {"batches", "iteration"},
    {"sample", "samples"},
    {"seq", "samples"},
    {"seqs", "samples"},
    {"sequence", "samples"},
    {"sequences", "samples"},
    {"sentence", "samples"},
    {"sentences", "samples"},
    {"example", "samples"},
    {"examples", "samples"},
    {"image", "samples"},
    {"images", "samples"},
    {"img", "samples"},
    {"imgs", "samples"},
    {"token", "tokens"},
    {"tok", "tokens"},
    {"toks", "tokens"},
    {"ktok", "k tokens"},
    {"ktoks", "k tokens"},
    {"ktokens", "k tokens"},
    {"kilotokens", "k tokens"},
    {"mtok", "million tokens"},
    {"mtokens", "million tokens"},
    {"megatokens", "million tokens"},
    {"wps", "tokens per s"},          // fairseq's words a second
    {"tgs", "tokens per s per gpu"},  // tokens a GPU and second
    {"device", "gpu"},
    {"devices", "gpu"},
    {"gpus", "gpu"},
    {"chip", "gpu"},
    {"card", "gpu"},
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
});

}  // namespace

std::vector<std::string> metric_words(std::string_view text) {
  std::string apart;
  for (const char c : with_signs_as(to_lower(text), "-_()[],.", ' ')) {
    apart.append(c == '/' ? " per " : c == '%' ? " % " : std::string(1, c));
  }
  std::vector<std::string> words;
  for (const std::string_view word : split(apart, ' ')) {
    const auto* const found = std::ranges::find(kSynonyms, word, &Synonym::word);
    for (const std::string_view meaning :
         split(found == kSynonyms.end() ? word : found->meaning, ' ')) {
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
