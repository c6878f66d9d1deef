// SPDX-License-Identifier: Apache-2.0
// Planners of sequences and samples, against brute force on tiny random problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

// Sum and longest of the slices of a micro-batch.
using Slices = std::pair<double, double>;

// Those of every slicing that no other beats in both.
std::vector<Slices> all_slicings(int quanta, const std::function<double(int, int)>& time) {
  std::vector<Slices> all;
  all_cuts(quanta, quanta, [&](const std::vector<int>& ends) {
    Slices slices{0, 0};
    int context = 0;
    for (const int end : ends) {
      const double t = time(end - context, context);
      slices = {slices.first + t, std::max(slices.second, t)};
      context = end;
    }
    all.push_back(slices);
  });
  std::sort(all.begin(), all.end());
  std::vector<Slices> kept;
  for (const Slices& slices : all) {
    if (kept.empty() || slices.second < kept.back().second) {
      kept.push_back(slices);
    }
  }
  return kept;
}

TEST(PlannerProperty, TeraPipeEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int quanta = evenly(1, 11);
    const int stages = evenly(1, 17);
    const int batch = evenly(1, 4);
    const int most = evenly(1, batch + 1);
    const int floor = evenly(0, 60);
    const int base = evenly(0, 50);
    const int token = evenly(1, 10);
    const int context = evenly(0, 5);
    const int pair = evenly(0, 5);
    const int layers = evenly(1, 4);
    const int send = evenly(0, 20);
    const int send_token = evenly(0, 4);
    const int update = evenly(0, 40);
    const int gap = evenly(0, 30);
    const auto answer_within = [&](int skipped) {
      return solve(
          "terapipe",
          fmt::format(R"({{"schema": "orrery-problem", "version": 1, "stages": {}, "sequence": {},
                          "quantum": 1, "batch": {}, "max_micro_batch": {}, "floor": "{} us",
                          "base": "{} us", "per_token": "{} us", "per_context": "{} us",
                          "per_pair": "{} us", "layers": {}, "send": "{} us",
                          "send_per_token": "{} us", "update": "{} us", "gap": "{} us"}})",
                      stages, quanta, batch, most, floor, base, token, context, pair, layers, send,
                      send_token, update, skipped));
    };
    const Json answer = answer_within(0);
    std::vector<std::vector<Slices>> of_size(1);
    for (int b = 1; b <= most; ++b) {
      of_size.push_back(all_slicings(quanta, [&](int l, int ctx) {
        double pairs = 0;  // the mean of a token's own place and the one before it
        for (int i = 0; i < l; ++i) {
          pairs += ctx + i + 0.5;
        }
        const double layer =
            std::max<double>(floor, base + b * (token * l + context * ctx + pair * pairs));
        return layers * layer + 2 * (send + b * send_token * l);
      }));
    }
    // Micro-batches of every size, each with slices of its own.
    double best = kNever;
    const std::function<void(int, int, Slices)> choose = [&](int left, int size, Slices so_far) {
      if (left == 0) {
        best = std::min(best, so_far.first + (stages - 1) * so_far.second + layers * update);
      }
      for (int b = std::min(size, left); b >= 1; --b) {
        for (const auto& [total, longest] : of_size[static_cast<std::size_t>(b)]) {
          choose(left - b, b, {so_far.first + total, std::max(so_far.second, longest)});
        }
      }
    };
    choose(batch, most, {0, 0});
    RC_ASSERT(std::abs(number(answer, "time_s") * 1e6 - best) < 1e-9 * best);
    // Longest slices within a gap of each other count as one: the answer is at most that much of
    // every stage but one longer, and never longer than without slices.
    const Json coarse = answer_within(gap);
    const double time = number(coarse, "time_s") * 1e6;
    RC_ASSERT(time >= best * (1 - 1e-9));
    RC_ASSERT(time <= (best + (stages - 1) * gap) * (1 + 1e-9));
    RC_ASSERT(time <= number(coarse, "time_without_slices_s") * 1e6 * (1 + 1e-9));
  }));
}

TEST(PlannerProperty, DynaPipeEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int count = evenly(1, 13);
    std::vector<int> lengths;
    std::string text;
    for (int i = 0; i < count; ++i) {
      lengths.push_back(evenly(1, 100));
      text += fmt::format("{}[{}]", i == 0 ? "" : ",", lengths.back());
    }
    std::sort(lengths.begin(), lengths.end());
    const int stages = evenly(1, 9);
    const int base = evenly(1, 50);
    const Json answer = solve(
        "dynapipe",
        fmt::format(R"({{"schema": "orrery-problem", "version": 1, "samples": [{}], "stages": {},
                        "per_micro_batch": "{} us", "per_token": "1 us",
                        "per_token_squared": "0.01 us", "activations_per_token": "1 B",
                        "memory": "1 GB"}})",
                    text, stages, base));
    double best = kNever;
    all_cuts(count, count, [&](const std::vector<int>& ends) {
      double total = 0;
      double longest = 0;
      int first = 0;
      for (const int end : ends) {
        const double length = lengths[static_cast<std::size_t>(end - 1)];
        const double t = base + (end - first) * (length + 0.01 * length * length);
        total += t;
        longest = std::max(longest, t);
        first = end;
      }
      best = std::min(best, total + (stages - 1) * longest);
    });
    RC_ASSERT(std::abs(number(answer, "score_s") * 1e6 - best) < 1e-9 * best);
  }));
}

// Eight GPUs or fewer, with all-to-alls that get slower between "nodes" of four.
struct TinyGroups {
  int gpus = 1;
  double capacity = kNever;                                                  // tokens of a GPU
  int constant = 0;                                                          // us of a group
  static constexpr std::array<double, 4> kBandwidth = {0, 0.1, 0.05, 0.01};  // MB/us

  static double of(double length, int d) {
    const double degree = 1 << d;
    const double exchange = d == 0 ? 0 : length / degree / kBandwidth[static_cast<std::size_t>(d)];
    return (0.1 * length * length + length) / degree + exchange;
  }

  std::string problem(const std::vector<double>& lengths, int most_micro_batches) const {
    std::string text;
    for (const double length : lengths) {
      text += fmt::format("{}{}", text.empty() ? "" : ",", length);
    }
    return fmt::format(
        R"({{"schema": "orrery-problem", "version": 1, "gpus": {}, "sequences": [{}],
             "tokens_per_gpu": {}, "per_token": "1 us", "per_token_squared": "0.1 us",
             "per_micro_batch": "{} us", "all_to_all_per_token": "1 MB", "max_micro_batches": {},
             "all_to_all_bandwidth": ["100 GB/s", "50 GB/s", "10 GB/s"]}})",
        gpus, text, capacity, constant, most_micro_batches);
  }

  // Least time of one micro-batch in us: every set of degrees that uses all GPUs, every assignment
  // of sequences to groups.
  double best(const std::vector<double>& lengths) const {
    double best = kNever;
    std::vector<int> degrees;
    const std::function<void(int, int)> sets = [&](int left, int largest) {
      for (int d = largest; d >= 0 && left > 0; --d) {
        if ((1 << d) <= left) {
          degrees.push_back(d);
          sets(left - (1 << d), d);
          degrees.pop_back();
        }
      }
      best = left == 0 ? std::min(best, best_of(degrees, lengths, best)) : best;
    };
    sets(gpus, 3);
    return best;
  }

 private:
  double best_of(const std::vector<int>& degrees, const std::vector<double>& lengths,
                 double best) const {
    std::vector<double> load(degrees.size(), 0.0);
    std::vector<double> tokens(degrees.size(), 0.0);
    const std::function<void(std::size_t)> assign = [&](std::size_t i) {
      const double slowest = *std::max_element(load.begin(), load.end());
      if (i == lengths.size() || slowest >= best) {
        best = std::min(best, slowest);
        return;
      }
      for (std::size_t g = 0; g < degrees.size(); ++g) {
        const bool like_before =
            g > 0 && degrees[g] == degrees[g - 1] && tokens[g] == 0 && tokens[g - 1] == 0;
        if (like_before || tokens[g] + lengths[i] > capacity * (1 << degrees[g])) {
          continue;
        }
        const double before = load[g];
        load[g] += of(lengths[i], degrees[g]) + (tokens[g] == 0 ? constant : 0);
        tokens[g] += lengths[i];
        assign(i + 1);
        load[g] = before;
        tokens[g] -= lengths[i];
      }
    };
    assign(0);
    return best;
  }
};

std::vector<double> random_lengths() {
  std::vector<double> lengths(static_cast<std::size_t>(evenly(1, 9)));
  for (double& length : lengths) {
    length = evenly(1, 40);
  }
  return lengths;
}

std::vector<double> lengths_of(const Json& micro_batch) {
  std::vector<double> lengths;
  for (const Json& group : micro_batch.find("groups")->as_array()) {
    for (const Json& length : group.find("sequences")->as_array()) {
      lengths.push_back(length.as_number());
    }
  }
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

TEST(PlannerProperty, FlexSpEqualsBruteForceForOneMicroBatch) {
  EXPECT_TRUE(rc::check([] {
    std::vector<double> lengths = random_lengths();
    const TinyGroups tiny{evenly(1, 9), static_cast<double>(evenly(10, 80)), evenly(0, 30)};
    const Json answer = solve("flexsp", tiny.problem(lengths, 1));
    const double best = tiny.best(lengths);
    if (best == kNever) {
      RC_ASSERT(answer.find("feasible") != nullptr);
      return;
    }
    RC_ASSERT(answer.find("proven")->as_bool());
    RC_ASSERT(std::abs(number(answer, "time_s") * 1e6 - best) < 1e-9 * best);
    std::sort(lengths.begin(), lengths.end());
    RC_ASSERT(lengths_of(answer.find("micro_batches")->as_array().front()) == lengths);
  }));
}

// Neighbours by length with the least maximum of tokens for their number, each micro-batch on its
// best groups, and never slower than all in one.
TEST(PlannerProperty, FlexSpBalancesMicroBatches) {
  EXPECT_TRUE(rc::check([] {
    std::vector<double> lengths = random_lengths();
    std::sort(lengths.begin(), lengths.end());
    const TinyGroups tiny{evenly(1, 9), static_cast<double>(evenly(10, 80)), evenly(0, 30)};
    const Json answer = solve("flexsp", tiny.problem(lengths, 4));
    const double alone = tiny.best(lengths);
    if (answer.find("feasible") != nullptr) {
      RC_ASSERT(alone == kNever);
      return;
    }
    RC_ASSERT(number(answer, "time_s") * 1e6 < alone * (1 + 1e-9));
    const Json::Array& parts = answer.find("micro_batches")->as_array();
    std::vector<double> all;
    double time = 0;
    double most = 0;
    for (const Json& part : parts) {
      const std::vector<double> of = lengths_of(part);
      all.insert(all.end(), of.begin(), of.end());
      time += tiny.best(of);
      most = std::max(most, std::accumulate(of.begin(), of.end(), 0.0));
    }
    RC_ASSERT(all == lengths);
    RC_ASSERT(std::abs(number(answer, "time_s") * 1e6 - time) < 1e-9 * time);
    double least = kNever;
    all_cuts(static_cast<int>(lengths.size()), static_cast<int>(parts.size()),
             [&](const std::vector<int>& ends) {
               double fullest = 0;
               int first = 0;
               for (const int end : ends) {
                 fullest = std::max(
                     fullest, std::accumulate(lengths.begin() + first, lengths.begin() + end, 0.0));
                 first = end;
               }
               least = std::min(least, fullest);
             });
    RC_ASSERT(most == least);
  }));
}

// What is left out of the search never makes it faster: greedy alone, groups of one degree in each
// micro-batch, of one degree in all.
TEST(PlannerProperty, FlexSpIsNoSlowerThanItsRestrictions) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<double> lengths = random_lengths();
    const TinyGroups tiny{evenly(1, 9), static_cast<double>(evenly(10, 80)), evenly(0, 30)};
    const auto time = [&](const std::string& members) {
      std::string problem = tiny.problem(lengths, 4);
      problem.insert(problem.rfind('}'), members);
      const Json answer = solve("flexsp", problem);
      return answer.find("feasible") != nullptr ? kNever : number(answer, "time_s");
    };
    const double best = time("");
    const double homogeneous = time(R"(, "homogeneous": true)");
    RC_ASSERT(best <= time(R"(, "greedy": true)") * (1 + 1e-12));
    RC_ASSERT(best <= homogeneous * (1 + 1e-12));
    for (int degree = 1; tiny.gpus % degree == 0; degree *= 2) {
      RC_ASSERT(homogeneous <= time(fmt::format(R"(, "degree": {})", degree)) * (1 + 1e-12));
    }
  }));
}

}  // namespace
}  // namespace orrery::search
