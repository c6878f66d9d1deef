// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "base/crew.hpp"
#include "base/index_loop.hpp"
#include "base/limits.hpp"

namespace orrery {

void parallel_for(std::size_t count, int jobs, const std::function<void(std::size_t)>& body) {
  IndexLoop loop(count);
  const std::size_t threads = std::min(static_cast<std::size_t>(thread_count(jobs)), count);
  Crew(std::max(1, static_cast<int>(threads))).run([&](int) { loop.work(body); });
  loop.rethrow();
}

int available_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    return std::max(1, CPU_COUNT(&cores));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int thread_count(int jobs) {
  return std::min(jobs > 0 ? jobs : available_cores(), limits::kMaxThreads);
}

}  // namespace orrery
