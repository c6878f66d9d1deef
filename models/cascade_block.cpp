// SPDX-License-Identifier: Apache-2.0
// The second backbone of a cascade: its blocks have tokens of their own and no features of the
// first one, which trains beside it (Tian et al., DiffusionPipe, MLSys 2024, arXiv 2405.01248,
// cascaded models).
#include "models/blocks.hpp"

namespace orrery::models {

NetworkSpec cascade_network(const NetworkSpec& spec) {
  const CascadeSpec& cascade = spec.cascade;
  NetworkSpec network = spec;
  network.cascade = {};
  network.name = spec.name + " cascade";
  network.layers = cascade.layers;
  network.hidden = cascade.hidden;
  network.heads = cascade.heads;
  network.kv_heads = cascade.heads;
  network.head_dim = cascade.hidden / cascade.heads;
  network.ffn_hidden = cascade.ffn_hidden > 0 ? cascade.ffn_hidden : 4 * cascade.hidden;
  network.sequence = cascade.tokens;
  network.max_positions = 0;
  return network;
}

Block cascade_block(const NetworkSpec& spec, Block block) {
  block.name = "cascade_" + block.name;
  block.tokens = spec.cascade.tokens;
  return block;
}

}  // namespace orrery::models
