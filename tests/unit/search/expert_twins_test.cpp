// SPDX-License-Identifier: Apache-2.0
// Planners of experts against plain versions of the same rules, on counts of copies by rank instead
// of lists of slots.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "search/planner.hpp"
#include "search/problems/expert_placement.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

using CopyCounts = std::vector<std::vector<int>>;  // [expert][rank]

struct TwinProblem {
  int experts;
  int ranks;
  int ranks_per_node;
  int expert_parallel;
};

std::string twin_text(const TwinProblem& sizes, const std::string& more = "") {
  return fmt::format(R"({{"schema": "orrery-problem", "version": 1, "token_time": "1 us",
    "token_bytes": "8 KiB", "inside_bandwidth": "200 GB/s", "outside_bandwidth": "10 GB/s",
    "steps": 10, "layers": 3, "top_k": 2, "tokens_per_rank": 65536, "popularity": 1,
    "fluctuation": 0.3, "domain": 2, "history": 2, "experts": {}, "ranks": {},
    "ranks_per_node": {}, "expert_parallel": {}{}}})",
                     sizes.experts, sizes.ranks, sizes.ranks_per_node, sizes.expert_parallel, more);
}

ExpertProblem twin_problem(const std::string& text) {
  const Json document = parse_json(text, "problem");
  ObjectReader reader = JsonReader(document, "problem").object();
  reader.expect_schema("orrery-problem", 1);
  return read_expert_problem(reader);
}

void expect_same_answer(const Json& answer, const Json& twin) {
  for (const char* name : {"time_s", "static_time_s", "max_over_mean", "variation",
                           "static_max_over_mean", "moves", "expert_time_max_over_mean"}) {
    EXPECT_NEAR(number(answer, name), number(twin, name), 1e-9 * number(twin, name)) << name;
  }
}

// As published with LAER-MoE, a round: rates of copies, the coldest that has more than one in each
// node, and the three cases of where the new copy goes.
class DoublingTwin : public PlacementPolicy {
 public:
  explicit DoublingTwin(const ExpertProblem& problem)
      : node_(problem.ranks_per_node), slots_(problem.slots) {}

  ExpertPlacement next(const models::RoutedTokens& tokens, ExpertPlacement current) override {
    CopyCounts counts(tokens.front().size(), std::vector<int>(tokens.size()));
    for (std::size_t rank = 0; rank < current.size(); ++rank) {
      for (const int expert : current[rank]) {
        ++counts[static_cast<std::size_t>(expert)][rank];
      }
    }
    for (int round = 0; round < 10; ++round) {
      const std::vector<double> before = loads(tokens, counts);
      const CopyCounts then = doubled(tokens, counts, before);
      const std::vector<double> after = loads(tokens, then);
      const auto [low, high] = std::minmax_element(before.begin(), before.end());
      const auto [low_then, high_then] = std::minmax_element(after.begin(), after.end());
      if (!(*high_then < *high || *high_then / *low_then < *high / *low)) {
        break;
      }
      counts = then;
    }
    ExpertPlacement placement(current.size());
    for (std::size_t expert = 0; expert < counts.size(); ++expert) {
      for (std::size_t rank = 0; rank < placement.size(); ++rank) {
        placement[rank].insert(placement[rank].end(),
                               static_cast<std::size_t>(counts[expert][rank]),
                               static_cast<int>(expert));
      }
    }
    return placement;
  }

 private:
  // Of every rank: copies in a node share its tokens.
  std::vector<double> loads(const models::RoutedTokens& tokens, const CopyCounts& counts) const {
    std::vector<double> loads(tokens.size());
    for (std::size_t from = 0; from < tokens.size(); ++from) {
      const std::size_t first = from / node_ * node_;
      for (std::size_t expert = 0; expert < counts.size(); ++expert) {
        int copies = 0;
        for (std::size_t rank = first; rank < first + node_; ++rank) {
          copies += counts[expert][rank];
        }
        for (std::size_t rank = first; rank < first + node_; ++rank) {
          loads[rank] += static_cast<double>(tokens[from][expert]) * counts[expert][rank] / copies;
        }
      }
    }
    return loads;
  }

  CopyCounts doubled(const models::RoutedTokens& tokens, CopyCounts counts,
                     const std::vector<double>& loads) const {
    const std::size_t nodes = tokens.size() / node_;
    std::vector<std::pair<double, std::size_t>> by_rate;
    std::vector<double> rate(counts.size());
    std::vector<std::size_t> all(counts.size());
    for (std::size_t expert = 0; expert < counts.size(); ++expert) {
      double load = 0;
      for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
        load += static_cast<double>(tokens[rank][expert]);
        all[expert] += static_cast<std::size_t>(counts[expert][rank]);
      }
      rate[expert] = load / static_cast<double>(all[expert]);
      by_rate.emplace_back(rate[expert], expert);
    }
    std::sort(by_rate.begin(), by_rate.end());
    const std::size_t hot = by_rate.back().second;
    const auto spare = std::find_if(by_rate.begin(), by_rate.end(),
                                    [&](const auto& one) { return all[one.second] > nodes; });
    const std::size_t cold = spare == by_rate.end() ? hot : spare->second;
    for (std::size_t first = 0; hot != cold && first < tokens.size(); first += node_) {
      std::size_t from = tokens.size();
      std::size_t to = tokens.size();
      for (std::size_t rank = first; rank < first + node_; ++rank) {
        if (counts[cold][rank] > 0 && (from == tokens.size() || loads[rank] < loads[from])) {
          from = rank;
        }
        if (counts[hot][rank] > 0 && counts[hot][rank] < slots_ && to == tokens.size()) {
          to = rank;
        }
      }
      to = to == tokens.size() ? from : to;
      --counts[cold][from];
      ++counts[hot][to];
      if (to != from) {
        std::size_t other = hot;
        for (std::size_t expert = 0; expert < counts.size(); ++expert) {
          if (expert != hot && counts[expert][to] > 0 &&
              (other == hot || rate[expert] > rate[other])) {
            other = expert;
          }
        }
        --counts[other][to];
        ++counts[other][from];
      }
    }
    return counts;
  }

  std::size_t node_;
  int slots_;
};

TEST(ExpertTwins, Doubling) {
  for (const TwinProblem& sizes :
       {TwinProblem{8, 8, 4, 2}, TwinProblem{12, 16, 4, 2}, TwinProblem{8, 16, 8, 4}}) {
    const ExpertProblem problem = twin_problem(twin_text(sizes));
    SCOPED_TRACE(twin_text(sizes));
    DoublingTwin twin(problem);
    const Json answer = solve("flexmoe", twin_text(sizes, R"(, "doubling": true)"));
    EXPECT_GT(number(answer, "moves"), 0);
    expect_same_answer(answer, compare_with_static(problem, {problem.ranks_per_node, false}, twin));
  }
}

// One order of copies, none of them perturbed.
class LaerTwin : public PlacementPolicy {
 public:
  explicit LaerTwin(const ExpertProblem& problem) : problem_(problem) {}

  ExpertPlacement next(const models::RoutedTokens& tokens, ExpertPlacement current) override {
    std::vector<double> loads;
    for (std::size_t expert = 0; expert < tokens.front().size(); ++expert) {
      loads.push_back(0);
      for (const auto& row : tokens) {
        loads.back() += static_cast<double>(row[expert]);
      }
    }
    ExpertPlacement placed = place(loads, copies(loads));
    const TokenReach all{problem_.routing.ranks, true};
    return place_tokens(problem_, tokens, placed, all).time <
                   place_tokens(problem_, tokens, current, all).time
               ? placed
               : current;
  }

 private:
  std::vector<int> copies(const std::vector<double>& loads) const {
    const int nodes = problem_.routing.ranks / problem_.ranks_per_node;
    const int slots = problem_.routing.ranks * problem_.slots;
    const auto experts = static_cast<int>(loads.size());
    std::vector<int> copies(loads.size(), slots < nodes * experts ? 1 : nodes);
    int left = slots - copies.front() * experts;
    while (true) {
      std::size_t most = loads.size();
      for (std::size_t expert = 0; expert < loads.size(); ++expert) {
        const int more = copies[expert] < nodes ? 1 : nodes;
        const bool can = more <= left && copies[expert] + more <= problem_.routing.ranks;
        if (can &&
            (most == loads.size() || loads[expert] / copies[expert] > loads[most] / copies[most])) {
          most = expert;
        }
      }
      if (most == loads.size()) {
        return copies;
      }
      const int more = copies[most] < nodes ? 1 : nodes;
      copies[most] += more;
      left -= more;
    }
  }

  ExpertPlacement place(const std::vector<double>& loads, const std::vector<int>& copies) const {
    const int ranks = problem_.routing.ranks;
    CopyCounts counts(loads.size(), std::vector<int>(static_cast<std::size_t>(ranks)));
    std::vector<double> held(static_cast<std::size_t>(ranks));
    ExpertPlacement placement(static_cast<std::size_t>(ranks));
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t expert = 0; expert < loads.size(); ++expert) {
      order.insert(order.end(), static_cast<std::size_t>(copies[expert]),
                   {loads[expert] / copies[expert], expert});
    }
    std::sort(order.rbegin(), order.rend());
    for (const auto& [load, expert] : order) {
      std::vector<std::tuple<bool, int, double, std::size_t>> free;
      for (std::size_t rank = 0; rank < placement.size(); ++rank) {
        const auto node = static_cast<std::ptrdiff_t>(problem_.ranks_per_node);
        const auto first = counts[expert].begin() + static_cast<std::ptrdiff_t>(rank) / node * node;
        if (static_cast<int>(placement[rank].size()) < problem_.slots) {
          free.emplace_back(counts[expert][rank] > 0, std::accumulate(first, first + node, 0),
                            held[rank], rank);
        }
      }
      const std::size_t rank = std::get<3>(*std::min_element(free.begin(), free.end()));
      placement[rank].push_back(static_cast<int>(expert));
      ++counts[expert][rank];
      held[rank] += load;
    }
    return placement;
  }

  const ExpertProblem& problem_;
};

// Copies by the node, and, where experts of a group are on several nodes, one by one.
TEST(ExpertTwins, Laer) {
  for (const TwinProblem& sizes :
       {TwinProblem{8, 8, 4, 2}, TwinProblem{16, 16, 4, 8}, TwinProblem{12, 16, 4, 2}}) {
    const ExpertProblem problem = twin_problem(twin_text(sizes));
    SCOPED_TRACE(twin_text(sizes));
    LaerTwin twin(problem);
    const Json answer = solve("laer", twin_text(sizes, R"(, "tries": 1)"));
    EXPECT_GT(number(answer, "moves"), 0);
    expect_same_answer(answer, compare_with_static(problem, {problem.routing.ranks, true}, twin));
  }
}

class WatchesTokens : public PlacementPolicy {
 public:
  ExpertPlacement next(const models::RoutedTokens& tokens, ExpertPlacement current) override {
    seen.push_back(tokens);
    return current;
  }
  std::vector<models::RoutedTokens> seen;
};

TEST(ExpertTwins, HistoryIsTheSumOfTheLastSteps) {
  ExpertProblem problem = twin_problem(twin_text({8, 8, 4, 2}));
  problem.layers = 1;
  problem.history = 1;
  WatchesTokens single;
  (void)compare_with_static(problem, {problem.ranks_per_node, false}, single);
  problem.history = 3;
  WatchesTokens together;
  (void)compare_with_static(problem, {problem.ranks_per_node, false}, together);
  ASSERT_EQ(together.seen.size(), single.seen.size());
  for (std::size_t step = 0; step < single.seen.size(); ++step) {
    std::int64_t sum = 0;
    for (std::size_t last = step < 2 ? 0 : step - 2; last <= step; ++last) {
      sum += single.seen[last][5][3];
    }
    EXPECT_EQ(together.seen[step][5][3], sum) << step;
  }
}

}  // namespace
}  // namespace orrery::search
