// SPDX-License-Identifier: Apache-2.0
// Small plans that between them use what a plan document can say, and members that few documents
// state.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/serving/serving.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {

inline models::NetworkSpec tiny_spec() {
  models::NetworkSpec spec = small_spec();
  spec.layers = 2;
  spec.hidden = 2048;
  spec.heads = 16;
  spec.kv_heads = 16;
  spec.head_dim = 128;
  spec.ffn_hidden = 8192;
  spec.vocab = 32768;
  spec.sequence = 4096;
  spec.hidden_dropout = 0.1;
  return spec;
}

inline models::NetworkSpec llama_spec() {
  models::NetworkSpec spec = tiny_spec();
  spec.family = models::Family::Llama;
  spec.norm = models::NormKind::RmsNorm;
  spec.position = models::PositionKind::Rotary;
  spec.activation = models::Activation::SwiGlu;
  spec.attention_bias = spec.mlp_bias = spec.attention_output_bias = false;
  spec.tied_embeddings = false;
  spec.hidden_dropout = 0;
  spec.kv_heads = 8;
  return spec;
}

inline Plan plan_of(const models::NetworkSpec& spec, const std::string& cluster, int pp,
                    const BlockPlan& layout) {
  Plan plan = small_plan(spec, cluster);
  plan.pp = pp;
  plan.dp = plan.cluster.num_gpus() / (pp * layout.tp * layout.cp);
  plan.sequence = 4096;
  plan.micro_batch = 2;
  plan.batch = 4 * plan.dp * plan.micro_batch;
  plan.stage_blocks = even_stages(plan.network, pp);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  return plan;
}

inline Plan expert_plan() {
  models::NetworkSpec spec = llama_spec();
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024, .shared_ffn_hidden = 1024};
  Plan plan = plan_of(spec, "hgx-h100:2", 1,
                      {.tp = 2, .ep = 4, .sequence_parallel = true, .zero_stage = 2});
  plan.precision = DType::Fp8;
  return plan;
}

inline Plan offloaded_plan() {
  BlockPlan layout{.zero_stage = 3, .recompute = Recompute::Full};
  layout.offload.parameters = Tier::Host;
  layout.offload.gradients = Tier::Host;
  layout.offload.optimizer = Tier::Disk;
  layout.offload.activations = 0.5;
  return plan_of(llama_spec(), "dgx-a100:2", 1, layout);
}

inline Plan serving_plan() {
  Plan plan = plan_of(llama_spec(), "dgx-a100:1", 1, {.tp = 2});
  Serving serving;
  serving.requests = {.count = 24,
                      .arrivals = Arrivals::Poisson,
                      .requests_per_second = 2000,
                      .prompt = {.mean = 200, .deviation = 150, .max = 900},
                      .output = {.mean = 20, .deviation = 10, .max = 100},
                      .seed = 1,
                      .trace = {}};
  serving.options.expected_output = 20;
  serving.options.max_requests = 2;
  serving.options.token_budget = 256;
  plan.serving = std::make_shared<const Serving>(serving);
  plan.micro_batch = 1;
  return plan;
}

// The parameters of its layers pass through a window.
inline Plan streamed_plan() {
  models::NetworkSpec spec = llama_spec();
  spec.layers = 4;
  Plan plan = plan_of(spec, "dgx-a100:1", 1, {.tp = 2});
  plan.serving = serving_plan().serving;
  plan.micro_batch = 1;
  BlockPlan away = plan.blocks.front().layout;
  away.offload.parameters = Tier::Host;
  plan.blocks = {{1, plan.blocks.front().layout}, {4, away}, {1, plan.blocks.front().layout}};
  return plan;
}

// Of four replicas, two of which share the experts.
inline Plan serving_experts_plan(DType precision) {
  Plan plan = serving_plan();
  Plan experts = expert_plan();
  experts.serving = plan.serving;
  experts.cluster = topologies::load_cluster("hgx-h100:1");
  experts.dp = 4;
  experts.micro_batch = 1;
  experts.blocks.front().layout = {.tp = 2, .ep = 4, .expert_tp = 1};
  experts.precision = precision;
  return experts;
}

// Plans of the mechanisms that choices belong to.
inline std::map<std::string, Plan> plans_of_choices() {
  std::map<std::string, Plan> all = {
      {"dense", plan_of(tiny_spec(), "dgx-a100:2", 2, {.tp = 2, .zero_stage = 1})},
      {"ring", plan_of(tiny_spec(), "dgx-a100:2", 1, {.tp = 2, .cp = 4})},
      {"mesh", plan_of(tiny_spec(), "ac922:4", 1, {.tp = 4, .tensor_parallel = TensorMesh::TwoD})},
      {"sharded", plan_of(llama_spec(), "hgx-h100:2", 1, {.zero_stage = 3})},
      {"offloaded", offloaded_plan()},
      {"experts", expert_plan()},
      {"serving", serving_plan()},
      {"streamed", streamed_plan()},
      {"served-experts", serving_experts_plan(DType::Bf16)},
      {"served-fp8", serving_experts_plan(DType::Fp8)},
      {"one", plan_of(tiny_spec(), "p3-2xlarge:1", 1, {})},
  };
  all.at("mesh").precision = DType::Fp16;
  all.at("one").precision = DType::Fp16;
  return all;
}

// Those, and plans of other kinds of clusters.
inline std::map<std::string, Plan> plans_of_hardware() {
  std::map<std::string, Plan> all = plans_of_choices();
  all.emplace("wide", plan_of(tiny_spec(), "dgx-a100:32", 1, {.tp = 2, .zero_stage = 1}));
  all.emplace("slots", plan_of(tiny_spec(), "l40s-8:2", 2, {.tp = 4}));
  all.emplace("switched", plan_of(llama_spec(), "hgx-h100:1", 1, {.tp = 8}));
  all.emplace("links", plan_of(tiny_spec(), "dgx-1v:1", 1, {.tp = 8}));
  all.at("wide").precision = DType::Tf32;
  all.at("slots").precision = DType::Fp32;
  all.at("links").precision = DType::Fp16;
  return all;
}

// Members that a document leaves out where they have their usual values.
inline const std::vector<std::pair<std::string, std::vector<Json>>>& absent_members() {
  static const std::vector<std::pair<std::string, std::vector<Json>>> members = {
      {"blocks.0.tensor_parallel", {"2d"}},
      {"blocks.0.tp_rows", {4}},
      {"blocks.0.tp_depth", {2}},
      {"blocks.0.tp_inner", {"rows"}},
      {"blocks.0.keep_gathered", {true}},
      {"blocks.0.expert_cp", {1}},
      {"blocks.0.ep_inside", {"cp", "tp"}},
      {"blocks.0.broadcasts", {"binomial"}},
      {"blocks.0.ulysses_degree", {2}},
      {"blocks.0.zigzag", {false}},
      {"parallelism.slices", {4}},
      {"parallelism.activation_cap", {1.0}},
      {"parallelism.micro_batch", {2}},
      {"parallelism.schedule", {"gpipe"}},
      {"execution.overlap_shared_experts", {true}},
      {"execution.deduplicated_dispatch", {true}},
      {"execution.quantised_dispatch", {true}},
      {"execution.fused_permutation", {true}},
      {"execution.routing_imbalance", {1.5}},
      {"execution.graph_scope", {"router", "attention", "layer"}},
      {"execution.expert_padding", {true}},
      {"execution.eager_expert_bias", {true}},
      {"execution.bias_gradients_apart", {true}},
      {"execution.joins_gradients", {true}},
      {"execution.compiled_loss", {true}},
      {"execution.fp32_norms", {true}},
      {"execution.reruns_norms", {true}},
      {"execution.fused_experts", {true}},
      {"execution.fused_router", {true}},
      {"execution.fp8_attention", {true}},
      {"execution.quantised_gather", {true}},
      {"execution.hierarchical_gather", {true}},
      {"execution.quantised_reduce", {true}},
      {"execution.allreduce_gradients", {true}},
      {"execution.broadcasts_parameters", {true}},
      {"execution.copies_gathered", {true}},
      {"execution.flattens_gradients", {true}},
      {"execution.ships_weights", {true}},
      {"execution.post_validation", {true}},
      {"execution.lookup_products", {true}},
  };
  return members;
}

}  // namespace orrery::plan
