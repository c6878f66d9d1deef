// SPDX-License-Identifier: Apache-2.0
// One layer of a small network lowered under a layout, and what its collectives send.
#pragma once

#include <utility>
#include <vector>

#include "plan/block/cost.hpp"
#include "plan/block/states.hpp"

namespace orrery::plan {

using sim::CommKind;

inline models::Network gpt(int hidden, int heads, int layers = 2) {
  models::NetworkSpec spec;
  spec.name = "gpt";
  spec.layers = layers;
  spec.hidden = hidden;
  spec.heads = heads;
  spec.kv_heads = heads;
  spec.head_dim = hidden / heads;
  spec.ffn_hidden = 4 * hidden;
  spec.vocab = 51200;
  spec.sequence = 512;
  return models::build_network(spec, "test");
}

inline models::Network mixture(int experts, int top_k) {
  models::NetworkSpec spec;
  spec.name = "moe";
  spec.family = models::Family::Llama;
  spec.norm = models::NormKind::RmsNorm;
  spec.activation = models::Activation::SwiGlu;
  spec.position = models::PositionKind::Rotary;
  spec.layers = 2;
  spec.hidden = 1024;
  spec.heads = 16;
  spec.kv_heads = 16;
  spec.head_dim = 64;
  spec.ffn_hidden = 4096;
  spec.vocab = 32000;
  spec.sequence = 512;
  spec.tied_embeddings = false;
  spec.attention_bias = false;
  spec.mlp_bias = false;
  spec.moe.experts = experts;
  spec.moe.top_k = top_k;
  spec.moe.ffn_hidden = 2048;
  return models::build_network(spec, "test");
}

// Lowers the first layer of a network.
class Layer {
 public:
  Layer(models::Network network, BlockPlan layout, int dp, std::int64_t micro_batch,
        std::int64_t sequence)
      : network_(std::move(network)),
        cluster_(topologies::load_cluster("dgx-a100:64")),
        profile_(costmodel::load_profile("", cluster_.gpu)),
        device_(cluster_.gpu, profile_),
        collectives_(cluster_, profile_),
        layout_(layout),
        mesh_(mesh_of(layout, dp)),
        extents_{micro_batch * dp, sequence} {}

  BlockSteps steps() const {
    const BlockContext context{block(),      layout_,    mesh_,       extents_,          device_,
                               collectives_, execution_, DType::Fp16, cluster_.node.gpus};
    return lower_block(context);
  }
  const models::Block& block() const {
    return network_.blocks[static_cast<std::size_t>(network_.chain[1])];
  }
  Execution& execution() { return execution_; }
  const Mesh& mesh() const { return mesh_; }

 private:
  models::Network network_;
  topologies::Cluster cluster_;
  costmodel::Profile profile_;
  costmodel::DeviceModel device_;
  costmodel::CollectiveModel collectives_;
  Execution execution_;
  BlockPlan layout_;
  Mesh mesh_;
  Extents extents_;
};

// Elements of 2 bytes that a device sends in a bandwidth-optimal ring (section 0).
inline double ring_elements(const Step& step) {
  const double n = step.group.ranks;
  const double size = step.bytes.value() / 2.0;
  return (step.comm == CommKind::AllReduce ? 2.0 : 1.0) * (n - 1) / n * size;
}

inline double sent(const std::vector<Step>& steps) {
  double elements = 0;
  for (const Step& step : steps) {
    elements += step.collective ? ring_elements(step) : 0.0;
  }
  return elements;
}

inline int count(const std::vector<Step>& steps, CommKind kind) {
  int found = 0;
  for (const Step& step : steps) {
    found += step.collective && step.comm == kind ? 1 : 0;
  }
  return found;
}

}  // namespace orrery::plan
