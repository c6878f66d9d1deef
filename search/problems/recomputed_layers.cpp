// SPDX-License-Identifier: Apache-2.0
#include "search/problems/recomputed_layers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "search/problems/milp.hpp"

namespace orrery::search {
namespace {

// Of a program that is solved: two sequences of 1,024 slices, which have more, took over a minute.
constexpr std::size_t kMostTerms = 250'000;

// Chunks that are kept at once, and how much of the memory recomputing has to save among them.
struct Need {
  std::vector<int> chunks;
  double saved = 0;
};

double saved_by_layer(const RecomputedChunks& chunks, int chunk) {
  return chunks.tokens[static_cast<std::size_t>(chunk)] *
         (chunks.bytes_per_token - chunks.kept_per_token) / chunks.memory;
}

// Sets within the one before them ask for nothing new.
std::vector<Need> needs_of(const RecomputedChunks& chunks, const LiveChunks& live, int stage) {
  std::vector<Need> needs;
  int begun = 0;
  for (int k = 0; k < live.size(); ++k) {
    const LiveChunks::Set set = live.before_backward(stage, k);
    if (set.begun == begun) {
      continue;
    }
    begun = set.begun;
    Need need;
    for (int chunk = set.first; chunk < set.begun; ++chunk) {
      if (set.holds(chunk)) {
        need.saved +=
            chunks.tokens[static_cast<std::size_t>(chunk)] * chunks.bytes_per_token * chunks.layers;
        need.chunks.push_back(chunk);
      }
    }
    if (need.saved > chunks.memory) {
      need.saved = need.saved / chunks.memory - 1;
      needs.push_back(std::move(need));
    }
  }
  return needs;
}

Milp program_of(const RecomputedChunks& chunks, const std::vector<Need>& needs, bool whole) {
  Milp milp;
  for (const double time : chunks.times) {
    milp.add_variable(0, chunks.layers, time, whole);
  }
  for (const Need& need : needs) {
    std::vector<std::pair<int, double>> saved;
    for (const int chunk : need.chunks) {
      saved.emplace_back(chunk, saved_by_layer(chunks, chunk));
    }
    milp.add_row(std::move(saved), need.saved, Milp::kInfinity);
  }
  return milp;
}

double time_of(const RecomputedChunks& chunks, const std::vector<int>& layers) {
  return std::inner_product(layers.begin(), layers.end(), chunks.times.begin(), 0.0);
}

// All layers, of which every chunk then gives up as many as all its sets can do without: those with
// the longest time for what they save first.
std::vector<int> fewer_and_fewer(const RecomputedChunks& chunks, const std::vector<Need>& needs) {
  std::vector<double> spare;  // by set: saved and not needed
  std::vector<std::vector<std::size_t>> sets(chunks.tokens.size());
  for (std::size_t n = 0; n < needs.size(); ++n) {
    spare.push_back(-needs[n].saved);
    for (const int chunk : needs[n].chunks) {
      spare.back() += saved_by_layer(chunks, chunk) * chunks.layers;
      sets[static_cast<std::size_t>(chunk)].push_back(n);
    }
  }
  std::vector<int> order(chunks.tokens.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rate = [&](int chunk) {
    const auto at = static_cast<std::size_t>(chunk);
    return chunks.times[at] / std::max(chunks.tokens[at], 1e-300);
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rate(a) > rate(b); });
  std::vector<int> layers(chunks.tokens.size(), chunks.layers);
  for (const int chunk : order) {
    const auto at = static_cast<std::size_t>(chunk);
    const double each = saved_by_layer(chunks, chunk);
    double fewer = chunks.layers;
    for (const std::size_t n : sets[at]) {
      fewer = each > 0 ? std::min(fewer, std::floor(spare[n] / each + 1e-9)) : fewer;
    }
    const int given_up = static_cast<int>(std::max(0.0, fewer));
    layers[at] -= given_up;
    for (const std::size_t n : sets[at]) {
      spare[n] -= given_up * each;
    }
  }
  return layers;
}

// Rows ask for recomputation alone, so that parts of layers rounded up are an answer, too.
std::optional<std::vector<int>> rounded_parts(const RecomputedChunks& chunks,
                                              const std::vector<Need>& needs) {
  const auto parts = program_of(chunks, needs, false).solve();
  if (!parts || parts->values.empty()) {
    return std::nullopt;
  }
  std::vector<int> layers;
  for (const double part : parts->values) {
    layers.push_back(std::min(chunks.layers, static_cast<int>(std::ceil(part - 1e-9))));
  }
  return layers;
}

}  // namespace

// The better of what the search for whole layers found and the rounded parts, where it ended early.
// All layers where the solver has none.
RecomputedLayers recompute_layers(const RecomputedChunks& chunks, const LiveChunks& live, int stage,
                                  double share) {
  const std::vector<Need> needs = needs_of(chunks, live, stage);
  const std::size_t terms =
      std::accumulate(needs.begin(), needs.end(), std::size_t{0},
                      [](std::size_t sum, const Need& need) { return sum + need.chunks.size(); });
  if (terms > kMostTerms) {
    return {fewer_and_fewer(chunks, needs), false};
  }
  const auto answer = program_of(chunks, needs, true).solve(share);
  RecomputedLayers result{std::vector<int>(chunks.tokens.size(), chunks.layers), false};
  if (!answer) {
    return result;
  }
  result.proven = answer->proven;
  if (!answer->values.empty() || answer->proven) {
    result.layers.assign(answer->values.begin(), answer->values.end());
  }
  if (!answer->proven) {
    const auto rounded = rounded_parts(chunks, needs);
    if (rounded &&
        (answer->values.empty() || time_of(chunks, *rounded) < time_of(chunks, result.layers))) {
      result.layers = *rounded;
    }
  }
  return result;
}

}  // namespace orrery::search
