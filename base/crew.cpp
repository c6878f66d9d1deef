// SPDX-License-Identifier: Apache-2.0
#include "base/crew.hpp"

#include <exception>
#include <utility>

#include "base/error.hpp"

namespace orrery {

Crew::Crew(int members) {
  ORRERY_CHECK(members >= 1, "a crew has the thread that calls it");
  thrown_.resize(static_cast<std::size_t>(members));
  threads_.reserve(thrown_.size());
  for (int member = 1; member < members; ++member) {
    try {
      threads_.emplace_back([this, member] { serve(member); });
    } catch (const std::exception&) {
      break;  // the system has no more: those there are do the work
    }
  }
}

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  begins_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Crew::run(const std::function<void(int)>& body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    at_work_ = static_cast<int>(threads_.size());
    ++loop_;
  }
  begins_.notify_all();
  call(0);
  {
    std::unique_lock lock(mutex_);
    ends_.wait(lock, [this] { return at_work_ == 0; });
    body_ = nullptr;
  }
  std::exception_ptr first;
  for (std::exception_ptr& thrown : thrown_) {
    std::exception_ptr one = std::exchange(thrown, nullptr);
    first = first ? first : one;
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

void Crew::call(int member) {
  try {
    (*body_)(member);
  } catch (...) {
    thrown_[static_cast<std::size_t>(member)] = std::current_exception();
  }
}

void Crew::serve(int member) {
  std::uint64_t served = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      begins_.wait(lock, [&] { return is_over_ || loop_ > served; });
      if (is_over_) {
        return;
      }
      served = loop_;
    }
    call(member);
    bool is_last = false;
    {
      const std::lock_guard lock(mutex_);
      is_last = --at_work_ == 0;
    }
    if (is_last) {
      ends_.notify_one();
    }
  }
}

}  // namespace orrery
