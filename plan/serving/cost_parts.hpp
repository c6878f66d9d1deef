// SPDX-License-Identifier: Apache-2.0
// What serving makes of a block: its forward steps without attention and loss, the shape of
// attention over the cache, what the cache keeps of a token, activations that live at once.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/block/steps.hpp"

namespace orrery::plan {

// Kernels and collectives of a forward pass, without the attention core and the loss.
std::vector<Step> serving_steps(const BlockContext& context);

// Heads of one rank, and elements a head reads of every cached key and value. Latent attention
// (DeepSeek-V2, arXiv 2405.04434, section 2.1) multiplies queries into the latent space instead.
struct CacheAttention {
  double heads = 0;
  double dims = 0;
};
CacheAttention cache_attention(const models::NetworkSpec& spec, const models::Block& block, int tp);

// Elements that one rank caches of a token in a layer; heads beyond the KV heads are replicated.
double kv_elements(const models::NetworkSpec& spec, const models::Block& block, int tp);

// Elements of a token of which latent attention makes keys and values of one rank's heads.
struct ExpandedLatents {
  double latents = 0;        // in the cache
  std::int64_t columns = 0;  // of the product: keys without their rotary part, and values
  double keys = 0;           // whole ones
  double joined = 0;         // read and written to put them together
  double context = 0;        // that attention writes of a query
};
ExpandedLatents expanded_token(const models::NetworkSpec& spec, const models::Block& block, int tp);

// Most bytes of activations that live at once in a forward pass that keeps nothing; attention has
// others beside it.
ByteCount live_activations(const BlockContext& context, ByteCount beside_attention);

}  // namespace orrery::plan
