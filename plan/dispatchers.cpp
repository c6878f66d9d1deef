// SPDX-License-Identifier: Apache-2.0
#include "plan/dispatchers.hpp"

#include <algorithm>
#include <array>

namespace orrery::plan {

namespace {

// What DeepEP's kernels take for a token beside its copies and their bytes, on 8 B200 (tables of
// ai-dynamo/aiconfigurator, comm/sglang/0.5.12/wideep_deepep_normal): dispatches of 32,768 tokens
// of 4,096 elements to 8 and 22 of 256 and 512 experts, which are on 5.25 and 7.58 ranks, take 72.7
// and 92.6 ns a token: 28 ns and 8.5 a copy. A single copy of 5,120 elements takes 32.3 ns, of
// which that makes 39: 20 % too much where a token goes to one expert. No table of HybridEP is
// known.
constexpr Seconds kTokenOfDeepEp(28e-9);

// By Dispatcher. The libraries: deepseek-ai/DeepEP (README), and Megatron-LM core/transformer/moe,
// fused_a2a.py (dispatch_with_permute and combine_with_unpermute of HybridEP), token_dispatcher.py
// (_DeepepManager) and moe_utils.py (skip_routed_expert_padding).
constexpr DispatcherFacts kAllToAll = {.dispatcher = Dispatcher::AllToAll,
                                       .megatron_backend = "",
                                       .once_a_rank = false,
                                       .orders_tokens = false,
                                       .fp32_probabilities = false,
                                       .token_time = Seconds()};
constexpr DispatcherFacts kDeepEp = {.dispatcher = Dispatcher::DeepEp,
                                     .megatron_backend = "deepep",
                                     .once_a_rank = true,
                                     .orders_tokens = false,
                                     .fp32_probabilities = true,
                                     .token_time = kTokenOfDeepEp};
constexpr DispatcherFacts kHybridEp = {.dispatcher = Dispatcher::HybridEp,
                                       .megatron_backend = "hybridep",
                                       .once_a_rank = true,
                                       .orders_tokens = true,
                                       .fp32_probabilities = true,
                                       .token_time = Seconds()};
constexpr std::array kDispatchers = {kAllToAll, kDeepEp, kHybridEp};

}  // namespace

const DispatcherFacts& dispatcher_facts(const Execution& execution) {
  const Dispatcher dispatcher = !execution.deduplicated_dispatch ? Dispatcher::AllToAll
                                : execution.fused_permutation    ? Dispatcher::HybridEp
                                                                 : Dispatcher::DeepEp;
  return kDispatchers[static_cast<std::size_t>(dispatcher)];
}

void set_dispatcher(Dispatcher dispatcher, Execution& execution) {
  const DispatcherFacts& facts = kDispatchers[static_cast<std::size_t>(dispatcher)];
  execution.deduplicated_dispatch = facts.once_a_rank;
  execution.fused_permutation = facts.orders_tokens;
}

std::optional<Dispatcher> dispatcher_of_backend(std::string_view megatron_backend) {
  const auto* found =
      std::find_if(kDispatchers.begin(), kDispatchers.end(), [&](const DispatcherFacts& facts) {
        return !facts.megatron_backend.empty() && facts.megatron_backend == megatron_backend;
      });
  return found == kDispatchers.end() ? std::nullopt : std::optional(found->dispatcher);
}

}  // namespace orrery::plan
