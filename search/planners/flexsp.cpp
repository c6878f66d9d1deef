// SPDX-License-Identifier: Apache-2.0
// FlexSP's heterogeneous sequence-parallel groups: the sequences of one micro-batch are spread over
// Ulysses groups of different degree (search/problems/sequence_groups.hpp). A batch is cut into
// micro-batches by sorting and balancing tokens; several counts are tried.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/sequence_groups.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kMostMicroBatches = 64;

GroupCost read_cost(ObjectReader& problem, int log_gpus) {
  GroupCost cost;
  cost.quadratic = problem.required("per_token_squared").duration().value();
  cost.linear = problem.required("per_token").duration().value();
  const auto constant = problem.optional("per_micro_batch");
  cost.constant = constant ? constant->duration().value() : 0;
  cost.all_to_all_bytes = problem.required("all_to_all_per_token").bytes(true).value();
  const JsonReader list = problem.required("all_to_all_bandwidth");
  cost.bandwidth.push_back(0);  // degree 1 exchanges nothing
  for (const JsonReader& entry : list.array(16)) {
    cost.bandwidth.push_back(entry.bandwidth().value());
  }
  if (static_cast<int>(cost.bandwidth.size()) <= log_gpus) {
    list.fail("expected one bandwidth for each degree 2, 4, 8 ... up to the GPUs");
  }
  const auto capacity = problem.optional("tokens_per_gpu");
  cost.tokens_per_gpu = capacity ? capacity->number(1, 1e12) : kNever;
  return cost;
}

Json to_json(const BatchAssignment::Part& part) {
  const GroupAssignment& assignment = part.groups;
  Json groups = Json::array();
  for (std::size_t g = 0; g < assignment.degrees.size(); ++g) {
    Json sequences = Json::array();
    for (std::size_t i = 0; i < part.lengths.size(); ++i) {
      if (assignment.group_of[i] == static_cast<int>(g)) {
        sequences.push(part.lengths[i]);
      }
    }
    Json group = Json::object();
    group.set("degree", 1 << assignment.degrees[g]);
    group.set("sequences", std::move(sequences));
    groups.push(std::move(group));
  }
  Json result = Json::object();
  result.set("time_s", assignment.time);
  result.set("groups", std::move(groups));
  return result;
}

// Sequences, and how they are assigned.
struct Batch {
  std::vector<double> lengths = {};
  GroupCost cost;
  std::vector<std::vector<int>> sets;
  int gpus = 1;
  GroupEffort effort = GroupEffort::Best;

  BatchAssignment assigned(int least, int most) const {
    return assign_batch(lengths, cost, sets, least, most, effort);
  }
};

// The least number of micro-batches above `most` that fit, 0 where there are too many of them.
int micro_batches_needed(const Batch& batch, int most) {
  const double tokens = std::accumulate(batch.lengths.begin(), batch.lengths.end(), 0.0);
  const double least = std::ceil(tokens / (batch.gpus * batch.cost.tokens_per_gpu) * (1 - 1e-12));
  const int sequences =
      static_cast<int>(std::min<std::size_t>(batch.lengths.size(), kMostMicroBatches));
  const int from = static_cast<int>(std::min(least, kMostMicroBatches + 1.0));
  for (int count = std::max(most + 1, from); count <= sequences; ++count) {
    if (!batch.assigned(count, count).micro_batches.empty()) {
      return count;
    }
  }
  return 0;
}

// Why no number of micro-batches up to `most` fits: one sequence alone does not, or they are few.
std::string why_nothing_fits(const Batch& batch, int most) {
  const double longest = *std::max_element(batch.lengths.begin(), batch.lengths.end());
  if (assign_groups({longest}, batch.cost, batch.sets).group_of.empty()) {
    const int largest = 1 << batch.sets.front().front();
    return largest == batch.gpus ? "the longest sequence does not fit all GPUs together"
                                 : fmt::format(
                                       "the longest sequence does not fit {} GPUs, as many as "
                                       "the largest group has",
                                       largest);
  }
  const int needed = micro_batches_needed(batch, most);
  return fmt::format(
      "the sequences do not fit {} micro-batches: set \"max_micro_batches\" to {}{}", most,
      needed == 0 ? "more" : fmt::format("{}", needed),
      needed == 0 ? fmt::format(" (at most {}), or state fewer sequences", kMostMicroBatches) : "");
}

Json plan(ObjectReader& problem) {
  const JsonReader gpus_reader = problem.required("gpus");
  const int gpus = static_cast<int>(gpus_reader.integer(1, 64));
  int log_gpus = 0;
  while ((1 << (log_gpus + 1)) <= gpus) {
    ++log_gpus;
  }
  Batch batch{.cost = read_cost(problem, log_gpus), .sets = degree_sets(gpus), .gpus = gpus};
  for (const JsonReader& entry : problem.required("sequences").array(4096)) {
    batch.lengths.push_back(entry.number(1, 1e9));
  }
  const int most =
      static_cast<int>(problem.integer_or("max_micro_batches", 8, 1, kMostMicroBatches));
  const JsonReader one = problem.has("degree") ? problem.required("degree") : problem.value();
  const int degree = static_cast<int>(problem.integer_or("degree", 0, 1, gpus));
  const bool homogeneous = problem.boolean_or("homogeneous", false);
  batch.effort = problem.boolean_or("greedy", false) ? GroupEffort::Greedy : GroupEffort::Best;
  problem.finish();
  if (batch.lengths.empty()) {
    return infeasible("no sequences");
  }
  // Groups of one degree: that given, or in each micro-batch its own.
  if (degree > 0 || homogeneous) {
    std::erase_if(batch.sets, [degree](const std::vector<int>& set) {
      return set.front() != set.back() || (degree > 0 && (1 << set.front()) != degree);
    });
    if (batch.sets.empty()) {
      one.fail("expected a power of two that divides \"gpus\"");
    }
  }
  const BatchAssignment best = batch.assigned(1, most);
  if (best.micro_batches.empty()) {
    return infeasible(why_nothing_fits(batch, most));
  }
  Json parts = Json::array();
  for (const BatchAssignment::Part& part : best.micro_batches) {
    parts.push(to_json(part));
  }
  Json answer = Json::object();
  answer.set("time_s", best.time);
  answer.set("micro_batches", std::move(parts));
  answer.set("proven", best.proven);  // each assignment is the best for its micro-batch
  return answer;
}

}  // namespace

extern const Planner planner_flexsp = {
    .name = "flexsp",
    .description = "sequence-parallel groups of different degree for sequences of different length",
    .source = "Wang et al., FlexSP, ASPLOS 2025 (arXiv 2412.01523), sections 4 and 5",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "gpus": 8, "sequences": [8192, 4096, 1024, 1024, 512, 512, 256], "tokens_per_gpu": 2048,
  "per_token": "0.18 us", "per_token_squared": "5 ps", "all_to_all_per_token": "2 MB",
  "all_to_all_bandwidth": ["120 GB/s", "104 GB/s", "96 GB/s"], "max_micro_batches": 4})",
    .plan = plan,
};

}  // namespace orrery::search
