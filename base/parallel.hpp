// SPDX-License-Identifier: Apache-2.0
// Data-parallel loops over independent indices. Results must be written to slots by index, so that
// the outcome does not depend on the number of threads.
#pragma once

#include <cstddef>
#include <functional>

namespace orrery {

// Calls body(index) for index in [0, count), on `jobs` threads (1 runs inline; 0 means all cores).
// The first exception by index order is rethrown after all threads have stopped.
void parallel_for(std::size_t count, int jobs, const std::function<void(std::size_t)>& body);

int available_cores();

// How many threads `jobs` asks for: 0 means all cores, and nobody has more than
// limits::kMaxThreads.
int thread_count(int jobs);

}  // namespace orrery
