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

void launch_once(std::vector<Step>& steps) {
  bool is_first = true;
  for (Step& step : steps) {
    if (!step.collective) {
      step.launches = is_first ? 1 : 0;
      is_first = false;
    }
  }
}

}  // namespace

bool is_recorded(const Execution& execution, const models::Block& block) {
  return execution.cuda_graphs && !execution.blocking_launches && block.experts == 0 &&
         block.kind == models::BlockKind::Layer;
}

Seconds host_of_pass(const Execution& execution, const models::Block& block) {
  const bool issues = block.kind == models::BlockKind::Layer && !is_recorded(execution, block);
  return issues ? execution.host_per_block : Seconds();
}

BlockSteps lower_block(const BlockContext& context) {
  const Lowering lowering(context);
  BlockSteps steps;
  lowering.forward(steps.forward, PassKind::Forward, Lowering::Part::All);
  if (context.block.frozen || context.forward_only) {
    if (context.execution.blocking_launches) {
      expose_host(context, steps.forward);
    }
    if (is_recorded(context.execution, context.block)) {
      launch_once(steps.forward);
    }
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
  if (context.execution.blocking_launches) {
    for (std::vector<Step>* list : {&steps.forward, &steps.recompute, &steps.backward}) {
      expose_host(context, *list);
    }
  }
  if (is_recorded(context.execution, context.block)) {
    for (std::vector<Step>* list : {&steps.forward, &steps.recompute, &steps.backward}) {
      launch_once(*list);
    }
  }
  return steps;
}

}  // namespace orrery::plan
