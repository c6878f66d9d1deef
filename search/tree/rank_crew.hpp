// SPDX-License-Identifier: Apache-2.0
// The crew of rank 0: its own threads and those of the other ranks. Each remote thread has one
// message with nodes to work on and a second one waiting; short nodes travel several together.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "search/tree/checkpoint.hpp"
#include "search/tree/crew.hpp"
#include "search/tree/ranks.hpp"

namespace orrery::search {

enum class MessageKind : std::uint8_t {
  Begin,    // of a search: say hello
  Hello,    // inputs and number of threads
  Failed,   // the problem could not be read there, in words
  Work,     // nodes of a batch
  Results,  // what became of them
  End,      // of the search
  Goodbye,  // of all
};

// Of processor time, about: nodes that travel together.
inline constexpr Seconds kDelivery = Seconds(10e-3);
// Messages with nodes that are under way to a thread: one that it works on and one that waits.
inline constexpr int kDeliveriesUnderWay = 2;

class RankCrew : public Crew {
 public:
  // Waits until all ranks are ready. Error when one is not, or has other inputs.
  RankCrew(const Tree& tree, int jobs, Ranks& ranks, const std::vector<InputHash>& inputs);
  ~RankCrew() override;

  std::vector<Done> run(const Batch& batch, const std::function<bool()>& stop) override;

 private:
  struct Lane {
    int rank = 0;
    int thread = 0;
    int messages = 0;        // on their way or being worked on
    std::uint64_t work = 0;  // in the last of them
  };
  void greet(const std::vector<InputHash>& inputs);
  bool feed(const Batch& batch, Handout& handout);
  bool collect(const Batch& batch, std::vector<Done>& done);
  bool is_idle() const;
  // Between two looks for messages while this rank works.
  std::chrono::duration<double> pause() const;

  Ranks& ranks_;
  Tree tree_;
  std::vector<Lane> lanes_;             // of the other ranks
  double seconds_ = kWorkUnit.value();  // of a unit of work, lately
  std::string failure_;
};

}  // namespace orrery::search
