// SPDX-License-Identifier: Apache-2.0
// Meetings in an order: passes of several lanes that all wait for the same unit of the same many
// lanes, as the shards of an output layer do. Who has come is found once for all that wait, and so
// is the last end; where results take unequally long, the ends are sorted once, so that a waiting
// pass looks at few of them. O(p) or O(p log p) instead of O(p^2) for a meeting of p.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/sim_time.hpp"
#include "sim/pipeline/pass_inputs.hpp"

namespace orrery::sim::detail {

class Meetings {
 public:
  static constexpr int kNone = -1;

  // `edge_latency`: as PipelineCosts; empty: none.
  Meetings(const PassInputs& inputs, const std::vector<SimTime>& edge_latency, std::size_t lanes);

  // That all edges of a lane's passes belong to.
  int of(std::size_t lane) const { return meeting_of_[lane]; }

  // The first lane that has not come, if any; is_done(lane) says it of the unit, for good.
  template <typename IsDone>
  std::optional<std::size_t> missing(int meeting, std::uint32_t unit, IsDone is_done) {
    Meeting& of = at(meeting);
    std::uint32_t& come = at_unit(of.come, unit, 0U);
    while (come < of.lanes.size() && is_done(of.lanes[come])) {
      ++come;
    }
    return come == of.lanes.size() ? std::nullopt : std::optional(of.lanes[come]);
  }

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
    if (waiting_[lane].alike) {
      std::int64_t& last = at_unit(meeting.last, unit, std::int64_t{-1});
      for (std::size_t k = 0, lanes = last < 0 ? meeting.lanes.size() : 0; k < lanes; ++k) {
        last = std::max(last, end_of(meeting.lanes[k]));
      }
      return {last + waiting_[lane].largest, last};
    }
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
    std::vector<std::uint32_t> come;  // by unit: the first so many of `lanes` at least
    std::vector<std::int64_t> last;   // end, by unit
    std::int64_t unit = -1;           // of `ends`
    std::vector<std::pair<std::int64_t, std::size_t>> ends;  // negative end and place in `lanes`
  };
  struct Waiting {  // latency from each lane that comes, the largest, and whether all are that
    std::vector<std::int64_t> latency;
    std::int64_t largest = 0;
    bool alike = true;
  };

  template <typename T>
  static T& at_unit(std::vector<T>& of, std::uint32_t unit, T unknown) {
    if (of.size() <= unit) {
      of.resize(unit + std::size_t{1}, unknown);
    }
    return of[unit];
  }
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
