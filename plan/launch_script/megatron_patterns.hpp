// SPDX-License-Identifier: Apache-2.0
// The two small languages inside Megatron-LM's arguments: --pipeline-model-parallel-layout
// ("Et*3|(t*4|)*2t*3L") and lists such as --moe-layer-freq "([0]*3+[1]*58)". Parsed with bounds on
// length and depth, never evaluated as code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::plan {

// Chain positions per virtual stage: layers, the embedding (E) and the head with the loss (L).
std::vector<int> parse_pipeline_layout(std::string_view text, const std::string& where);
// stage_blocks holds at least one block a stage; the first one of all is the embedding, the last
// one the head.
std::string pipeline_layout_text(const std::vector<int>& stage_blocks);

// 1 per MoE layer. A number n stands for [1, 0, ... (n - 1 zeros)] repeated.
std::vector<int> parse_layer_pattern(std::string_view text, std::int64_t layers,
                                     const std::string& where);
// The shortest of the forms above.
std::string layer_pattern_text(const std::vector<int>& pattern);

}  // namespace orrery::plan
