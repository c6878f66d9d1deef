// SPDX-License-Identifier: Apache-2.0
// Which of the serving plans that were simulated come first. Requests that arrive all at once want
// throughput. Where they arrive over time, plans that keep up are equally fast, and what differs is
// how long requests wait: of the plans within 1 % of the highest throughput those within 1 % of the
// least time to first token (p99) count, of those the ones within 1 % of the least time per output
// token (p99), of those the mean request decides. The second is the best of those left by the same
// rule, and so on. A listed plan stands for all that differ from it in the tokens and requests of
// an iteration alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/serving/simulate.hpp"

namespace orrery::search {

struct ServingFound {
  plan::Plan plan;
  plan::ServingSimulation simulation;
};

class ServingRanking {
 public:
  // `over_time`: requests do not arrive all at once. `top`: how many to list.
  ServingRanking(bool over_time, std::size_t top) : over_time_(over_time), top_(top) {}

  void add(ServingFound found);
  // No plan that takes longer can be listed any more; infinite as long as any can.
  Seconds limit() const;
  bool empty() const { return found_.empty(); }
  // Least time to serve all requests.
  Seconds least() const;
  // Plans with the highest throughput, or within 1 % of it.
  std::int64_t as_fast() const;
  std::vector<ServingFound> list() const;  // best first, at most `top`

 private:
  bool over_time_;
  std::size_t top_;
  std::vector<ServingFound> found_;
  std::vector<std::size_t> kinds_;  // the fastest plan of each
};

}  // namespace orrery::search
