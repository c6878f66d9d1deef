// SPDX-License-Identifier: Apache-2.0
#include "plan/document/idle_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/block/states.hpp"
#include "plan/document/plan_uses.hpp"
#include "plan/execution_flags.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/serving/serving.hpp"
#include "plan/stage/validated_pace.hpp"

namespace orrery::plan {
namespace {

using Condition = bool (*)(const PlanUses&);

struct FlagRule {
  bool Execution::*member;
  Condition applies;
  std::string_view needs;
};

constexpr std::string_view kTraining = "a training plan";
constexpr std::string_view kWaits = "a training plan with pp > 1, without overlap_p2p and slices";
constexpr std::string_view kRecorded =
    "layers without experts (or graph_scope) in training, not blocking_launches";
constexpr std::string_view kZero3 = "zero_stage = 3 over several data-parallel ranks";
constexpr std::string_view kGathers =
    "zero_stage = 3 over several data-parallel ranks, or offload.parameters";
constexpr std::string_view kWideShards =
    "zero_stage = 3 over data-parallel ranks of several nodes; inside a node the shard is that of "
    "every gather";
constexpr std::string_view kSendsTokens = "ep > 1, in a serving plan over several replicas";
constexpr std::string_view kExperts = "a network with experts";
constexpr std::string_view kLowPrecision = "a training plan with parameters narrower than fp32";

bool training(const PlanUses& uses) { return uses.training; }
bool wide_shards(const PlanUses& u) { return u.training && u.wide_shards; }
bool gathers(const PlanUses& u) { return u.training && (u.zero3 || u.fetched_parameters); }
bool zero3(const PlanUses& uses) { return uses.training && uses.zero3; }
bool sends_tokens(const PlanUses& uses) { return uses.sends_tokens; }
bool has_experts(const PlanUses& uses) { return uses.plan.network.spec.moe.experts > 0; }
bool waits_for_messages(const PlanUses& uses) {
  return uses.training && uses.pipeline && !uses.slices && !uses.plan.execution.overlap_p2p;
}
bool splits_projection(const PlanUses& uses) {
  const Execution& execution = uses.plan.execution;
  return uses.training && execution.fused_attention && !execution.attention_copies &&
         uses.plan.network.spec.position == models::PositionKind::Rotary;
}

// Layers with experts are launched kernel by kernel unless graph_scope says otherwise.
bool records_layers(const PlanUses& uses) {
  const std::vector<models::Block>& blocks = uses.plan.network.blocks;
  const bool all = uses.plan.execution.graph_scope != GraphScope::Dense;
  return uses.training && !uses.plan.execution.blocking_launches &&
         std::any_of(blocks.begin(), blocks.end(), [&](const models::Block& block) {
           return block.kind == models::BlockKind::Layer && (block.experts == 0 || all);
         });
}

// A flag that is not listed does something in every plan.
constexpr std::array kFlagRules = {
    FlagRule{&Execution::fused_attention, training, kTraining},
    FlagRule{&Execution::fused_cross_entropy, training, kTraining},
    FlagRule{&Execution::eager_loss,
             [](const PlanUses& u) { return u.training && !u.plan.execution.fused_cross_entropy; },
             "a training plan whose fused_cross_entropy is false"},
    FlagRule{&Execution::compiled_loss,
             [](const PlanUses& u) { return u.training && u.loss_passes; },
             "a training plan whose fused_cross_entropy and eager_loss are false"},
    FlagRule{&Execution::reruns_norms,
             [](const PlanUses& u) { return u.training && u.keeps_norms; },
             "a training plan with recompute none or selective"},
    FlagRule{&Execution::lookup_products,
             [](const PlanUses& u) { return u.training && u.trained_table; },
             "a training plan with a trained token table"},
    FlagRule{&Execution::eager_elementwise, [](const PlanUses& u) { return u.eager_kinds; },
             "RMS norms, rotary positions or a gated activation"},
    FlagRule{
        &Execution::eager_ring,
        [](const PlanUses& u) { return u.training && u.ring && u.plan.execution.fused_attention; },
        "a ring of several context ranks, and fused_attention, in a training plan"},
    FlagRule{&Execution::repeated_heads,
             [](const PlanUses& u) { return u.training && u.grouped_heads; },
             "a training plan of a network with fewer kv_heads than heads"},
    FlagRule{&Execution::gathered_ring, [](const PlanUses& u) { return u.training && u.ring; },
             "a ring of several context ranks (context ring or mix) in a training plan"},
    FlagRule{&Execution::reuses_gathered,
             [](const PlanUses& u) {
               return u.training && ((u.recomputed_ring && u.plan.execution.gathered_ring) ||
                                     u.recomputed_gather);
             },
             "cp > 1 and recompute full, with context all-gather or, with gathered_ring, a ring"},
    FlagRule{&Execution::overlap_context, [](const PlanUses& u) { return u.training && u.ring; },
             "a ring of several context ranks (context ring or mix) in a training plan"},
    FlagRule{&Execution::regathers_inputs, [](const PlanUses& u) { return u.gathers_again; },
             "a training plan with gathered inputs (a tensor mesh, or tp > 1 with "
             "sequence_parallel or adapters) and without keep_gathered"},
    FlagRule{&Execution::fp8_gathers,
             [](const PlanUses& u) { return u.quantised && u.sequence_parallel; },
             "precision fp8 or nvfp4 and tp > 1 with sequence_parallel"},
    FlagRule{&Execution::cast_transposes,
             [](const PlanUses& u) { return u.quantised && u.training; },
             "a training plan in fp8 or nvfp4"},
    FlagRule{&Execution::norms_cast,
             [](const PlanUses& u) {
               const models::AdapterSpec& adapters = u.plan.network.spec.adapters;
               const bool all_adapted = adapters.rank > 0 && adapters.qkv && adapters.up;
               return u.delayed_scaling && !all_adapted &&
                      (u.plan.execution.fp8_gathers || !u.sequence_parallel);
             },
             "a training plan in fp8 with fp8_scaling = delayed and products without adapters "
             "behind norms, with fp8_gathers where tp > 1 with sequence_parallel"},
    FlagRule{&Execution::casts_weights, [](const PlanUses& u) { return u.quantised && u.training; },
             "a training plan in fp8 or nvfp4"},
    FlagRule{&Execution::fp8_inputs,
             [](const PlanUses& u) { return u.quantised && u.training && !u.frozen_products; },
             "a training plan in fp8 or nvfp4 without adapters"},
    FlagRule{&Execution::fp8_attention,
             [](const PlanUses& u) {
               return u.serving ? u.quantised || u.plan.serving->options.fp8_cache
                                : u.quantised && u.plan.execution.fused_attention;
             },
             "precision fp8 or nvfp4, in a training plan with fused_attention, or fp8_cache"},
    FlagRule{&Execution::weighted_activations,
             [](const PlanUses& u) { return u.training && u.plan.network.spec.moe.experts > 0; },
             "a training plan of a network with experts"},
    FlagRule{&Execution::joins_gradients, [](const PlanUses& u) { return u.split_products; },
             "a training plan with fused_projections, whose queries, keys and values no copies of "
             "attention take apart, or with a gated activation of PyTorch's kernels"},
    FlagRule{&Execution::fused_bias, [](const PlanUses& u) { return u.biases; },
             "a network with biases"},
    FlagRule{&Execution::bias_gradient_sums,
             [](const PlanUses& u) { return u.training && u.biases; },
             "a training plan of a network with biases"},
    FlagRule{&Execution::bias_gradients_apart,
             [](const PlanUses& u) { return u.training && u.epilogue_biases && !u.quantised; },
             "a training plan of a network with biases, in 16 bits or more, with fused_bias"},
    FlagRule{&Execution::split_transfers,
             [](const PlanUses& u) { return u.pipeline && u.whole_boundaries; },
             "pp > 1, and tp > 1 ranks that all hold the stream (1d, without sequence_parallel)"},
    FlagRule{&Execution::cast_gradients,
             [](const PlanUses& u) {
               const Execution& execution = u.plan.execution;
               return u.training && u.sixteen_bits && execution.fp32_gradients &&
                      (u.trained_table || !execution.fused_grad_accumulation);
             },
             "fp32_gradients with parameters narrower than fp32, of a trained embedding or without "
             "fused_grad_accumulation"},
    FlagRule{&Execution::fused_grad_accumulation, training, kTraining},
    FlagRule{&Execution::attention_copies, training, kTraining},
    FlagRule{&Execution::projection_copies, splits_projection,
             "rotary positions and fused_attention in training, without attention_copies"},
    FlagRule{&Execution::copies_master,
             [](const PlanUses& u) {
               const Execution& execution = u.plan.execution;
               return u.training && u.device_optimizer && u.sixteen_bits &&
                      execution.master_weights && !execution.fp32_parameters;
             },
             "an optimizer on the device with master_weights beside narrower parameters"},
    FlagRule{&Execution::eager_optimizer,
             [](const PlanUses& u) { return u.training && u.device_optimizer; },
             "an optimizer on the device"},
    FlagRule{&Execution::vocab_parallel, [](const PlanUses& u) { return u.tensor_parallel; },
             "tp > 1"},
    FlagRule{
        &Execution::overlap_grad_reduce,
        [](const PlanUses& u) { return u.training && (u.data_parallel || u.sequence_parallel); },
        "several data-parallel ranks, or tp > 1 with sequence_parallel"},
    FlagRule{&Execution::overlap_param_gather,
             [](const PlanUses& u) {
               return u.training && (u.shards_states || u.sharded_host_optimizer);
             },
             "zero_stage > 0 over several data-parallel ranks or with an optimizer on the host"},
    FlagRule{&Execution::overlap_p2p, [](const PlanUses& u) { return u.training && u.pipeline; },
             "a training plan with pp > 1"},
    FlagRule{&Execution::serial_exchanges, waits_for_messages, kWaits},
    FlagRule{&Execution::synchronised_messages, waits_for_messages, kWaits},
    FlagRule{&Execution::overlap_tp,
             [](const PlanUses& u) {
               return u.training && (u.tensor_parallel || u.exchanges_heads || u.expert_parallel);
             },
             "tp, ep or, with context ulysses or mix, cp > 1 in a training plan"},
    FlagRule{
        &Execution::stream_tp,
        [](const PlanUses& u) { return u.sequence_parallel || u.tensor_mesh || u.cut_adapters; },
        "tp > 1 with sequence_parallel, adapters or on a tensor mesh"},
    FlagRule{&Execution::fp32_gradients, training, kTraining},
    FlagRule{&Execution::master_weights,
             [](const PlanUses& u) {
               return u.training && u.sixteen_bits && !u.plan.execution.fp32_parameters;
             },
             "parameters narrower than fp32"},
    FlagRule{&Execution::fp32_parameters,
             [](const PlanUses& u) { return u.training && u.sixteen_bits; }, kLowPrecision},
    FlagRule{&Execution::reshard_after_forward, gathers, kGathers},
    FlagRule{&Execution::delayed_update,
             [](const PlanUses& u) { return u.training && u.host_optimizer; },
             "an optimizer on host or disk"},
    FlagRule{
        &Execution::overlap_shared_experts, [](const PlanUses& u) { return u.hides_exchanges; },
        "shared experts and ep > 1, in a serving plan over replicas without persistent products"},
    FlagRule{&Execution::deduplicated_dispatch, sends_tokens, kSendsTokens},
    FlagRule{&Execution::quantised_dispatch, sends_tokens, kSendsTokens},
    FlagRule{
        &Execution::fused_permutation,
        [](const PlanUses& u) { return sends_tokens(u) && u.plan.execution.deduplicated_dispatch; },
        "deduplicated_dispatch and what it needs"},
    FlagRule{
        &Execution::expert_kernels,
        [](const PlanUses& u) {
          const bool one_cast = u.fp8 && u.plan.execution.fp8_scaling == Fp8Scaling::Delayed;
          return has_experts(u) && (u.training || (u.quantised && !one_cast));
        },
        "a network with experts, in a serving plan in nvfp4 or in fp8 without delayed scaling"},
    FlagRule{&Execution::expert_padding,
             [](const PlanUses& u) { return u.quantised && has_experts(u); },
             "a network with experts in fp8 or nvfp4"},
    FlagRule{&Execution::eager_expert_bias,
             [](const PlanUses& u) { return u.plan.network.spec.mlp_bias && has_experts(u); },
             "a network with experts that have biases"},
    FlagRule{&Execution::fused_experts, has_experts, kExperts},
    FlagRule{&Execution::fused_router,
             [](const PlanUses& u) { return u.training && has_experts(u); },
             "a training plan of a network with experts"},
    FlagRule{&Execution::quantised_gather,
             [](const PlanUses& u) {
               return u.training && (u.frozen_products ? u.zero3 : u.shards_states) &&
                      gathers_quantised(u.plan.execution, u.plan.precision);
             },
             "zero_stage > 0 (3 where adapters are trained) over several data-parallel "
             "ranks, in fp8 "
             "without scales of blocks"},
    FlagRule{&Execution::hierarchical_gather, wide_shards, kWideShards},
    FlagRule{&Execution::quantised_reduce,
             [](const PlanUses& u) { return u.training && u.scatters_gradients; },
             "gradients that are reduce-scattered (zero_stage > 0 without "
             "allreduce_gradients)"},
    FlagRule{&Execution::allreduce_gradients,
             [](const PlanUses& u) { return u.training && u.zero1; },
             "zero_stage = 1 over several data-parallel ranks"},
    FlagRule{&Execution::broadcasts_parameters,
             [](const PlanUses& u) {
               return u.training && u.shards_states && !u.zero3 &&
                      !u.plan.execution.overlap_param_gather;
             },
             "zero_stage 1 or 2 over several data-parallel ranks without "
             "overlap_param_gather"},
    FlagRule{&Execution::cuda_graphs, records_layers, kRecorded},
    FlagRule{
        &Execution::ships_weights,
        [](const PlanUses& u) { return u.training && schedule_traits(u.plan).spreads_attention; },
        "a schedule with attention on other devices"},
    FlagRule{&Execution::post_validation,
             [](const PlanUses& u) { return u.training && can_validate_afterwards(u.plan); },
             "a zero-bubble schedule with pp > 1, embeddings untied or on one device and an "
             "optimizer on the device"},
    FlagRule{&Execution::copies_gathered, zero3, kZero3},
    FlagRule{&Execution::flattens_gradients, zero3, kZero3},
};

// Other members: whether one is stated, and whether it does something.
struct ValueRule {
  std::string_view name;
  Condition stated;
  Condition applies;
  std::string_view needs;
};

constexpr std::array kValueRules = {
    ValueRule{"execution.gradient_passes",
              [](const PlanUses& u) { return u.plan.execution.gradient_passes > 0; },
              [](const PlanUses& u) { return u.training && u.device_gradients; },
              "gradients on the device"},
    ValueRule{"execution.graph_scope",
              [](const PlanUses& u) { return u.plan.execution.graph_scope != GraphScope::Dense; },
              [](const PlanUses& u) {
                return u.training && has_experts(u) && u.plan.execution.cuda_graphs &&
                       !u.plan.execution.blocking_launches;
              },
              "cuda_graphs, not blocking_launches, in a training plan of a network with experts"},
    ValueRule{"execution.routing_imbalance",
              [](const PlanUses& u) { return u.plan.execution.routing_imbalance != 1; },
              [](const PlanUses& u) { return u.expert_parallel; }, "ep > 1"},
    ValueRule{"execution.loss_evaluations",
              [](const PlanUses& u) { return u.plan.execution.loss_evaluations > 0; }, training,
              kTraining},
    ValueRule{"execution.softmax",
              [](const PlanUses& u) { return u.plan.execution.softmax != Softmax::Megatron; },
              [](const PlanUses& u) { return u.training && !u.plan.execution.fused_attention; },
              "a training plan whose fused_attention is false"},
    ValueRule{"execution.flash_version",
              [](const PlanUses& u) { return u.plan.execution.flash_version > 0; },
              [](const PlanUses& u) { return u.serving || u.plan.execution.fused_attention; },
              "fused_attention"},
    ValueRule{"execution.host_per_block",
              [](const PlanUses& u) { return u.plan.execution.host_per_block.value() > 0; },
              training, kTraining},
    ValueRule{
        "execution.bucket", [](const PlanUses& u) { return u.plan.execution.bucket_bytes > 0; },
        [](const PlanUses& u) { return u.training && (u.data_parallel || u.sequence_parallel); },
        "several data-parallel ranks, or tp > 1 with sequence_parallel"},
    ValueRule{"execution.first_bucket",
              [](const PlanUses& u) { return u.plan.execution.first_bucket_bytes > 0; },
              [](const PlanUses& u) {
                const Execution& execution = u.plan.execution;
                return u.training && u.data_parallel && execution.overlap_grad_reduce &&
                       execution.bucket_bytes > execution.first_bucket_bytes;
              },
              "overlap_grad_reduce and a larger bucket"},
    ValueRule{"execution.gathers_in_flight",
              [](const PlanUses& u) { return u.plan.execution.gathers_in_flight != 2; },
              [](const PlanUses& u) {
                return u.fetched_parameters ||
                       (u.training && u.zero3 && u.plan.execution.overlap_param_gather);
              },
              "zero_stage = 3 over several data-parallel ranks with overlap_param_gather, or "
              "offload.parameters"},
    ValueRule{"execution.fetched_together",
              [](const PlanUses& u) { return u.plan.execution.fetched_together != 1; },
              [](const PlanUses& u) { return u.fetched_parameters; }, "offload.parameters"},
    ValueRule{"execution.backward_prefetch",
              [](const PlanUses& u) {
                return u.plan.execution.backward_prefetch != BackwardPrefetch::Pre;
              },
              [](const PlanUses& u) {
                return u.training && u.zero3 && u.plan.execution.reshard_after_forward;
              },
              "zero_stage = 3 over several data-parallel ranks with reshard_after_forward"},
    ValueRule{"execution.fp8_scaling",
              [](const PlanUses& u) { return u.plan.execution.fp8_scaling != Fp8Scaling::Delayed; },
              [](const PlanUses& u) { return u.fp8; }, "precision fp8"},
    ValueRule{"execution.amax_ranks",
              [](const PlanUses& u) { return u.plan.execution.amax_ranks != AmaxRanks::All; },
              [](const PlanUses& u) {
                const bool model = u.tensor_parallel || u.context_parallel;
                const bool others = u.plan.data_ranks(u.plan.blocks.front().layout) > 1;
                return u.delayed_scaling &&
                       (others || (model && u.plan.execution.amax_ranks == AmaxRanks::None));
              },
              "a training plan in fp8 with fp8_scaling = delayed and several ranks a stage, data "
              "ranks for \"model\""},
    ValueRule{"execution.optimizer_state_per_parameter",
              [](const PlanUses& u) { return u.plan.execution.optimizer_state_bytes != 8; },
              training, kTraining},
    ValueRule{"parallelism.schedule", [](const PlanUses& u) { return u.plan.schedule != "1f1b"; },
              [](const PlanUses& u) { return u.training; }, kTraining},
    ValueRule{"parallelism.micro_batch", [](const PlanUses& u) { return u.plan.micro_batch != 1; },
              training, kTraining},
    ValueRule{"parallelism.slices", [](const PlanUses& u) { return u.slices; }, training,
              kTraining},
    ValueRule{"parallelism.activation_cap",
              [](const PlanUses& u) { return u.plan.activation_cap > 0; },
              [](const PlanUses& u) { return u.training && u.plan.pp > 1; },
              "a training plan with pp > 1"},
};

}  // namespace

std::vector<IdleField> idle_fields(const Plan& plan) {
  const PlanUses uses = uses_of(plan);
  const Execution usual;
  std::vector<IdleField> idle = idle_layout_fields(plan);
  for (IdleField& field : idle_serving_fields(uses)) {
    idle.push_back(std::move(field));
  }
  for (IdleField& field : idle_hardware_fields(plan)) {
    idle.push_back(std::move(field));
  }
  const auto add = [&](std::string field, std::string_view needs) {
    idle.push_back({std::move(field), std::string(needs)});
  };
  for (const ValueRule& rule : kValueRules) {
    if (rule.stated(uses) && !rule.applies(uses)) {
      add(std::string(rule.name), rule.needs);
    }
  }
  for (const FlagRule& rule : kFlagRules) {
    const bool stated = plan.execution.*rule.member != usual.*rule.member;
    if (stated && !rule.applies(uses)) {
      add(fmt::format("execution.{}", flag_name(rule.member)), rule.needs);
    }
  }
  return idle;
}

std::string idle_text(const std::vector<IdleField>& fields) {
  std::string text;
  for (const IdleField& idle : fields) {
    text += fmt::format("{}{} (needs {})", text.empty() ? "" : ", ", idle.field, idle.needs);
  }
  return text;
}

}  // namespace orrery::plan
