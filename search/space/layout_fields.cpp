// SPDX-License-Identifier: Apache-2.0
#include "search/space/layout_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "plan/block_rules.hpp"

namespace orrery::search {

namespace {

constexpr std::array<std::string_view, 4> kDegrees = {"tp_rows", "tp_depth", "ulysses_degree",
                                                      "expert_cp"};
constexpr std::array<std::string_view, 2> kSwitches = {"keep_gathered", "zigzag"};
constexpr std::array<std::string_view, 4> kNames = {"tensor_parallel", "tp_inner", "ep_inside",
                                                    "broadcasts"};

}  // namespace

std::string parse_flag(std::string_view value, std::string_view where) {
  const std::string text = to_lower(value);
  if (text == "true" || text == "1" || text == "yes" || text == "on") {
    return "true";
  }
  if (text == "false" || text == "0" || text == "no" || text == "off") {
    return "false";
  }
  bad_input(where, fmt::format("\"{}\" is neither true nor false", printable(value)));
}

bool is_layout_field(std::string_view field) {
  return is_among(field, kDegrees) || is_among(field, kSwitches) || is_among(field, kNames);
}

std::vector<std::string> layout_field_names() {
  std::vector<std::string> names(kDegrees.begin(), kDegrees.end());
  names.insert(names.end(), kSwitches.begin(), kSwitches.end());
  names.insert(names.end(), kNames.begin(), kNames.end());
  return names;
}

std::string canonical_layout_value(std::string_view field, std::string_view value,
                                   std::string_view where) {
  if (field == "expert_cp") {
    return std::to_string(parse_integer(value, where, 0, 1));
  }
  if (is_among(field, kDegrees)) {
    return std::to_string(parse_integer(value, where, 1, limits::kMaxDevices));
  }
  if (field == "tensor_parallel") {
    return std::string(plan::to_text(plan::parse_tensor_mesh(value, where)));
  }
  if (field == "tp_inner") {
    return std::string(plan::to_text(plan::parse_tensor_axis(value, where)));
  }
  if (field == "ep_inside") {
    return std::string(plan::to_text(plan::parse_experts_inside(value, where)));
  }
  if (field == "broadcasts") {
    return std::string(plan::to_text(plan::parse_broadcasts(value, where)));
  }
  return parse_flag(value, where);
}

void set_layout_field(std::string_view field, std::string_view value, plan::BlockPlan& layout) {
  constexpr std::string_view kWhere = "--fix";
  const auto degree = [&] {
    return static_cast<int>(parse_integer(value, kWhere, 1, limits::kMaxDevices));
  };
  if (field == "tp_rows") {
    layout.tp_rows = degree();
  } else if (field == "tp_depth") {
    layout.tp_depth = degree();
  } else if (field == "ulysses_degree") {
    layout.ulysses_degree = degree();
  } else if (field == "expert_cp") {
    layout.expert_cp = value == "1" ? 1 : 0;
  } else if (field == "tensor_parallel") {
    layout.tensor_parallel = plan::parse_tensor_mesh(value, kWhere);
  } else if (field == "tp_inner") {
    layout.tp_inner = plan::parse_tensor_axis(value, kWhere);
  } else if (field == "ep_inside") {
    layout.ep_inside = plan::parse_experts_inside(value, kWhere);
  } else if (field == "broadcasts") {
    layout.broadcasts = plan::parse_broadcasts(value, kWhere);
  } else if (field == "keep_gathered") {
    layout.keep_gathered = value == "true";
  } else if (field == "zigzag") {
    layout.zigzag = value == "true";
  }
}

const std::vector<plan::OperatorSet>& tried_operator_sets() {
  static const std::vector<plan::OperatorSet> kSets = [] {
    std::vector<plan::OperatorSet> sets;
    plan::OperatorSet set;
    using enum plan::OperatorGroup;
    for (const plan::OperatorGroup group :
         {Norms, MlpActivation, AttentionCore, MlpUp, Attention}) {
      set.add(group);
      sets.push_back(set);
    }
    return sets;
  }();
  return kSets;
}

const std::vector<plan::OperatorSet>& offloaded_operator_sets() {
  static const std::vector<plan::OperatorSet> kSets = [] {
    using enum plan::OperatorGroup;
    constexpr std::array kCostly = {MlpUp, Qkv, Attention};
    std::vector<plan::OperatorSet> sets;
    for (unsigned chosen = 1; chosen < 1U << kCostly.size(); ++chosen) {
      plan::OperatorSet set;
      for (std::size_t index = 0; index < kCostly.size(); ++index) {
        if ((chosen >> index & 1U) != 0) {
          set.add(kCostly[index]);
        }
      }
      sets.push_back(set);
    }
    return sets;
  }();
  return kSets;
}

plan::BlockPlan with_degrees(plan::BlockPlan layout, int tp, int cp, int ep) {
  layout.tp = tp;
  layout.cp = cp;
  layout.ep = ep;
  layout.expert_cp = cp > 1 ? layout.expert_cp : std::int8_t{0};
  if (!plan::reorders_experts(layout)) {
    layout.ep_inside = plan::ExpertsInside::Data;
  }
  return layout;
}

}  // namespace orrery::search
