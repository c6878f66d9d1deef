// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/megatron_kernels.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "plan/expert_kernels.hpp"

namespace orrery::plan {

bool has_transformer_engine(MegatronArguments& arguments) {
  return arguments.choice("--transformer-impl", {"transformer_engine", "local"}) == 0;
}

void read_megatron_experts(MegatronArguments& arguments, Plan& plan) {
  // All are read, so that none is left over as unknown.
  const bool fuses_router = arguments.has("--moe-router-fusion");
  const bool padded_for_fp8 = arguments.has("--moe-router-padding-for-fp8");
  const bool padded = arguments.has("--moe-router-padding-for-quantization") || padded_for_fp8;
  const models::MoeSpec& experts = plan.network.spec.moe;
  if (experts.experts == 0) {
    return;
  }
  Execution& execution = plan.execution;
  execution.fused_router = fuses_router;
  if (has_transformer_engine(arguments) && !arguments.has("--moe-use-legacy-grouped-gemm")) {
    use_transformer_engine_experts(plan.network.spec.mlp_bias, execution);
  }
  pad_expert_rows(is_quantised(plan.precision), padded || experts.capacity_factor > 0, execution);
}

// core/transformer/cuda_graphs.py. Without a scope whole layers; of those with experts only where
// tokens are dropped and padded.
void read_megatron_graphs(MegatronArguments& arguments, Plan& plan) {
  constexpr const char* kScope = "--cuda-graph-scope";
  const bool older = arguments.has("--enable-cuda-graph");
  const bool external = arguments.has("--external-cuda-graph");
  const std::size_t made_by = arguments.choice(
      "--cuda-graph-impl", {"none", "local", "transformer_engine", "full_iteration"});
  const std::vector<std::string> scope = arguments.texts(kScope);
  if (!older && !external && made_by == 0) {
    return;
  }
  const auto has = [&](std::string_view part) {
    return std::find(scope.begin(), scope.end(), part) != scope.end();
  };
  const bool iteration = made_by == 3 || has("full_iteration");
  const bool layers = scope.empty() || has("full");
  const models::MoeSpec& experts = plan.network.spec.moe;
  plan.execution.cuda_graphs = true;
  if (experts.experts == 0) {
    if (!iteration && !layers && !(has("attn") && has("mlp"))) {
      bad_input(arguments.where(kScope), "graphs of a part of a layer are not modelled",
                "\"attn mlp\" and full_iteration are modelled");
    }
    return;
  }
  const bool routers = has("moe_router");
  if (iteration || (has("attn") && has("moe")) || (layers && experts.capacity_factor > 0)) {
    plan.execution.graph_scope = GraphScope::Layer;
  } else if (routers) {
    plan.execution.graph_scope = has("attn") ? GraphScope::Attention : GraphScope::Router;
  } else if (!layers) {
    bad_input(arguments.where(kScope), "graphs of this part of a layer are not modelled",
              "moe_router, \"attn moe_router\", \"attn moe\" and full_iteration are modelled");
  }
}

}  // namespace orrery::plan
