// SPDX-License-Identifier: Apache-2.0
// Who sends tokens to their experts and back, and what each of them does to time and kernels: a row
// a dispatcher. A plan names one by two flags of its `execution`, `deduplicated_dispatch` and
// `fused_permutation`; costs, importers, exporters and studies ask here what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

enum class Dispatcher : std::uint8_t { AllToAll, DeepEp, HybridEp };

struct DispatcherFacts {
  Dispatcher dispatcher;
  // Of Megatron-LM's flex dispatcher; empty: none of its libraries.
  std::string_view megatron_backend;
  // A token travels once to each node and, there, once to each rank, which copies it for its
  // experts. Else once for every expert.
  bool once_a_rank;
  // Its kernels leave tokens in the order of experts and in padded rows; no others need to.
  bool orders_tokens;
  // The router's weights go with the tokens in fp32.
  bool fp32_probabilities;
  // Of a token in each exchange, beside its copies and their bytes.
  Seconds token_time;
};

const DispatcherFacts& dispatcher_facts(const Execution& execution);
void set_dispatcher(Dispatcher dispatcher, Execution& execution);

// The one with this backend; nothing where none has it.
std::optional<Dispatcher> dispatcher_of_backend(std::string_view megatron_backend);

}  // namespace orrery::plan
