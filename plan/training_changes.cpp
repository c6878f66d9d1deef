// SPDX-License-Identifier: Apache-2.0
#include "plan/training_changes.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace orrery::plan {
namespace {

struct Lossy {
  bool Execution::*flag;
  bool in_any_precision;              // also of what products in 8 or 4 bits do not round
  bool (*applies)(const BlockPlan&);  // where it has an effect
  std::string_view text;
};

bool has_shards(const BlockPlan& layout) { return layout.zero_stage > 0; }

constexpr std::array kLossy = {
    Lossy{&Execution::quantised_dispatch, false,
          [](const BlockPlan& layout) { return layout.ep > 1; }, ", tokens sent in 8 bits"},
    Lossy{&Execution::quantised_gather, false, has_shards, ", parameters gathered in 8 bits"},
    Lossy{&Execution::quantised_reduce, true, has_shards, ", gradients reduced in 4 bits"}};

constexpr auto kLossyFlags = [] {
  std::array<bool Execution::*, kLossy.size()> flags{};
  std::transform(kLossy.begin(), kLossy.end(), flags.begin(),
                 [](const Lossy& lossy) { return lossy.flag; });
  return flags;
}();

bool any_layout(const Plan& plan, bool (*test)(const BlockPlan&)) {
  return std::any_of(plan.blocks.begin(), plan.blocks.end(),
                     [test](const BlockRun& run) { return test(run.layout); });
}

}  // namespace

bool updates_late(const Plan& plan) {
  return plan.execution.delayed_update && any_layout(plan, [](const BlockPlan& layout) {
           return layout.offload.optimizer != Tier::Device;
         });
}

bool is_lossy(bool Execution::*flag, DType precision) {
  return std::any_of(kLossy.begin(), kLossy.end(), [&](const Lossy& lossy) {
    return lossy.flag == flag && (lossy.in_any_precision || !is_quantised(precision));
  });
}

std::span<bool Execution::*const> lossy_flags() { return kLossyFlags; }

std::string training_changes_text(const Plan& plan) {
  std::string text;
  for (const Lossy& lossy : kLossy) {
    if (plan.execution.*lossy.flag && is_lossy(lossy.flag, plan.precision) &&
        any_layout(plan, lossy.applies)) {
      text += lossy.text;
    }
  }
  return text + (updates_late(plan) ? ", updates a step late" : "");
}

}  // namespace orrery::plan
