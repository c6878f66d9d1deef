// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_offload.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/text.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

using plan::Offload;
using plan::Tier;

// "activation offload ratio 0.4", "alpha=0.4", "4 of 10 layers", "last 8 layers"; no value where
// the clause states no such share.
std::optional<double> share_in_words(std::string_view clause, std::int64_t layers) {
  constexpr auto kShares = std::to_array<std::string_view>(
      {"ratio", "fraction", "share", "alpha", "offload", "offloading", "offloaded"});
  constexpr auto kCounts = std::to_array<std::string_view>({"last", "first", "offload", "of"});
  constexpr auto kAll = std::to_array<std::string_view>({"all layers", "every layer"});
  if (const double share = number_set(clause, kShares).value_or(1); share >= 0 && share < 1) {
    return share;
  }
  const std::size_t noun = clause.find("layer");
  if (noun == clause.npos || says_any(clause, kAll)) {
    return std::nullopt;
  }
  const std::string_view counted = clause.substr(0, noun);
  const auto whole = number_set(counted.substr(std::min(counted.size(), counted.find(" of "))),
                                std::to_array<std::string_view>({"of"}));
  const auto some = number_set(counted, kCounts);
  const double all = whole.value_or(static_cast<double>(layers));
  return some && *some > 0 && *some <= all ? std::optional(*some / all) : std::nullopt;
}

// "12.5% of the activations"; all of them where the clause states no share of them.
double share_of(std::string_view clause, std::int64_t layers) {
  constexpr auto kBetween =
      std::to_array<std::string_view>({"of", "the", "all", "saved", "stored", "layer"});
  for (std::size_t sign = clause.find('%'); sign != clause.npos;
       sign = clause.find('%', sign + 1)) {
    std::string_view whole = trim(clause.substr(sign + 1));
    for (const std::string_view word : kBetween) {
      whole = trim(whole.substr(whole.starts_with(word) ? word.size() : 0));
    }
    const std::string_view before = trim(clause.substr(0, sign));
    const std::size_t begin = before.find_last_not_of("0123456789.") + 1;
    double percent = 0;
    const auto read =
        std::from_chars(before.data() + begin, before.data() + before.size(), percent);
    if (read.ec == std::errc() && whole.starts_with("activation")) {
      return std::clamp(percent, 0.0, 100.0) / 100.0;
    }
  }
  return share_in_words(clause, layers).value_or(1);
}

// Gradients leave as they are reduced, which sharded ones are for every micro-batch.
void set_states(const Measurement& row, Tier tier, bool parameters, Offload& offload) {
  offload.optimizer = tier;
  const auto stage = row.zero_stage.value_or(0);
  offload.gradients = stage >= 2 ? tier : Tier::Device;
  offload.parameters = parameters && stage == 3 ? tier : offload.parameters;
}

// One clause in lower case that names what leaves or where to; switches take over reductions, too.
// DeepSpeed's "CPU offload" is that of the optimizer (ZeRO-Offload), PyTorch's CPUOffload that of
// parameters, too; beside recomputation a place alone does not say which tensors go there.
void apply_clause(std::string_view clause, const Measurement& row, bool of_recomputation,
                  Offload& offload) {
  constexpr auto kParameters =
      std::to_array<std::string_view>({"param", "weight", "infinity", "zero-3 offload"});
  constexpr auto kOptimizer =
      std::to_array<std::string_view>({"optimizer", "optimiser", "gradient", "master", "adam",
                                       "states", "zero-offload", "zero-2 offload"});
  constexpr auto kPlaces = std::to_array<std::string_view>({"cpu", "host", "nvme"});
  constexpr auto kSwitches = std::to_array<std::string_view>({"sharp"});
  const bool leaves =
      clause.find("offload") != clause.npos || clause.find("zero-infinity") != clause.npos;
  if (!leaves || has_word(clause, kSwitches)) {
    return;
  }
  const Tier tier = clause.find("nvme") == clause.npos ? Tier::Host : Tier::Disk;
  if (clause.find("activation") != clause.npos) {
    offload.activations = share_of(clause, row.layers.value_or(0));
    offload.activations_tier = tier;
    return;
  }
  const bool parameters = says_any(clause, kParameters);
  const bool states = parameters || says_any(clause, kOptimizer);
  if (states || (says_any(clause, kPlaces) && !of_recomputation)) {
    const bool whole = !states && mentions(row.framework, "fsdp");
    set_states(row, tier, parameters || whole, offload);
  }
}

}  // namespace

Offload stated_offload(const Measurement& row) {
  Offload offload;
  for (const std::string* text : {&row.framework, &row.zero_detail, &row.recompute_detail,
                                  &row.precision_detail, &row.variant, &row.notes}) {
    const std::string said = asserted(to_lower(*text));
    for (const std::string_view clause : split(said, ';')) {
      apply_clause(clause, row, text == &row.recompute_detail, offload);
    }
  }
  return offload;
}

}  // namespace orrery::studies
