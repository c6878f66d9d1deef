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
#include <set>

#include "search/planner.hpp"
#include "search/problems/expert_placement.hpp"

namespace orrery::search {
namespace {

class Laer : public PlacementPolicy {
 public:
  Laer(const ExpertProblem& problem, int tries)
      : problem_(problem), tries_(tries), random_(mix64(problem.seed)) {}

  ExpertPlacement next(const models::RoutedTokens& tokens, ExpertPlacement current) override {
    const std::vector<double> load = load_of_experts(tokens);
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

  // Copies come one to every node, so that no token leaves its node, or one by one where there are
  // too few slots; each to the largest load per copy (csrc/greedy_balancer.cpp of the artifact), at
  // most one a rank.
  std::vector<int> copies(const std::vector<double>& load) const {
    const int slots = problem_.routing.ranks * problem_.slots;
    const int nodes = problem_.routing.ranks / problem_.ranks_per_node;
    const int each = nodes * problem_.routing.experts <= slots ? nodes : 1;
    std::vector<int> copies(load.size(), each);
    std::priority_queue<std::pair<double, std::size_t>> queue;
    for (std::size_t expert = 0; expert < load.size(); ++expert) {
      queue.emplace(load[expert] / each, expert);
    }
    int left = slots - each * problem_.routing.experts;
    while (left > 0 && !queue.empty()) {
      const std::size_t expert = queue.top().second;
      queue.pop();
      const int more = copies[expert] < nodes ? 1 : nodes;
      if (more <= left && copies[expert] + more <= problem_.routing.ranks) {
        copies[expert] += more;
        left -= more;
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
    // By expert: copies in each node, and whether a rank has one.
    std::vector<std::vector<int>> in_node(load.size(),
                                          std::vector<int>(static_cast<std::size_t>(ranks / node)));
    std::vector<std::vector<char>> has(load.size(),
                                       std::vector<char>(static_cast<std::size_t>(ranks)));
    std::set<std::pair<double, int>> open;  // ranks with free slots, by load
    for (int rank = 0; rank < ranks; ++rank) {
      open.emplace(0.0, rank);
    }
    for (const auto& [each, expert] : order) {
      const auto column = static_cast<std::size_t>(expert);
      const auto key = [&](int rank) {
        return std::pair<int, int>(has[column][static_cast<std::size_t>(rank)],
                                   in_node[column][static_cast<std::size_t>(rank / node)]);
      };
      const std::pair<int, int> least(0, *std::ranges::min_element(in_node[column]));
      auto chosen = open.begin();
      for (auto at = open.begin(); at != open.end() && key(chosen->second) > least; ++at) {
        chosen = key(at->second) < key(chosen->second) ? at : chosen;
      }
      const auto [held, rank] = *chosen;
      open.erase(chosen);
      const auto slot = static_cast<std::size_t>(rank);
      placement[slot].push_back(expert);
      has[column][slot] = 1;
      ++in_node[column][static_cast<std::size_t>(rank / node)];
      if (static_cast<int>(placement[slot].size()) < problem_.slots) {
        open.emplace(held + load[column] / count[column], rank);
      }
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
  problem.finish();
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
