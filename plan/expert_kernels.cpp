// SPDX-License-Identifier: Apache-2.0
#include "plan/expert_kernels.hpp"

#include "plan/dispatchers.hpp"

namespace orrery::plan {

void use_transformer_engine_experts(bool has_biases, Execution& execution) {
  execution.expert_kernels = true;
  execution.eager_expert_bias = has_biases;
}

void pad_expert_rows(bool few_bits, bool padded_before, Execution& execution) {
  execution.expert_padding = execution.expert_kernels && few_bits && !padded_before &&
                             !dispatcher_facts(execution).orders_tokens;
}

}  // namespace orrery::plan
