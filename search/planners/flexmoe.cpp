// SPDX-License-Identifier: Apache-2.0
// FlexMoE's dynamic placement: within each node, while the modelled time of the last step's tokens
// falls, a copy of the least loaded expert gives its slot to one more copy of the most loaded one
// (expand and shrink), then slots are swapped between ranks (migrate). Tokens stay in their node
// and are divided evenly over the copies, whose gradients are added up over all nodes; moves take a
// step to arrive, in the background.
#include <algorithm>

#include "search/planner.hpp"
#include "search/problems/expert_placement.hpp"

namespace orrery::search {
namespace {

class FlexMoe : public PlacementPolicy {
 public:
  FlexMoe(const ExpertProblem& problem, double threshold, int rounds)
      : problem_(problem), threshold_(threshold), rounds_(rounds) {
    node_ = problem;
    node_.routing.ranks = problem.ranks_per_node;
    node_.gradient_bytes = Bytes();  // copies in other nodes count
  }

  ExpertPlacement next(const models::RoutedTokens& tokens, ExpertPlacement current) override {
    const int node = problem_.ranks_per_node;
    all_ = std::move(current);
    for (first_ = 0; first_ < problem_.routing.ranks; first_ += node) {
      const models::RoutedTokens mine(tokens.begin() + first_, tokens.begin() + first_ + node);
      ExpertPlacement here(all_.begin() + first_, all_.begin() + first_ + node);
      improve(mine, here);
      std::move(here.begin(), here.end(), all_.begin() + first_);
    }
    return std::move(all_);
  }

 private:
  // Of a placement of the node, with the gradients of all nodes.
  Seconds cost(const models::RoutedTokens& tokens, const ExpertPlacement& placement) {
    const Seconds time = place_tokens(node_, tokens, placement, {node_.routing.ranks, false}).time;
    if (problem_.gradient_bytes.value() == 0) {
      return time;
    }
    std::copy(placement.begin(), placement.end(), all_.begin() + first_);
    return time + reduce_gradients(problem_, all_);
  }

  bool balanced(const models::RoutedTokens& tokens, const ExpertPlacement& placement) const {
    const auto received =
        place_tokens(node_, tokens, placement, {node_.routing.ranks, false}).received;
    double sum = 0;
    for (const double load : received) {
      sum += load;
    }
    const double most = *std::max_element(received.begin(), received.end());
    return most * static_cast<double>(received.size()) <= threshold_ * sum;
  }

  // Tries each rank's copy of the coldest expert for the hottest one; keeps the best that helps.
  bool expand(const models::RoutedTokens& tokens, ExpertPlacement& placement, Seconds& best) {
    const auto experts = static_cast<std::size_t>(problem_.routing.experts);
    std::vector<double> load(experts);
    std::vector<double> copies(experts);
    for (const auto& row : tokens) {
      for (std::size_t expert = 0; expert < experts; ++expert) {
        load[expert] += static_cast<double>(row[expert]);
      }
    }
    for (const std::vector<int>& slots : placement) {
      for (const int expert : slots) {
        copies[static_cast<std::size_t>(expert)] += 1;
      }
    }
    int hottest = 0;
    int coldest = -1;
    const auto per_copy = [&](int expert) {
      return load[static_cast<std::size_t>(expert)] / copies[static_cast<std::size_t>(expert)];
    };
    for (int expert = 0; expert < problem_.routing.experts; ++expert) {
      hottest = per_copy(expert) > per_copy(hottest) ? expert : hottest;
      const bool several = copies[static_cast<std::size_t>(expert)] > 1;
      coldest = several && (coldest < 0 || per_copy(expert) < per_copy(coldest)) ? expert : coldest;
    }
    if (coldest < 0 || coldest == hottest) {
      return false;
    }
    int* chosen = nullptr;
    for (std::vector<int>& slots : placement) {
      const auto found = std::find(slots.begin(), slots.end(), coldest);
      if (found == slots.end()) {
        continue;
      }
      *found = hottest;
      const Seconds time = cost(tokens, placement);
      *found = coldest;
      if (time < best) {
        best = time;
        chosen = &*found;
      }
    }
    if (chosen != nullptr) {
      *chosen = hottest;
    }
    return chosen != nullptr;
  }

  bool migrate(const models::RoutedTokens& tokens, ExpertPlacement& placement, Seconds& best) {
    int* from = nullptr;
    int* to = nullptr;
    for (std::size_t a = 0; a < placement.size(); ++a) {
      for (std::size_t b = a + 1; b < placement.size(); ++b) {
        for (int& one : placement[a]) {
          for (int& other : placement[b]) {
            if (one == other) {
              continue;
            }
            std::swap(one, other);
            const Seconds time = cost(tokens, placement);
            std::swap(one, other);
            if (time < best) {
              best = time;
              from = &one;
              to = &other;
            }
          }
        }
      }
    }
    if (from != nullptr) {
      std::swap(*from, *to);
    }
    return from != nullptr;
  }

  void improve(const models::RoutedTokens& tokens, ExpertPlacement& placement) {
    if (balanced(tokens, placement)) {
      return;
    }
    Seconds best = cost(tokens, placement);
    for (int round = 0; round < rounds_ && expand(tokens, placement, best); ++round) {
    }
    for (int round = 0; round < rounds_ && migrate(tokens, placement, best); ++round) {
    }
  }

  const ExpertProblem& problem_;
  ExpertProblem node_;
  ExpertPlacement all_;
  int first_ = 0;  // rank of the node that is improved
  double threshold_;
  int rounds_;
};

Json plan(ObjectReader& problem) {
  ExpertProblem read = read_expert_problem(problem);
  if (const auto gradient = problem.optional("gradient_bytes")) {
    read.gradient_bytes = gradient->bytes(true);
  }
  const double threshold = problem.number_or("threshold", 1.05, 1, 100);
  const int rounds = static_cast<int>(problem.integer_or("rounds", 10, 0, 100));
  if (read.ranks_per_node % read.expert_parallel != 0) {
    problem.value().fail("expert_parallel must divide ranks_per_node: copies stay in a node");
  }
  FlexMoe policy(read, threshold, rounds);
  return compare_with_static(read, {read.ranks_per_node, false}, policy);
}

}  // namespace

extern const Planner planner_flexmoe;
const Planner planner_flexmoe{
    .name = "flexmoe",
    .description = "copies of hot experts in place of cold ones, step by step, within a node",
    .source =
        "Nie et al., FlexMoE, SIGMOD 2023 (arXiv 2304.03946); per node as in the LAER-MoE "
        "artifact, 2026",
    .example = R"({"schema": "orrery-problem", "version": 1, "experts": 8, "top_k": 2, "ranks": 8,
  "ranks_per_node": 8, "expert_parallel": 4, "tokens_per_rank": 4096, "steps": 5, "popularity": 0.8,
  "token_time": "1 us", "token_bytes": "8 KiB", "inside_bandwidth": "200 GB/s",
  "outside_bandwidth": "12.5 GB/s"})",
    .plan = plan};

}  // namespace orrery::search
