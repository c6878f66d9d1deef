// SPDX-License-Identifier: Apache-2.0
// Planners of sequences and samples, against brute force on tiny random problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

TEST(PlannerProperty, TeraPipeEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int quanta = *rc::gen::inRange(1, 9);
    const int stages = *rc::gen::inRange(1, 9);
    const int batch = *rc::gen::inRange(1, 3);
    const int base = *rc::gen::inRange(0, 50);
    const int token = *rc::gen::inRange(1, 10);
    const int pair = *rc::gen::inRange(0, 5);
    const Json answer = solve(
        "terapipe",
        fmt::format(R"({{"schema": "orrery-problem", "version": 1, "stages": {}, "sequence": {},
                        "quantum": 1, "batch": {}, "max_micro_batch": 1, "base": "{} us",
                        "per_token": "{} us", "per_pair": "{} us", "gap": "0 s"}})",
                    stages, quanta, batch, base, token, pair));
    double best = kNever;
    all_cuts(quanta, quanta, [&](const std::vector<int>& ends) {
      double total = 0;
      double longest = 0;
      int context = 0;
      for (const int end : ends) {
        const double length = end - context;
        const double t = base + token * length + pair * length * context;
        total += t;
        longest = std::max(longest, t);
        context = end;
      }
      best = std::min(best, batch * total + (stages - 1) * longest);
    });
    // With more than one sequence their slicings may differ, which can only be better.
    const double found = number(answer, "time_s") * 1e6;
    RC_ASSERT(found < best * (1 + 1e-9));
    RC_ASSERT(batch > 1 || found > best * (1 - 1e-9));
  }));
}

TEST(PlannerProperty, DynaPipeEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const int count = *rc::gen::inRange(1, 9);
    std::vector<int> lengths;
    std::string text;
    for (int i = 0; i < count; ++i) {
      lengths.push_back(*rc::gen::inRange(1, 100));
      text += fmt::format("{}[{}]", i == 0 ? "" : ",", lengths.back());
    }
    std::sort(lengths.begin(), lengths.end());
    const int stages = *rc::gen::inRange(1, 9);
    const int base = *rc::gen::inRange(1, 50);
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

TEST(PlannerProperty, FlexSpEqualsBruteForceForOneMicroBatch) {
  EXPECT_TRUE(rc::check([] {
    const int count = *rc::gen::inRange(1, 6);
    std::vector<double> lengths;
    std::string text;
    for (int i = 0; i < count; ++i) {
      lengths.push_back(*rc::gen::inRange(1, 40));
      text += fmt::format("{}{}", i == 0 ? "" : ",", lengths.back());
    }
    const int gpus = *rc::gen::inRange(1, 5);
    const double capacity = *rc::gen::inRange(10, 80);
    const Json answer = solve(
        "flexsp",
        fmt::format(R"({{"schema": "orrery-problem", "version": 1, "gpus": {}, "sequences": [{}],
                        "tokens_per_gpu": {}, "per_token": "1 us", "per_token_squared": "0.1 us",
                        "all_to_all_per_token": "1 MB", "max_micro_batches": 1,
                        "all_to_all_bandwidth": ["100 GB/s", "50 GB/s"]}})",
                    gpus, text, capacity));
    const double bandwidth[] = {0, 0.1, 0.05};  // MB/us
    double best = kNever;
    // Every set of degrees that uses all GPUs, every assignment of sequences to groups.
    std::vector<int> degrees;
    const std::function<void(int, int)> sets = [&](int left, int largest) {
      if (left > 0) {
        for (int d = largest; d >= 0; --d) {
          if ((1 << d) <= left) {
            degrees.push_back(d);
            sets(left - (1 << d), d);
            degrees.pop_back();
          }
        }
        return;
      }
      std::vector<double> load(degrees.size(), 0.0);
      std::vector<double> tokens(degrees.size(), 0.0);
      const std::function<void(std::size_t)> assign = [&](std::size_t i) {
        if (i == lengths.size()) {
          best = std::min(best, *std::max_element(load.begin(), load.end()));
          return;
        }
        for (std::size_t g = 0; g < degrees.size(); ++g) {
          const double degree = 1 << degrees[g];
          const double l = lengths[i];
          if (tokens[g] + l > capacity * degree) {
            continue;
          }
          const double exchange = degrees[g] == 0 ? 0 : l / degree / bandwidth[degrees[g]];
          const double t = (0.1 * l * l + l) / degree + exchange;
          load[g] += t;
          tokens[g] += l;
          assign(i + 1);
          load[g] -= t;
          tokens[g] -= l;
        }
      };
      assign(0);
    };
    sets(gpus, gpus >= 4 ? 2 : gpus >= 2 ? 1 : 0);
    if (best == kNever) {
      RC_ASSERT(answer.find("feasible") != nullptr);
      return;
    }
    RC_ASSERT(answer.find("proven")->as_bool());
    RC_ASSERT(std::abs(number(answer, "time_s") * 1e6 - best) < 1e-9 * best);
    double assigned = 0;
    for (const Json& group :
         answer.find("micro_batches")->as_array().front().find("groups")->as_array()) {
      for (const Json& length : group.find("sequences")->as_array()) {
        assigned += length.as_number();
      }
    }
    double tokens = 0;
    for (const double length : lengths) {
      tokens += length;
    }
    RC_ASSERT(assigned == tokens);
  }));
}

}  // namespace
}  // namespace orrery::search
