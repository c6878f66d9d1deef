// SPDX-License-Identifier: Apache-2.0
// The threads of the other ranks, as rank 0 sees them: what is sent to each of them, and what comes
// back, while the threads of rank 0 work, too. What it is that they evaluate is behind
// `Deliveries`.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/crew.hpp"
#include "search/tree/ranks.hpp"

namespace orrery::search {

enum class MessageKind : std::uint8_t {
  Begin,    // of a search, and of which: say hello
  Hello,    // build, inputs and number of threads
  Failed,   // the problem could not be read there, in words
  Work,     // a delivery to a thread
  Stop,     // what is worked on is to end early
  Results,  // what became of a delivery
  End,      // of the search
  Goodbye,  // of all
};

// Between two looks for messages, the shortest and the longest. A look and the two switches of
// threads around it take 10 microseconds of a core that has work to do, so nobody looks often while
// all have work.
inline constexpr std::chrono::duration<double> kShortestPause{100e-6};
inline constexpr std::chrono::duration<double> kLongestPause{3e-3};

// What is evaluated together. Asked by one thread, but for work_here() and stop_here().
class Deliveries {
 public:
  virtual ~Deliveries() = default;
  // By the threads of this rank, until nothing is left or it is told to stop.
  virtual void work_here() = 0;
  virtual void stop_here() = 0;
  // Nothing more is sent.
  virtual bool is_stopped() = 0;
  // For a thread with so many deliveries under way; empty: none for now.
  virtual std::string next(std::size_t thread, int under_way) = 0;
  virtual void take(std::size_t thread, ByteReader& in) = 0;
  virtual std::chrono::duration<double> pause() const = 0;
};

class RemoteThreads {
 public:
  // Waits until all ranks are ready. Error when one is not, or has other inputs.
  RemoteThreads(Ranks& ranks, SearchKind kind, const std::vector<InputHash>& inputs);
  ~RemoteThreads();
  RemoteThreads(const RemoteThreads&) = delete;
  RemoteThreads& operator=(const RemoteThreads&) = delete;

  std::size_t size() const { return threads_.size(); }
  // Until everybody is done. Error when a rank failed.
  void run(Deliveries& work);

 private:
  struct RemoteThread {
    int rank = 0;
    int thread = 0;
    int under_way = 0;  // deliveries on their way or being worked on
  };
  struct Here;
  void exchange(Deliveries& work, Here& here);
  bool feed(Deliveries& work);
  bool collect(Deliveries& work);
  bool is_idle() const;
  void tell(MessageKind kind);

  Ranks& ranks_;
  Crew crew_;  // one for messages, one that works
  std::vector<RemoteThread> threads_;
  std::string failure_;
};

}  // namespace orrery::search
