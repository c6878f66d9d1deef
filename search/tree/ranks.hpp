// SPDX-License-Identifier: Apache-2.0
// Several processes that search together. All are started alike, with the same inputs; rank 0
// coordinates: it owns the frontier, hands out nodes with what is known (best time so far, closest
// misfit) and merges the outcomes in order, so that the answer is that of one process. The others
// serve until they are told that it is over. Who carries the messages is behind `Ranks`, what is
// evaluated behind `Deliveries` at rank 0 (remote_threads.hpp) and `Service` at the others.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "search/tree/checkpoint.hpp"
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

enum class SearchKind : std::uint8_t { Homogeneous, PerBlock };

// What a rank above 0 does for one search of rank 0.
class Service {
 public:
  virtual ~Service() = default;
  virtual const std::vector<InputHash>& inputs() const = 0;
  virtual int jobs() const = 0;  // threads
  // What a delivery asks for; by that thread.
  virtual void evaluate(int thread, ByteReader& in, ByteWriter& out) = 0;
  // Whatever is worked on is to end early.
  virtual void stop() {}
};

// Of the inputs of this rank; may throw Error, which rank 0 then reports.
using ServiceOf = std::function<std::unique_ptr<Service>(SearchKind kind)>;

// For search().
std::unique_ptr<Service> homogeneous_service(const plan::Plan& base, const Options& options);

// What ranks above 0 do: works for one search of rank 0. False when rank 0 said goodbye.
bool serve(Ranks& ranks, const ServiceOf& service);

// Ends serve() everywhere; by rank 0.
void say_goodbye(Ranks& ranks);

}  // namespace orrery::search
