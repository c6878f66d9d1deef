// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/limits.hpp"

namespace orrery {
namespace {

// Indices are handed out in order, so that every index below a failing one has been started and
// runs to its end: the lowest failing index does not depend on timing.
class Loop {
 public:
  Loop(std::size_t count, const std::function<void(std::size_t)>& body)
      : count_(count), body_(body) {}

  void work() {
    while (!failed_.load(std::memory_order_relaxed)) {
      const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) {
        return;
      }
      try {
        body_(index);
      } catch (...) {
        record(index, std::current_exception());
      }
    }
  }

  void rethrow() const {
    if (exception_) {
      std::rethrow_exception(exception_);
    }
  }

 private:
  void record(std::size_t index, std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (!exception_ || index < exception_index_) {
      exception_ = std::move(exception);
      exception_index_ = index;
    }
    failed_.store(true, std::memory_order_relaxed);
  }

  std::size_t count_;
  const std::function<void(std::size_t)>& body_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::exception_ptr exception_;
  std::size_t exception_index_ = 0;
};

}  // namespace

void parallel_for(std::size_t count, int jobs, const std::function<void(std::size_t)>& body) {
  const std::size_t num_threads = std::min(static_cast<std::size_t>(thread_count(jobs)), count);
  Loop loop(count, body);
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < num_threads; ++i) {
    try {
      helpers.emplace_back([&loop] { loop.work(); });
    } catch (const std::system_error&) {
      break;  // the system has no more threads: those there are do the work
    }
  }
  loop.work();
  for (std::thread& helper : helpers) {
    helper.join();
  }
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
