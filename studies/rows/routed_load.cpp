// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/routed_load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

// Tokens that the busiest of 32 ranks received over the mean, on average over steps and layers of a
// Mixtral-like network of 32 layers that was trained without a balancing loss on ranks of two or
// four experts: scripts_ae/token_analysis_backup.csv of the LAER-MoE artifact
// (PKU-DAIR/Hetu-Galvatron, branch laer-moe). The row's variant or notes hold the system.
//
// A small balancing loss leaves the routers of these runs as they were: 70 iterations from the same
// saved start (galvatron/models/moe/scripts/train.sh: --load) at a rate of 1.25e-6, of which a
// step of Adam is about one, at most (1 - b1) / sqrt(1 - b2) or 3.2 of them. It moves a weight by
// some 9e-5, at most 3e-4, of 0.01 that weights deviate by; with an epsilon of 1e-5, above the
// gradients of such a loss, by far less.
struct CountedLoad {
  std::string_view system;
  std::string_view key;  // the system in letters and digits
  std::int64_t experts;
  std::int64_t top_k;
  double imbalance;
};
constexpr auto kCountedLoads = std::to_array<CountedLoad>({
    {"static EP", "staticep", 16, 4, 1.73},
    {"FlexMoE re-layout", "flexmoe", 16, 4, 1.66},
    {"LAER re-layout", "laer", 16, 4, 1.29},
    {"static EP", "staticep", 8, 2, 1.66},
    {"FlexMoE re-layout", "flexmoe", 8, 2, 1.50},
    {"LAER re-layout", "laer", 8, 2, 1.41},
});

// Of the artifact's runs the whole planners: its ablations leave parts out.
bool is_of(const Measurement& row, std::string_view key) {
  constexpr auto kAblations = std::to_array<std::string_view>({"without", "planner"});
  const std::string remarks = remarks_of(row);
  return !has_word(to_lower(remarks), kAblations) &&
         letters_and_digits(remarks).find(key) != std::string::npos;
}

// The larger of the weights of a balancing loss in the artifact's runs.
constexpr double kSmallBalancingLoss = 1e-4;

// "auxiliary loss 0.0", "aux_loss_coeff=1e-4", "no balancing loss".
bool barely_balances(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"auxiliary loss coefficient", "auxiliary loss coeff", "auxiliary loss", "aux loss coeff",
       "moe aux loss coeff", "aux loss", "load balancing loss", "balancing loss"});
  const std::string remarks = remarks_of(row);
  const auto weight = number_set(remarks, kNames);
  return weight ? *weight <= kSmallBalancingLoss : switch_set(remarks, kNames) == false;
}

bool says_uneven(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"unbalanced routing", "imbalanced routing", "uneven routing", "skewed routing"});
  return has_word(asserted_with_blanks(remarks_of(row)), kNames);
}

const CountedLoad* counted_load(const Measurement& row) {
  const bool artifact = mentions(row.framework, "FSEP") && barely_balances(row);
  const auto* found =
      std::find_if(kCountedLoads.begin(), kCountedLoads.end(), [&](const CountedLoad& load) {
        return artifact && row.experts == load.experts && row.top_k == load.top_k &&
               is_of(row, load.key);
      });
  return found == kCountedLoads.end() ? nullptr : found;
}

// "routing imbalance 1.66": no rank gets more than all that there is; 0 where none is stated.
double stated_imbalance(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"routing imbalance", "router imbalance", "expert load imbalance"});
  const double stated = number_set(asserted_with_blanks(remarks_of(row)), kNames).value_or(0);
  const auto ranks = static_cast<double>(row.ep.value_or(1));
  return stated >= 1 && stated <= ranks ? stated : 0;
}

}  // namespace

double routing_imbalance(const Measurement& row) {
  if (const double stated = stated_imbalance(row); stated > 0) {
    return stated;
  }
  const CountedLoad* load = counted_load(row);
  return load == nullptr ? 1.0 : load->imbalance;
}

std::vector<std::string> routing_remarks(const Measurement& row) {
  if (row.experts.value_or(0) <= 1 || row.ep.value_or(1) <= 1) {
    return {};
  }
  if (const double stated = stated_imbalance(row); stated > 0) {
    return {fmt::format("{:g} times the mean of tokens on the busiest rank (notes)", stated)};
  }
  if (const CountedLoad* load = counted_load(row)) {
    return {fmt::format("{} times the mean of tokens on the busiest rank ({}, as counted)",
                        load->imbalance, load->system)};
  }
  return says_uneven(row) ? std::vector<std::string>{"unbalanced routing as balanced"}
                          : std::vector<std::string>{};
}

}  // namespace orrery::studies
