// SPDX-License-Identifier: Apache-2.0
#include "plan/block/cost.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "plan/block/group_steps.hpp"
#include "plan/block/quantised_casts.hpp"
#include "plan/block/saved.hpp"
#include "plan/block/slowest_chip.hpp"

namespace orrery::plan {

namespace {

using models::Block;
using models::Operator;
using models::Tensor;

// Replicas that serve wait for nobody else: each is taken for typical.
int chips_in_step(const Plan& plan) {
  const int all = plan.gpus_alike > 0 ? plan.gpus_alike : plan.cluster.num_gpus();
  return plan.serving ? 1 : all;
}

std::vector<StateGroup::Repeated> repeated_heads(const Tensor& weight, const Layout& stored,
                                                 const Mesh& mesh, std::int64_t elements) {
  std::vector<StateGroup::Repeated> repeated;
  const Copies copies = copies_of_heads(weight, stored, mesh);
  for (const Axis axis : kAxes) {
    if (const int ranks = copies[static_cast<std::size_t>(axis)]; ranks > 1 && !weight.frozen) {
      repeated.push_back({axis, ranks, elements});
    }
  }
  return repeated;
}

void add(const StateGroup& group, StateGroup& sum) {
  sum.elements += group.elements;
  sum.quantised += group.quantised;
  sum.transposed += group.transposed;
  for (const StateGroup::Repeated& one : group.repeated) {
    const auto same = std::find_if(
        sum.repeated.begin(), sum.repeated.end(),
        [&](const auto& known) { return known.axis == one.axis && known.ranks == one.ranks; });
    if (same == sum.repeated.end()) {
      sum.repeated.push_back(one);
    } else {
      same->elements += one.elements;
    }
  }
}

}  // namespace

StateGroup states_of(const Block& block, const Operator& op, int weight, const BlockRules& rules,
                     const Mesh& mesh, DType precision) {
  const Assignment assignment = assign(block, op, rules.of(op));
  const Tensor& tensor = block.tensors[static_cast<std::size_t>(weight)];
  const Layout stored = stored_weight(op, tensor, assignment, rules.of(op));
  StateGroup group;
  group.tied = tensor.tied;
  group.frozen = tensor.frozen;
  group.forward_only = block.frozen;
  group.reduced =
      summed_axes(op, tensor, assignment, rules.of(op), read_layout(block, op, weight, rules));
  for (std::size_t axis = 0; axis < kNumAxes && works_on_copies(block, op); ++axis) {
    group.copied[axis] = group.reduced[axis] && rules.of(op).copies_experts[axis];
  }
  group.elements = local_elements(tensor, stored, mesh, {});
  group.repeated = repeated_heads(tensor, stored, mesh, group.elements);
  group.quantised = is_quantised_weight(op, tensor, precision) ? group.elements : 0;
  group.transposed = models::gives_input_gradient(block, op) ? group.quantised : 0;
  return group;
}

std::vector<StateGroup> state_groups(const Block& block, const BlockRules& rules, const Mesh& mesh,
                                     DType precision) {
  std::vector<StateGroup> groups;
  std::vector<bool> seen(block.tensors.size(), false);
  for (const Operator& op : block.operators) {
    for (const int index : op.weights) {
      const auto slot = static_cast<std::size_t>(index);
      if (seen[slot]) {
        continue;
      }
      seen[slot] = true;
      const StateGroup group = states_of(block, op, index, rules, mesh, precision);
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const StateGroup& known) {
        return known.reduced == group.reduced && known.copied == group.copied &&
               known.tied == group.tied && known.frozen == group.frozen;
      });
      if (same == groups.end()) {
        groups.push_back(group);
      } else {
        add(group, *same);
      }
    }
  }
  return groups;
}

BlockCosts::BlockCosts(const Plan& plan) : BlockCosts(plan, {}) {}

BlockCosts::BlockCosts(BlockCosts&&) noexcept = default;
BlockCosts::~BlockCosts() = default;

BlockCosts::BlockCosts(const Plan& plan, std::vector<costmodel::DeviceModel> devices)
    : models_(std::make_shared<const Models>(
          Models{plan.network,
                 plan.cluster,
                 {plan.cluster.gpu, slowest_chip(plan.profile, chips_in_step(plan)),
                  costmodel::Load::Sustained},
                 {plan.cluster, plan.profile},
                 plan.execution})),
      network_(models_->network),
      cluster_(models_->cluster),
      device_(models_->device),
      collectives_(models_->collectives),
      execution_(models_->execution),
      devices_(std::move(devices)),
      precision_(plan.precision),
      sequence_(plan.sequence),
      packed_(plan.joined_sequences) {}

BlockCosts::BlockCosts(const BlockCosts& same, std::int64_t sequence,
                       std::vector<std::int64_t> packed)
    : models_(same.models_),
      network_(models_->network),
      cluster_(models_->cluster),
      device_(models_->device),
      collectives_(models_->collectives),
      execution_(models_->execution),
      devices_(same.devices_),
      precision_(same.precision_),
      sequence_(sequence),
      packed_(std::move(packed)) {}

std::size_t BlockCosts::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::int64_t value) {
    hash = mix64(hash ^ static_cast<std::uint64_t>(value));
  };
  const BlockPlan& layout = key.layout;
  mix(key.block);
  mix((std::int64_t{layout.tp} << 32) | layout.cp);
  mix((std::int64_t{layout.ep} << 32) | (layout.expert_tp << 3) |
      (static_cast<std::int64_t>(layout.ep_inside) << 1) | layout.expert_cp);
  mix((static_cast<std::int64_t>(layout.sequence_parallel) << 16) |
      (static_cast<std::int64_t>(layout.context) << 8) |
      static_cast<std::int64_t>(layout.recompute));
  mix(layout.recomputed.bits());
  mix(layout.tensor_rank);
  mix(layout.tensor_shares.empty() ? 0 : layout.tensor_shares.sum());
  mix(key.micro_batch);
  mix((key.slice.start << 24) ^ key.slice.tokens);
  return hash;
}

BlockCosts::Key BlockCosts::key_of(int block, const BlockPlan& layout, std::int64_t micro_batch,
                                   const Slice& slice) const {
  const Block& described = network_.blocks[static_cast<std::size_t>(block)];
  // Embedding and head are never recomputed, and all their slices of a length cost the same.
  Key key{block, layout, micro_batch, slice};
  if (described.kind != models::BlockKind::Layer) {
    key.layout.recompute = Recompute::None;
    key.slice = {0, slice.tokens, false};
    // Without attention tokens are cut, or what a layout gives the axis instead, no more.
    if (layout.context != ContextParallel::Mix) {
      key.layout.context = ContextParallel::Ring;
      key.layout.zigzag = true;
    }
  }
  // Without experts the ranks that share those of other blocks are data ranks like all others,
  // unless they stand between the ranks of a group or cut those of tp or cp into several axes.
  if (described.experts == 0 && layout.ep_inside == ExpertsInside::Data && !splits_ranks(layout)) {
    key.layout.ep = 1;
    key.layout.expert_tp = 0;
    key.layout.expert_cp = 0;
  }
  key.layout.sequence_parallel = layout.sequence_parallel && layout.tp > 1;
  key.layout.zero_stage = 0;
  key.layout.shard_degree = 0;
  key.layout.offload = {};
  key.layout.recomputed =
      key.layout.recompute == Recompute::Operators ? layout.recomputed : OperatorSet();
  return key;
}

const BlockCost& BlockCosts::of(int block, const BlockPlan& layout, std::int64_t micro_batch,
                                const Slice& slice) {
  const Key key = key_of(block, layout, micro_batch, slice);
  std::unique_ptr<BlockCost>& slot = cache_[key];
  if (!slot) {
    slot = std::make_unique<BlockCost>(compute(key));
  }
  if (!layout.offload.activations_of.empty() && !slot->saved_by_group) {
    const bool some =
        !network_.blocks[static_cast<std::size_t>(block)].frozen &&
        (key.layout.recompute == Recompute::None || key.layout.recompute == Recompute::Operators);
    slot->saved_by_group = some ? plan::saved_by_group(context_of(key)) : SavedByGroup{};
  }
  return *slot;
}

BlockSteps BlockCosts::steps_of(int block, const BlockPlan& layout,
                                std::int64_t micro_batch) const {
  return steps_of(key_of(block, layout, micro_batch));
}

BlockSteps BlockCosts::steps_of(const Key& key) const {
  const auto kept = steps_.find(key);
  return kept != steps_.end() ? kept->second : lower(key);
}

namespace {

// What a tensor rank holds of the dimensions that shares cut: ranks that agree have one program.
std::vector<std::int64_t> extents_of_rank(const Block& block, const TensorShares& shares,
                                          int rank) {
  std::vector<std::int64_t> extents;
  for (const Tensor& tensor : block.tensors) {
    for (const models::Dim& dim : tensor.dims) {
      if (is_cut_by_shares(dim.var)) {
        extents.push_back(share_extent(shares, rank, dim, dim.extent));
      }
    }
  }
  return extents;
}

// Of pools whose GPUs may have been changed by overrides.
bool is_as_fast(const topologies::Gpu& a, const topologies::Gpu& b) {
  return a.name == b.name && a.peak == b.peak && a.hbm_bandwidth == b.hbm_bandwidth &&
         a.sm_count == b.sm_count && a.boost_clock == b.boost_clock && a.l2_cache == b.l2_cache;
}

}  // namespace

BlockSteps BlockCosts::lower(const Key& key) const {
  if (expert_peers_.empty()) {
    return lower_own(key);
  }
  std::vector<const BlockCosts*> costs = {this};
  costs.insert(costs.end(), expert_peers_.begin(), expert_peers_.end());
  std::vector<BlockSteps> replicas;
  for (const BlockCosts* replica : costs) {
    replicas.push_back(replica->lower_own(key));
  }
  const auto waiting = [&](std::vector<Step> BlockSteps::*member) {
    std::vector<const std::vector<Step>*> lists;
    for (const BlockSteps& replica : replicas) {
      lists.push_back(&(replica.*member));
    }
    // Under a draw kernels that are waited for are drawn as kernels, not as the exchange.
    const auto exchange = std::find_if(lists.front()->begin(), lists.front()->end(), is_routed);
    const double drawn =
        exchange == lists.front()->end() ? 1.0 : scaled(exchange->cost_class, Seconds(1.0)).value();
    return waiting_for_replicas(lists, [&](std::size_t replica, const std::vector<Step>& stretch) {
      std::vector<Seconds> times;
      for (const Step& step : stretch) {
        times.push_back(scaled(step.cost_class, step.time));
      }
      return costs[replica]->queue_on_slowest(stretch, times, Seconds()).device / drawn;
    });
  };
  return {waiting(&BlockSteps::forward), waiting(&BlockSteps::backward),
          waiting(&BlockSteps::recompute)};
}

BlockSteps BlockCosts::lower_own(const Key& key) const {
  const TensorShares& shares = key.layout.tensor_shares;
  if (shares.empty() && devices_.empty()) {
    return lower_block(context_of(key));
  }
  const Block& block = network_.blocks[static_cast<std::size_t>(key.block)];
  std::vector<BlockSteps> ranks;
  std::vector<std::pair<std::vector<std::int64_t>, const topologies::Gpu*>> known;
  for (int rank = 0; rank < key.layout.tp; ++rank) {
    const auto slot = static_cast<std::size_t>(rank);
    const topologies::Gpu& gpu = devices_.empty() ? device_.gpu() : devices_[slot].gpu();
    std::vector<std::int64_t> extents =
        shares.empty() ? std::vector<std::int64_t>() : extents_of_rank(block, shares, rank);
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const auto& other) {
      return other.first == extents && is_as_fast(*other.second, gpu);
    });
    if (!is_known) {
      known.emplace_back(std::move(extents), &gpu);
      ranks.push_back(lower_block(context_of(key, rank)));
    }
  }
  return at_pace_of_group(ranks);
}

BlockContext BlockCosts::context_of(const Key& key, int tensor_rank) const {
  BlockContext own = context_of(key);
  const auto rank = static_cast<std::size_t>(tensor_rank);
  BlockContext context{own.block,
                       own.layout,
                       own.mesh,
                       own.extents,
                       devices_.empty() ? device_ : devices_[rank],
                       collectives_,
                       execution_,
                       precision_,
                       own.gpus_per_node,
                       own.slice,
                       own.packed,
                       own.experts};
  context.mesh.tensor_rank = tensor_rank;
  return context;
}

BlockContext BlockCosts::context_of(const Key& key) const {
  const Mesh mesh = mesh_of(key.layout, key.layout.ep);
  const std::int64_t batch =
      key.micro_batch * mesh.of(Axis::Expert) * mesh.of(Axis::Shard) * mesh.of(Axis::Replica);
  const models::Block& block = network_.blocks[static_cast<std::size_t>(key.block)];
  const Extents extents =
      block.tokens > 0       ? Extents{batch, block.tokens}
      : key.slice.is_whole() ? Extents{batch, sequence_}
                             : Extents{batch, key.slice.tokens, key.slice.start + key.slice.tokens};
  const RankNetwork experts =
      expert_costs_ == nullptr
          ? RankNetwork{}
          : RankNetwork{&expert_costs_->collectives_, expert_costs_->cluster_.node.gpus};
  return {block,      key.layout,         mesh,      extents, device_, collectives_, execution_,
          precision_, cluster_.node.gpus, key.slice, packed_, experts};
}

BlockCost BlockCosts::compute(const Key& key) const {
  const BlockContext context = context_of(key);
  const BlockSteps steps = lower(key);
  const BlockRules rules = rules_of(context.layout, execution_.vocab_parallel);
  BlockCost cost;
  time_passes(key, steps, cost);
  cost.boundary = tensor_bytes(context, context.block.output, stream_layout(rules));
  cost.carried = carried_by(context);
  cost.states = state_groups(context.block, rules, context.mesh, precision_);
  if (is_quantised(precision_)) {
    cost.quantised = quantised_products(context, rules);
  }
  if (context.block.frozen) {  // nothing is kept: there is no backward
    return cost;
  }
  cost.saved = saved_activations(context, key.layout.recompute);
  if (key.layout.recompute != Recompute::None) {
    cost.working = saved_activations(context, Recompute::None) - cost.saved;
  }
  cost.saved += kept_copies(context);
  cost.working += logit_gradients(context) + working_copies(context);
  if (!key.slice.is_whole()) {
    cost.context_gradients = keys_and_values(context);
    // Later slices read them, also where the forward keeps nothing else of a layer.
    cost.saved += key.layout.recompute == Recompute::Full ? cost.context_gradients : ByteCount();
  }
  return cost;
}

}  // namespace orrery::plan
