// SPDX-License-Identifier: Apache-2.0
#include "plan/operator_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/text.hpp"
#include "plan/named_values.hpp"

namespace orrery::plan {

namespace {

using models::Block;
using models::Operator;
using models::OpKind;
using models::Tensor;
using models::Var;

constexpr std::array<std::string_view, kNumOperatorGroups> kNames = {
    "norms",     "qkv",
    "rotary",    "attention-core",
    "attention", "attention-output",
    "mlp-up",    "mlp-activation",
    "mlp-down",  "routing",
    "residuals"};

bool has_dim(const Block& block, const std::vector<int>& tensors, Var var) {
  return std::any_of(tensors.begin(), tensors.end(), [&](int index) {
    const Tensor& tensor = block.tensors[static_cast<std::size_t>(index)];
    return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                       [var](const models::Dim& dim) { return dim.var == var; });
  });
}

bool has_heads(const Block& block, const std::vector<int>& tensors) {
  return has_dim(block, tensors, Var::Head) || has_dim(block, tensors, Var::KvHead);
}

OperatorGroup group_of_product(const Block& block, const Operator& op) {
  const auto sums_over = [&op](Var var) {
    return std::find(op.reduced.begin(), op.reduced.end(), var) != op.reduced.end();
  };
  if (sums_over(Var::Head)) {
    return OperatorGroup::AttentionOutput;
  }
  if (sums_over(Var::Ffn)) {
    return OperatorGroup::MlpDown;
  }
  if (has_dim(block, op.outputs, Var::Ffn)) {
    return OperatorGroup::MlpUp;
  }
  return op.role == models::OpRole::Routing ? OperatorGroup::Routing : OperatorGroup::Qkv;
}

}  // namespace

std::string_view to_text(OperatorGroup group) { return name_of(kNames, group); }

std::optional<OperatorGroup> group_named(std::string_view text) {
  const auto* found = std::find(kNames.begin(), kNames.end(), text);
  return found == kNames.end() ? std::nullopt
                               : std::optional(static_cast<OperatorGroup>(found - kNames.begin()));
}

OperatorGroup parse_operator_group(std::string_view text, std::string_view where) {
  return parse_named<OperatorGroup>(kNames, text, where, "group of operators");
}

namespace {

// Operators of an adapter stand behind the product that they adapt.
const Operator& adapted_by(const Block& block, const Operator& op) {
  const Operator* product = &op;
  while (product->adapter && product != block.operators.data()) {
    --product;
  }
  return *product;
}

}  // namespace

OperatorGroup group_of(const Block& block, const Operator& op) {
  if (op.adapter) {
    return group_of(block, adapted_by(block, op));
  }
  switch (op.kind) {
    case OpKind::Gemm:
    case OpKind::GroupedGemm:
      return group_of_product(block, op);
    case OpKind::Attention:
      return OperatorGroup::Attention;
    case OpKind::Router:
    case OpKind::Permute:
      return OperatorGroup::Routing;
    case OpKind::Norm:
      return has_heads(block, op.outputs) ? OperatorGroup::Rotary : OperatorGroup::Norms;
    case OpKind::Elementwise:
    case OpKind::Embedding:
    case OpKind::CrossEntropy:
      break;
  }
  if (op.attention_core) {
    return OperatorGroup::Attention;
  }
  if (has_heads(block, op.outputs)) {
    return OperatorGroup::Rotary;
  }
  return has_dim(block, op.outputs, Var::Ffn) ? OperatorGroup::MlpActivation
                                              : OperatorGroup::Residuals;
}

OperatorGroup maker_of(const Block& block, int tensor) {
  for (const Operator& op : block.operators) {
    if (std::find(op.outputs.begin(), op.outputs.end(), tensor) != op.outputs.end()) {
      return group_of(block, op);
    }
  }
  return OperatorGroup::Residuals;
}

std::vector<OperatorGroup> OperatorSet::groups() const {
  std::vector<OperatorGroup> groups;
  for (int index = 0; index < kNumOperatorGroups; ++index) {
    if (has(static_cast<OperatorGroup>(index))) {
      groups.push_back(static_cast<OperatorGroup>(index));
    }
  }
  return groups;
}

std::string OperatorSet::text() const {
  std::string text;
  for (const OperatorGroup group : groups()) {
    text += fmt::format("{}{}", text.empty() ? "" : "+", to_text(group));
  }
  return text;
}

Json to_json(OperatorSet set) {
  Json names = Json::array();
  for (const OperatorGroup group : set.groups()) {
    names.push(to_text(group));
  }
  return names;
}

OperatorSet read_operator_set(const JsonReader& list) {
  OperatorSet set;
  for (const JsonReader& name : list.array(kNumOperatorGroups)) {
    const OperatorGroup group = parse_operator_group(name.string(), name.where());
    if (set.has(group)) {
      name.fail(fmt::format("{} is named twice", to_text(group)));
    }
    set.add(group);
  }
  if (set.empty()) {
    list.fail("no group of operators", "leave it out");
  }
  return set;
}

OperatorSet parse_operator_set(std::string_view text, std::string_view where) {
  OperatorSet set;
  for (const std::string_view part : split(text, '+')) {
    set.add(parse_operator_group(trim(part), where));
  }
  return set;
}

bool keeps_tensor(const Block& block, const models::Saved& saved) {
  const bool made =
      saved.tensor == block.input || saved.tensor == block.memory ||
      std::any_of(block.operators.begin(), block.operators.end(), [&](const Operator& op) {
        return std::find(op.outputs.begin(), op.outputs.end(), saved.tensor) != op.outputs.end();
      });
  return made && saved.copies == 1.0 &&
         saved.element == block.tensors[static_cast<std::size_t>(saved.tensor)].element;
}

}  // namespace orrery::plan
