// SPDX-License-Identifier: Apache-2.0
// Small searches for tests: networks and clusters whose whole spaces can be simulated, and that
// simulation of everything.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "plan/replay/memory_replay.hpp"
#include "search/per_block/bound.hpp"
#include "search/space/space.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

inline models::NetworkSpec small_spec(std::int64_t layers = 4) {
  models::NetworkSpec spec;
  spec.name = "small";
  spec.layers = layers;
  spec.hidden = 1024;
  spec.heads = 16;
  spec.kv_heads = 16;
  spec.head_dim = 64;
  spec.ffn_hidden = 4096;
  spec.vocab = 32000;
  spec.sequence = 2048;
  return spec;
}

inline models::NetworkSpec small_mixture() {
  models::NetworkSpec spec = small_spec(2);
  spec.name = "small mixture";
  spec.family = models::Family::Llama;
  spec.norm = models::NormKind::RmsNorm;
  spec.position = models::PositionKind::Rotary;
  spec.activation = models::Activation::SwiGlu;
  spec.attention_bias = spec.mlp_bias = spec.attention_output_bias = false;
  spec.tied_embeddings = false;
  spec.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 2048};
  return spec;
}

struct Shape {
  models::NetworkSpec spec = small_spec();
  std::string cluster = "dgx-a100:1";
  std::vector<std::string> overrides = {"node.gpus=4"};
  std::int64_t batch = 8;
  std::int64_t sequence = 2048;
};

// 8 sequences on four GPUs with this memory each.
inline Shape with_memory(const std::string& memory, std::int64_t layers = 8) {
  Shape shape;
  shape.spec = small_spec(layers);
  shape.overrides.push_back("gpu.memory=" + memory);
  return shape;
}

inline plan::Plan base_plan(const Shape& shape = {}) {
  plan::Plan plan;
  plan.network = models::build_network(shape.spec, "test");
  plan.cluster = topologies::load_cluster(shape.cluster, shape.overrides);
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.batch = shape.batch;
  plan.sequence = shape.sequence;
  plan.precision = DType::Fp16;
  return plan;
}

constexpr std::size_t kFastest = 6;

struct Exhaustive {
  std::int64_t plans = 0;
  std::int64_t fitting = 0;
  std::optional<Seconds> best;
  std::vector<Seconds> fastest;  // of those that fit when they are replayed, up to kFastest
};

// Whether the plan also fits when its memory is replayed.
inline bool fits_replayed(const plan::Plan& plan) {
  return plan::replayed_verdict(plan, plan::replay_memory(plan)).fits;
}

// Simulates every plan of the space that fits; `each` sees all of them.
template <typename Each>
Exhaustive enumerate(const plan::Plan& base, const Constraints& constraints, Each each) {
  const Space space(base, constraints);
  plan::Simulator simulator(base);
  plan::Plan plan = base;
  Exhaustive result;
  const std::vector<Group> groups = space.groups();
  std::vector<std::tuple<Seconds, std::size_t, std::size_t>> fitting;  // by group and member
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::vector<Member> members = space.members(groups[group]);
    for (std::size_t member = 0; member < members.size(); ++member) {
      space.configure(groups[group], members[member], plan);
      ++result.plans;
      const plan::Simulation simulation = simulator.run(plan);
      each(plan, simulation, simulator);
      if (!simulation.does_not_fit) {
        ++result.fitting;
        fitting.emplace_back(simulation.iteration_time, group, member);
      }
    }
  }
  std::sort(fitting.begin(), fitting.end());
  for (const auto& [time, group, member] : fitting) {
    space.configure(groups[group], space.members(groups[group])[member], plan);
    if (fits_replayed(plan)) {
      result.fastest.push_back(time);
    }
    if (result.fastest.size() == kFastest) {
      break;
    }
  }
  if (!result.fastest.empty()) {
    result.best = result.fastest.front();
  }
  return result;
}

inline Exhaustive enumerate(const plan::Plan& base, const Constraints& constraints = {}) {
  return enumerate(base, constraints,
                   [](const plan::Plan&, const plan::Simulation&, plan::Simulator&) {});
}

// Of a pipeline, the plans with this cut: blocks by virtual stage.
inline PipelinePart with_cut(const std::vector<int>& stages) {
  PipelinePart part;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    part.ranges.push_back({{stage}, stages[stage], stages[stage]});
  }
  return part;
}

inline Constraints fixed(const std::string& text) {
  Constraints constraints;
  constraints.fix(text);
  return constraints;
}
inline Constraints forbidden(const std::string& text) {
  Constraints constraints;
  constraints.forbid(text);
  return constraints;
}

}  // namespace orrery::search
