// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

namespace {

struct Quantile {
  double share = 0;
  double length = 1;
};

std::vector<Quantile> read_quantiles(const JsonReader& list) {
  std::vector<Quantile> quantiles;
  for (const JsonReader& entry : list.array(256)) {
    const std::vector<JsonReader> pair = entry.array(2);
    if (pair.size() != 2) {
      entry.fail("expected [share, length]");
    }
    quantiles.push_back({pair[0].number(0, 1), pair[1].number(1, 1e9)});
    if (quantiles.size() > 1 &&
        (quantiles.back().share <= quantiles[quantiles.size() - 2].share ||
         quantiles.back().length < quantiles[quantiles.size() - 2].length)) {
      entry.fail("shares must rise, lengths must not fall");
    }
  }
  if (quantiles.size() < 2 || quantiles.front().share != 0 || quantiles.back().share != 1) {
    list.fail("expected quantiles from share 0 to share 1");
  }
  return quantiles;
}

// Straight lines between the logarithms of the lengths: long tails stay long.
double length_at(const std::vector<Quantile>& quantiles, double share) {
  const auto after = std::find_if(quantiles.begin() + 1, quantiles.end() - 1,
                                  [share](const Quantile& q) { return q.share >= share; });
  const Quantile& low = *(after - 1);
  const Quantile& high = *after;
  const double part = (share - low.share) / (high.share - low.share);
  return std::floor(std::exp(std::log(low.length) + part * std::log(high.length / low.length)));
}

double share_up_to(const std::vector<Quantile>& quantiles, double longest) {
  double low = 0;
  double high = 1;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (length_at(quantiles, middle) <= longest ? low : high) = middle;
  }
  return high;
}

}  // namespace

Json lengths_run(const JsonReader&, ObjectReader& run) {
  const std::vector<Quantile> quantiles = read_quantiles(run.required("quantiles"));
  std::vector<Quantile> targets;
  if (const auto list = run.optional("target_quantiles")) {
    targets = read_quantiles(*list);
  }
  const std::int64_t count = run.required("count").integer(1, 100'000);
  const double longest = run.number_or("longest", quantiles.back().length, quantiles.front().length,
                                       quantiles.back().length);
  const double share = share_up_to(quantiles, longest);  // longer ones are left out of the data
  Random random(static_cast<std::uint64_t>(run.integer_or("seed", 1, 0, 1LL << 40)));
  run.finish();
  Json lengths = Json::array();
  Json pairs = Json::array();
  double sum = 0;
  double target_sum = 0;
  double most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double drawn = length_at(quantiles, random.uniform() * share);
    const double length = std::clamp(drawn, 1.0, longest);
    lengths.push(length);
    Json pair = Json::array();
    pair.push(length);
    if (!targets.empty()) {
      const double target = std::max(1.0, length_at(targets, random.uniform()));
      pair.push(target);
      target_sum += target;
    }
    pairs.push(std::move(pair));
    sum += length;
    most = std::max(most, length);
  }
  return Json::Object{{"lengths", std::move(lengths)},
                      {"pairs", std::move(pairs)},
                      {"sum", sum},
                      {"target_sum", target_sum},
                      {"longest", most}};
}

}  // namespace orrery::studies
