// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/counting_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/denials.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

using Words = std::span<const std::string_view>;

bool is_formula_letter(char c) { return c >= 'a' && c <= 'z'; }

// In lower case, with one sign for every product: "6·N×D" and "6 x N x D" as "6*n*d". The point of
// an abbreviation ends no sentence.
std::string with_plain_signs(std::string_view stated) {
  constexpr auto kSigns =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"\xC2\xB7", "*"},
                                                                    {"\xC3\x97", "*"},
                                                                    {"\xE2\x8B\x85", "*"},
                                                                    {"\xE2\x88\x99", "*"},
                                                                    {"\xE2\x80\xA2", "*"},
                                                                    {"\xC2\xB2", "2"},
                                                                    {"\xC2\xA0", " "},
                                                                    {"incl.", "incl"},
                                                                    {"excl.", "excl"},
                                                                    {" x ", "*"}});
  std::string text = to_lower(stated);
  for (const auto& [sign, plain] : kSigns) {
    for (std::size_t at = text.find(sign); at != text.npos; at = text.find(sign, at)) {
      text.replace(at, sign.size(), plain);
    }
  }
  return text;
}

// Names of sizes in code as the letters that papers have for them: "12*n_layer*d_model*seq" counts
// like "12*L*h*s".
std::string with_letters(std::string formula) {
  constexpr auto kNames =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"n_layers", "l"},
                                                                    {"n_layer", "l"},
                                                                    {"num_layers", "l"},
                                                                    {"d_model", "h"},
                                                                    {"hidden_size", "h"},
                                                                    {"n_embd", "h"},
                                                                    {"n_embed", "h"}});
  for (const auto& [name, letter] : kNames) {
    for (std::size_t at = formula.find(name); at != formula.npos; at = formula.find(name, at)) {
      formula.replace(at, name.size(), letter);
    }
  }
  return formula;
}

// Also at an "and": "no recompute and causal attention" denies one of two.
std::vector<std::string_view> counting_clauses(std::string_view text) {
  constexpr std::string_view kEnds = ",;()";
  constexpr std::string_view kAnd = " and ";
  std::vector<std::string_view> clauses;
  while (!text.empty()) {
    const std::size_t sign = std::min(text.find_first_of(kEnds), text.size());
    const std::size_t word = std::min(text.find(kAnd), text.size());
    clauses.push_back(trim(text.substr(0, std::min(sign, word))));
    text.remove_prefix(std::min(text.size(), word < sign ? word + kAnd.size() : sign + 1));
  }
  return clauses;
}

// A convention in lower case, and its formula without signs and spaces: "96 * B * s" as "96bs".
struct Convention {
  explicit Convention(const std::string& stated)
      : text(with_plain_signs(stated)), said(undenied(text)), formula(said) {
    std::erase_if(formula, [](char c) { return c == ' ' || c == '*' || c == '^'; });
    formula = with_letters(std::move(formula));
  }
  bool has(std::string_view word) const { return text.find(word) != text.npos || has_factor(word); }
  bool has_any(Words words) const {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return has(word); });
  }
  // "6nd", not that of "16 nodes".
  bool has_factor(std::string_view word) const { return find_factor(word, 0) != formula.npos; }
  std::size_t find_factor(std::string_view word, std::size_t from) const {
    std::size_t at = formula.find(word, from);
    while (at != formula.npos && at > 0 && is_digit(formula[at - 1])) {
      at = formula.find(word, at + 1);
    }
    return at;
  }
  bool has_any_factor(Words words) const {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return has_factor(word); });
  }
  // So many of each parameter: "6 N", "6 * params", not "6 nodes".
  bool has_parameters(char count) const;
  bool says(std::string_view word) const { return said.find(word) != said.npos; }
  // "MFU (not including recompute)".
  bool denies(std::string_view word) const { return text.find(word) != text.npos && !says(word); }

  std::string text;
  std::string said;  // without what it denies
  std::string formula;
};

bool Convention::has_parameters(char count) const {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"n", "pd", "pt", "psi", "param", "modelparam", "activeparam", "numparam"});
  // "8 nodes", "8 NICs", "8 NVLinks", ...: what else begins with an N.
  constexpr auto kOthers =
      std::to_array<std::string_view>({"node", "nic", "nvl", "nvi", "nccl", "num", "net", "nov"});
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view name) {
    const std::string factor = count + std::string(name);
    std::size_t at = find_factor(factor, 0);
    while (at != formula.npos) {
      const auto noun = std::string_view(formula).substr(at + 1);
      const bool other = std::any_of(kOthers.begin(), kOthers.end(), [noun](std::string_view word) {
        return noun.starts_with(word);
      });
      if (!other || name != "n") {
        return true;
      }
      at = find_factor(factor, at + 1);
    }
    return false;
  });
}

constexpr std::string_view kRecompute = "recomput";

// "excl. attention": a denial of attention itself, not of its kind or of its recomputation.
bool denies_attention(const Convention& convention) {
  constexpr auto kKinds =
      std::to_array<std::string_view>({"recomput", "checkpoint", "causal", "mask", "flash",
                                       "window", "sparse", "full", "half", "halv"});
  const std::vector<std::string_view> clauses = counting_clauses(convention.text);
  return std::any_of(clauses.begin(), clauses.end(), [&](std::string_view clause) {
    constexpr std::string_view kAttention = "attention";
    return clause.find(kAttention) != clause.npos && !says_any(clause, kKinds) &&
           undenied(clause).find(kAttention) == std::string::npos;
  });
}

// Beside an "attention" or "causal" of the cell: "attention halved", "(half)".
bool halves_attention(const Convention& convention) {
  constexpr auto kHalf = std::to_array<std::string_view>({"half", "halved", "halves", "halving"});
  if (!convention.has("attention") && !convention.has("causal")) {
    return false;
  }
  const std::vector<std::string_view> clauses = counting_clauses(convention.said);
  return std::any_of(clauses.begin(), clauses.end(), [&](std::string_view clause) {
    return has_word(clause, kHalf) && clause.find("precision") == clause.npos;
  });
}

// A causal mask that the count respects: neither "non-causal", "causal mask not considered" nor
// "causal, attention in full".
bool counts_causal(const Convention& convention) {
  constexpr auto kFull = std::to_array<std::string_view>({"full", "fully"});
  constexpr auto kOthers = std::to_array<std::string_view>({"recomput", "checkpoint", "embed"});
  constexpr std::string_view kCausal = "causal";
  bool causal = false;
  for (const std::string_view clause : counting_clauses(convention.text)) {
    const bool of_others = says_any(clause, kOthers);
    if (has_word(clause, kFull) && !of_others) {
      return false;
    }
    if (clause.find(kCausal) == clause.npos) {
      continue;
    }
    const std::string said = undenied(clause);
    const bool whole = trim(said).size() == clause.size() || of_others;
    if (clause.find("noncausal") != clause.npos || !whole ||
        said.find(kCausal) == std::string::npos) {
      return false;
    }
    causal = true;
  }
  return causal;
}

// The term of attention in a formula, where it holds one.
std::optional<CountedAttention> attention_term(const Convention& convention) {
  // 12 L h s beside 6 N (16 beside 8), s/6h in Narayanan's, 12 s beside its 72 h.
  constexpr auto kHalf = std::to_array<std::string_view>(
      {"6lh", "6ls", "6ld", "6ln", "8lh", "8ls", "8ld", "8ln", "s/12h", "s/(12h", "72h+6s"});
  constexpr auto kFull = std::to_array<std::string_view>(
      {"12l", "16lh", "16ls", "16ld", "16ln", "s/6h", "s/(6h", "72h+12s"});
  if (convention.has_any_factor(kHalf)) {
    return CountedAttention::Half;
  }
  return convention.has_any_factor(kFull) ? std::optional(CountedAttention::Full) : std::nullopt;
}

CountedAttention counted_attention(const Convention& convention) {
  if (halves_attention(convention)) {
    return CountedAttention::Half;
  }
  if (const auto term = attention_term(convention)) {
    return *term;
  }
  return denies_attention(convention) ? CountedAttention::None
         : counts_causal(convention)  ? CountedAttention::Half
                                      : CountedAttention::Full;
}

std::optional<FlopCounting> narayanan_formula(const Convention& convention) {
  constexpr auto kRecomputed =
      std::to_array<std::string_view>({"96bsl", "96bls", "sc21", "factor 4"});
  constexpr auto kPlain =
      std::to_array<std::string_view>({"72bsl", "72bls", "narayanan formula without recompute"});
  const bool recomputed = convention.has_any(kRecomputed);
  if (!recomputed && !convention.has_any(kPlain)) {
    return std::nullopt;
  }
  return FlopCounting{.base = CountedBase::Narayanan,
                      .attention = counted_attention(convention),
                      .recompute = recomputed && !convention.denies(kRecompute)
                                       ? CountedRecompute::All
                                       : CountedRecompute::None};
}

// "6ND with total params".
bool counts_all_experts(const Convention& convention) {
  constexpr auto kAll = std::to_array<std::string_view>(
      {"total param", "total model param", "all param", "total n", "n_total", "n = total"});
  return says_any(convention.said, kAll) && !convention.says("active");
}

// 6 of the parameters, 8 with the recomputed forward; with attention where it is named.
// An HFU by a formula that a paper has for MFU counts what the run recomputes, too.
std::optional<FlopCounting> parameter_formula(const Convention& convention,
                                              std::string_view metric) {
  constexpr auto kPalm = std::to_array<std::string_view>({"palm", "nanogpt"});
  const bool palm = convention.has_any(kPalm);
  const bool six = convention.has_parameters('6');
  const bool eight = !six && convention.has_parameters('8');
  if (!palm && !six && !eight) {
    return std::nullopt;
  }
  const bool attention = palm || attention_term(convention) || convention.has("attention");
  const bool again =
      eight || convention.has_factor("4/3") || (six && !palm && convention.says(kRecompute));
  const bool as_run = metric == "hfu" && !six && !convention.denies(kRecompute);
  return FlopCounting{
      .base = CountedBase::Parameters,
      .attention = attention ? counted_attention(convention) : CountedAttention::None,
      .recompute = again    ? CountedRecompute::All
                   : as_run ? CountedRecompute::AsRun
                            : CountedRecompute::None,
      .all_experts = counts_all_experts(convention)};
}

// Of words for the usual ways of counting: "model FLOPs" and MFU count nothing that is recomputed.
std::optional<CountedRecompute> recompute_in_words(const Convention& convention) {
  constexpr auto kAll = std::to_array<std::string_view>({"4/3", "4xforward", "4forward"});
  constexpr auto kHardware =
      std::to_array<std::string_view>({"hardware flop", "hardware tflop", "hfu", "narayanan"});
  constexpr auto kModel =
      std::to_array<std::string_view>({"model flop", "model tflop", "mfu", "standard"});
  constexpr auto kForward = std::to_array<std::string_view>({"3xforward", "3forward"});
  if (convention.has_any_factor(kAll)) {
    return CountedRecompute::All;
  }
  const bool excluded = convention.denies(kRecompute);
  if (convention.says(kRecompute)) {
    return CountedRecompute::AsRun;
  }
  if (convention.has_any(kHardware)) {
    return excluded ? CountedRecompute::None : CountedRecompute::AsRun;
  }
  return excluded || convention.has_any(kModel) || convention.has_any_factor(kForward)
             ? std::optional(CountedRecompute::None)
             : std::nullopt;
}

std::optional<FlopCounting> counting_in_words(const Convention& convention,
                                              std::string_view metric) {
  auto recompute = recompute_in_words(convention);
  if (!recompute && metric == "mfu") {
    recompute = CountedRecompute::None;
  } else if (!recompute && metric == "hfu") {
    recompute = CountedRecompute::AsRun;
  }
  return recompute ? std::optional(FlopCounting{.base = CountedBase::Network,
                                                .attention = counted_attention(convention),
                                                .recompute = *recompute})
                   : std::nullopt;
}

// A product of a number and the letters of formulas that stands for no count above: "24Bslh^2".
bool has_unread_formula(std::string_view clause) {
  constexpr std::string_view kLetters = "bdhlnpstv";
  std::string formula(clause);
  std::erase_if(formula, [](char c) { return c == ' ' || c == '*' || c == '^'; });
  for (std::size_t at = formula.find_first_of("0123456789"); at < formula.size();) {
    const std::size_t begin =
        std::min(formula.find_first_not_of("0123456789.", at), formula.size());
    std::size_t end = begin;
    while (end < formula.size() && (is_formula_letter(formula[end]) || is_digit(formula[end]))) {
      ++end;
    }
    std::string letters = formula.substr(begin, end - begin);
    std::erase_if(letters, is_digit);
    const bool product =
        letters == "n" || (letters.size() > 1 && letters.find_first_of("hln") != letters.npos);
    if (product && letters.find_first_not_of(kLetters) == letters.npos) {
      return true;
    }
    at = formula.find_first_of("0123456789", std::max(end, at + 1));
  }
  return false;
}

// Of a clause that the count takes nothing from: neither words that it knows, a number nor, where
// the count is one, a formula.
bool is_unread(std::string_view clause, bool by_formula) {
  constexpr auto kKnown = std::to_array<std::string_view>(
      {"model flop", "model tflop", "model_flop",  "hardware",   "mfu",      "hfu",
       "utili",      "palm",        "nanogpt",     "narayanan",  "megatron", "korthikanti",
       "sc21",       "standard",    "theoretical", "formula",    "peak",     "recomput",
       "checkpoint", "attention",   "causal",      "forward",    "backward", "factor 4",
       "4/3",        "tokens",      "params",      "parameters", "assumed",  "inferred",
       "estimat"});
  constexpr auto kShort = std::to_array<std::string_view>(
      {"full", "half", "halved", "dense", "bf16", "fp16", "fp8", "tf32", "fp32"});
  const bool letters = std::any_of(clause.begin(), clause.end(), is_formula_letter);
  if (!letters || by_formula) {
    constexpr std::string_view kSigns = "0123456789+*/^=";
    if (!letters || clause.find_first_of(kSigns) != clause.npos) {
      return false;
    }
  } else if (has_unread_formula(clause)) {
    return true;
  }
  return !says_any(clause, kKnown) && !has_word(clause, kShort) &&
         clause.find_first_of("0123456789") == clause.npos;
}

}  // namespace

// A formula, or words.
std::optional<FlopCounting> flop_counting(const Measurement& row) {
  const Convention convention(row.flops_convention);
  if (const auto formula = narayanan_formula(convention)) {
    return formula;
  }
  if (const auto formula = parameter_formula(convention, row.metric)) {
    return formula;
  }
  return counting_in_words(convention, row.metric);
}

std::vector<std::string> unread_counting(const Measurement& row) {
  const bool counts = row.metric == "mfu" || row.metric == "hfu" || row.metric == "tflops_per_gpu";
  const auto counting = counts ? flop_counting(row) : std::nullopt;
  if (!counting || row.aux.contains("derived_iteration_s")) {
    return {};
  }
  std::vector<std::string> lines;
  const Convention convention(row.flops_convention);
  for (const std::string_view clause : counting_clauses(convention.text)) {
    if (is_unread(clause, counting->base != CountedBase::Network)) {
      lines.push_back(
          fmt::format("flops_convention: \"{}\" is not understood", printable(clause, 60)));
    }
  }
  if (counts_causal(convention) && counting->attention != CountedAttention::Half) {
    lines.push_back(fmt::format("flops_convention: \"causal\" beside a formula {}",
                                counting->attention == CountedAttention::Full
                                    ? "that counts attention in full"
                                    : "without attention"));
  }
  return lines;
}

}  // namespace orrery::studies
