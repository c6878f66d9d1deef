// SPDX-License-Identifier: Apache-2.0
// Several processes that search together. All are started alike, with the same inputs; rank 0
// coordinates: it owns the frontier, hands out nodes with what is known (best time so far, closest
// misfit) and merges the outcomes in order, so that the answer is that of one process. The others
// serve until they are told that it is over. Who carries the messages is behind `Ranks`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "search/tree/search.hpp"

namespace orrery::search {

struct Message {
  int from = 0;
  std::string bytes;
};

// Messages between two ranks arrive in the order in which they were sent. Used from one thread.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void send(int to, std::string_view bytes) = 0;  // does not wait for the receiver
  virtual std::optional<Message> receive() = 0;           // nothing when nothing has come
};

// Makes the problem of a search; may throw Error, which rank 0 then reports.
using ProblemOf = std::function<void(plan::Plan& base, Options& options)>;

// What ranks above 0 do: works for one search() of rank 0. False when rank 0 said goodbye.
bool serve(Ranks& ranks, const ProblemOf& problem);

// Ends serve() everywhere; by rank 0.
void say_goodbye(Ranks& ranks);

}  // namespace orrery::search
