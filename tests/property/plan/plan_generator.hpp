// SPDX-License-Identifier: Apache-2.0
// Random consistent plans on 16 GPUs: dense and mixture-of-experts networks whose sizes every
// degree divides, so that laws hold exactly.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"
#include "sim/schedule.hpp"
#include "tests/property/drawing.hpp"

namespace orrery::plan::testing {

// Code in this namespace and around it says testing:: for Googletest's, too.
using namespace ::testing;

// Clusters and profiles are read once.
struct Machine {
  topologies::Cluster cluster;
  costmodel::Profile profile;
  explicit Machine(const std::string& text)
      : cluster(topologies::load_cluster(text)),
        profile(costmodel::load_profile("", cluster.gpu)) {}
};

inline const std::vector<Machine>& machines() {
  static const std::vector<Machine> kMachines = {Machine("dgx-a100:2"), Machine("hgx-h100:2"),
                                                 Machine("dgx-1v:2")};
  return kMachines;
}
inline const Machine& any_machine() {
  return machines()[*rc::gen::inRange<std::size_t>(0, machines().size())];
}

inline models::NetworkSpec any_spec() {
  models::NetworkSpec spec;
  spec.name = "generated";
  spec.layers = pick<std::int64_t>({4, 8});
  spec.heads = pick<std::int64_t>({8, 16});
  spec.kv_heads = coin() ? spec.heads : 8;
  spec.head_dim = 64;
  spec.hidden = spec.heads * spec.head_dim;
  spec.ffn_hidden = 4 * spec.hidden;
  spec.vocab = 32000;
  spec.sequence = 1024;
  spec.tied_embeddings = coin();
  spec.hidden_dropout = pick({0.0, 0.1});
  spec.attention_dropout = spec.hidden_dropout;
  if (coin()) {
    spec.family = models::Family::Llama;
    spec.norm = models::NormKind::RmsNorm;
    spec.position = models::PositionKind::Rotary;
    spec.activation = models::Activation::SwiGlu;
    spec.attention_bias = spec.mlp_bias = spec.attention_output_bias = false;
    if (coin()) {
      spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 2048};
    }
  }
  spec.adapters.rank = pick<std::int64_t>({0, 0, 0, 16});
  return spec;
}

// Degrees that multiply to 16, a schedule that takes them and everything else at random.
inline Plan any_plan(const models::NetworkSpec& spec, const Machine& machine) {
  Plan plan;
  plan.network = models::build_network(spec, "generated");
  plan.cluster = machine.cluster;
  plan.profile = machine.profile;
  plan.precision = DType::Fp16;
  plan.sequence = 1024;
  BlockPlan layout;
  layout.tp = pick({1, 2, 4, 8});
  layout.cp = layout.tp < 8 ? pick({1, 1, 2}) : 1;
  plan.pp = pick({1, 2, 4});
  plan.dp = 16 / std::min(16, layout.tp * layout.cp * plan.pp);
  plan.pp = 16 / (layout.tp * layout.cp * plan.dp);
  if (plan.pp > 4) {
    plan.dp *= plan.pp / 4;
    plan.pp = 4;
  }
  plan.chunks = plan.pp > 1 && spec.layers % (2 * plan.pp) == 0 ? pick({1, 2}) : 1;
  plan.schedule = plan.chunks > 1 ? pick<std::string>({"interleaved", "breadth-first"})
                                  : pick<std::string>({"1f1b", "gpipe"});
  plan.micro_batch = pick<std::int64_t>({1, 2, 4});
  plan.batch = plan.micro_batch * plan.dp * plan.pp * *rc::gen::inRange<std::int64_t>(1, 5);
  plan.stage_blocks = even_stages(plan.network, plan.pp * plan.chunks);
  layout.sequence_parallel = layout.tp > 1 && coin();
  layout.context =
      layout.cp > 1 && spec.kv_heads % (layout.tp * layout.cp) == 0
          ? pick({ContextParallel::Ring, ContextParallel::AllGather, ContextParallel::Ulysses})
          : ContextParallel::Ring;
  layout.zero_stage = *rc::gen::inRange(0, 4);
  layout.recompute = pick({Recompute::None, Recompute::Selective, Recompute::Full});
  if (spec.moe.experts > 0 && plan.dp % 2 == 0) {
    layout.ep = pick({1, 2});
    layout.ep_inside = pick({ExpertsInside::Data, ExpertsInside::Context, ExpertsInside::Tensor});
  }
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  Execution& execution = plan.execution;
  execution.fused_attention = coin();
  execution.fused_kernels = coin();
  execution.overlap_grad_reduce = coin();
  execution.overlap_param_gather = coin();
  execution.overlap_p2p = coin();
  execution.overlap_tp = coin();
  execution.stream_tp = coin();
  execution.fp32_gradients = coin();
  execution.reshard_after_forward = coin();
  execution.bucket_bytes = pick<std::int64_t>({0, 25'000'000});
  check_plan(plan, "generated");
  return plan;
}

inline Plan any_plan() { return any_plan(any_spec(), any_machine()); }

}  // namespace orrery::plan::testing
