// SPDX-License-Identifier: Apache-2.0
// Hands out the nodes of a batch to threads of this process and of others. Nodes whose lists
// or block costs are shared (a class) belong to one thread, which goes through them one after the
// other, the classes with the longest nodes first; a thread without work of its own takes from the
// class that has most left. Thread-safe; O(log) for a thread's own nodes, O(classes) for others'.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace orrery::search {

class Handout {
 public:
  struct Item {
    std::uint64_t item_class = 0;  // a hash
    std::uint64_t work = 1;        // estimated, in any unit
  };
  Handout(const std::vector<Item>& items, int threads);
  // Nothing when all are handed out.
  std::optional<std::size_t> take(int thread);
  // Items to travel together: as many as are no more work than `most` or than share(), at least one
  // where there is any.
  std::vector<std::size_t> take_some(int thread, double most);
  // Half of a thread's share of the work that is left, so that all threads end at about the same
  // time.
  double share();
  void stop();  // nothing more is handed out

 private:
  struct Class {
    std::vector<std::size_t> items;
    std::size_t first = 0;  // of those left
    std::size_t end = 0;
    std::uint64_t longest = 0;
    std::uint64_t work = 0;  // left
    int owner = 0;
  };
  std::size_t take_from(Class& from, bool front);
  std::optional<std::size_t> take_next(int thread);

  const std::vector<Item> items_;
  std::mutex mutex_;
  std::vector<Class> classes_;                 // longest items first
  std::vector<std::vector<std::size_t>> own_;  // classes by thread, last first
  std::uint64_t left_ = 0;                     // work
  int threads_ = 1;
};

}  // namespace orrery::search
