// SPDX-License-Identifier: Apache-2.0
// Context ranks of a serving plan (flash decoding): each attends to its part of the keys, and what
// they exchange merges to attention over all of them. Executed on small real numbers, the buffers
// that the ranks add up have the bytes that the plan charges.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

// Scores and values of one query of one head.
struct MergedKeys {
  std::vector<double> scores;
  std::vector<std::vector<double>> values;
};

MergedKeys random_keys(std::size_t keys, std::size_t dims, Random& random) {
  MergedKeys all{std::vector<double>(keys), {}};
  for (double& score : all.scores) {
    score = 3 * random.normal();
    all.values.emplace_back(dims);
    for (double& value : all.values.back()) {
      value = random.normal();
    }
  }
  return all;
}

// What a rank knows of its keys [first, last): attention to them, and the logarithm of the sum of
// their exponentials.
struct PartialAttention {
  std::vector<double> output;
  double log_sum = 0;
};

PartialAttention attend_to(const MergedKeys& all, std::size_t first, std::size_t last) {
  PartialAttention part{std::vector<double>(all.values.front().size()), 0};
  double sum = 0;
  for (std::size_t key = first; key < last; ++key) {
    sum += std::exp(all.scores[key]);
    for (std::size_t at = 0; at < part.output.size(); ++at) {
      part.output[at] += std::exp(all.scores[key]) * all.values[key][at];
    }
  }
  for (double& value : part.output) {
    value /= sum;
  }
  part.log_sum = std::log(sum);
  return part;
}

// Adds the outputs up by the shares of the sums; `bytes` counts what one rank puts in.
std::vector<double> merge_parts(const std::vector<PartialAttention>& parts, int element,
                                double& bytes) {
  double sum = 0;
  for (const PartialAttention& part : parts) {
    sum += std::exp(part.log_sum);
  }
  std::vector<double> merged(parts.front().output.size());
  for (const PartialAttention& part : parts) {
    for (std::size_t at = 0; at < merged.size(); ++at) {
      merged[at] += part.output[at] * std::exp(part.log_sum) / sum;
    }
  }
  bytes += sizeof(float) + static_cast<double>(merged.size()) * element;
  return merged;
}

Bytes charged_merge(const std::string& network, int tp, int cp, std::int64_t tokens) {
  BlockPlan layout;
  layout.tp = tp;
  layout.cp = cp;
  Plan plan = replicas_of(network, "dgx-a100:1", layout, 1, DType::Bf16);
  serve(plan, some_requests(4));
  ServingModel model(plan);
  const int layer = plan.network.chain[1];
  for (const Step& step : model.collectives(layer, tokens)) {
    if (step.axis == Axis::Context) {
      EXPECT_EQ(step.comm, sim::CommKind::AllReduce);
      EXPECT_EQ(step.group.ranks, cp);
      return step.bytes;
    }
  }
  return Bytes();
}

TEST(ServingMerge, MovesWhatItIsChargedFor) {
  constexpr std::int64_t kTokens = 3;
  for (const int tp : {1, 2}) {
    for (const int cp : {2, 4}) {
      const models::Network network = models::load_network("llama3-8b");
      const models::AttentionInfo& info =
          network.blocks[static_cast<std::size_t>(network.chain[1])].attention;
      Random random(7);
      double bytes = 0;
      for (std::int64_t row = 0; row < kTokens * info.heads / tp; ++row) {
        constexpr std::size_t kKeys = 24;
        const MergedKeys all = random_keys(kKeys, static_cast<std::size_t>(info.head_dim), random);
        std::vector<PartialAttention> parts;
        const std::size_t each = kKeys / static_cast<std::size_t>(cp);
        for (std::size_t first = 0; first < kKeys; first += each) {
          parts.push_back(attend_to(all, first, first + each));
        }
        const std::vector<double> merged = merge_parts(parts, 2, bytes);
        const std::vector<double> serial = attend_to(all, 0, kKeys).output;
        for (std::size_t at = 0; at < serial.size(); ++at) {
          ASSERT_NEAR(merged[at], serial[at], 1e-12);
        }
      }
      EXPECT_EQ(charged_merge("llama3-8b", tp, cp, kTokens).value(), bytes)
          << "tp " << tp << ", cp " << cp;
    }
  }
  EXPECT_EQ(charged_merge("llama3-8b", 2, 1, kTokens).value(), 0);
}

}  // namespace
}  // namespace orrery::plan
