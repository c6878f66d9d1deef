// SPDX-License-Identifier: Apache-2.0
#include "search/problems/memory_variants.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "search/problems/milp.hpp"

namespace orrery::search {

namespace {

// Of larger programs (variables x rows) a single node may take many seconds.
constexpr std::size_t kMostProgram = 400'000;

// Memory only grows where a pair starts: those instants are all that can be peaks. Indices of the
// pairs that are alive at each; equal ones and those within another count once.
std::vector<std::vector<std::size_t>> peaks_of(const std::vector<VariantPair>& pairs) {
  std::vector<std::vector<std::size_t>> peaks;
  for (const VariantPair& peak : pairs) {
    peaks.emplace_back();
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i].start <= peak.start && peak.start <= pairs[i].end) {
        peaks.back().push_back(i);
      }
    }
  }
  std::sort(peaks.begin(), peaks.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::vector<std::vector<std::size_t>> kept;
  for (std::vector<std::size_t>& peak : peaks) {
    const bool within = std::any_of(kept.begin(), kept.end(), [&peak](const auto& other) {
      return std::includes(other.begin(), other.end(), peak.begin(), peak.end());
    });
    if (!within) {
      kept.push_back(std::move(peak));
    }
  }
  return kept;
}

// Chooses while it fits everywhere.
class Greedy {
 public:
  Greedy(const std::vector<VariantPair>& pairs, const std::vector<std::vector<std::size_t>>& peaks,
         double memory)
      : pairs_(pairs), chosen_(pairs.size(), 0), peaks_of_(pairs.size()) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      chosen_[i] = smallest(pairs[i]);
    }
    for (const std::vector<std::size_t>& peak : peaks) {
      left_.push_back(memory);
      for (const std::size_t i : peak) {
        left_.back() -= variant(i, chosen_[i]).bytes;
        peaks_of_[i].push_back(left_.size() - 1);
      }
    }
    // A sum of decimals may miss the memory that it fills by rounding.
    fits_ = std::all_of(left_.begin(), left_.end(),
                        [memory](double left) { return left >= -kRounding * memory; });
  }

  bool fits() const { return fits_; }

  std::vector<int> run() {
    for (Step step = best_step(); step.worth > 0; step = best_step()) {
      const double more = more_bytes(step.pair, step.to);
      chosen_[step.pair] = step.to;
      for (const std::size_t peak : peaks_of_[step.pair]) {
        left_[peak] -= more;
      }
    }
    return chosen_;
  }

 private:
  static constexpr double kRounding = 1e-12;
  struct Step {
    std::size_t pair = 0;
    int to = 0;
    double worth = 0;  // seconds saved for the share of what is left that it takes
  };

  static int smallest(const VariantPair& pair) {
    const auto least = std::min_element(
        pair.variants.begin(), pair.variants.end(), [](const auto& a, const auto& b) {
          return std::pair(a.bytes, a.seconds) < std::pair(b.bytes, b.seconds);
        });
    return static_cast<int>(least - pair.variants.begin());
  }
  const MemoryVariant& variant(std::size_t pair, int at) const {
    return pairs_[pair].variants[static_cast<std::size_t>(at)];
  }
  double more_bytes(std::size_t pair, int to) const {
    return variant(pair, to).bytes - variant(pair, chosen_[pair]).bytes;
  }

  // A peak counts by the share of what it has left; one of no size costs nothing.
  Step best_step() const {
    Step best;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      double least = std::numeric_limits<double>::infinity();
      double price = 0;
      for (const std::size_t peak : peaks_of_[i]) {
        least = std::min(least, left_[peak]);
        price += 1 / std::max(left_[peak], 1.0);
      }
      for (std::size_t v = 0; v < pairs_[i].variants.size(); ++v) {
        const int to = static_cast<int>(v);
        const double saved = variant(i, chosen_[i]).seconds - variant(i, to).seconds;
        const double more = more_bytes(i, to);
        if (saved > 0 && more <= least) {
          const double worth = saved / std::max(more * price, 1e-30);
          best = worth > best.worth ? Step{i, to, worth} : best;
        }
      }
    }
    return best;
  }

  const std::vector<VariantPair>& pairs_;
  std::vector<int> chosen_;
  std::vector<std::vector<std::size_t>> peaks_of_;  // by pair
  std::vector<double> left_;                        // bytes, by peak
  bool fits_ = false;
};

bool all_fastest(const std::vector<VariantPair>& pairs, const std::vector<int>& chosen) {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const double seconds = pairs[i].variants[static_cast<std::size_t>(chosen[i])].seconds;
    if (std::any_of(pairs[i].variants.begin(), pairs[i].variants.end(),
                    [seconds](const MemoryVariant& other) { return other.seconds < seconds; })) {
      return false;
    }
  }
  return true;
}

double seconds_of(const std::vector<VariantPair>& pairs, const std::vector<int>& chosen) {
  double seconds = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    seconds += pairs[i].variants[static_cast<std::size_t>(chosen[i])].seconds;
  }
  return seconds;
}

// None where the limit came before a choice.
std::optional<VariantChoice> solve(const std::vector<VariantPair>& pairs,
                                   const std::vector<std::vector<std::size_t>>& peaks,
                                   double memory) {
  Milp milp;
  std::vector<std::vector<int>> variables;
  for (const VariantPair& pair : pairs) {
    std::vector<std::pair<int, double>> one;
    variables.emplace_back();
    for (const MemoryVariant& variant : pair.variants) {
      variables.back().push_back(milp.add_variable(0, 1, variant.seconds, true));
      one.emplace_back(variables.back().back(), 1.0);
    }
    milp.add_row(std::move(one), 1, 1);
  }
  for (const std::vector<std::size_t>& peak : peaks) {
    std::vector<std::pair<int, double>> held;
    for (const std::size_t i : peak) {
      for (std::size_t v = 0; v < variables[i].size(); ++v) {
        held.emplace_back(variables[i][v], pairs[i].variants[v].bytes / memory);
      }
    }
    milp.add_row(std::move(held), -Milp::kInfinity, 1);
  }
  const auto answer = milp.solve();
  if (!answer || answer->values.empty()) {
    return std::nullopt;
  }
  VariantChoice choice{{}, 0, answer->proven};
  for (const std::vector<int>& of_pair : variables) {
    const auto one = std::find_if(of_pair.begin(), of_pair.end(), [&answer](int variable) {
      return answer->values[static_cast<std::size_t>(variable)] > 0.5;
    });
    choice.chosen.push_back(static_cast<int>(one - of_pair.begin()));
  }
  choice.seconds = seconds_of(pairs, choice.chosen);
  return choice;
}

}  // namespace

std::optional<VariantChoice> choose_variants(const std::vector<VariantPair>& pairs, double memory) {
  const std::vector<std::vector<std::size_t>> peaks = peaks_of(pairs);
  Greedy greedy(pairs, peaks, memory);
  if (!greedy.fits()) {
    return std::nullopt;
  }
  VariantChoice choice{greedy.run(), 0, false};
  choice.seconds = seconds_of(pairs, choice.chosen);
  choice.proven = all_fastest(pairs, choice.chosen);
  std::size_t variables = 0;
  for (const VariantPair& pair : pairs) {
    variables += pair.variants.size();
  }
  if (!choice.proven && variables * (pairs.size() + peaks.size()) <= kMostProgram) {
    auto solved = solve(pairs, peaks, memory);
    if (solved && (solved->proven || solved->seconds < choice.seconds)) {
      return solved;
    }
  }
  return choice;
}

}  // namespace orrery::search
