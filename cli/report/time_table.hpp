// SPDX-License-Identifier: Apache-2.0
// Where the time of the busiest stage goes: its parts, which sum to the iteration time, and between
// which ranks its communication is.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/simulation/simulate.hpp"

namespace orrery::cli {

struct TimeShare {
  std::string key;   // of JSON: "compute", "tp", "bubble", ...
  std::string name;  // for people
  Seconds time;
};
// Parts of the iteration on the busiest stage; they sum to the iteration time.
std::vector<TimeShare> time_shares(const plan::Simulation& simulation);

// Less than a picosecond, the unit of simulated time: two ways of adding up the same.
bool is_rounding(Seconds difference);
// What is left of the iteration time: slowdown by overlap, and waiting.
Seconds other_time(const plan::Simulation& simulation);

// "4 ranks in one node": who takes part in a kind of communication; nothing of copies to the host.
std::string group_text(const plan::Plan& plan, const std::string& kind);
// As group_text, of the plan that the table is of.
using GroupText = std::function<std::string(const std::string& kind)>;
// `stage`: whose time it is, in words.
std::string time_table(const plan::Simulation& simulation, const std::string& stage,
                       const GroupText& group_of);

}  // namespace orrery::cli
