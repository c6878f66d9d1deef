// SPDX-License-Identifier: Apache-2.0
// The Chrome trace of one iteration of a plan. With kernels: one process per pipeline stage, one
// track per stream of a rank of it, from the flat mode (plan/flat/flat.hpp), whose iteration can
// differ slightly from the hierarchical one. With passes: forwards and backwards as one span each
// and what follows the pipeline. Both have live memory and arrows along transfers. Linear in the
// spans, refused beyond two million.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command/common.hpp"
#include "plan/plan.hpp"

namespace orrery::cli {

enum class TraceDetail { Auto, Passes, Kernels };  // Auto: kernels of short iterations

// Forwards and backwards of an iteration.
std::int64_t count_passes(const plan::Plan& plan);

TraceDetail parse_trace_detail(const std::string& text);
// Error (BadInput) for an iteration that is too long or that has no kernels to draw.
void check_plan_trace(const plan::Plan& plan, TraceDetail detail);
// Writes the trace, and says on standard error unless quiet what Auto chose and why. Errors of
// check_plan_trace, Error(InputOutput).
void write_plan_trace(const std::string& path, const plan::Plan& plan, TraceDetail detail,
                      const OutputOptions& output);

}  // namespace orrery::cli
