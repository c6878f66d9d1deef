// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_gradients.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

using Tokens = std::vector<std::string_view>;

bool begins_with_any(std::string_view word, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [word](std::string_view one) { return word.starts_with(one); });
}

// 32 bits, 16 or none of both.
std::optional<bool> is_single(std::string_view word) {
  constexpr auto kSingle = std::to_array<std::string_view>({"fp32", "float32", "f32", "32bit"});
  constexpr auto kHalf = std::to_array<std::string_view>(
      {"bf16", "fp16", "bfloat16", "float16", "f16", "16bit", "half"});
  for (const std::string_view library : {"torch.", "jnp."}) {
    word.remove_prefix(word.starts_with(library) ? library.size() : 0);
  }
  const auto is_in = [word](std::span<const std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  return is_in(kSingle) ? std::optional(true) : is_in(kHalf) ? std::optional(false) : std::nullopt;
}

// "grads", "reduce", "allreduced", "accumulated": what a format belongs to that stands behind.
bool is_noun(std::string_view word) {
  constexpr auto kNouns =
      std::to_array<std::string_view>({"grad", "reduc", "allreduc", "accumulat", "wgrad"});
  return begins_with_any(word, kNouns);
}

// Words between a noun and its format, or between a format and its noun.
bool is_joint(std::string_view word) {
  constexpr auto kJoints = std::to_array<std::string_view>(
      {"in", "dtype", "type", "precision", "is", "are", "as", "at", "to", "all", "scatter",
       "scattered", "sync", "data", "dp", "communication", "communicated", "comm", "exchange"});
  return is_noun(word) || is_among(word, kJoints);
}

// "16-bit" and "32 bits" as one word.
Tokens tokens_of(std::string& clause) {
  constexpr auto kBits = std::to_array<std::string_view>({" bits", " bit"});
  for (const std::string_view bits : kBits) {
    for (std::size_t at = clause.find(bits); at != clause.npos; at = clause.find(bits, at)) {
      clause.replace(at, bits.size(), "bit");
    }
  }
  clause = with_signs_as(clause, "=:/+", ' ');
  Tokens tokens = split(clause, ' ');
  std::erase(tokens, std::string_view());
  return tokens;
}

// "gradients: bf16 params" states the format of parameters, "grads fp32 params bf16" both.
bool is_of_parameters(const Tokens& tokens, std::size_t format) {
  constexpr auto kOthers = std::to_array<std::string_view>({"param", "weight", "activation"});
  const bool beside = format + 1 < tokens.size() && begins_with_any(tokens[format + 1], kOthers);
  std::size_t behind = format + 2;
  while (behind < tokens.size() && is_joint(tokens[behind])) {
    ++behind;
  }
  return beside && (behind >= tokens.size() || !is_single(tokens[behind]));
}

// "reduced" alone is said of memory and batches, too; sums of other tensors and benchmarks of
// collectives are none of gradients.
bool is_of_gradients(std::string_view clause) {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"tp",      "cp",         "ep",         "sp",          "tensor",     "context",
       "expert",  "vocabulary", "activation", "norm",        "norms",      "softmax",
       "rmsnorm", "layernorm",  "loss",       "activations", "nccl",       "busbw",
       "logits",  "bandwidth",  "metrics",    "attention",   "products",   "gemms",
       "router",  "optimizer",  "sequence",   "embedding",   "embeddings", "autocast"});
  constexpr auto kGradients = std::to_array<std::string_view>({"grad"});
  constexpr auto kSums = std::to_array<std::string_view>(
      {"reduce", "reduction", "reductions", "allreduce", "dp all reduced"});
  // "fp32 accumulation" alone is that of products.
  return !has_word(clause, kOthers) && (says_any(clause, kGradients) || has_word(clause, kSums));
}

// The format of the noun at a position: the one behind it, else the one right before.
std::optional<bool> format_of(const Tokens& tokens, std::size_t noun) {
  std::size_t behind = noun + 1;
  while (behind < tokens.size() && is_joint(tokens[behind])) {
    ++behind;
  }
  if (behind < tokens.size() && is_single(tokens[behind])) {
    return is_of_parameters(tokens, behind) ? std::nullopt : is_single(tokens[behind]);
  }
  // "bf16 gradient checkpointing" and "bf16 reduced models" are about something else.
  constexpr auto kOthers = std::to_array<std::string_view>({"checkpoint", "scal", "clip"});
  const bool other = behind < tokens.size() && (begins_with_any(tokens[behind], kOthers) ||
                                                !tokens[noun].starts_with("grad"));
  std::size_t before = noun;
  while (before > 0 && is_joint(tokens[before - 1])) {
    --before;
  }
  return other || before == 0 ? std::nullopt : is_single(tokens[before - 1]);
}

// What one clause says; the last of several nouns is what counts: "grads in bf16, accumulated in
// fp32" keeps 32 bits.
std::optional<bool> said_in(std::string clause) {
  if (!is_of_gradients(clause)) {
    return std::nullopt;
  }
  const Tokens tokens = tokens_of(clause);
  std::optional<bool> said;
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    if (is_noun(tokens[at])) {
      const std::optional<bool> format = format_of(tokens, at);
      said = format ? format : said;
    }
  }
  // "grad_reduce_in_fp32=False" means the other format; "no bf16 gradients" leaves it open.
  const std::optional<bool> value = tokens.empty() ? std::nullopt : truth_of(tokens.back());
  if (said && value == false) {
    return *said ? std::optional(false) : std::nullopt;
  }
  return said && asserted(clause).size() < clause.size() ? std::nullopt : said;
}

}  // namespace

std::optional<bool> stated_fp32_gradients(std::string_view text) {
  const std::string plain = with_signs_as(with_blanks(about_this_run(text)), ",()\n", ';');
  std::optional<bool> stated;
  for (const std::string_view clause : split(plain, ';')) {
    const std::optional<bool> said = said_in(std::string(clause));
    stated = said ? said : stated;
  }
  return stated;
}

bool has_pure_precision(const Measurement& row) {
  return row.overlap_says("mixed_precision=pure") || row.overlap_says("mixed_precision: pure");
}

}  // namespace orrery::studies
