// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/fp8_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "base/random.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/kernel_errors.hpp"
#include "calibrate/fit/robust_fit.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::size_t kMinPairs = 24;
constexpr double kUsualHead = 128;

struct Pair {
  const AttentionSample* shape = nullptr;
  double seconds = 0;  // in fp8
  std::size_t fold = 0;
};

struct Law {
  double rate = 1;
  double exponent = 0;
  double at(const AttentionSample& shape) const {
    const double head = (as_double(shape.head_dim) + as_double(shape.value_head_dim)) / 2;
    return rate * std::pow(head / kUsualHead, exponent);
  }
};

std::vector<Pair> pairs_of(std::span<const Sample> samples, std::uint64_t seed) {
  std::vector<Pair> pairs;
  for (const Sample& sample : samples) {
    const auto* shape = std::get_if<AttentionSample>(&sample.shape);
    if (shape == nullptr || shape->in_16_bits_s <= 0 || shape->backward || shape->both_passes) {
      continue;
    }
    std::uint64_t hash = mix64(seed);
    for (const std::int64_t size : {shape->heads, shape->kv_heads, shape->head_dim}) {
      hash = mix64(hash ^ static_cast<std::uint64_t>(size));
    }
    pairs.push_back({shape, sample.time.median.value(), hash % kFolds});
  }
  return pairs;
}

Law fitted(const std::vector<Pair>& pairs) {
  const std::vector<double> best =
      robust_fit({{1.3, 0.5, 2}, {0.15, 1e-3, 1}}, [&](const std::vector<double>& x) {
        std::vector<double> errors;
        errors.reserve(pairs.size());
        for (const Pair& pair : pairs) {
          const double faster = pair.shape->in_16_bits_s / pair.seconds;
          errors.push_back(std::log(Law{x[0], x[1]}.at(*pair.shape) / faster));
        }
        return errors;
      });
  return {rounded(best[0], 1e4), rounded(best[1], 1e4)};
}

std::string measured_range(const std::vector<Pair>& pairs) {
  const auto range = [&](std::int64_t AttentionSample::*size) {
    const auto [least, most] = std::minmax_element(
        pairs.begin(), pairs.end(),
        [&](const Pair& a, const Pair& b) { return a.shape->*size < b.shape->*size; });
    return fmt::format("{} to {}", least->shape->*size, most->shape->*size);
  };
  return fmt::format("batch {}, heads {}, sequence {}, head size {}",
                     range(&AttentionSample::batch), range(&AttentionSample::heads),
                     range(&AttentionSample::q_len), range(&AttentionSample::head_dim));
}

}  // namespace

void fit_fp8_attention(std::span<const Sample> samples, std::uint64_t seed, KernelFit& fit) {
  const std::vector<Pair> pairs = pairs_of(samples, seed);
  if (pairs.size() < kMinPairs) {
    return;
  }
  std::vector<double> errors;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<Pair> kept = pairs;
    std::erase_if(kept, [&](const Pair& pair) { return pair.fold == fold; });
    if (kept.empty()) {
      continue;
    }
    const Law without = fitted(kept);
    for (const Pair& pair : pairs) {
      if (pair.fold == fold) {
        const double time = pair.shape->in_16_bits_s / without.at(*pair.shape);
        errors.push_back(std::abs(time / pair.seconds - 1));
        fit.left_out.push_back({std::string(kFp8AttentionClass), pair.seconds, time});
      }
    }
  }
  const Law law = fitted(pairs);
  fit.profile.attention.fp8_forward_rate = law.rate;
  fit.profile.attention.fp8_head_dim_exponent = law.exponent;
  auto& rows = fit.profile.kernels.accuracy;
  std::erase_if(rows, [](const auto& row) { return row.kernel == kFp8AttentionClass; });
  rows.push_back({.kernel = std::string(kFp8AttentionClass),
                  .points = static_cast<int>(errors.size()),
                  .median = errors.empty() ? 0 : rounded_quantile(errors, 0.5),
                  .p90 = errors.empty() ? 0 : rounded_quantile(errors, 0.9),
                  .measured = measured_range(pairs)});
  fit.sections.insert("attention");
}

}  // namespace orrery::calibrate
