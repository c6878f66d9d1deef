// SPDX-License-Identifier: Apache-2.0
// Slices of sequences (docs/plan-schedules.md): a micro-batch travels through the pipeline in runs
// of tokens, as TeraPipe, Seq1F1B and SlimPipe cut it. A slice attends to itself and to the keys
// and values of the slices before it, which its device keeps; gradients run in reverse, so that the
// backward of a slice finds the gradients of its keys and values complete.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::plan {

struct Plan;

// A run of tokens of every sequence of a micro-batch.
struct Slice {
  std::int64_t start = 0;   // tokens before it
  std::int64_t tokens = 0;  // 0: the whole sequence
  bool last = false;        // no tokens after it
  bool is_whole() const { return tokens == 0; }
  bool operator==(const Slice&) const = default;
};

// In the order of the tokens; one whole slice for a plan without slices.
std::vector<Slice> slices_of(const Plan& plan);

// "" when the plan's slices are allowed, else what they break and the smallest change.
std::string slices_problem(const Plan& plan);

}  // namespace orrery::plan
