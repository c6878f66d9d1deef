// SPDX-License-Identifier: Apache-2.0
#include "plan/document/plan_uses.hpp"

#include <algorithm>

#include "plan/block/reduced_axes.hpp"
#include "plan/block_rules.hpp"
#include "plan/serving/serving_check.hpp"

namespace orrery::plan {
namespace {

void add_layout(const Plan& plan, const BlockPlan& layout, PlanUses& uses) {
  const bool ranks = plan.data_ranks(layout) * layout.cp > 1;
  const bool mix = layout.cp > 1 && layout.context == ContextParallel::Mix;
  const bool ring = (layout.cp > 1 && layout.context == ContextParallel::Ring) ||
                    (mix && layout.cp > layout.ulysses_degree);
  const bool sequence = layout.tp > 1 && layout.sequence_parallel;
  uses.tensor_parallel |= layout.tp > 1;
  uses.sequence_parallel |= sequence;
  const bool mesh = layout.mesh() != TensorMesh::OneD;
  const bool adapters = layout.tp > 1 && plan.network.spec.adapters.rank > 0;
  uses.tensor_mesh |= mesh;
  uses.cut_adapters |= adapters;
  uses.gathers_again |= uses.training && (sequence || mesh || adapters) && !layout.keep_gathered;
  uses.whole_boundaries |= layout.tp > 1 && replicates_stream(layout);
  uses.context_parallel |= layout.cp > 1;
  uses.exchanges_heads |= (mix && layout.ulysses_degree > 1) ||
                          (layout.cp > 1 && layout.context == ContextParallel::Ulysses);
  uses.ring |= ring;
  uses.recomputed_ring |= ring && layout.recompute == Recompute::Full;
  uses.recomputed_gather |= layout.cp > 1 && layout.context == ContextParallel::AllGather &&
                            layout.recompute == Recompute::Full;
  uses.keeps_norms |=
      layout.recompute == Recompute::None || layout.recompute == Recompute::Selective;
  uses.expert_parallel |= layout.ep > 1;
  uses.sends_tokens |= uses.training ? layout.ep > 1 : expert_replicas(layout) > 1;
  uses.data_parallel |= ranks;
  uses.shards_states |= ranks && layout.zero_stage > 0;
  uses.zero1 |= ranks && layout.zero_stage == 1;
  uses.zero3 |= ranks && layout.zero_stage == 3;
  const auto shards = group_of(mesh_of(layout, plan.data_ranks(layout)),
                               {kShardAxes.begin(), kShardAxes.end()}, plan.cluster.node.gpus);
  uses.wide_shards |= layout.zero_stage == 3 && shards.nodes > 1;
  uses.scatters_gradients |=
      ranks &&
      (layout.zero_stage > 1 || (layout.zero_stage == 1 && !plan.execution.allreduce_gradients));
  uses.fetched_parameters |= layout.offload.parameters != Tier::Device;
  (layout.offload.optimizer == Tier::Device ? uses.device_optimizer : uses.host_optimizer) = true;
  uses.sharded_host_optimizer |= layout.offload.optimizer != Tier::Device && layout.zero_stage > 0;
  uses.device_gradients |= layout.offload.gradients == Tier::Device;
}

bool splits_products(const Plan& plan) {
  const Execution& execution = plan.execution;
  const models::Activation activation = plan.network.spec.activation;
  const bool gated =
      activation == models::Activation::SwiGlu || activation == models::Activation::GeGlu;
  const bool apart = gated && (execution.eager_elementwise || !execution.fused_kernels);
  const bool copied =
      execution.attention_copies || (execution.projection_copies && execution.fused_attention);
  return execution.fused_projections && (apart || !copied);
}

}  // namespace

PlanUses uses_of(const Plan& plan) {
  const models::NetworkSpec& spec = plan.network.spec;
  PlanUses uses{.plan = plan};
  uses.serving = plan.serving != nullptr;
  uses.training = !uses.serving;
  for (const BlockRun& run : plan.blocks) {
    add_layout(plan, run.layout, uses);
  }
  uses.shared_experts = uses.expert_parallel && spec.moe.shared_ffn_hidden > 0;
  uses.hides_exchanges = uses.training ? uses.shared_experts : hides_exchanges(plan);
  uses.pipeline = plan.pp > 1;
  uses.biases = spec.attention_bias || spec.mlp_bias || spec.attention_output_bias ||
                spec.head_bias || spec.moe.router_bias;
  uses.epilogue_biases = uses.biases && plan.execution.fused_bias;
  uses.loss_passes = !plan.execution.fused_cross_entropy && !plan.execution.eager_loss;
  uses.eager_kinds =
      spec.norm == models::NormKind::RmsNorm || spec.position == models::PositionKind::Rotary ||
      spec.activation == models::Activation::SwiGlu || spec.activation == models::Activation::GeGlu;
  uses.split_products = uses.training && splits_products(plan);
  uses.grouped_heads = spec.kv_heads < spec.heads;
  uses.fp8 = plan.precision == DType::Fp8;
  uses.quantised = is_quantised(plan.precision);
  uses.delayed_scaling =
      uses.fp8 && uses.training && plan.execution.fp8_scaling == Fp8Scaling::Delayed;
  uses.sixteen_bits = plan.precision != DType::Fp32 && plan.precision != DType::Tf32;
  uses.slices = plan.slices > 1;
  const auto& blocks = plan.network.blocks;
  uses.trained_table =
      spec.adapters.rank == 0 &&
      std::any_of(blocks.begin(), blocks.end(), [](const models::Block& block) {
        return !block.frozen && std::any_of(block.operators.begin(), block.operators.end(),
                                            [](const models::Operator& op) {
                                              return op.kind == models::OpKind::Embedding;
                                            });
      });
  uses.frozen_products = uses.quantised && spec.adapters.rank > 0;
  return uses;
}

}  // namespace orrery::plan
