// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/held_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/block/kept.hpp"
#include "plan/block/operator_replay.hpp"
#include "plan/block/reduced_axes.hpp"
#include "plan/block_rules.hpp"
#include "plan/simulation/layout_text.hpp"

namespace orrery::plan {

namespace {

using models::Block;
using models::Operator;
using models::Tensor;

// Whether operators keep the tensor itself under a recomputation choice, by tensor.
std::vector<bool> kept_tensors(const BlockContext& context, Recompute recompute) {
  std::vector<bool> kept(context.block.tensors.size(), false);
  for (const std::vector<models::Saved>& own : kept_by_operators(context, recompute)) {
    for (const models::Saved& saved : own) {
      if (keeps_tensor(context.block, saved)) {
        kept[static_cast<std::size_t>(saved.tensor)] = true;
      }
    }
  }
  return kept;
}

std::vector<bool> saved_tensors(const BlockContext& context, Recompute recompute) {
  const Block& block = context.block;
  if (recompute == Recompute::Operators) {
    return replay_of(context).kept;
  }
  if (recompute == Recompute::None || recompute == Recompute::Selective) {
    return kept_tensors(context, recompute);
  }
  std::vector<bool> saved(block.tensors.size(), false);
  if (block.input >= 0) {
    saved[static_cast<std::size_t>(block.input)] = true;
  }
  for (const int tensor :
       recompute == Recompute::Products ? kept_products(context) : std::vector<int>()) {
    saved[static_cast<std::size_t>(tensor)] = true;
  }
  return saved;
}

// Of what some operators save alone, the tensors of these.
bool may_leave(const BlockContext& context, int tensor) {
  const OperatorSet of = context.layout.offload.activations_of;
  const auto keeps = [&](const Operator& op) {
    return std::any_of(op.saved.begin(), op.saved.end(), [&](const models::Saved& saved) {
      return saved.tensor == tensor && of.has(kept_with(context.block, op, saved));
    });
  };
  return of.empty() ||
         std::any_of(context.block.operators.begin(), context.block.operators.end(), keeps);
}

// "32 shards on dp": of a weight whose states ZeRO shards; "" where one rank has them.
std::string shards_text(const BlockContext& context, const Operator& op, int weight,
                        const BlockRules& rules) {
  const StateGroup states =
      states_of(context.block, op, weight, rules, context.mesh, context.precision);
  const std::vector<Axis> axes = shard_axes(states, context.mesh);
  return axes.empty()
             ? ""
             : fmt::format("{} shards on {}", num_shards(states, context.mesh), axes_text(axes));
}

class TensorList {
 public:
  TensorList(const BlockContext& context, bool with_table)
      : context_(context),
        with_table_(with_table),
        rules_(rules_of(context)),
        produced_(produced_layouts(context.block, rules_)),
        uses_(uses_of_tensors(context)) {}

  std::vector<HeldTensor> list() {
    const Block& block = context_.block;
    if (block.input >= 0) {
      hold(block.input, stream_layout(rules_));
    }
    for (const Operator& op : block.operators) {
      if (context_.forward_only && op.kind == models::OpKind::CrossEntropy) {
        continue;  // serving has no loss
      }
      for (const int weight : op.weights) {
        hold_weight(op, weight);
      }
      for (const int output : op.outputs) {
        hold(output, produced_[static_cast<std::size_t>(output)]);
      }
    }
    return std::move(held_);
  }

 private:
  HeldTensor& hold(int index, const Layout& layout) {
    const Tensor& tensor = context_.block.tensors[static_cast<std::size_t>(index)];
    HeldTensor held;
    held.name = tensor.name;
    held.layout = layout_text(layout, context_.mesh);
    held.shape = shape_text(tensor, layout, context_.mesh, context_.extents);
    held.bytes = ByteCount(local_elements(tensor, layout, context_.mesh, context_.extents)) *
                 element_bytes(tensor.element, context_.precision);
    held.use = uses_[static_cast<std::size_t>(index)];
    const Offload& offload = context_.layout.offload;
    if (held.use == HeldUse::Saved && context_.block.kind == models::BlockKind::Layer &&
        offload.activations > 0 && may_leave(context_, index)) {
      held.tier = offload.activations_tier;
      held.away = offload.activations;
    }
    held_.push_back(std::move(held));
    return held_.back();
  }

  void hold_weight(const Operator& op, int weight) {
    const Tensor& tensor = context_.block.tensors[static_cast<std::size_t>(weight)];
    const Assignment assignment = assign(context_.block, op, rules_.of(op));
    HeldTensor& held = hold(weight, stored_weight(op, tensor, assignment, rules_.of(op)));
    held.kind = HeldKind::Weight;
    held.use = HeldUse::Passing;
    held.tier = context_.layout.offload.parameters;
    held.away = held.tier == Tier::Device ? 0.0 : 1.0;
    const std::string shards = shards_text(context_, op, weight, rules_);
    if (context_.layout.zero_stage == 3 && !context_.forward_only && !shards.empty()) {
      held.layout += ", between passes in " + shards;
    }
    held.layout += tensor.tied && with_table_ ? ", the token table of the embedding" : "";
    held.layout += tensor.frozen ? ", frozen" : "";
  }

  const BlockContext& context_;
  bool with_table_;
  BlockRules rules_;
  std::vector<Layout> produced_;
  std::vector<HeldUse> uses_;
  std::vector<HeldTensor> held_;
};

// "8 shards on dp; 2 shards on dp": of weights whose gradients are summed over different ranks.
std::string all_shards_text(const BlockContext& context) {
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  std::vector<std::string> known;
  for (const Operator& op : context.block.operators) {
    for (const int weight : op.weights) {
      const std::string shards = shards_text(context, op, weight, rules);
      if (!context.block.tensors[static_cast<std::size_t>(weight)].frozen && !shards.empty() &&
          std::find(known.begin(), known.end(), shards) == known.end()) {
        known.push_back(shards);
      }
    }
  }
  return known.empty() ? "as the weights" : fmt::format("{}", fmt::join(known, "; "));
}

}  // namespace

std::vector<HeldUse> uses_of_tensors(const BlockContext& context) {
  const Block& block = context.block;
  std::vector<HeldUse> uses(block.tensors.size(), HeldUse::Passing);
  if (block.frozen || context.forward_only) {
    return uses;
  }
  const Recompute recompute =
      block.kind == models::BlockKind::Layer ? context.layout.recompute : Recompute::None;
  const std::vector<bool> needed = kept_tensors(context, Recompute::None);
  const std::vector<bool> saved = saved_tensors(context, recompute);
  for (std::size_t tensor = 0; tensor < uses.size(); ++tensor) {
    uses[tensor] = saved[tensor]    ? HeldUse::Saved
                   : needed[tensor] ? HeldUse::Recomputed
                                    : HeldUse::Passing;
  }
  return uses;
}

std::vector<HeldTensor> held_tensors(const BlockContext& context, bool with_table) {
  return TensorList(context, with_table).list();
}

std::vector<HeldTensor> held_states(const BlockContext& context, const BlockCost& cost,
                                    bool with_table) {
  BlockPlan at_home = context.layout;
  at_home.offload = {};
  const StateBytes states = state_bytes(cost, at_home, context.mesh, context.execution,
                                        context.precision, with_table, context.gpus_per_node);
  const std::string shards = all_shards_text(context);
  std::vector<HeldTensor> held;
  const auto hold = [&](std::string name, HeldKind kind, ByteCount bytes, int from_stage,
                        Tier tier) {
    if (bytes.value() == 0) {
      return;  // frozen
    }
    HeldTensor one;
    one.name = std::move(name);
    one.kind = kind;
    one.layout = context.layout.zero_stage >= from_stage ? shards : "as the weights";
    one.shape = "of all weights";
    one.bytes = bytes;
    one.tier = tier;
    one.away = tier == Tier::Device ? 0.0 : 1.0;
    held.push_back(std::move(one));
  };
  const Offload& offload = context.layout.offload;
  hold("gradients", HeldKind::Gradient, states.gradients, 2, offload.gradients);
  hold("optimizer", HeldKind::Optimizer, states.optimizer, 1, offload.optimizer);
  return held;
}

}  // namespace orrery::plan
