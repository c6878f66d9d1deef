// SPDX-License-Identifier: Apache-2.0
// Threads that stay between loops. Member i of a crew is always the same thread, so that what it
// allocates and keeps stays its own: a thread for each loop would start with an empty heap and free
// what others allocated.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace orrery {

class Crew {
 public:
  // At least one; the thread that calls run() is member 0. The system may have no more threads:
  // size() says how many there are.
  explicit Crew(int members);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  // body(member) by every member; ends when all have ended. The exception of the lowest member that
  // threw is rethrown.
  void run(const std::function<void(int)>& body);

 private:
  void serve(int member);
  void call(int member);

  std::mutex mutex_;
  std::condition_variable begins_;
  std::condition_variable ends_;
  const std::function<void(int)>* body_ = nullptr;
  std::uint64_t loop_ = 0;  // counts the calls of run()
  int at_work_ = 0;
  bool is_over_ = false;
  std::vector<std::exception_ptr> thrown_;  // by member
  std::vector<std::thread> threads_;
};

}  // namespace orrery
