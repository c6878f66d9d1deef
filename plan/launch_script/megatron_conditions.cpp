// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/megatron_conditions.hpp"

#include <algorithm>

#include "plan/block_rules.hpp"
#include "plan/dispatchers.hpp"

namespace orrery::plan {
namespace {

std::optional<MegatronConflict> conflict_of_joined_passes(const Plan& plan) {
  const auto conflict = [](std::string_view problem, std::string_view search) {
    return MegatronConflict{"combined-1f1b", "--overlap-moe-expert-parallel-comm", problem, search};
  };
  if (plan.chunks == 1 && plan.pp > 1) {
    return conflict("with one chunk in a pipeline", "search with --fix chunks=2");
  }
  if (plan.blocks.front().layout.ep == 1) {
    return conflict("without expert parallelism",
                    plan.network.spec.moe.experts > 0
                        ? "search with --forbid ep=1"
                        : "search with --schedule 1f1b --schedule interleaved");
  }
  if (std::ranges::any_of(plan.blocks, [](const BlockRun& run) {
        return run.layout.recompute == Recompute::Full;
      })) {
    return conflict("with full recomputation", "search with --forbid recompute=full");
  }
  if (plan.execution.overlap_shared_experts) {
    return conflict("with shared experts beside the dispatch",
                    "search with --fix overlap_shared_experts=false");
  }
  if (plan.precision == DType::Fp32 || plan.precision == DType::Tf32) {
    return conflict("in fp32", "search with --precision bf16");
  }
  return std::nullopt;
}

std::optional<MegatronConflict> conflict_of_flex_dispatcher(const Plan& plan) {
  const auto conflict = [](std::string_view problem, std::string_view search) {
    return MegatronConflict{"deduplicated_dispatch", "--moe-token-dispatcher-type", problem,
                            search};
  };
  const BlockPlan& layout = plan.blocks.front().layout;
  if (expert_tensor_ranks(layout) * layout.ep == 1) {
    return conflict("with experts on a rank alone (it needs tp x ep > 1)",
                    "search with --forbid ep=1 or --fix deduplicated_dispatch=false");
  }
  if (plan.execution.overlap_shared_experts && plan.network.spec.moe.shared_ffn_hidden > 0) {
    return conflict("with shared experts beside the dispatch",
                    "search with --fix overlap_shared_experts=false");
  }
  return std::nullopt;
}

// megatron/core/model_parallel_config.py: a tensor rank sends its own tokens to the experts.
std::optional<MegatronConflict> conflict_of_experts(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  if (layout.ep == 1 || layout.tp == 1 || layout.sequence_parallel) {
    return std::nullopt;
  }
  return MegatronConflict{"expert parallelism", "--expert-model-parallel-size",
                          "with tensor parallelism, but without sequence parallelism",
                          "search with --fix sequence_parallel=true"};
}

// TransformerEngine, context_parallel.py, AttnFuncWithCPAndQKVOA2A: heads of keys and values that a
// tensor rank has divide by the context ranks; it repeats none.
std::optional<MegatronConflict> conflict_of_exchanged_heads(const Plan& plan) {
  const models::NetworkSpec& spec = plan.network.spec;
  const BlockPlan& layout = plan.blocks.front().layout;
  const std::int64_t kv_heads = spec.kv_heads > 0 ? spec.kv_heads : spec.heads;
  if (std::max<std::int64_t>(1, kv_heads / layout.tp) % layout.cp == 0) {
    return std::nullopt;
  }
  return MegatronConflict{"Ulysses", "--cp-comm-type",
                          "with key and value heads of a tensor rank that cp does not divide",
                          "search with --fix context=ring"};
}

}  // namespace

std::optional<MegatronConflict> megatron_conflict(const Plan& plan) {
  std::optional<MegatronConflict> conflict;
  if (plan.schedule == "combined-1f1b") {
    conflict = conflict_of_joined_passes(plan);
  }
  // Without experts nothing is dispatched.
  const bool flex = !dispatcher_facts(plan.execution).megatron_backend.empty();
  if (!conflict && flex && plan.network.spec.moe.experts > 0) {
    conflict = conflict_of_flex_dispatcher(plan);
  }
  const BlockPlan& layout = plan.blocks.front().layout;
  if (!conflict && layout.cp > 1 && layout.context == ContextParallel::Ulysses) {
    conflict = conflict_of_exchanged_heads(plan);
  }
  if (!conflict) {
    conflict = conflict_of_experts(plan);
  }
  return conflict;
}

}  // namespace orrery::plan
