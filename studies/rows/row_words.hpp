// SPDX-License-Identifier: Apache-2.0
// The words of a row's cells as plans spell them, whatever case and brackets they come in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "studies/rows/denials.hpp"

namespace orrery::studies {

// Letters and digits of a word in lower case, and what plans call what it means.
using WordMeaning = std::pair<std::string_view, std::string_view>;

// As plans spell what a cell says in other words; the cell in lower case where it is none of them.
std::string spelling(std::string_view cell, std::span<const WordMeaning> words);

// Blanks, hyphens, dashes and quotes of typesetters as a keyboard has them.
std::string with_typed_signs(std::string_view cell);

// "12.5*" without the mark of its footnote.
std::string_view without_footnote(std::string_view cell);

// "8×7B" as "8x7B".
std::string with_letter_times(std::string_view cell);

// "1F1B (Megatron)" without its bracket.
std::string_view before_remark(std::string_view cell);

// "bf16-mixed", "fp8 (blockwise)": the number format that the cell names.
std::string precision_name(std::string_view cell);

std::string schedule_name(std::string_view cell);

// "Vocab_1", "vocab 1 (ours)" as "vocab-1", likewise the other schemes for the output layer of a
// pipeline; other cells as they are.
std::string variant_name(std::string_view cell);
bool is_vocabulary_scheme(std::string_view variant);

// What a schedule has beside the one that its rows are simulated with; "" where it has nothing.
std::string unmodelled_part(std::string_view cell);

// Of a name that is none, the schedule that it is a misspelling of; "" where it is surely none.
std::string misspelt_schedule(std::string_view name);

// Whether a device has one chunk of the network, whatever a row counts: "zb-1p", "gpipe", "none".
bool has_one_chunk(std::string_view schedule);

// Model chunks of a device that the cell of the schedule states: "Interleaved 1F1B (vpp=5)".
std::optional<std::int64_t> chunks_in_schedule(std::string_view cell);

}  // namespace orrery::studies
