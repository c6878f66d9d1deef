// SPDX-License-Identifier: Apache-2.0
// The Chrome trace of one iteration of a plan. With kernels: one process per pipeline stage, one
// track per stream of a rank of it, from the flat mode (plan/flat/flat.hpp), whose iteration can
// differ slightly from the hierarchical one. With passes: forwards and backwards as one span each
// and what follows the pipeline. Both have live memory and arrows along transfers. Linear in the
// spans, refused beyond two million.
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace orrery::cli {

enum class TraceDetail { Auto, Passes, Kernels };  // Auto: kernels of short iterations

TraceDetail parse_trace_detail(const std::string& text);
std::string plan_trace_text(const plan::Plan& plan, TraceDetail detail = TraceDetail::Auto);

}  // namespace orrery::cli
