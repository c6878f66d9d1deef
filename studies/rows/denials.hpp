// SPDX-License-Identifier: Apache-2.0
// What remarks say and what they deny or say of other runs: "HSDP", "no HSDP" and "an earlier run
// with HSDP". Linear in the length of the text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::studies {

// A text in lower case without clauses about other runs: "unlike the HSDP run", "HSDP was 4%
// slower", "HSDP (next row)" say nothing, "FSDP instead of HSDP" says "FSDP".
std::string about_this_run(std::string_view text);

// Of a cell in lower case what it states, not what it compares that with: "flash vs eager 1.3x".
std::string_view before_comparison(std::string_view text);

// A text about this run without what its clauses deny: "full, no offload" says "full,", "offload:
// none", "checkpointing is not used" and "CUDA_LAUNCH_BLOCKING=0" nothing.
std::string asserted(std::string_view text);

// The same, of a cell that states what was run and may compare in doing so: "HFU vs 312 TFLOPS".
std::string undenied(std::string_view text);

// What the clauses of a text say, each by itself and in lower case.
std::vector<std::string> asserted_clauses(std::string_view text);

// Whether a text holds a phrase (any case) that none of its clauses denies: remarks switch features
// on by this alone.
bool says_and_means(std::string_view text, std::string_view phrase);

}  // namespace orrery::studies
