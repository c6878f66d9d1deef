// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/recompute_words.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "plan/operator_set.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/row_words.hpp"

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

// "yes" and "1" say that layers are recomputed, not which part of them: the detail may.
std::string kind_behind_flag(std::string_view cell, const std::string& kind,
                             std::string_view detail) {
  constexpr auto kFlags =
      std::to_array<std::string_view>({"yes", "enabled", "on", "true", "1", "ac"});
  const bool flag =
      std::find(kFlags.begin(), kFlags.end(), letters_and_digits(cell)) != kFlags.end();
  return flag && mentions(asserted(to_lower(detail)), "selective") ? "selective" : kind;
}

}  // namespace

// Flags of scripts and what they name: the layer, or the attention core (Megatron-LM's
// --recompute-activations).
RecomputeWords recompute_words(std::string_view cell, std::string_view detail) {
  constexpr auto kNames = std::to_array<WordMeaning>({{"no", "none"},
                                                      {"off", "none"},
                                                      {"false", "none"},
                                                      {"0", "none"},
                                                      {"disabled", "none"},
                                                      {"yes", "full"},
                                                      {"enabled", "full"},
                                                      {"on", "full"},
                                                      {"true", "full"},
                                                      {"1", "full"},
                                                      {"100", "full"},  // per cent
                                                      {"100oflayers", "full"},
                                                      {"ac", "full"},
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
    return {kind_behind_flag(before_remark(cell), first, both), std::move(both)};
  }
  const std::string name = spelling(cell, kNames);
  const std::vector<std::string_view> parts = split(name, '+');
  const bool groups = std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
    return plan::group_named(part).has_value();
  });
  if (groups || std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) {
    return {kind_behind_flag(cell, name, detail), std::string(detail)};
  }
  const auto with = [&](std::string_view kind) {
    std::string both = name;
    both.append(detail.empty() ? "" : "; ").append(detail);
    return RecomputeWords{std::string(kind), std::move(both)};
  };
  constexpr auto kSome =
      std::to_array<std::string_view>({"selective", "per-op", "per op", "every ", "half of", "%"});
  constexpr auto kWhole =
      std::to_array<std::string_view>({"full", "block", "checkpoint", "recomput", "all layers"});
  if (name == "sac" || name.starts_with("sac ")) {
    return {"selective", "per-op; " + std::string(detail)};
  }
  const std::string said = asserted(name);
  if (letters_and_digits(said).empty()) {
    return {"none", std::string(detail)};
  }
  if (said.find("dots") != said.npos) {  // jax.checkpoint_policies
    return with("custom");
  }
  if (says_any(said, kSome) || states_share(said)) {
    return with("selective");
  }
  const bool layers = is_digit(said.front()) && said.find("layer") != said.npos;  // "8 layers"
  return with(layers || says_any(said, kWhole) ? "full" : "custom");
}

}  // namespace orrery::studies
