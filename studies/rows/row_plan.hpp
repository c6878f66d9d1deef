// SPDX-License-Identifier: Apache-2.0
// The complete plan of a measurement: network, cluster and profile, degrees, stages, schedule and
// execution choices. What the row leaves open comes from its framework's facts.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "plan/plan.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// What "interleaved" is where the stages do not divide the micro-batches.
inline constexpr std::string_view kUnevenInterleaved = "interleaved-uneven";

// Or why the row cannot be simulated.
tl::expected<plan::Plan, std::string> row_plan(const Measurement& row);

// Whether the plan holds what the row's variant is.
bool is_modelled_variant(const Measurement& row);

// What readers of remarks find nothing in that changes the plan: of "Ulysses + a kernel" the
// kernel.
std::vector<std::string> unread_variant(const Measurement& row);

// Whether a row says that kernels are replayed from CUDA graphs.
bool names_graphs(const Measurement& row);

// Execution choices: the framework's, changed by what the row says about overlap, attention,
// precision and kernels.
plan::Execution row_execution(const Measurement& row, const FrameworkFacts& framework);

// How the framework uses the allocator in the row's run.
plan::MemoryFacts row_memory(const Measurement& row);

// Moves layers off the last stage, whose head costs `head_layers` layers: it keeps as many as bring
// it to the mean of all stages; the others are as equal as possible, larger ones last. These are
// the splits of sail-sg/VocabularyParallelism (artifact/exp_one_host.csv). Embedding and head count
// as one block each. At least two stages, and a layer for each but the last.
std::vector<int> redistributed_stages(int layers, int num_stages, double head_layers);

}  // namespace orrery::studies
