// SPDX-License-Identifier: Apache-2.0
// DIP's choice of memory variants where the integer program is too large to be solved.
#include "search/problems/memory_variants.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

class Numbers {  // any of [from, to)
 public:
  int operator()(int from, int to) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return from + static_cast<int>((state_ >> 33) % static_cast<std::uint64_t>(to - from));
  }

 private:
  std::uint64_t state_ = 1;
};

// Of `variants` each, less time for more memory.
std::vector<VariantPair> random_pairs(int count, int variants) {
  Numbers number;
  std::vector<VariantPair> pairs;
  for (int i = 0; i < count; ++i) {
    const int start = number(0, 2 * count);
    pairs.push_back({start, start + number(0, count), {}});
    double seconds = 0;
    double bytes = 2000;
    for (int v = 0; v < variants; ++v) {
      seconds += number(1, 100);
      bytes -= number(1, 2000 / variants);
      pairs.back().variants.push_back({seconds, bytes});
    }
  }
  return pairs;
}

template <typename Bytes>
double peak_of(const std::vector<VariantPair>& pairs, Bytes bytes) {
  double most = 0;
  for (const VariantPair& peak : pairs) {
    double held = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      held += pairs[i].start <= peak.start && peak.start <= pairs[i].end ? bytes(i) : 0;
    }
    most = std::max(most, held);
  }
  return most;
}

double smallest_peak(const std::vector<VariantPair>& pairs) {
  return peak_of(pairs, [&](std::size_t i) { return pairs[i].variants.back().bytes; });
}

// Whatever the solver reaches, what fits is found: from the smallest variants on, all of which fit
// exactly, to the fastest ones, and more memory never costs time.
TEST(MemoryVariants, FitWhereverTheSmallestDo) {
  for (const int count : {10, 512}) {
    const std::vector<VariantPair> pairs = random_pairs(count, 10);
    const double least = smallest_peak(pairs);
    const double most =
        peak_of(pairs, [&](std::size_t i) { return pairs[i].variants.front().bytes; });
    double smallest = 0;
    double fastest = 0;
    for (const VariantPair& pair : pairs) {
      smallest += pair.variants.back().seconds;
      fastest += pair.variants.front().seconds;
    }
    for (const double share : {0.0, 0.1, 0.5, 1.0}) {
      const double memory = least + share * (most - least);
      const auto choice = choose_variants(pairs, memory);
      ASSERT_TRUE(choice.has_value()) << count << ", " << share;
      const double peak = peak_of(pairs, [&](std::size_t i) {
        return pairs[i].variants[static_cast<std::size_t>(choice->chosen[i])].bytes;
      });
      EXPECT_LE(peak, memory * (1 + 1e-9));
      EXPECT_LE(choice->seconds, share > 0 ? smallest * 0.95 : smallest);
      EXPECT_GE(choice->seconds, fastest);
      EXPECT_TRUE(share < 1 || (choice->proven && choice->seconds == fastest));
    }
  }
}

TEST(MemoryVariants, NothingFitsOnlyWhereTheSmallestDoNot) {
  for (const int count : {8, 512}) {
    const std::vector<VariantPair> pairs = random_pairs(count, 10);
    EXPECT_FALSE(choose_variants(pairs, smallest_peak(pairs) * (1 - 1e-6)).has_value());
    EXPECT_TRUE(choose_variants(pairs, smallest_peak(pairs)).has_value());
  }
}

// The planner answers, and says that nothing proves its answer.
TEST(MemoryVariants, OfManyPairsAreNotProven) {
  const std::vector<VariantPair> pairs = random_pairs(300, 10);
  std::string text;
  for (const VariantPair& pair : pairs) {
    std::string variants;
    for (const MemoryVariant& variant : pair.variants) {
      variants += fmt::format(R"({}{{"time": "{} s", "memory": "{} B"}})",
                              variants.empty() ? "" : ",", variant.seconds, variant.bytes);
    }
    text += fmt::format(R"({}{{"start": {}, "end": {}, "variants": [{}]}})",
                        text.empty() ? "" : ",", pair.start, pair.end, variants);
  }
  const Json answer = solve("dip", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
      "modules": [{{"name": "a", "instances": 1, "times": ["1 s"]}}],
      "memory": "{} B", "pairs": [{}]}})",
                                               1.1 * smallest_peak(pairs), text));
  EXPECT_EQ(answer.find("feasible"), nullptr);
  EXPECT_EQ(answer.find("memory")->find("variants")->as_array().size(), pairs.size());
  EXPECT_FALSE(answer.find("memory")->find("proven")->as_bool());
}

}  // namespace
}  // namespace orrery::search
