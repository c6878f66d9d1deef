// SPDX-License-Identifier: Apache-2.0
#include "search/problems/expert_placement.hpp"

#include <algorithm>
#include <deque>
#include <functional>

#include "base/error.hpp"

namespace orrery::search {

namespace {

int small(ObjectReader& problem, std::string_view key, std::int64_t most) {
  return static_cast<int>(problem.required(key).integer(1, most));
}

Seconds seconds_or_zero(ObjectReader& problem, std::string_view key) {
  const auto value = problem.optional(key);
  return value ? value->duration() : Seconds();
}

// Copies of every expert on the ranks [first, first + count): rank by rank, one entry a slot.
std::vector<std::vector<int>> copies_within(const ExpertPlacement& placement, int experts,
                                            int first, int count) {
  std::vector<std::vector<int>> copies(static_cast<std::size_t>(experts));
  for (int rank = first; rank < first + count; ++rank) {
    for (const int expert : placement[static_cast<std::size_t>(rank)]) {
      copies[static_cast<std::size_t>(expert)].push_back(rank);
    }
  }
  return copies;
}

void add_to(std::vector<double>& sums, const std::vector<double>& values) {
  sums.resize(values.size());
  std::transform(sums.begin(), sums.end(), values.begin(), sums.begin(), std::plus<>());
}

struct Means {
  Seconds time;
  std::vector<std::vector<double>> loads;
  void add(const PlacedStep& step) {
    time += step.time;
    loads.push_back(step.received);
  }
};

// Statistics of several layers, each over its own steps.
struct Report {
  Seconds time;
  models::BalanceStatistics balance{0, 0, 0};
  // [step][rank], of all layers: ranks wait for each other layer by layer, but a profile of their
  // experts has the sum.
  std::vector<std::vector<double>> of_all_layers;
  void add(const Means& layer, double layers) {
    const models::BalanceStatistics one = models::balance_statistics(layer.loads);
    of_all_layers.resize(layer.loads.size());
    for (std::size_t step = 0; step < layer.loads.size(); ++step) {
      add_to(of_all_layers[step], layer.loads[step]);
    }
    time += layer.time / static_cast<double>(layer.loads.size()) / layers;
    balance.max_over_mean += one.max_over_mean / layers;
    balance.variation += one.variation / layers;
    balance.autocorrelation += one.autocorrelation / layers;
  }
  double expert_time_max_over_mean() const {
    return models::balance_statistics(of_all_layers).max_over_mean;
  }
};

int changed_slots(const ExpertPlacement& a, const ExpertPlacement& b) {
  int changed = 0;
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    std::vector<int> before = a[rank];
    std::vector<int> after = b[rank];
    std::sort(before.begin(), before.end());
    std::sort(after.begin(), after.end());
    std::vector<int> common;
    std::set_intersection(before.begin(), before.end(), after.begin(), after.end(),
                          std::back_inserter(common));
    changed += static_cast<int>(after.size() - common.size());
  }
  return changed;
}

// Tokens of the last steps together.
class History {
 public:
  explicit History(int steps) : steps_(static_cast<std::size_t>(steps)) {}
  models::RoutedTokens with(const models::RoutedTokens& tokens) {
    last_.push_back(tokens);
    if (last_.size() > steps_) {
      last_.pop_front();
    }
    models::RoutedTokens sum = last_.front();
    for (auto step = std::next(last_.begin()); step != last_.end(); ++step) {
      for (std::size_t rank = 0; rank < sum.size(); ++rank) {
        std::transform(sum[rank].begin(), sum[rank].end(), (*step)[rank].begin(), sum[rank].begin(),
                       std::plus<>());
      }
    }
    return sum;
  }

 private:
  std::size_t steps_;
  std::deque<models::RoutedTokens> last_;
};

// Whether every static group of ranks has a copy of every expert.
bool groups_are_whole(const ExpertProblem& problem, const ExpertPlacement& placement) {
  const int count = problem.expert_parallel;
  for (int first = 0; first < problem.routing.ranks; first += count) {
    for (const auto& copies : copies_within(placement, problem.routing.experts, first, count)) {
      if (copies.empty()) {
        return false;
      }
    }
  }
  return true;
}

// What each rank sends, or gets, inside its node and across nodes.
struct LinkLoads {
  explicit LinkLoads(std::size_t ranks) : inside(ranks), outside(ranks) {}
  std::vector<double>& of(bool across) { return across ? outside : inside; }
  std::vector<double> inside;
  std::vector<double> outside;
};

// The longest that a link of a rank takes, of `each` bytes a load.
Seconds slowest_link(const ExpertProblem& problem, const LinkLoads& sent, const LinkLoads& got,
                     Bytes each) {
  Seconds longest;
  for (std::size_t rank = 0; rank < sent.inside.size(); ++rank) {
    const double inside = std::max(sent.inside[rank], got.inside[rank]);
    const double outside = std::max(sent.outside[rank], got.outside[rank]);
    longest = std::max({longest, inside * each / problem.inside_bandwidth,
                        outside * each / problem.outside_bandwidth});
  }
  return longest;
}

// Tokens for an expert evenly over its copies in reach.
PlacedStep divide_tokens(const ExpertProblem& problem, const models::RoutedTokens& tokens,
                         const ExpertPlacement& placement, const TokenReach& reach) {
  const int ranks = problem.routing.ranks;
  const int experts = problem.routing.experts;
  const int node = problem.ranks_per_node;
  const auto count = static_cast<std::size_t>(ranks);
  LinkLoads sent(count);
  LinkLoads got(count);
  PlacedStep step;
  step.received.assign(count, 0.0);
  std::vector<std::vector<int>> in_group;
  std::vector<std::vector<int>> in_node;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank % reach.group == 0) {
      in_group = copies_within(placement, experts, rank, std::min(reach.group, ranks - rank));
    }
    if (reach.node_first && rank % node == 0) {
      in_node = copies_within(placement, experts, rank, node);
    }
    const auto from = static_cast<std::size_t>(rank);
    for (int expert = 0; expert < experts; ++expert) {
      const auto slot = static_cast<std::size_t>(expert);
      const bool near = reach.node_first && !in_node[slot].empty();
      const std::vector<int>& copies = near ? in_node[slot] : in_group[slot];
      ORRERY_CHECK(!copies.empty(), "an expert without a copy in reach");
      const double each =
          static_cast<double>(tokens[from][slot]) / static_cast<double>(copies.size());
      for (const int to : copies) {
        const auto at = static_cast<std::size_t>(to);
        step.received[at] += each;
        if (to != rank) {
          const bool across = to / node != rank / node;
          sent.of(across)[from] += each;
          got.of(across)[at] += each;
        }
      }
    }
  }
  step.exchange = problem.latency + slowest_link(problem, sent, got, problem.token_bytes);
  const double slowest = *std::max_element(step.received.begin(), step.received.end());
  step.time = problem.compute_passes * slowest * problem.token_time +
              problem.exchanges * step.exchange + problem.other;
  return step;
}

}  // namespace

ExpertProblem read_expert_problem(ObjectReader& problem) {
  ExpertProblem read;
  models::RoutingModel& routing = read.routing;
  routing.experts = small(problem, "experts", 4096);
  routing.top_k = small(problem, "top_k", routing.experts);
  routing.ranks = small(problem, "ranks", 4096);
  routing.tokens_per_rank = problem.required("tokens_per_rank").integer(1, 1LL << 32);
  routing.popularity = problem.number_or("popularity", 0, 0, 10);
  routing.popularity_persistence = problem.number_or("popularity_persistence", 1, 0, 1);
  routing.fluctuation = problem.number_or("fluctuation", 0, 0, 10);
  routing.fluctuation_persistence = problem.number_or("fluctuation_persistence", 0, 0, 1);
  routing.domain = static_cast<int>(problem.integer_or("domain", 1, 1, routing.ranks));
  read.ranks_per_node = small(problem, "ranks_per_node", routing.ranks);
  const JsonReader groups = problem.required("expert_parallel");
  read.expert_parallel = static_cast<int>(groups.integer(1, routing.ranks));
  if (routing.experts % read.expert_parallel != 0 || routing.ranks % read.expert_parallel != 0 ||
      routing.ranks % read.ranks_per_node != 0) {
    groups.fail("expert_parallel must divide experts and ranks, ranks_per_node the ranks");
  }
  read.slots = routing.experts / read.expert_parallel;
  read.steps = static_cast<int>(problem.integer_or("steps", 50, 1, 10'000));
  read.history = static_cast<int>(problem.integer_or("history", 1, 1, 1000));
  read.layers = static_cast<int>(problem.integer_or("layers", 1, 1, 1000));
  read.seed = static_cast<std::uint64_t>(problem.integer_or("seed", 1, 0, 1LL << 40));
  read.token_time = problem.required("token_time").duration();
  read.compute_passes = problem.number_or("compute_passes", 3, 0, 100);
  read.token_bytes = problem.required("token_bytes").bytes(true);
  read.exchanges = problem.number_or("exchanges", 4, 0, 100);
  read.inside_bandwidth = problem.required("inside_bandwidth").bandwidth();
  read.outside_bandwidth = problem.required("outside_bandwidth").bandwidth();
  read.latency = seconds_or_zero(problem, "latency");
  read.other = seconds_or_zero(problem, "other");
  return read;
}

std::vector<std::vector<int>> gradient_rings(const ExpertPlacement& placement, int experts) {
  std::vector<std::vector<int>> rings =
      copies_within(placement, experts, 0, static_cast<int>(placement.size()));
  for (std::vector<int>& ring : rings) {
    ring.erase(std::unique(ring.begin(), ring.end()), ring.end());  // by rank already
  }
  return rings;
}

Seconds reduce_gradients(const ExpertProblem& problem, const ExpertPlacement& placement) {
  const auto count = static_cast<std::size_t>(problem.routing.ranks);
  if (problem.gradient_bytes.value() == 0) {
    return {};
  }
  // Gradients that leave and reach each rank, inside its node and between nodes.
  LinkLoads sent(count);
  LinkLoads got(count);
  std::size_t longest = 1;
  for (const std::vector<int>& ring : gradient_rings(placement, problem.routing.experts)) {
    longest = std::max(longest, ring.size());
    const auto members = static_cast<double>(ring.size());
    for (std::size_t i = 0; ring.size() > 1 && i < ring.size(); ++i) {
      const int from = ring[i];
      const int to = ring[(i + 1) % ring.size()];
      const bool across = to / problem.ranks_per_node != from / problem.ranks_per_node;
      sent.of(across)[static_cast<std::size_t>(from)] += 2 * (members - 1) / members;
      got.of(across)[static_cast<std::size_t>(to)] += 2 * (members - 1) / members;
    }
  }
  return 2 * static_cast<double>(longest - 1) * problem.latency +
         slowest_link(problem, sent, got, problem.gradient_bytes);
}

PlacedStep place_tokens(const ExpertProblem& problem, const models::RoutedTokens& tokens,
                        const ExpertPlacement& placement, const TokenReach& reach) {
  PlacedStep step = divide_tokens(problem, tokens, placement, reach);
  const TokenReach own{problem.expert_parallel, false};
  if (reach.group > own.group && groups_are_whole(problem, placement)) {
    PlacedStep near = divide_tokens(problem, tokens, placement, own);
    if (near.time < step.time) {
      step = std::move(near);
    }
  }
  step.reduction = reduce_gradients(problem, placement);
  step.time += step.reduction;
  return step;
}

std::vector<double> load_of_experts(const models::RoutedTokens& tokens) {
  std::vector<double> load(tokens.front().size());
  for (const auto& row : tokens) {
    std::transform(row.begin(), row.end(), load.begin(), load.begin(),
                   [](std::int64_t count, double sum) { return sum + static_cast<double>(count); });
  }
  return load;
}

ExpertPlacement static_placement(const ExpertProblem& problem) {
  ExpertPlacement placement;
  for (int rank = 0; rank < problem.routing.ranks; ++rank) {
    std::vector<int> slots;
    for (int slot = 0; slot < problem.slots; ++slot) {
      slots.push_back(rank % problem.expert_parallel * problem.slots + slot);
    }
    placement.push_back(std::move(slots));
  }
  return placement;
}

Json compare_with_static(const ExpertProblem& problem, const TokenReach& reach,
                         PlacementPolicy& policy) {
  const ExpertPlacement fixed = static_placement(problem);
  Report planned;
  Report unplanned;
  double moves = 0;
  const auto layers = static_cast<double>(problem.layers);
  for (int layer = 0; layer < problem.layers; ++layer) {
    models::RoutingGenerator generator(problem.routing,
                                       mix64(problem.seed + static_cast<std::uint64_t>(layer)));
    History seen(problem.history);
    ExpertPlacement placement = policy.next(seen.with(generator.next()), fixed);  // to learn from
    Means ours;
    Means theirs;
    for (int step = 0; step < problem.steps; ++step) {
      const models::RoutedTokens tokens = generator.next();
      ours.add(place_tokens(problem, tokens, placement, reach));
      theirs.add(place_tokens(problem, tokens, fixed, {problem.expert_parallel, false}));
      ExpertPlacement next = policy.next(seen.with(tokens), placement);
      moves += changed_slots(placement, next) / (layers * problem.steps);
      placement = std::move(next);
    }
    planned.add(ours, layers);
    unplanned.add(theirs, layers);
  }
  return Json::Object{{"time_s", planned.time.value()},
                      {"static_time_s", unplanned.time.value()},
                      {"speedup", unplanned.time / planned.time},
                      {"max_over_mean", planned.balance.max_over_mean},
                      {"variation", planned.balance.variation},
                      {"static_max_over_mean", unplanned.balance.max_over_mean},
                      {"static_variation", unplanned.balance.variation},
                      {"static_autocorrelation", unplanned.balance.autocorrelation},
                      {"expert_time_max_over_mean", planned.expert_time_max_over_mean()},
                      {"static_expert_time_max_over_mean", unplanned.expert_time_max_over_mean()},
                      {"moves", moves}};
}

}  // namespace orrery::search
