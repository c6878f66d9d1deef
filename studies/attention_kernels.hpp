// SPDX-License-Identifier: Apache-2.0
// Which fused attention kernel a framework ran. Profiles hold the best kernel of a GPU; published
// runs used what their software had at the time, up to three times slower. Ratios of published
// kernel benchmarks only.
#pragma once

#include <cstdint>

#include "costmodel/profile.hpp"
#include "topologies/cluster.hpp"

namespace orrery::studies {

enum class AttentionKernel : std::uint8_t {
  OfProfile,        // cuDNN or the newest FlashAttention
  FlashAttention2,  // on every architecture
  TritonFlash,      // FlashAttention written in Triton, 2023
};

costmodel::AttentionParameters attention_parameters(const costmodel::AttentionParameters& best,
                                                    const topologies::Gpu& gpu,
                                                    AttentionKernel kernel);

}  // namespace orrery::studies
