// SPDX-License-Identifier: Apache-2.0
// The indices of a loop that several threads share, and what went wrong in it. Indices are handed
// out in order, so that every index below a failing one has been started and runs to its end: the
// lowest failing index does not depend on timing.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>

namespace orrery {

class IndexLoop {
 public:
  explicit IndexLoop(std::size_t count) : count_(count) {}

  // The next index; nothing at the end, and after a failure.
  std::optional<std::size_t> take();
  void end() { next_ = count_; }  // hands out no more
  std::size_t left() const;

  // Of each thread: body(index) for whatever indices it gets.
  template <typename Body>
  void work(const Body& body) {
    while (const std::optional<std::size_t> index = take()) {
      try {
        body(*index);
      } catch (...) {
        record(*index, std::current_exception());
      }
    }
  }

  // The exception of the lowest index that failed, after all threads have ended.
  void rethrow() const;

 private:
  void record(std::size_t index, std::exception_ptr exception);

  std::size_t count_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::exception_ptr exception_;
  std::size_t exception_index_ = 0;
};

}  // namespace orrery
