// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_offload.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/text.hpp"

namespace orrery::studies {
namespace {

using plan::Offload;
using plan::Tier;

// "10% of activations"; all of them where the clause states no share.
double share_of(std::string_view clause) {
  const std::size_t sign = clause.find('%');
  std::size_t begin = sign == clause.npos ? clause.npos : sign;
  while (begin != clause.npos && begin > 0 && clause[begin - 1] >= '0' &&
         clause[begin - 1] <= '9') {
    --begin;
  }
  int percent = 100;
  if (begin != clause.npos) {
    std::from_chars(clause.data() + begin, clause.data() + sign, percent);
  }
  return std::clamp(percent, 0, 100) / 100.0;
}

// Gradients leave as they are reduced, which sharded ones are for every micro-batch.
void set_states(const Measurement& row, Tier tier, bool parameters, Offload& offload) {
  offload.optimizer = tier;
  const auto stage = row.zero_stage.value_or(0);
  offload.gradients = stage >= 2 ? tier : Tier::Device;
  offload.parameters = parameters && stage == 3 ? tier : offload.parameters;
}

// One clause in lower case. DeepSpeed's "CPU offload" is that of the optimizer (ZeRO-Offload),
// PyTorch's CPUOffload that of parameters, too.
void apply_clause(std::string_view clause, const Measurement& row, Offload& offload) {
  constexpr auto kDenials = std::to_array<std::string_view>(
      {"no offload", "no cpu offload", "without offload", "without cpu offload", "not offload"});
  constexpr auto kParameters = std::to_array<std::string_view>({"param", "weight", "infinity"});
  constexpr auto kOptimizer = std::to_array<std::string_view>(
      {"optimizer", "optimiser", "gradient", "master", "adam", "states", "zero-offload"});
  if (clause.find("offload") == clause.npos && clause.find("zero-infinity") == clause.npos) {
    return;
  }
  if (says_any(clause, kDenials)) {
    return;
  }
  const Tier tier = clause.find("nvme") == clause.npos ? Tier::Host : Tier::Disk;
  if (clause.find("activation") != clause.npos) {
    offload.activations = share_of(clause);
    offload.activations_tier = tier;
    return;
  }
  const bool parameters = says_any(clause, kParameters);
  const bool whole =
      !parameters && !says_any(clause, kOptimizer) && mentions(row.framework, "fsdp");
  set_states(row, tier, parameters || whole, offload);
}

}  // namespace

Offload stated_offload(const Measurement& row) {
  Offload offload;
  for (const std::string* text :
       {&row.framework, &row.recompute_detail, &row.precision_detail, &row.variant, &row.notes}) {
    const std::string lower = to_lower(*text);
    for (const std::string_view clause : split(lower, ';')) {
      apply_clause(clause, row, offload);
    }
  }
  return offload;
}

}  // namespace orrery::studies
