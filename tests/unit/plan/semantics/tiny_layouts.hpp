// SPDX-License-Identifier: Apache-2.0
// Layouts for the ranks of tiny networks, and the serial run that theirs are compared with.
#pragma once

#include "tests/unit/plan/semantics/interpreter_backward.hpp"
#include "tests/unit/plan/semantics/tiny_networks.hpp"

namespace orrery::plan::semantics {

inline constexpr double kTolerance = 1e-9;

inline models::Network tiny_gpt() { return models::build_network(tiny(), "test"); }

inline models::Network tiny_llama(bool experts) {
  models::NetworkSpec spec = tiny(models::Family::Llama);
  if (experts) {
    spec.moe.experts = 4;
    spec.moe.top_k = 2;
    spec.moe.ffn_hidden = 4;
    spec.moe.shared_ffn_hidden = 4;
  }
  return models::build_network(spec, "test");
}

// Adapters of all products of `spec` with rank 4, everything else frozen.
inline models::Network adapted(models::NetworkSpec spec, bool shared = false) {
  spec.name = "adapted " + spec.name;
  spec.adapters = {.rank = 4, .shared_by_experts = shared};
  return models::build_network(spec, "test");
}

inline BlockPlan layout_of(const std::function<void(BlockPlan&)>& set) {
  BlockPlan layout;
  set(layout);
  return layout;
}

inline BlockPlan tensor_mesh(TensorMesh kind, int tp, int depth = 0, bool keep = false) {
  return layout_of([&](BlockPlan& layout) {
    layout.tp = tp;
    layout.tensor_parallel = kind;
    layout.tp_depth = depth;
    layout.keep_gathered = keep;
  });
}

inline BlockPlan with_inner(TensorAxis inner, BlockPlan layout) {
  layout.tp_inner = inner;
  return layout;
}

inline BlockPlan context(ContextParallel kind, int cp, int tp = 1, int ulysses = 1) {
  return layout_of([&](BlockPlan& layout) {
    layout.cp = cp;
    layout.tp = tp;
    layout.context = kind;
    layout.ulysses_degree = ulysses;
  });
}

inline BlockPlan tensor(int tp, bool sequence_parallel) {
  return layout_of([&](BlockPlan& layout) {
    layout.tp = tp;
    layout.sequence_parallel = sequence_parallel;
  });
}

inline BlockPlan expert(int ep, int tp, int expert_tp, bool sequence_parallel = false) {
  return layout_of([&](BlockPlan& layout) {
    layout.ep = ep;
    layout.tp = tp;
    layout.expert_tp = expert_tp;
    layout.sequence_parallel = sequence_parallel;
  });
}

// Experts over the context ranks (and the tensor-parallel ones) before other replicas.
inline BlockPlan folded(int ep, int cp, ContextParallel kind, int tp = 1, int ulysses = 1) {
  BlockPlan layout = context(kind, cp, tp, ulysses);
  layout.ep = ep;
  layout.expert_cp = 1;
  layout.expert_tp = tp > 1 ? 1 : 0;
  layout.sequence_parallel = tp > 1;
  return layout;
}

// On a part of the tensor-parallel or context ranks, the others with copies of them.
inline BlockPlan copied_experts(int ep, int tp, int expert_tp, int cp, bool sequence_parallel,
                                ContextParallel kind = ContextParallel::AllGather,
                                int ulysses = 1) {
  BlockPlan layout = folded(ep, cp, kind, tp, ulysses);
  layout.expert_tp = expert_tp;
  layout.sequence_parallel = sequence_parallel;
  return layout;
}

inline BlockPlan with_experts_inside(ExpertsInside inside, BlockPlan layout) {
  layout.ep_inside = inside;
  return layout;
}

// Tofu and hand-written maps: every axis any one variable.
inline BlockPlan variables(int tp, const std::vector<Var>& first, int cp,
                           const std::vector<Var>& second) {
  return layout_of([&](BlockPlan& layout) {
    layout.tp = tp;
    layout.cp = cp;
    layout.context = ContextParallel::AllGather;
    layout.variables[static_cast<std::size_t>(Axis::Tensor)] = VarList(first);
    layout.variables[static_cast<std::size_t>(Axis::Context)] = VarList(second);
  });
}

inline Interpreter serial_run(const Block& block) {
  Interpreter serial(block, BlockPlan(), 1, {8, 4});
  serial.run();
  return serial;
}

}  // namespace orrery::plan::semantics
