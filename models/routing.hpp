// SPDX-License-Identifier: Apache-2.0
// How many tokens each rank sends to each expert of a mixture-of-experts layer, step after step.
// An expert's share is proportional to exp(popularity + fluctuation): popularity is a normal value
// that drifts as an autoregressive process of the step, the same for all ranks; fluctuation is one
// of each group of ranks that sees its own data. No expert gets more than every token once (1 /
// top_k of the copies). Tokens are drawn multinomially. Seeded, the same on every platform.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"

namespace orrery::models {

struct RoutingModel {
  int experts = 8;
  int top_k = 2;
  int ranks = 8;
  int domain = 1;                       // ranks that see the same data mix
  std::int64_t tokens_per_rank = 4096;  // copies, after each token went to top_k experts
  double popularity = 0.5;              // standard deviations of the two terms
  double popularity_persistence = 1;    // correlation of one step with the next
  double fluctuation = 0.1;
  double fluctuation_persistence = 0;
};

// tokens[rank][expert]; every row sums to tokens_per_rank.
using RoutedTokens = std::vector<std::vector<std::int64_t>>;

class RoutingGenerator {
 public:
  RoutingGenerator(const RoutingModel& model, std::uint64_t seed);
  RoutedTokens next();  // O(ranks x experts)

 private:
  RoutingModel model_;
  Random random_;
  std::vector<double> popularity_;
  std::vector<std::vector<double>> fluctuation_;  // per domain
};

// Binomial and multinomial draws; exact by inversion for small means, else a rounded normal within
// [0, n].
std::int64_t draw_binomial(std::int64_t n, double probability, Random& random);
std::vector<std::int64_t> draw_multinomial(std::int64_t n, const std::vector<double>& shares,
                                           Random& random);

// Shares scaled to sum to 1 with none above `most`; what is cut off goes to the others in
// proportion.
std::vector<double> capped_shares(std::vector<double> weights, double most);

struct BalanceStatistics {
  double max_over_mean = 1;    // means over the steps
  double variation = 0;        // coefficient of variation over the ranks
  double autocorrelation = 0;  // of a rank's load with its next step's, mean over the ranks
};
// loads[step][rank].
BalanceStatistics balance_statistics(const std::vector<std::vector<double>>& loads);

}  // namespace orrery::models
