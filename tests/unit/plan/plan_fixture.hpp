// SPDX-License-Identifier: Apache-2.0
// Plans for tests: a small network on a small cluster, everything consistent.
#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "plan/block/cost.hpp"
#include "plan/plan.hpp"
#include "plan/stages.hpp"

namespace orrery::plan {

inline models::NetworkSpec small_spec() {
  models::NetworkSpec spec;
  spec.name = "small";
  spec.layers = 8;
  spec.hidden = 1024;
  spec.heads = 16;
  spec.kv_heads = 16;
  spec.head_dim = 64;
  spec.ffn_hidden = 4096;
  spec.vocab = 51200;
  spec.sequence = 2048;
  spec.source = "a test";
  return spec;
}

inline Plan small_plan(const models::NetworkSpec& spec = small_spec(),
                       const std::string& cluster = "dgx-a100:2") {
  Plan plan;
  plan.network = models::build_network(spec, "test");
  plan.cluster = topologies::load_cluster(cluster);
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.batch = 64;
  plan.sequence = 2048;
  plan.dp = 2;
  plan.pp = 2;
  plan.stage_blocks = even_stages(plan.network, 2);
  BlockPlan layout;
  layout.tp = 4;
  layout.zero_stage = 1;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  return plan;
}

// Eight H100 that share the experts of every layer, four of which each token goes to.
inline Plan expert_plan(DType precision, std::int64_t experts) {
  models::NetworkSpec spec = small_spec();
  spec.vocab = 1024;
  spec.moe.experts = experts;
  spec.moe.top_k = 4;
  spec.moe.ffn_hidden = 2048;
  Plan plan = small_plan(spec, "hgx-h100:1");
  plan.precision = precision;
  plan.pp = 1;
  plan.dp = 8;
  plan.stage_blocks = even_stages(plan.network, 1);
  BlockPlan layout;
  layout.ep = 8;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  return plan;
}

// All GPUs on one stage of a network of the zoo, or of small_spec().
inline Plan one_stage_plan(const BlockPlan& layout, const std::string& network = "") {
  Plan plan = small_plan();
  if (!network.empty()) {
    plan.network = models::load_network(network);
    plan.sequence = 2048;
  }
  plan.pp = 1;
  plan.dp = plan.cluster.num_gpus() / (layout.tp * layout.cp);
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  return plan;
}

// One replica of one stage, of 4 samples, on as many GPUs of a node as the layout has ranks.
inline Plan one_replica(const models::NetworkSpec& spec, const BlockPlan& layout,
                        const std::string& cluster = "dgx-a100:1") {
  Plan plan = small_plan(spec, cluster);
  plan.dp = plan.pp = 1;
  plan.cluster.node.gpus = layout.tp * layout.cp / plan.cluster.num_nodes;
  plan.batch = plan.micro_batch = 4;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout = layout;
  check_plan(plan, "test");
  return plan;
}

// Seconds of the kernels of a layer with this name.
inline double time_of(const Plan& plan, std::string_view name, bool forward) {
  const BlockCosts costs(plan);
  const BlockSteps steps =
      costs.steps_of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch);
  double time = 0;
  for (const Step& step : forward ? steps.forward : steps.backward) {
    time += !step.collective && step.name == name ? step.time.value() : 0.0;
  }
  return time;
}

// The time of a memory-bound kernel on the plan's GPU.
inline Seconds memory_bound(const Plan& plan, double bytes, costmodel::MemoryKernel kernel) {
  return costmodel::DeviceModel(plan.cluster.gpu, plan.profile).memory_bound(Bytes(bytes), kernel);
}

// What check_plan says against the plan, "" when it has nothing to say.
inline std::string problem(const Plan& plan) {
  try {
    check_plan(plan, "plan.json");
  } catch (const Error& error) {
    return error.kind() == ErrorKind::BadInput ? error.what() : "not bad input";
  }
  return "";
}

}  // namespace orrery::plan
