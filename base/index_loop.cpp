// SPDX-License-Identifier: Apache-2.0
#include "base/index_loop.hpp"

#include <utility>

namespace orrery {

std::optional<std::size_t> IndexLoop::take() {
  if (failed_.load(std::memory_order_relaxed)) {
    return std::nullopt;
  }
  const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
  return index < count_ ? std::optional(index) : std::nullopt;
}

std::size_t IndexLoop::left() const {
  const std::size_t next = next_.load(std::memory_order_relaxed);
  return next < count_ ? count_ - next : 0;
}

void IndexLoop::rethrow() const {
  if (exception_) {
    std::rethrow_exception(exception_);
  }
}

void IndexLoop::record(std::size_t index, std::exception_ptr exception) {
  const std::lock_guard lock(mutex_);
  if (!exception_ || index < exception_index_) {
    exception_ = std::move(exception);
    exception_index_ = index;
  }
  failed_.store(true, std::memory_order_relaxed);
}

}  // namespace orrery
