// SPDX-License-Identifier: Apache-2.0
#include "plan/document/layout_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/limits.hpp"
#include "plan/layout.hpp"

namespace orrery::plan {

namespace {

// Variables of the axes that do not take the usual ones.
Json variables_to_json(const BlockPlan& layout) {
  Json document = Json::object();
  for (const Axis axis : kAxes) {
    const VarList& list = layout.variables[static_cast<std::size_t>(axis)];
    if (!list.empty()) {
      Json names = Json::array();
      for (const models::Var var : list.vars()) {
        names.push(to_text(var));
      }
      document.set(to_text(axis), std::move(names));
    }
  }
  return document;
}

// {"tp": ["head", "ffn"], "dp": ["seq"]}: what these axes split instead of the usual.
void read_variables(const JsonReader& value, BlockPlan& layout) {
  ObjectReader object = value.object();
  for (const Axis axis : kAxes) {
    const auto list = object.optional(to_text(axis));
    if (!list) {
      continue;
    }
    std::vector<models::Var> vars;
    for (const JsonReader& name : list->array(VarList::kMax)) {
      const models::Var var = parse_var(name.string(), name.where());
      if (std::find(vars.begin(), vars.end(), var) != vars.end()) {
        name.fail(fmt::format("axis {} names {} twice", to_text(axis), to_text(var)));
      }
      vars.push_back(var);
    }
    if (vars.empty()) {
      list->fail(fmt::format("axis {} has no variable", to_text(axis)));
    }
    layout.variables[static_cast<std::size_t>(axis)] = VarList(vars);
  }
  object.finish();
}

// [3, 3, 1, 1]: the share of each tensor-parallel rank.
TensorShares read_shares(const JsonReader& value) {
  std::vector<int> shares;
  for (const JsonReader& share : value.array(TensorShares::kMaxRanks)) {
    shares.push_back(static_cast<int>(share.integer(1, TensorShares::kMaxShare)));
  }
  if (shares.empty()) {
    value.fail("no share", "one for each tensor-parallel rank");
  }
  return TensorShares(shares);
}

}  // namespace

int degree_or(ObjectReader& object, std::string_view key, int fallback, int min) {
  return static_cast<int>(object.integer_or(key, fallback, min, limits::kMaxDevices));
}

Json to_json(const BlockRun& run) {
  const BlockPlan& layout = run.layout;
  Json document = Json::Object{
      {"count", run.count},
      {"tp", layout.tp},
      {"cp", layout.cp},
      {"ep", layout.ep},
      {"expert_tp", layout.expert_tp},
      {"sequence_parallel", layout.sequence_parallel},
      {"context", to_text(layout.context)},
      {"zero_stage", layout.zero_stage},
      {"shard_degree", layout.shard_degree},
      {"recompute", layout.recompute == Recompute::Operators ? to_json(layout.recomputed)
                                                             : Json(to_text(layout.recompute))},
  };
  // Members that few plans state.
  if (layout.expert_cp != 0) {
    document.set("expert_cp", layout.expert_cp);
  }
  if (layout.ep_inside != ExpertsInside::Data) {
    document.set("ep_inside", to_text(layout.ep_inside));
  }
  if (layout.tensor_parallel != TensorMesh::OneD) {
    document.set("tensor_parallel", to_text(layout.tensor_parallel));
    document.set("tp_rows", layout.tp_rows);
    document.set("tp_depth", layout.tp_depth);
    document.set("tp_inner", to_text(layout.tp_inner));
  }
  if (layout.keep_gathered) {
    document.set("keep_gathered", true);
  }
  if (layout.broadcasts != Broadcasts::Pipelined) {
    document.set("broadcasts", to_text(layout.broadcasts));
  }
  if (layout.context == ContextParallel::Mix) {
    document.set("ulysses_degree", layout.ulysses_degree);
  }
  if (!layout.zigzag) {
    document.set("zigzag", false);
  }
  if (layout.variables != BlockPlan().variables) {
    document.set("variables", variables_to_json(layout));
  }
  if (!layout.tensor_shares.empty()) {
    Json shares = Json::array();
    for (const int share : layout.tensor_shares.list()) {
      shares.push(share);
    }
    document.set("tensor_shares", std::move(shares));
  }
  if (layout.offload.any()) {
    document.set("offload", to_json(layout.offload));
  }
  return document;
}

BlockRun read_block_run(const JsonReader& value) {
  ObjectReader object = value.object();
  BlockRun run;
  BlockPlan& layout = run.layout;
  run.count = static_cast<int>(object.required("count").integer(1, 4 * limits::kMaxLayers));
  layout.tp = degree_or(object, "tp", layout.tp);
  layout.cp = degree_or(object, "cp", layout.cp);
  layout.ep = degree_or(object, "ep", layout.ep);
  layout.expert_tp = degree_or(object, "expert_tp", layout.expert_tp, 0);
  layout.expert_cp = static_cast<std::int8_t>(object.integer_or("expert_cp", 0, 0, 1));
  if (const auto inside = object.optional("ep_inside")) {
    layout.ep_inside = parse_experts_inside(inside->string(), inside->where());
  }
  layout.sequence_parallel = object.boolean_or("sequence_parallel", layout.sequence_parallel);
  if (const auto context = object.optional("context")) {
    constexpr std::array<std::string_view, 4> kNames = {"ring", "all-gather", "ulysses", "mix"};
    layout.context = parse_context(context->one_of(kNames), context->where());
  }
  layout.zero_stage = static_cast<int>(object.integer_or("zero_stage", layout.zero_stage, 0, 3));
  layout.shard_degree = degree_or(object, "shard_degree", layout.shard_degree, 0);
  if (const auto recompute = object.optional("recompute")) {
    if (recompute->json().is_array()) {
      layout.recompute = Recompute::Operators;
      layout.recomputed = read_operator_set(*recompute);
    } else {
      layout.recompute = parse_recompute(recompute->string(), recompute->where());
    }
  }
  if (const auto offload = object.optional("offload")) {
    layout.offload = read_offload(*offload);
  }
  if (const auto mesh = object.optional("tensor_parallel")) {
    layout.tensor_parallel = parse_tensor_mesh(mesh->string(), mesh->where());
  }
  layout.tp_rows = degree_or(object, "tp_rows", layout.tp_rows, 0);
  layout.tp_depth = degree_or(object, "tp_depth", layout.tp_depth, 0);
  if (const auto inner = object.optional("tp_inner")) {
    layout.tp_inner = parse_tensor_axis(inner->string(), inner->where());
  }
  layout.keep_gathered = object.boolean_or("keep_gathered", layout.keep_gathered);
  if (const auto broadcasts = object.optional("broadcasts")) {
    layout.broadcasts = parse_broadcasts(broadcasts->string(), broadcasts->where());
  }
  layout.ulysses_degree = degree_or(object, "ulysses_degree", layout.ulysses_degree);
  layout.zigzag = object.boolean_or("zigzag", layout.zigzag);
  if (const auto variables = object.optional("variables")) {
    read_variables(*variables, layout);
  }
  if (const auto shares = object.optional("tensor_shares")) {
    layout.tensor_shares = read_shares(*shares);
  }
  object.finish();
  return run;
}

}  // namespace orrery::plan
