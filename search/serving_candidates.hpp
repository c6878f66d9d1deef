// SPDX-License-Identifier: Apache-2.0
// The plans of a space of serving plans (search/serving_space.hpp) that fit, each with a bound on
// its time, in the order in which they are tried.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "plan/serving/simulate.hpp"
#include "search/serving_space.hpp"

namespace orrery::search {

struct ServingCandidate {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  plan::Plan plan;
  Seconds bound;             // 0: there was no time for it
  std::size_t like = kNone;  // an earlier one that differs in fewer max_requests alone
};

// Plans of one layout share the costs of their iterations.
class ServingModels {
 public:
  plan::ServingModel of(const plan::Plan& plan);
  // The same on another thread, from the models of this one.
  plan::ServingModel of(const plan::Plan& plan, const ServingModels& first);

 private:
  // By tp, cp, ep, expert_tp, how all-reduces run, what the cache is in and whether shared experts
  // overlap.
  std::map<std::array<int, 7>, plan::ServingModel> models_;
};

struct ServingCandidates {
  std::vector<ServingCandidate> list;  // by bound; last, those without
  std::vector<Seconds> bounds;         // in the order in which plans are listed
  std::int64_t plans = 0;
  std::int64_t infeasible = 0;
  bool streams = false;  // no plan fits whose parameters all stay on the devices
  bool bounded = true;   // no bound is missing
  std::string closest;   // nothing fits: why the plan that comes closest does not
  std::string nearest;   // and what would help
};

// What is kept of bounds, all of which may take longer than there is time for.
struct ServingBounds {
  std::function<std::vector<Seconds>()> known;  // those made before; asked before the first one
  std::function<bool()> has_time;               // for one more
  std::function<void(const std::vector<Seconds>&)> made;  // all so far; told of each
};

// All of them; `models` are those of these plans afterwards. Error where the space is empty.
ServingCandidates serving_candidates(const plan::Plan& base, const ServingFixes& fixed,
                                     const std::vector<plan::Request>& requests,
                                     const ServingBounds& bounds, ServingModels& models);

}  // namespace orrery::search
