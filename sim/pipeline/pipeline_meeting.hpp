// SPDX-License-Identifier: Apache-2.0
// Meetings in an order: passes of several lanes that all wait for the same unit of the same many
// lanes, as the shards of an output layer do. Who has come is found once for all that wait, and the
// ends are sorted once, so that a waiting pass looks at few of them: O(p log p) instead of O(p^2)
// for a meeting of p. Only for sweeps that run the units of every lane in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim::detail {

class Meetings {
 public:
  static constexpr int kNone = -1;

  Meetings(const PassInputs& inputs, const PipelineCosts& costs, std::size_t lanes);

  // That all edges of a lane's passes belong to.
  int of(std::size_t lane) const { return meeting_of_[lane]; }

  // Whether all are known to have come; `remember` when that was found.
  bool is_complete(int meeting, std::uint32_t unit) const { return at(meeting).complete > unit; }
  void remember(int meeting, std::uint32_t unit) { at(meeting).complete = unit + 1; }

  // Calls visit(lane) for all that wait where a lane comes to.
  template <typename Visit>
  void for_each_waiting(std::size_t lane, Visit visit) const {
    for (const int meeting : comes_to_[lane]) {
      for (const std::size_t waiting : at(meeting).waiting) {
        visit(waiting);
      }
    }
  }
  // The fewest units that one of them has run, at most `most`; `done` is by lane and the same
  // whenever `moment` is.
  std::uint32_t fewest_done(std::size_t lane, const std::vector<std::uint32_t>& done,
                            std::int64_t moment, std::uint32_t most);

  // When the last result arrives for a lane that waits, and when that pass ended; of equal ones the
  // first edge's. end_of(lane) gives the ends of that unit.
  struct Arrival {
    std::int64_t at = 0;
    std::int64_t end = 0;
  };
  template <typename EndOf>
  Arrival last_arrival(std::size_t lane, std::uint32_t unit, EndOf end_of) {
    Meeting& meeting = at(meeting_of_[lane]);
    if (meeting.unit != unit) {
      meeting.unit = unit;
      for (std::size_t k = 0; k < meeting.lanes.size(); ++k) {
        meeting.ends[k] = {-end_of(meeting.lanes[k]), k};
      }
      sort(meeting);
    }
    return last_of(meeting, waiting_[lane]);
  }

 private:
  struct Meeting {
    std::vector<std::size_t> lanes;    // that come
    std::vector<std::size_t> waiting;  // lanes
    std::int64_t moment = -1;          // of `fewest`
    std::uint32_t fewest = 0;
    std::uint32_t complete = 0;                              // units
    std::int64_t unit = -1;                                  // of `ends`
    std::vector<std::pair<std::int64_t, std::size_t>> ends;  // negative end and place in `lanes`
  };
  struct Waiting {  // latency from each lane that comes, and the largest
    std::vector<std::int64_t> latency;
    std::int64_t largest = 0;
  };

  Meeting& at(int meeting) { return meetings_[static_cast<std::size_t>(meeting)]; }
  const Meeting& at(int meeting) const { return meetings_[static_cast<std::size_t>(meeting)]; }
  static void sort(Meeting& meeting);
  static Arrival last_of(const Meeting& meeting, const Waiting& waiting);

  std::vector<int> meeting_of_;             // by lane
  std::vector<std::vector<int>> comes_to_;  // by lane
  std::vector<Waiting> waiting_;            // by lane
  std::vector<Meeting> meetings_;
};

}  // namespace orrery::sim::detail
