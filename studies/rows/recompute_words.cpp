// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/recompute_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "plan/operator_set.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/recompute_operators.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

// "3 of 8", "2/3".
bool states_share(std::string_view text) {
  for (const std::string_view between : {" of ", "/"}) {
    const std::size_t at = text.find(between);
    const std::size_t behind = at + between.size();
    if (at != text.npos && at > 0 && behind < text.size() && is_digit(text[at - 1]) &&
        is_digit(text[behind])) {
      return true;
    }
  }
  return false;
}

// "0.5": a fraction of the layers, in per cent; 0 where the text is no such fraction.
double bare_fraction(std::string_view text) {
  double fraction = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, fraction);
  const bool whole = read.ec == std::errc() && read.ptr == end;
  return whole && fraction > 0 && fraction < 1 ? 100 * fraction : 0;
}

// Shares of something else than layers ("2 of 8 stages") and of more than all of it are none.
bool is_no_share(std::string_view text) {
  const std::size_t sign = text.find('%');
  if (sign != text.npos) {
    const std::string_view number = trim(text.substr(0, sign));
    const std::size_t digits = number.find_last_not_of("0123456789.") + 1;
    double percent = 0;
    std::from_chars(number.data() + digits, number.data() + number.size(), percent);
    return percent > 100 || (digits > 0 && number[digits - 1] == '-');
  }
  const bool bare = text.find_first_not_of("0123456789/ of") == text.npos;
  return states_share(text) && !bare && text.find("layer") == text.npos;
}

// "every layer", "each transformer block": all of them, where neither a number nor an ordinal
// counts them ("every 2nd layer", "every other block") and no operator is named.
bool names_every_layer(std::string_view text) {
  constexpr auto kEvery = std::to_array<std::string_view>({"every", "each"});
  constexpr auto kCounted = std::to_array<std::string_view>(
      {"other", "second", "third", "fourth", "fifth", "two", "three", "four", "five", "few", "n",
       "nth", "n-th", "k", "kth", "k-th"});
  constexpr auto kParts = std::to_array<std::string_view>({"attention", "attn", "mlp", "norm"});
  for (const std::string_view word : kEvery) {
    const std::size_t at = find_word(text, word);
    if (at == text.npos || says_any(text, kParts)) {
      continue;
    }
    const std::string_view behind = trim(text.substr(at + word.size()));
    const std::string_view next = behind.substr(0, behind.find(' '));
    const bool layers = behind.find("layer") != behind.npos || behind.find("block") != behind.npos;
    const bool counted = std::find(kCounted.begin(), kCounted.end(), next) != kCounted.end();
    if (layers && !counted && behind.find_first_of("0123456789") == behind.npos) {
      return true;
    }
  }
  return false;
}

// torchtitan's selective checkpointing of operators, "op-level SAC", not that of every n-th layer.
bool names_operator_sac(std::string_view name) {
  constexpr auto kWords = std::to_array<std::string_view>({"sac", "op level", "op-level"});
  return name == "op" || name.starts_with("sac ") ||
         (has_word(name, kWords) && name.find_first_of("0123456789") == name.npos &&
          name.find("layer") == name.npos);
}

// "all 32 layers".
bool names_all_layers(std::string_view text) {
  constexpr std::string_view kAll = "all ";
  const std::size_t at = text.find(kAll);
  const std::size_t digits = at == text.npos ? at : at + kAll.size();
  const std::size_t end = std::min(text.size(), text.find_first_not_of("0123456789", digits));
  return digits < end && trim(text.substr(end)).starts_with("layer");
}

// A word that is one of the usual ones but for a slip.
std::string misspelt_kind(std::string_view text) {
  static const std::vector<std::string> kWords = {"none", "full", "selective", "custom", "uniform"};
  const bool one_word = text.find_first_of(" 0123456789") == text.npos;
  return one_word ? misspelt_name(text, kWords) : "";
}

// "yes" and "1" say that layers are recomputed, not which part of them: the detail may.
std::string kind_behind_flag(std::string_view cell, const std::string& kind,
                             std::string_view detail) {
  constexpr auto kFlags =
      std::to_array<std::string_view>({"yes", "enabled", "on", "true", "1", "ac"});
  const bool flag =
      std::find(kFlags.begin(), kFlags.end(), letters_and_digits(cell)) != kFlags.end();
  return flag && mentions(asserted(to_lower(detail)), "selective") ? "selective" : kind;
}

// "block, 0 layers", "recompute_num_layers: 0", "disabled": full recomputation of nothing.
bool recomputes_nothing(std::string_view detail) {
  constexpr auto kCounts = std::to_array<std::string_view>({"num layers"});
  constexpr auto kNone = std::to_array<std::string_view>({"0 layers"});
  constexpr auto kLeftOut = std::to_array<std::string_view>({"last", "except", "skip", "for"});
  const std::string plain = with_blanks(detail);
  constexpr auto kWhole = std::to_array<std::string_view>({"0%", "0% of layers", "block 0"});
  if (std::find(kWhole.begin(), kWhole.end(), trim(plain)) != kWhole.end()) {
    return true;
  }
  const auto stated = truth_of(trim(plain));
  return number_set(detail, kCounts) == 0 ||
         (has_word(plain, kNone) && !has_word(plain, kLeftOut)) ||
         (stated == false && trim(plain) != "0");
}

// Megatron-LM's --recompute-activations is selective; no value for other words.
std::optional<std::string> kind_of_flag(std::string_view name) {
  constexpr auto kFlags =
      std::to_array<std::string_view>({"--recompute-activations", "recompute_activations"});
  constexpr auto kNames = std::to_array<std::string_view>({"recompute activations"});
  if (!says_any(name, kFlags) || says_any(name, std::to_array<std::string_view>({"full"}))) {
    return std::nullopt;
  }
  return switch_set(name, kNames) == false ? "none" : "selective";
}

// Flags of scripts and what they name: the layer or the attention core.
RecomputeWords kind_in_words(std::string_view cell, std::string_view detail) {
  constexpr auto kNames = std::to_array<WordMeaning>({{"no", "none"},
                                                      {"off", "none"},
                                                      {"false", "none"},
                                                      {"0", "none"},
                                                      {"disabled", "none"},
                                                      {"n", "none"},
                                                      {"y", "full"},
                                                      {"yes", "full"},
                                                      {"enabled", "full"},
                                                      {"on", "full"},
                                                      {"true", "full"},
                                                      {"1", "full"},
                                                      {"100", "full"},  // per cent
                                                      {"100oflayers", "full"},
                                                      {"ac", "full"},
                                                      {"gc", "full"},
                                                      {"ckpt", "full"},
                                                      {"uniform", "full"},
                                                      {"fulluniform", "full"},
                                                      {"everylayer", "full"},
                                                      {"all", "full"},
                                                      {"alllayers", "full"},
                                                      {"perlayer", "full"},
                                                      {"layerwise", "full"},
                                                      {"remat", "full"},
                                                      {"nothingsaveable", "full"},
                                                      {"attn", "selective"},
                                                      {"attention", "selective"},
                                                      {"coreattn", "selective"},
                                                      {"coreattention", "selective"}});
  constexpr auto kKnown =
      std::to_array<std::string_view>({"", "none", "selective", "full", "custom", "products"});
  // "none (FlashAttention)", "selective (every 2nd layer)": what stands before the bracket.
  if (const std::string first = spelling(before_remark(cell), kNames);
      cell.ends_with(')') && !first.empty() &&
      std::find(kKnown.begin(), kKnown.end(), first) != kKnown.end()) {
    std::string both(cell.substr(cell.find('(')));
    both.append(detail.empty() ? "" : "; ").append(detail);
    return {kind_behind_flag(before_remark(cell), first, both), std::move(both), ""};
  }
  const std::string name = spelling(cell, kNames);
  const std::vector<std::string_view> parts = split(name, '+');
  const bool groups = std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
    return plan::group_named(part).has_value();
  });
  if (groups || std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) {
    return {kind_behind_flag(cell, name, detail), std::string(detail), ""};
  }
  const auto with = [&](std::string_view kind) {
    std::string both = name;
    both.append(detail.empty() ? "" : "; ").append(detail);
    return RecomputeWords{std::string(kind), std::move(both), ""};
  };
  if (const std::string meant = misspelt_kind(name); !meant.empty()) {
    RecomputeWords words = recompute_words(meant, detail);
    words.read_as = meant;
    return words;
  }
  if (const double percent = bare_fraction(name); percent > 0) {
    const std::string share = fmt::format("{:g}% of layers", percent);
    return {"selective", detail.empty() ? share : fmt::format("{}; {}", share, detail), share};
  }
  constexpr auto kSome =
      std::to_array<std::string_view>({"selective", "per-op", "per op", "every ", "half of", "%"});
  constexpr auto kParts = std::to_array<std::string_view>({"selective", "per-op", "per op"});
  constexpr auto kModules =
      std::to_array<std::string_view>({"recompute_modules", "recompute-modules"});
  constexpr auto kWhole = std::to_array<std::string_view>(
      {"full", "block", "uniform", "checkpoint", "ckpt", "recomput", "rematerial", "all layers"});
  if (const auto kind = kind_of_flag(name)) {
    return {*kind, std::string(detail), ""};
  }
  if (const std::string said = undenied(name); names_operator_sac(said)) {
    return {"selective", "per-op; " + std::string(detail), ""};
  }
  const std::string said = undenied(name);
  if (letters_and_digits(said).empty()) {  // denied, or signs alone
    return letters_and_digits(name).empty() ? with("custom")
                                            : RecomputeWords{"none", std::string(detail), ""};
  }
  if (said.find("dots") != said.npos) {  // jax.checkpoint_policies
    return with("custom");
  }
  if (is_no_share(said)) {
    return with("custom");
  }
  if (names_all_layers(said) || (names_every_layer(said) && !says_any(said, kParts))) {
    return with("full");
  }
  const bool modules = says_any(said, kModules) && said.find("full") == said.npos;
  if (modules || says_any(said, kSome) || states_share(said)) {
    return with("selective");
  }
  // "recompute attention", "layernorm recompute": parts of a layer, where nothing says the whole.
  constexpr auto kLayers = std::to_array<std::string_view>({"full", "block", "uniform", "layers"});
  if (!says_any(said, kLayers) && !recomputed_operators(said).empty()) {
    return with("selective");
  }
  const bool layers = is_digit(said.front()) && said.find("layer") != said.npos;  // "8 layers"
  return with(layers || says_any(said, kWhole) ? "full" : "custom");
}

}  // namespace

RecomputeWords recompute_words(std::string_view cell, std::string_view detail) {
  constexpr auto kFull = std::to_array<std::string_view>({"full"});
  RecomputeWords words = kind_in_words(cell, detail);
  // "remat_policy: full" of a custom one.
  if (words.name == "custom" && has_word(asserted(to_lower(detail)), kFull) &&
      recomputed_operators(to_lower(detail)).empty()) {
    words.name = "full";
  }
  if (words.name == "full" && recomputes_nothing(words.detail)) {
    return {"none", "", fmt::format("none: {}", printable(words.detail, 60))};
  }
  return words;
}

}  // namespace orrery::studies
