// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/pipeline_meeting.hpp"

#include <algorithm>
#include <map>

namespace orrery::sim::detail {

Meetings::Meetings(const PassInputs& inputs, const std::vector<SimTime>& edge_latency,
                   std::size_t lanes)
    : meeting_of_(lanes, kNone), comes_to_(lanes), waiting_(lanes) {
  constexpr std::size_t kFewest = 4;  // below, looking at all is as fast
  const std::size_t stages = lanes / kNumLanes;
  std::map<std::vector<std::size_t>, std::vector<std::size_t>> who_waits;  // by who comes
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const auto edges = inputs.edges_to(lane);
    const bool others = std::any_of(edges.begin(), edges.end(), [&](const auto& edge) {
      return edge.shift != 0 || inputs.units(edge.stage) != inputs.units(lane % stages);
    });
    if (edges.size() < kFewest || others) {
      continue;
    }
    std::vector<std::size_t> from;
    for (const auto& edge : edges) {
      from.push_back(static_cast<std::size_t>(edge.lane) * stages + edge.stage);
    }
    who_waits[std::move(from)].push_back(lane);
  }
  for (const auto& [from, waiting] : who_waits) {
    if (waiting.size() < 2) {
      continue;
    }
    const auto meeting = static_cast<int>(meetings_.size());
    for (const std::size_t lane : from) {
      comes_to_[lane].push_back(meeting);
    }
    for (const std::size_t lane : waiting) {
      meeting_of_[lane] = meeting;
      Waiting& of_lane = waiting_[lane];
      for (const auto& edge : inputs.edges_to(lane)) {
        of_lane.latency.push_back(
            edge_latency.empty() ? 0 : edge_latency[static_cast<std::size_t>(edge.edge)].ps);
        of_lane.largest = std::max(of_lane.largest, of_lane.latency.back());
        of_lane.alike = of_lane.alike && of_lane.latency.back() == of_lane.latency.front();
      }
    }
    meetings_.emplace_back();
    meetings_.back().lanes = from;
    meetings_.back().waiting = waiting;
    meetings_.back().ends.resize(from.size());
  }
}

std::uint32_t Meetings::fewest_done(std::size_t lane, const std::vector<std::uint32_t>& done,
                                    std::int64_t moment, std::uint32_t most) {
  for (const int number : comes_to_[lane]) {
    Meeting& meeting = at(number);
    if (meeting.moment != moment) {
      meeting.moment = moment;
      meeting.fewest = done[meeting.waiting.front()];
      for (const std::size_t waiting : meeting.waiting) {
        meeting.fewest = std::min(meeting.fewest, done[waiting]);
      }
    }
    most = std::min(most, meeting.fewest);
  }
  return most;
}

void Meetings::sort(Meeting& meeting) { std::sort(meeting.ends.begin(), meeting.ends.end()); }

// From the latest end on, until no earlier one can arrive as late.
Meetings::Arrival Meetings::last_of(const Meeting& meeting, const Waiting& waiting) {
  Arrival last{-1, -1};
  std::size_t edge = 0;
  for (const auto& [negative, place] : meeting.ends) {
    const std::int64_t end = -negative;
    if (end + waiting.largest < last.at) {
      break;
    }
    const std::int64_t arrives = end + waiting.latency[place];
    if (arrives > last.at || (arrives == last.at && place < edge)) {
      last = {arrives, end};
      edge = place;
    }
  }
  return last;
}

}  // namespace orrery::sim::detail
