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

// What decides of a simulation.
struct ServingFigures {
  Seconds makespan;
  Seconds first_token;       // p99
  Seconds per_output_token;  // p99
  Seconds latency;           // mean
};
ServingFigures figures_of(const plan::ServingSimulation& simulation);

class ServingRanking {
 public:
  // `over_time`: requests do not arrive all at once. `top`: how many to list.
  ServingRanking(bool over_time, std::size_t top) : over_time_(over_time), top_(top) {}

  // The plan stays alive.
  void add(const plan::Plan& plan, const ServingFigures& figures);
  // No plan that takes longer can be listed any more; infinite as long as any can.
  Seconds limit() const;
  bool empty() const { return entries_.empty(); }
  // Least time to serve all requests.
  Seconds least() const;
  // Plans with the highest throughput, or within 1 % of it.
  std::int64_t as_fast() const;
  // Best first, at most `top`; as numbers in the order of add().
  std::vector<std::size_t> list() const;

 private:
  struct Entry {
    const plan::Plan* plan;
    ServingFigures figures;
    std::size_t number;
  };
  static bool one_kind(const Entry& a, const Entry& b);
  static const Entry* best_of(std::vector<const Entry*> entries, double as_fast);

  bool over_time_;
  std::size_t top_;
  std::vector<Entry> entries_;
  std::vector<std::size_t> kinds_;  // the fastest plan of each
};

}  // namespace orrery::search
