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
#include "base/words.hpp"
#include "plan/operator_set.hpp"
#include "studies/rows/count_words.hpp"
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
    const bool counted = is_among(next, kCounted);
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

// "all 32 layers", "all transformer layers"; not "half of all layers".
bool names_all_layers(std::string_view text) {
  constexpr std::string_view kAll = "all ";
  const std::size_t at = text.find(kAll);
  if (at == text.npos || text.substr(0, at).ends_with("of ")) {
    return false;
  }
  const std::string_view behind = text.substr(at + kAll.size());
  std::string_view counted = behind;
  counted.remove_prefix(std::min(counted.size(), counted.find_first_not_of("0123456789")));
  counted = trim(counted);
  for (const std::string_view kind : {"transformer ", "decoder "}) {
    counted.remove_prefix(counted.starts_with(kind) ? kind.size() : 0);
  }
  return counted.size() < behind.size() && counted.starts_with("layer");
}

// "100% layers", "10/10 layers", "full, 32 of 32 layers".
bool counts_all_layers(std::string_view text) {
  constexpr auto kParts = std::to_array<std::string_view>({"selective", "per-op", "per op"});
  const std::size_t layer = text.find("layer");
  if (layer == text.npos || says_any(text, kParts)) {
    return false;
  }
  const std::string_view front = text.substr(0, layer);
  std::string_view share = trim(front.substr(front.find_last_of(",;(") + 1));
  for (const std::string_view joint : {" the", " of"}) {
    share = share.ends_with(joint) ? trim(share.substr(0, share.size() - joint.size())) : share;
  }
  const auto counts = two_counts(share);
  return share == "100%" || share == "100 %" || (counts && counts->first == counts->second);
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
  const bool flag = is_among(letters_and_digits(cell), kFlags);
  return flag && mentions(asserted(to_lower(detail)), "selective") ? "selective" : kind;
}

// "block, 0 layers", "recompute_num_layers: 0", "disabled": full recomputation of nothing.
bool recomputes_nothing(std::string_view detail) {
  constexpr auto kCounts = std::to_array<std::string_view>({"num layers"});
  constexpr auto kNone = std::to_array<std::string_view>({"0 layers"});
  constexpr auto kLeftOut = std::to_array<std::string_view>({"last", "except", "skip", "for"});
  const std::string plain = with_blanks(detail);
  constexpr auto kWhole = std::to_array<std::string_view>({"0%", "0% of layers", "block 0"});
  if (is_among(trim(plain), kWhole)) {
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

// "none", "off", "N" of a detail beside another kind: it has none, and denies nothing.
bool is_only_denial(std::string_view detail) {
  constexpr auto kWords = std::to_array<std::string_view>({"none", "no", "off", "n"});
  return is_among(letters_and_digits(detail), kWords);
}

// "none/selective", "full or none": rows of a table that share a cell, so no kind; "selective/full"
// recomputes at least a part.
bool names_several_kinds(std::string_view name) {
  constexpr auto kKinds = std::to_array<std::string_view>({"none", "selective", "full"});
  for (const std::string_view joint : {"/", " or "}) {
    const std::size_t at = name.find(joint);
    const std::string_view first = trim(name.substr(0, at));
    const std::string_view second =
        at == name.npos ? std::string_view() : trim(name.substr(at + joint.size()));
    const bool either = first == "none" || second == "none";
    if (first != second && either && is_among(first, kKinds) && is_among(second, kKinds)) {
      return true;
    }
  }
  return false;
}

// Flags of scripts and what they name: the layer or the attention core.
constexpr auto kKindWords = std::to_array<WordMeaning>({{"no", "none"},
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
                                                        {"complete", "full"},
                                                        {"alllayers", "full"},
                                                        {"perlayer", "full"},
                                                        {"layerwise", "full"},
                                                        {"remat", "full"},
                                                        {"nothingsaveable", "full"},
                                                        {"attn", "selective"},
                                                        {"attention", "selective"},
                                                        {"coreattn", "selective"},
                                                        {"coreattention", "selective"}});

bool is_known_kind(std::string_view name) {
  constexpr auto kKnown =
      std::to_array<std::string_view>({"", "none", "selective", "full", "custom", "products"});
  return is_among(name, kKnown);
}

std::string joined_detail(std::string_view words, std::string_view detail) {
  return fmt::format("{}{}{}", words, detail.empty() ? "" : "; ", detail);
}

// "none (FlashAttention)", "selective (every 2nd layer)": what stands before the bracket.
std::optional<RecomputeWords> kind_before_bracket(std::string_view cell, std::string_view detail) {
  const std::string_view front = before_remark(cell);
  const std::string kind = spelling(front, kKindWords);
  if (!cell.ends_with(')') || kind.empty() || !is_known_kind(kind)) {
    return std::nullopt;
  }
  std::string both = joined_detail(cell.substr(cell.find('(')), detail);
  return RecomputeWords{kind_behind_flag(front, kind, both), std::move(both), ""};
}

bool names_groups(std::string_view name) {
  const std::vector<std::string_view> parts = split(name, '+');
  return std::all_of(parts.begin(), parts.end(),
                     [](std::string_view part) { return plan::group_named(part).has_value(); });
}

// A word with a slip, or a fraction without a word.
std::optional<RecomputeWords> guessed_kind(std::string_view name, std::string_view detail) {
  if (const std::string meant = misspelt_kind(name); !meant.empty()) {
    RecomputeWords words = recompute_words(meant, detail);
    words.read_as = meant;
    return words;
  }
  if (const double percent = bare_fraction(name); percent > 0) {
    const std::string share = fmt::format("{:g}% of layers", percent);
    return RecomputeWords{"selective", joined_detail(share, detail), share};
  }
  return std::nullopt;
}

// What is left of a clause without what it denies: all layers, some of them or parts of them.
std::string_view kind_of_clause(std::string_view said) {
  constexpr auto kSome =
      std::to_array<std::string_view>({"selective", "per-op", "per op", "every ", "half of", "%"});
  constexpr auto kParts = std::to_array<std::string_view>({"selective", "per-op", "per op"});
  constexpr auto kModules =
      std::to_array<std::string_view>({"recompute_modules", "recompute-modules"});
  constexpr auto kWhole = std::to_array<std::string_view>(
      {"full", "block", "uniform", "checkpoint", "ckpt", "recomput", "rematerial", "all layers"});
  constexpr auto kLayers = std::to_array<std::string_view>({"full", "block", "uniform", "layers"});
  if (said.find("dots") != said.npos || is_no_share(said)) {  // jax.checkpoint_policies
    return "custom";
  }
  if (names_all_layers(said) || (names_every_layer(said) && !says_any(said, kParts))) {
    return "full";
  }
  const bool modules = says_any(said, kModules) && said.find("full") == said.npos;
  if (modules || says_any(said, kSome) || states_share(said)) {
    return "selective";
  }
  // "recompute attention", "layernorm recompute": parts of a layer, where nothing says the whole.
  if (!says_any(said, kLayers) && !recomputed_operators(said).empty()) {
    return "selective";
  }
  const bool layers = is_digit(said.front()) && said.find("layer") != said.npos;  // "8 layers"
  return layers || says_any(said, kWhole) ? "full" : "custom";
}

RecomputeWords kind_in_words(std::string_view cell, std::string_view detail) {
  if (const auto words = kind_before_bracket(cell, detail)) {
    return *words;
  }
  const std::string name = spelling(cell, kKindWords);
  if (names_groups(name) || is_known_kind(name)) {
    return {kind_behind_flag(cell, name, detail), std::string(detail), ""};
  }
  if (const auto words = guessed_kind(name, detail)) {
    return *words;
  }
  if (const auto kind = kind_of_flag(name)) {
    return {*kind, std::string(detail), ""};
  }
  if (names_several_kinds(name)) {
    return {"custom", joined_detail(name, detail), ""};
  }
  const std::string said = undenied(name);
  if (names_operator_sac(said)) {
    return {"selective", "per-op; " + std::string(detail), ""};
  }
  if (counts_all_layers(said)) {
    return {"full", std::string(detail), ""};
  }
  if (!letters_and_digits(said).empty()) {
    return {std::string(kind_of_clause(said)), joined_detail(name, detail), ""};
  }
  if (letters_and_digits(name).empty()) {  // signs alone
    return {"custom", joined_detail(name, detail), ""};
  }
  return {"none", std::string(detail), ""};  // all of it is denied
}

// "none + activation offload": what the cell offloads goes with its detail.
RecomputeWords with_offload_apart(std::string_view cell, std::string_view detail) {
  const std::string parts = with_signs_as(cell, "+,", ';');
  std::string kind;
  std::string offload;
  for (const std::string_view part : split(parts, ';')) {
    std::string& side = mentions(part, "offload") ? offload : kind;
    const std::string_view joint = &side == &offload ? "; " : " + ";
    side.append(side.empty() ? "" : joint).append(trim(part));
  }
  return recompute_words(kind.empty() ? "none" : kind, joined_detail(offload, detail));
}

// A list that offloads activations or states, or "activation offload" alone; "full (CPU offload)"
// is one kind.
bool offloads_apart(std::string_view cell) {
  constexpr auto kKindNames =
      std::to_array<std::string_view>({"recomp", "checkpoint", "full", "selective", "remat"});
  constexpr auto kTensors = std::to_array<std::string_view>(
      {"activation", "optimizer", "optimiser", "states", "gradient", "param", "weight"});
  const std::string lower = to_lower(cell);
  const std::string_view plain = std::string_view(lower).substr(0, lower.find('('));
  return plain.find("offload") != plain.npos && says_any(plain, kTensors) &&
         (plain.find_first_of("+,;") != plain.npos || !says_any(plain, kKindNames));
}

}  // namespace

RecomputeWords recompute_words(std::string_view cell, std::string_view detail) {
  if (offloads_apart(cell)) {
    return with_offload_apart(cell, detail);
  }
  if (!cell.empty() && is_only_denial(detail)) {
    detail = {};
  }
  if (cell.size() > 1 && cell.front() == '-' && is_digit(cell[1])) {
    return {"custom", std::string(cell), ""};  // "-1" is no "1"
  }
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
