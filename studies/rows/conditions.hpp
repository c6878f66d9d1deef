// SPDX-License-Identifier: Apache-2.0
// Clauses that hold of some runs of a source, which need not be the row's own. Linear in the length
// of the clause.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::studies {

// What a condition may be about.
struct RunSizes {
  std::string_view network;  // its name, which may state a size
  std::optional<double> billions;
  std::optional<std::int64_t> gpus;
  std::optional<std::int64_t> sequence;
};

// A text without the conditions that a run of these sizes fulfils: of 64 GPUs "PP=2 above 32 GPUs"
// says "PP=2", of a 20B network "full recompute for the 20B model" says "full recompute".
std::string without_own_conditions(std::string_view text, const RunSizes& run);

// "TP=8 only for the 70B model", "PP=2 above 64 GPUs", "TP 4 in the 70B rows", "CP=4 for 128K"; in
// lower case.
bool names_condition(std::string_view clause);

// Whether all that a bracket says is a condition of what stands before it: "(only on 512 GPUs)".
bool is_condition(std::string_view bracket);

// "needed above 16K", "was considered", "is future work", "OOMs": what a run may do, or what came
// of it elsewhere.
bool names_possibility(std::string_view clause);

}  // namespace orrery::studies
