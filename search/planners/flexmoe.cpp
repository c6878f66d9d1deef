// SPDX-License-Identifier: Apache-2.0
// FlexMoE's dynamic placement: within each node, while the modelled time of the last step's tokens
// falls, a copy of the least loaded expert gives its slot to one more copy of the most loaded one
// (expand and shrink), then slots are swapped between ranks (migrate). Tokens stay in their node
// and are divided evenly over the copies, whose gradients are added up over all nodes; moves take a
// step to arrive, in the background.
#include <algorithm>
#include <functional>
#include <limits>

#include "search/planner.hpp"
#include "search/problems/expert_placement.hpp"
#include "search/problems/slot_swaps.hpp"

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
    const std::vector<double> load = load_of_experts(tokens);
    std::vector<double> copies(load.size());
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
    constexpr double kLess = 1 - 1e-9;  // than rounding makes of swaps that change nothing
    int* from = nullptr;
    int* to = nullptr;
    SwapTimes times(node_, tokens, placement);
    for (std::size_t a = 0; a < placement.size(); ++a) {
      for (std::size_t b = a + 1; b < placement.size(); ++b) {
        times.between(a, b);
        for (int& one : placement[a]) {
          for (int& other : placement[b]) {
            if (one == other || times.after(one, other) > kLess * best) {
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

// The re-implementation of the LAER-MoE artifact (galvatron/core/runtime/moe/prefetch/solver.py),
// whose measurements are known: one more copy of the expert that is hottest over all nodes, in each
// of them, on a rank that has one already; what it takes the place of goes where a copy of the
// coldest was. Two copies on a rank draw two shares, so that this balances less. Rounds go on while
// the fullest rank, or its ratio to the emptiest, falls.
class Doubling : public PlacementPolicy {
 public:
  Doubling(const ExpertProblem& problem, int rounds) : problem_(problem), rounds_(rounds) {}

  ExpertPlacement next(const models::RoutedTokens& tokens, ExpertPlacement current) override {
    const std::vector<double> load = load_of_experts(tokens);
    std::vector<double> received = received_by(tokens, current);
    for (int round = 0; round < rounds_; ++round) {
      ExpertPlacement doubled = double_hottest(load, received, current);
      std::vector<double> then = received_by(tokens, doubled);
      if (fullest(then) >= fullest(received) && spread(then) >= spread(received)) {
        break;
      }
      current = std::move(doubled);
      received = std::move(then);
    }
    return current;
  }

 private:
  static double fullest(const std::vector<double>& received) {
    return *std::max_element(received.begin(), received.end());
  }
  // Fullest over emptiest rank.
  static double spread(const std::vector<double>& received) {
    const double least = *std::min_element(received.begin(), received.end());
    return least > 0 ? fullest(received) / least : std::numeric_limits<double>::infinity();
  }
  std::vector<double> received_by(const models::RoutedTokens& tokens,
                                  const ExpertPlacement& placement) const {
    return place_tokens(problem_, tokens, placement, {problem_.ranks_per_node, false}).received;
  }

  // Hottest by load a copy, then the coldest that can spare a copy in every node; the same expert
  // where none can.
  std::pair<int, int> hottest_and_coldest(const std::vector<double>& load,
                                          const ExpertPlacement& placement) {
    std::vector<double> copies(load.size());
    for (const std::vector<int>& slots : placement) {
      for (const int expert : slots) {
        copies[static_cast<std::size_t>(expert)] += 1;
      }
    }
    per_copy_.resize(load.size());
    std::transform(load.begin(), load.end(), copies.begin(), per_copy_.begin(), std::divides<>());
    const auto hottest = std::max_element(per_copy_.begin(), per_copy_.end());
    const int hot = static_cast<int>(hottest - per_copy_.begin());
    const int nodes = problem_.routing.ranks / problem_.ranks_per_node;
    int cold = hot;
    for (std::size_t expert = 0; expert < load.size(); ++expert) {
      const bool colder = per_copy_[expert] < per_copy_[static_cast<std::size_t>(cold)];
      cold = copies[expert] > nodes && colder ? static_cast<int>(expert) : cold;
    }
    return {hot, cold};
  }

  ExpertPlacement double_hottest(const std::vector<double>& load,
                                 const std::vector<double>& received, ExpertPlacement placement) {
    const auto [hot, cold] = hottest_and_coldest(load, placement);
    for (int first = 0; hot != cold && first < problem_.routing.ranks;
         first += problem_.ranks_per_node) {
      double_in_node(first, hot, cold, received, placement);
    }
    return placement;
  }

  void double_in_node(int first, int hot, int cold, const std::vector<double>& received,
                      ExpertPlacement& placement) const {
    int* spared = nullptr;  // a copy of the coldest, on the emptiest rank that has one
    std::vector<int>* holder = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (int rank = first; rank < first + problem_.ranks_per_node; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      std::vector<int>& slots = placement[at];
      const auto found = std::find(slots.begin(), slots.end(), cold);
      if (found != slots.end() && received[at] < least) {
        least = received[at];
        spared = &*found;
      }
      const auto held = std::count(slots.begin(), slots.end(), hot);
      const bool room = held > 0 && held < static_cast<std::ptrdiff_t>(slots.size());
      holder = holder == nullptr && room ? &slots : holder;
    }
    if (spared == nullptr) {
      return;
    }
    const bool own =
        holder != nullptr && spared >= holder->data() && spared < holder->data() + holder->size();
    if (holder != nullptr && !own) {
      int* hottest_other = nullptr;
      for (int& slot : *holder) {
        const bool hotter =
            hottest_other == nullptr || per_copy_[static_cast<std::size_t>(slot)] >
                                            per_copy_[static_cast<std::size_t>(*hottest_other)];
        hottest_other = slot != hot && hotter ? &slot : hottest_other;
      }
      std::swap(*hottest_other, *spared);
      spared = hottest_other;
    }
    *spared = hot;
  }

  const ExpertProblem& problem_;
  int rounds_;
  std::vector<double> per_copy_;
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
  const TokenReach node{read.ranks_per_node, false};
  const bool doubling = problem.boolean_or("doubling", false);
  problem.finish();
  if (doubling) {
    Doubling policy(read, rounds);
    return compare_with_static(read, node, policy);
  }
  FlexMoe policy(read, threshold, rounds);
  return compare_with_static(read, node, policy);
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
