// SPDX-License-Identifier: Apache-2.0
#include "search/nested_search.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace orrery::search {
namespace {

// The best of both, and what is proved of both spaces.
void join(TableOutcome& all, TableOutcome more, std::size_t top) {
  const auto faster = [](const TableFound& a, const TableFound& b) {
    return a.cost.iteration() < b.cost.iteration();
  };
  if (!more.found.empty()) {
    all.lower_bound = std::min(all.lower_bound, more.lower_bound);
  } else if (more.interrupted || more.timed_out) {
    all.lower_bound = Seconds();  // nothing is known of what it did not come to
  }
  all.plans += more.plans;
  all.pruned += more.pruned;
  all.unexplored += more.unexplored;
  all.infeasible += more.infeasible;
  all.simulated += more.simulated;
  all.interrupted = all.interrupted || more.interrupted;
  all.timed_out = all.timed_out || more.timed_out;
  all.search_time += more.search_time;
  all.closest = all.closest.empty() ? more.closest : all.closest;
  std::move(more.found.begin(), more.found.end(), std::back_inserter(all.found));
  std::stable_sort(all.found.begin(), all.found.end(), faster);
  if (all.found.size() > top) {
    all.found.resize(top);
  }
  if (!all.found.empty()) {
    all.closest.clear();
    all.gap_fraction = 1 - all.lower_bound / all.found.front().cost.iteration();
  }
}

// The searches of several spaces, one after the other, within one time limit.
class Searches {
 public:
  explicit Searches(const TableSearch& search) : search_(search) {
    all_.lower_bound = Seconds(std::numeric_limits<double>::infinity());
  }

  void run(const plan::Recommender& network) {
    TableSearch own = search_;
    if (search_.time_limit.value() > 0) {
      own.time_limit = std::max(search_.time_limit - all_.search_time, Seconds(1e-9));
    }
    join(all_, search_tables(network, own), search_.top);
  }

  void run_nested(plan::Recommender network, const std::vector<int>& micro_batches) {
    network.nested = true;
    for (const int count : micro_batches) {
      network.micro_batches = count;
      run(network);
    }
  }

  TableOutcome outcome() && {
    if (all_.found.empty()) {
      all_.lower_bound = Seconds();
    }
    return std::move(all_);
  }

 private:
  const TableSearch& search_;
  TableOutcome all_;
};

}  // namespace

TableOutcome search_nested(const plan::Recommender& network, const std::vector<int>& micro_batches,
                           const TableSearch& search) {
  Searches searches(search);
  searches.run_nested(network, micro_batches);
  return std::move(searches).outcome();
}

TableOutcome search_schedules(const plan::Recommender& network,
                              const std::vector<int>& micro_batches, const TableSearch& search) {
  Searches searches(search);
  searches.run(network);
  searches.run_nested(network, micro_batches);
  return std::move(searches).outcome();
}

}  // namespace orrery::search
