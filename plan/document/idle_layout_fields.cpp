// SPDX-License-Identifier: Apache-2.0
// Of the choices that change nothing, those of the layouts of blocks.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/block_rules.hpp"
#include "plan/document/idle_fields.hpp"

namespace orrery::plan {

namespace {

struct LayoutRule {
  std::string_view name;
  bool (*stated)(const BlockPlan&);
  bool (*applies)(const BlockPlan&, const Plan&);
  std::string_view needs;
};

bool is_mesh(const BlockPlan& layout) { return layout.tensor_parallel != TensorMesh::OneD; }

constexpr std::array kLayoutRules = {
    LayoutRule{"tensor_parallel", is_mesh, [](const BlockPlan& b, const Plan&) { return b.tp > 1; },
               "tp > 1"},
    LayoutRule{
        "tp_inner", [](const BlockPlan& b) { return b.tp_inner != TensorAxis::Columns; },
        [](const BlockPlan& b, const Plan& p) { return tensor_order_matters(b, p.cluster.node); },
        "a tensor mesh over several nodes, or sockets without links of their own"},
    LayoutRule{"expert_tp", [](const BlockPlan& b) { return b.expert_tp > 0; },
               [](const BlockPlan& b, const Plan& p) {
                 return b.tp > 1 && p.network.spec.moe.experts > 0;
               },
               "experts and tp > 1"},
    LayoutRule{"expert_cp", [](const BlockPlan& b) { return b.expert_cp == 1; },
               [](const BlockPlan& b, const Plan& p) {
                 return context_experts(b).spread > 1 && p.network.spec.moe.experts > 0;
               },
               "experts, cp > 1 and an ep above tp / expert_tp"},
    LayoutRule{"ep_inside", [](const BlockPlan& b) { return b.ep_inside != ExpertsInside::Data; },
               [](const BlockPlan& b, const Plan& p) {
                 return reorders_experts(b) && expert_order_matters(b, p.cluster.node);
               },
               "experts over several replicas, and with the ranks that they come before more "
               "than a node, or sockets without links of their own"},
    LayoutRule{"sequence_parallel", [](const BlockPlan& b) { return b.sequence_parallel; },
               [](const BlockPlan& b, const Plan&) { return b.tp > 1; }, "tp > 1"},
    LayoutRule{"context", [](const BlockPlan& b) { return b.context != ContextParallel::Ring; },
               [](const BlockPlan& b, const Plan& p) { return b.cp > 1 && !p.serving; },
               "cp > 1 in a training plan"},
    LayoutRule{"ulysses_degree", [](const BlockPlan& b) { return b.ulysses_degree != 1; },
               [](const BlockPlan& b, const Plan&) { return b.context == ContextParallel::Mix; },
               "context = mix"},
    LayoutRule{"zigzag", [](const BlockPlan& b) { return !b.zigzag; },
               [](const BlockPlan& b, const Plan& p) {
                 const int heads = b.context == ContextParallel::Mix ? b.ulysses_degree : 1;
                 return b.cp > heads && p.network.spec.causal && !p.serving &&
                        b.context != ContextParallel::Ulysses;
               },
               "several context ranks that cut the tokens of causal attention in a training plan"},
    LayoutRule{"zero_stage", [](const BlockPlan& b) { return b.zero_stage > 0; },
               [](const BlockPlan& b, const Plan& p) {
                 return p.data_ranks(b) * b.cp > 1 || b.offload.any() ||
                        (b.zero_stage > 1 && b.tp > 1 && b.sequence_parallel);
               },
               "several data-parallel ranks, or stage 2 or 3 over sequence-parallel ones"},
    LayoutRule{"shard_degree", [](const BlockPlan& b) { return b.shard_degree > 0; },
               [](const BlockPlan& b, const Plan& p) {
                 return b.zero_stage > 0 && p.data_ranks(b) * b.cp > 1;
               },
               "zero_stage > 0 and several data-parallel ranks"},
    LayoutRule{"keep_gathered", [](const BlockPlan& b) { return b.keep_gathered; },
               [](const BlockPlan& b, const Plan& p) {
                 const bool adapters = p.network.spec.adapters.rank > 0;
                 return b.tp > 1 && !p.serving && (is_mesh(b) || b.sequence_parallel || adapters);
               },
               "gathered inputs in a training plan: a tensor mesh, or tp > 1 with "
               "sequence_parallel or adapters"},
    LayoutRule{"offload.activations_of",
               [](const BlockPlan& b) { return !b.offload.activations_of.empty(); },
               [](const BlockPlan& b, const Plan&) { return b.offload.activations > 0; },
               "offload.activations > 0"},
    LayoutRule{"offload.activations_tier",
               [](const BlockPlan& b) { return b.offload.activations_tier != Tier::Host; },
               [](const BlockPlan& b, const Plan&) { return b.offload.activations > 0; },
               "offload.activations > 0"},
};

// `variables` of axes that have one rank in every block.
void add_idle_variables(const Plan& plan, std::vector<IdleField>& idle) {
  for (const Axis axis : kAxes) {
    const auto stated = [&](const BlockRun& run) {
      return !run.layout.variables[static_cast<std::size_t>(axis)].empty();
    };
    const auto works = [&](const BlockRun& run) {
      return stated(run) && mesh_of(run.layout, plan.data_ranks(run.layout)).of(axis) > 1;
    };
    if (std::any_of(plan.blocks.begin(), plan.blocks.end(), stated) &&
        std::none_of(plan.blocks.begin(), plan.blocks.end(), works)) {
      idle.push_back({fmt::format("blocks.variables.{}", to_text(axis)),
                      fmt::format("several ranks on axis {}", to_text(axis))});
    }
  }
}

// Groups of operators that no layer of the network has.
void add_idle_groups(const Plan& plan, std::vector<IdleField>& idle) {
  OperatorSet present;
  for (const models::Block& block : plan.network.blocks) {
    for (const models::Operator& op : block.operators) {
      if (block.kind == models::BlockKind::Layer) {
        present.add(group_of(block, op));
      }
    }
  }
  if (present.has(OperatorGroup::Attention)) {
    present.add(OperatorGroup::AttentionCore);
  }
  const auto add = [&](std::string_view field, auto&& stated) {
    OperatorSet absent;
    for (const BlockRun& run : plan.blocks) {
      for (const OperatorGroup group : stated(run.layout).groups()) {
        if (!present.has(group)) {
          absent.add(group);
        }
      }
    }
    if (!absent.empty()) {
      idle.push_back(
          {fmt::format("blocks.{} of {}", field, absent.text()), "a network with such operators"});
    }
  };
  add("recompute", [](const BlockPlan& layout) {
    return layout.recompute == Recompute::Operators ? layout.recomputed : OperatorSet();
  });
  add("offload.activations_of", [](const BlockPlan& layout) {
    return layout.offload.activations > 0 ? layout.offload.activations_of : OperatorSet();
  });
}

}  // namespace

std::vector<IdleField> idle_layout_fields(const Plan& plan) {
  std::vector<IdleField> idle;
  for (const LayoutRule& rule : kLayoutRules) {
    const auto stated = [&](const BlockRun& run) { return rule.stated(run.layout); };
    const auto works = [&](const BlockRun& run) {
      return rule.stated(run.layout) && rule.applies(run.layout, plan);
    };
    if (std::any_of(plan.blocks.begin(), plan.blocks.end(), stated) &&
        std::none_of(plan.blocks.begin(), plan.blocks.end(), works)) {
      idle.push_back({fmt::format("blocks.{}", rule.name), std::string(rule.needs)});
    }
  }
  add_idle_variables(plan, idle);
  add_idle_groups(plan, idle);
  return idle;
}

}  // namespace orrery::plan
