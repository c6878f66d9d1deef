// SPDX-License-Identifier: Apache-2.0
// A sweep: one search for every point of a grid, or of a random design, over fields of network,
// cluster, batch and sequence (docs/whatif.md). Points whose inputs are equal but for the price are
// searched once. A point that fails keeps its error and stops no other. Deterministic at any number
// of threads; results are kept by point, so that a sweep that ended early goes on where it was.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "search/problem.hpp"
#include "search/space/constraints.hpp"

namespace orrery::studies {

// How the values of a field lie along an axis: side by side, or by their numbers.
enum class FieldScale { Listed, Linear, Logarithmic };

struct Sweep {
  Json document;  // as read
  std::string name;
  search::Problem problem;  // what all points share
  search::Constraints constraints;
  Seconds time_limit;  // of a point; 0: none
  std::vector<std::string> fields;
  std::vector<FieldScale> scales;  // of each field; ranges of a random design are not listed
  std::vector<std::vector<std::string>> points;  // a value for each field
};

// Fields of plans, which "fix." begins: "fix.tp" fixes tp to each value of its axis.
bool is_fixed_field(std::string_view field);
// What is wrong with the field or the value is an Error that names `where`.
void fix_field(std::string_view field, std::string_view value, std::string_view where,
               search::Constraints& constraints);

// "schema": "orrery-sweep". Errors: fields that no point can have, empty or huge designs.
Sweep read_sweep(const Json& document, const std::string& where);

enum class PointState { Pending, Found, Infeasible, Failed };

struct SweepPoint {
  PointState state = PointState::Pending;
  std::string message;  // why nothing fits, or what failed
  std::string inputs;   // hash of what was searched and its price; of those that failed none
  std::string layout;   // of the best plan, in words
  double iteration_time_s = 0;
  double tokens_per_s = 0;  // of the whole cluster
  double mfu = 0;           // fraction
  double peak_memory_bytes = 0;
  double gap = 0;  // fraction; 0 proves the optimum
  std::int64_t gpus = 0;
  std::int64_t plans = 0;
  double usd_per_hour = 0;  // of the whole cluster; 0: no price known
};

// Searches the points that are pending, failed, or were searched for other inputs than the sweep
// has now (a file that it names has changed) on `jobs` threads (0: all cores) and calls `done`
// after each, never from two threads at once. Stops early when interrupted; then points stay
// pending.
void run_sweep(const Sweep& sweep, std::vector<SweepPoint>& points, int jobs,
               const std::function<void(std::size_t finished)>& done = {});

// "schema": "orrery-sweep-result": the sweep's own document and its points.
Json sweep_json(const Sweep& sweep, const std::vector<SweepPoint>& points);
// The points of an earlier run. Errors: results of another sweep or of another version.
std::vector<SweepPoint> read_sweep_points(const Json& document, const Sweep& sweep,
                                          const std::string& where);
std::string sweep_csv(const Sweep& sweep, const std::vector<SweepPoint>& points);
// Points on the frontier of tokens per second against cost: price where every point has one, else
// GPUs. Indices, by rising cost; of equal points the first.
std::vector<std::size_t> frontier(const std::vector<SweepPoint>& points);
// Of every point, by the same rule; 0 where nothing was found.
std::vector<double> costs_of(const std::vector<SweepPoint>& points);
bool all_priced(const std::vector<SweepPoint>& points);

// Where the best plan changes, by the first fields (docs/whatif.md), and the frontier.
std::string sweep_svg(const Sweep& sweep, const std::vector<SweepPoint>& points);

}  // namespace orrery::studies
