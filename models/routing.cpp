// SPDX-License-Identifier: Apache-2.0
#include "models/routing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/math.hpp"

namespace orrery::models {

namespace {

constexpr double kSmallVariance = 50;  // below it a binomial is drawn by inversion

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void advance(std::vector<double>& state, double persistence, Random& random) {
  const double fresh = std::sqrt(std::max(0.0, 1 - persistence * persistence));
  for (double& value : state) {
    value = persistence * value + fresh * random.normal();
  }
}

// No expert gets a token twice: copies beyond one of each go to the experts with most of the
// others.
void level(std::int64_t most, std::vector<std::int64_t>& counts) {
  std::int64_t over = 0;
  for (std::int64_t& count : counts) {
    over += std::max<std::int64_t>(0, count - most);
    count = std::min(count, most);
  }
  while (over > 0) {
    std::int64_t* next = nullptr;
    for (std::int64_t& count : counts) {
      next = count < most && (next == nullptr || count > *next) ? &count : next;
    }
    const std::int64_t more = std::min(over, most - *next);
    *next += more;
    over -= more;
  }
}

// Of a rank's load from step to step; 0 where it is constant.
double autocorrelation_of(const std::vector<std::vector<double>>& loads, std::size_t rank) {
  // Counted from the first step, a constant load is exactly 0: rounding leaves nothing to
  // correlate.
  std::vector<double> changes;
  for (const std::vector<double>& step : loads) {
    changes.push_back(step[rank] - loads.front()[rank]);
  }
  const double mean = sum_of(changes) / static_cast<double>(changes.size());
  double own = 0;
  double next = 0;
  for (std::size_t step = 0; step < changes.size(); ++step) {
    const double here = changes[step] - mean;
    own += here * here;
    next += step + 1 < changes.size() ? here * (changes[step + 1] - mean) : 0.0;
  }
  return own > 0 ? next / own : 0.0;
}

}  // namespace

RoutingGenerator::RoutingGenerator(const RoutingModel& model, std::uint64_t seed)
    : model_(model), random_(seed) {
  if (model.experts < 1 || model.top_k < 1 || model.top_k > model.experts || model.ranks < 1 ||
      model.domain < 1) {
    bad_input("routing", "experts, ranks and domain must be at least 1 and top_k at most experts");
  }
  const auto experts = static_cast<std::size_t>(model.experts);
  popularity_.resize(experts);
  fluctuation_.assign(static_cast<std::size_t>((model.ranks + model.domain - 1) / model.domain),
                      std::vector<double>(experts));
  advance(popularity_, 0, random_);
  for (std::vector<double>& domain : fluctuation_) {
    advance(domain, 0, random_);
  }
}

RoutedTokens RoutingGenerator::next() {
  RoutedTokens tokens;
  std::vector<std::vector<double>> shares;
  for (const std::vector<double>& domain : fluctuation_) {
    std::vector<double> weights(popularity_.size());
    for (std::size_t expert = 0; expert < weights.size(); ++expert) {
      weights[expert] =
          std::exp(model_.popularity * popularity_[expert] + model_.fluctuation * domain[expert]);
    }
    shares.push_back(capped_shares(std::move(weights), 1.0 / model_.top_k));
  }
  for (int rank = 0; rank < model_.ranks; ++rank) {
    const auto domain = static_cast<std::size_t>(rank / model_.domain);
    tokens.push_back(draw_multinomial(model_.tokens_per_rank, shares[domain], random_));
    level(ceil_div(model_.tokens_per_rank, model_.top_k), tokens.back());
  }
  advance(popularity_, model_.popularity_persistence, random_);
  for (std::vector<double>& domain : fluctuation_) {
    advance(domain, model_.fluctuation_persistence, random_);
  }
  return tokens;
}

std::int64_t draw_binomial(std::int64_t n, double probability, Random& random) {
  const double p = std::clamp(probability, 0.0, 1.0);
  if (p > 0.5) {
    return n - draw_binomial(n, 1 - p, random);
  }
  const double count = static_cast<double>(n);
  if (count * p * (1 - p) > kSmallVariance) {
    const double value = count * p + std::sqrt(count * p * (1 - p)) * random.normal();
    return std::clamp<std::int64_t>(std::llround(value), 0, n);
  }
  // Inversion: walks up the distribution; the mean is small.
  double left = random.uniform();
  double mass = std::exp(count * std::log1p(-p));
  std::int64_t successes = 0;
  while (left > mass && successes < n) {
    left -= mass;
    ++successes;
    mass *= static_cast<double>(n - successes + 1) / static_cast<double>(successes) * p / (1 - p);
  }
  return successes;
}

std::vector<std::int64_t> draw_multinomial(std::int64_t n, const std::vector<double>& shares,
                                           Random& random) {
  std::vector<std::int64_t> counts;
  double rest = sum_of(shares);
  for (std::size_t slot = 0; slot < shares.size(); ++slot) {
    const bool last = slot + 1 == shares.size();
    const double probability = rest > 0 ? shares[slot] / rest : 0.0;
    const std::int64_t count = last ? n : draw_binomial(n, probability, random);
    counts.push_back(count);
    n -= count;
    rest -= shares[slot];
  }
  return counts;
}

std::vector<double> capped_shares(std::vector<double> weights, double most) {
  const double total = sum_of(weights);
  for (double& weight : weights) {
    weight /= total;
  }
  // Each round fixes at least one share at the cap.
  std::vector<bool> capped(weights.size(), false);
  for (std::size_t round = 0; round < weights.size(); ++round) {
    double fixed = 0;
    double open = 0;
    bool changed = false;
    for (std::size_t slot = 0; slot < weights.size(); ++slot) {
      if (!capped[slot] && weights[slot] > most) {
        capped[slot] = true;
        weights[slot] = most;
        changed = true;
      }
      (capped[slot] ? fixed : open) += weights[slot];
    }
    if (!changed || open <= 0) {
      break;
    }
    for (std::size_t slot = 0; slot < weights.size(); ++slot) {
      weights[slot] *= capped[slot] ? 1.0 : (1 - fixed) / open;
    }
  }
  return weights;
}

BalanceStatistics balance_statistics(const std::vector<std::vector<double>>& loads) {
  BalanceStatistics statistics;
  if (loads.empty() || loads.front().empty()) {
    return statistics;
  }
  const auto steps = static_cast<double>(loads.size());
  const auto ranks = static_cast<double>(loads.front().size());
  statistics.max_over_mean = 0;
  for (const std::vector<double>& step : loads) {
    const double mean = sum_of(step) / ranks;
    double squares = 0;
    for (const double load : step) {
      squares += (load - mean) * (load - mean);
    }
    statistics.max_over_mean += *std::max_element(step.begin(), step.end()) / mean;
    statistics.variation += std::sqrt(squares / ranks) / mean;
  }
  statistics.max_over_mean /= steps;
  statistics.variation /= steps;
  for (std::size_t rank = 0; rank < loads.front().size(); ++rank) {
    statistics.autocorrelation += autocorrelation_of(loads, rank);
  }
  statistics.autocorrelation /= ranks;
  return statistics;
}

}  // namespace orrery::models
