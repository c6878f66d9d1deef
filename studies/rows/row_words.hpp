// SPDX-License-Identifier: Apache-2.0
// The words of a row's cells as plans spell them, whatever case and brackets they come in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace orrery::studies {

// "bf16-mixed", "fp8 (blockwise)": the number format that the cell names.
std::string precision_name(std::string_view cell);

std::string schedule_name(std::string_view cell);

// "ZeRO-2", "stage 1", "FSDP"; no value where the cell holds no such words.
std::optional<std::int64_t> stage_of_zero(std::string_view cell);

// A text in lower case without what its clauses deny: "full, no offload" says "full,", "offload:
// none" and "checkpointing is not used" nothing.
std::string asserted(std::string_view text);

// A text in lower case that holds one of the words, not as part of another.
bool has_word(std::string_view text, std::span<const std::string_view> words);

// Which recomputation a cell means: none, selective, full or custom; what else it says stands
// before the detail.
struct RecomputeWords {
  std::string name;
  std::string detail;
};
RecomputeWords recompute_words(std::string_view cell, std::string_view detail);

}  // namespace orrery::studies
