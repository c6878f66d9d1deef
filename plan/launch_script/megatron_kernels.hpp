// SPDX-License-Identifier: Apache-2.0
// What Megatron-LM's arguments say of the kernels of experts and of CUDA graphs. Both need the
// network and the precision of the plan; graphs whether tokens are dropped, too.
#pragma once

#include "plan/launch_script/megatron_arguments.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

bool has_transformer_engine(MegatronArguments& arguments);

// After the dispatcher.
void read_megatron_experts(MegatronArguments& arguments, Plan& plan);

// Error where graphs have a part of a layer that Execution::graph_scope does not name.
void read_megatron_graphs(MegatronArguments& arguments, Plan& plan);

}  // namespace orrery::plan
