// SPDX-License-Identifier: Apache-2.0
// What more time buys: the frontier of iteration time against memory of a GPU, against the number
// of GPUs, and against the price of an iteration. Each point is the outcome of a search of its own,
// with that search's certificate: no plan of the space that is as cheap is faster by more than its
// gap.
//   memory  the search is repeated with one byte less than the fastest plan needs by categories,
//           until nothing fits: exact where every search closes. What the allocator keeps beside
//           them depends on what there is, so the replay is held to the whole GPU and told apart.
//           Of layouts by block there are too many points for that: the budgets there are whole
//           sixteenths of a GPU's memory, and every point is the fastest plan found within one
//   gpus    parts of the cluster: every number of GPUs of one node, every number of nodes; exact
//           over these. A search ends as soon as its bound is not below what fewer GPUs reach;
//           parts whose peak rate alone rules them out are not searched; those that cannot be
//           built are named
//   cost    the same parts: of one part the fastest plan is also the cheapest
// Deterministic at any number of threads, and after a search that goes on from a checkpoint
// (pareto_log.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "search/problem.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

enum class ParetoKind { Memory, Gpus, Cost };
ParetoKind parse_pareto_kind(std::string_view text, std::string_view where);
std::string_view to_text(ParetoKind kind);

struct ParetoPoint {
  Found found;
  int gpus = 0;
  ByteCount memory;          // of the fullest GPU, by categories
  ByteCount replayed;        // its peak in the replay, of a frontier against memory; else 0
  double usd_per_iteration;  // 0: no price known
  Seconds lower_bound;       // of every plan that costs no more, over all parts searched
  double gap_fraction = 0;
};

struct ParetoFrontier {
  ParetoKind kind = ParetoKind::Memory;
  SpaceKind space = SpaceKind::Homogeneous;
  std::vector<ParetoPoint> points;  // the fastest first; each slower one costs less
  std::int64_t plans = 0;           // of all searches; -1 where 63 bits do not hold them
  std::int64_t simulated = 0;
  int searches = 0;
  bool complete = true;                 // nothing ended early, no part was left out
  std::vector<std::string> unsearched;  // parts that cannot be built, each with the reason
  std::string below;            // why nothing cheaper than the last point exists, where known
  bool below_is_proven = true;  // else no such plan was found
  std::vector<std::string> unproven_schedules;  // as of PerBlockOutcome, sorted

  // Between two points there are no others.
  bool has_every_point() const {
    return complete && (space == SpaceKind::Homogeneous || kind != ParetoKind::Memory);
  }
};

// `done` hears of every search, `progress` of the one that is under way. Error: no price known
// (cost).
ParetoFrontier find_pareto(ParetoKind kind, const Problem& problem, const plan::Plan& base,
                           const Options& options,
                           const std::function<void(const ParetoFrontier&)>& done = {},
                           const std::function<void(const ProgressReport&)>& progress = {});

}  // namespace orrery::search
