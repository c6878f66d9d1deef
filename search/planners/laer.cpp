// SPDX-License-Identifier: Apache-2.0
// LAER-MoE's expert re-layout: parameters of experts are sharded over all ranks, so every step may
// gather other experts into its slots at no extra cost. Copies are allotted to the expert with the
// largest load per copy until the slots are used; then, heaviest copies first, each goes to the
// least loaded rank of a node that has fewest copies of that expert. Several perturbed orders are
// tried, the best by modelled time is kept. The planner knows the loads of the step before; tokens
// go to copies in their node where there are any.
#include <algorithm>
#include <numeric>
#include <queue>

#include "search/planner.hpp"
#include "search/problems/expert_placement.hpp"

namespace orrery::search {
namespace {

class Laer : public PlacementPolicy {
 public:
  Laer(const ExpertProblem& problem, int tries)
      : problem_(problem), tries_(tries), random_(mix64(problem.seed)) {}

  ExpertPlacement next(const models::RoutedTokens& tokens, ExpertPlacement current) override {
    const std::vector<double> load = loads(tokens);
    Seconds best = cost(tokens, current);
    for (int attempt = 0; attempt < tries_; ++attempt) {
      ExpertPlacement placement = place(load, attempt == 0 ? 0.0 : 0.1);
      const Seconds time = cost(tokens, placement);
      if (time < best) {
        best = time;
        current = std::move(placement);
      }
    }
    return current;
  }

 private:
  Seconds cost(const models::RoutedTokens& tokens, const ExpertPlacement& placement) const {
    return place_tokens(problem_, tokens, placement, {problem_.routing.ranks, true}).time;
  }

  std::vector<double> loads(const models::RoutedTokens& tokens) const {
    std::vector<double> load(static_cast<std::size_t>(problem_.routing.experts));
    for (const auto& row : tokens) {
      for (std::size_t expert = 0; expert < load.size(); ++expert) {
        load[expert] += static_cast<double>(row[expert]);
      }
    }
    return load;
  }

  // One copy for each expert, then one at a time for the largest load per copy; at most one a rank.
  std::vector<int> copies(const std::vector<double>& load) const {
    std::vector<int> copies(load.size(), 1);
    std::priority_queue<std::pair<double, std::size_t>> queue;
    for (std::size_t expert = 0; expert < load.size(); ++expert) {
      queue.emplace(load[expert], expert);
    }
    int left = problem_.routing.ranks * problem_.slots - problem_.routing.experts;
    while (left > 0 && !queue.empty()) {
      const std::size_t expert = queue.top().second;
      queue.pop();
      if (copies[expert] < problem_.routing.ranks) {
        ++copies[expert];
        --left;
        queue.emplace(load[expert] / copies[expert], expert);
      }
    }
    return copies;
  }

  ExpertPlacement place(const std::vector<double>& load, double jitter) {
    const std::vector<int> count = copies(load);
    std::vector<std::pair<double, int>> order;  // load of a copy, expert
    for (std::size_t expert = 0; expert < load.size(); ++expert) {
      const double each = load[expert] / count[expert];
      for (int copy = 0; copy < count[expert]; ++copy) {
        order.emplace_back(each * (1 + jitter * random_.normal()), static_cast<int>(expert));
      }
    }
    std::stable_sort(order.rbegin(), order.rend());
    const int ranks = problem_.routing.ranks;
    const int node = problem_.ranks_per_node;
    ExpertPlacement placement(static_cast<std::size_t>(ranks));
    std::vector<double> held(static_cast<std::size_t>(ranks));
    std::vector<std::vector<int>> in_node(static_cast<std::size_t>(ranks / node),
                                          std::vector<int>(load.size()));
    for (const auto& [each, expert] : order) {
      const auto column = static_cast<std::size_t>(expert);
      int chosen = -1;
      const auto better = [&](int a, int b) {
        const auto key = [&](int rank) {
          const auto slot = static_cast<std::size_t>(rank);
          const auto& mine = placement[slot];
          const bool twice = std::find(mine.begin(), mine.end(), expert) != mine.end();
          return std::tuple(twice, in_node[static_cast<std::size_t>(rank / node)][column],
                            held[slot]);
        };
        return key(a) < key(b);
      };
      for (int rank = 0; rank < ranks; ++rank) {
        const bool room =
            static_cast<int>(placement[static_cast<std::size_t>(rank)].size()) < problem_.slots;
        if (room && (chosen < 0 || better(rank, chosen))) {
          chosen = rank;
        }
      }
      placement[static_cast<std::size_t>(chosen)].push_back(expert);
      held[static_cast<std::size_t>(chosen)] += load[column] / count[column];
      ++in_node[static_cast<std::size_t>(chosen / node)][column];
    }
    return placement;
  }

  const ExpertProblem& problem_;
  int tries_;
  Random random_;
};

Json plan(ObjectReader& problem) {
  const ExpertProblem read = read_expert_problem(problem);
  const int tries = static_cast<int>(problem.integer_or("tries", 8, 1, 1000));
  Laer policy(read, tries);
  return compare_with_static(read, {read.routing.ranks, true}, policy);
}

}  // namespace

extern const Planner planner_laer;
const Planner planner_laer{
    .name = "laer",
    .description = "copies and places of experts anew for every step, over all ranks",
    .source =
        "Liu et al., LAER-MoE, ASPLOS 2026 (arXiv 2602.11686); artifact in PKU-DAIR/"
        "Hetu-Galvatron, galvatron/core/runtime/moe/prefetch",
    .example = R"({"schema": "orrery-problem", "version": 1, "experts": 8, "top_k": 2, "ranks": 8,
  "ranks_per_node": 4, "expert_parallel": 4, "tokens_per_rank": 4096, "steps": 5, "popularity": 0.8,
  "token_time": "1 us", "token_bytes": "8 KiB", "inside_bandwidth": "200 GB/s",
  "outside_bandwidth": "12.5 GB/s"})",
    .plan = plan};

}  // namespace orrery::search
