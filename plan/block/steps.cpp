// SPDX-License-Identifier: Apache-2.0
#include "plan/block/steps.hpp"

#include <algorithm>

#include "plan/block/lowering.hpp"

namespace orrery::plan {

using sim::PassKind;

namespace {

// CUDA_LAUNCH_BLOCKING: nothing is queued, so every kernel also takes the host the time to issue
// it: its launch, or its part of what the framework's own code takes for the pass.
void expose_host(const BlockContext& context, std::vector<Step>& steps) {
  int launches = 0;
  for (const Step& step : steps) {
    launches += step.collective ? 1 : step.launches;
  }
  const Seconds host = host_of_pass(context.execution, context.block);
  const Seconds each = std::max(context.device.profile().kernel_launch,
                                host / static_cast<double>(std::max(1, launches)));
  for (Step& step : steps) {
    step.time += each * static_cast<double>(step.collective ? 1 : step.launches);
  }
}

// Kernels of the recorded operators are one launch.
void launch_once(const BlockContext& context, std::vector<Step>& steps) {
  const std::vector<bool> recorded = recorded_operators(context.execution, context.block);
  const auto is_replayed = [&](std::string_view name) {
    for (std::size_t index = 0; index < recorded.size(); ++index) {
      if (recorded[index] && context.block.operators[index].name == name) {
        return true;
      }
    }
    return false;
  };
  bool is_first = true;
  for (Step& step : steps) {
    if (!step.collective && step.launches > 0 && is_replayed(step.name)) {
      step.launches = is_first ? 1 : 0;
      is_first = false;
    }
  }
}

void count_launches(const BlockContext& context, std::vector<Step>& steps) {
  if (context.execution.blocking_launches) {
    expose_host(context, steps);
  }
  if (context.execution.cuda_graphs) {
    launch_once(context, steps);
  }
}

bool is_layer_with_graphs(const Execution& execution, const models::Block& block) {
  return execution.cuda_graphs && !execution.blocking_launches &&
         block.kind == models::BlockKind::Layer;
}

// Whether the passes of a block are replayed from a CUDA graph, so that its kernels are one launch
// (Megatron-LM, --enable-cuda-graph). The host must know how many tokens experts got, unless shapes
// are static (drop and pad, or full-iteration graphs); Execution::graph_scope.
bool is_recorded(const Execution& execution, const models::Block& block) {
  return is_layer_with_graphs(execution, block) &&
         (block.experts == 0 || execution.graph_scope == GraphScope::Layer);
}

}  // namespace

std::vector<bool> recorded_operators(const Execution& execution, const models::Block& block) {
  std::vector<bool> recorded(block.operators.size(), is_recorded(execution, block));
  const bool partly = is_layer_with_graphs(execution, block) && !is_recorded(execution, block) &&
                      execution.graph_scope != GraphScope::Dense;
  const auto router =
      std::find_if(block.operators.begin(), block.operators.end(),
                   [](const auto& op) { return op.role == models::OpRole::Routing; });
  if (!partly || router == block.operators.end()) {
    return recorded;
  }
  const auto first = static_cast<std::size_t>(router - block.operators.begin());
  for (std::size_t index = 0; index < recorded.size(); ++index) {
    const models::Operator& op = block.operators[index];
    const bool feeds =
        std::find(op.outputs.begin(), op.outputs.end(), router->inputs.front()) != op.outputs.end();
    recorded[index] = index == first || op.kind == models::OpKind::Router || feeds ||
                      (index < first && execution.graph_scope == GraphScope::Attention);
  }
  return recorded;
}

Seconds host_of_pass(const Execution& execution, const models::Block& block) {
  if (block.kind != models::BlockKind::Layer || block.operators.empty()) {
    return {};
  }
  const std::vector<bool> recorded = recorded_operators(execution, block);
  const auto issued = static_cast<double>(std::count(recorded.begin(), recorded.end(), false));
  return execution.host_per_block * (issued / static_cast<double>(recorded.size()));
}

BlockSteps lower_block(const BlockContext& context) {
  const Lowering lowering(context);
  BlockSteps steps;
  lowering.forward(steps.forward, PassKind::Forward, Lowering::Part::All);
  if (context.block.frozen || context.forward_only) {
    count_launches(context, steps.forward);
    return steps;
  }
  lowering.backward(steps.backward);
  if (context.layout.recompute == Recompute::Full) {
    lowering.forward(steps.recompute, PassKind::Recompute, Lowering::Part::All);
  } else if (context.layout.recompute == Recompute::Selective) {
    lowering.forward(steps.recompute, PassKind::Recompute, Lowering::Part::AttentionCore);
  } else if (context.layout.recompute == Recompute::Products) {
    lowering.forward(steps.recompute, PassKind::Recompute, Lowering::Part::NotKept);
  } else if (context.layout.recompute == Recompute::Operators &&
             context.block.kind == models::BlockKind::Layer) {
    lowering.forward(steps.recompute, PassKind::Recompute, Lowering::Part::Chosen);
  }
  for (std::vector<Step>* list : {&steps.forward, &steps.recompute, &steps.backward}) {
    count_launches(context, *list);
  }
  return steps;
}

}  // namespace orrery::plan
