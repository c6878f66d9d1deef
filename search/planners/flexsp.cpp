// SPDX-License-Identifier: Apache-2.0
// FlexSP's heterogeneous sequence-parallel groups: the sequences of one micro-batch are spread over
// Ulysses groups of different degree so that the slowest group ends soonest and every group holds
// its tokens. All multisets of power-of-two degrees within the GPUs are tried, each with an exact
// assignment by branch and bound under a budget of steps, sequences longest first. A batch is cut
// into micro-batches by sorting and balancing tokens; several counts are tried.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "search/planner.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::int64_t kSteps = 20'000;     // of one set of degrees
constexpr std::int64_t kAllSteps = 60'000;  // of one micro-batch, most promising sets first

// Seconds of a group: (quadratic sum l^2 + linear sum l) / degree + constant + all-to-all.
struct GroupCost {
  double quadratic = 0;
  double linear = 0;
  double constant = 0;
  double all_to_all_bytes = 0;     // per token
  std::vector<double> bandwidth;   // of an all-to-all by log2 of the degree, bytes/s
  double tokens_per_gpu = kNever;  // that memory holds
  double of(double length, int log_degree) const {
    const double degree = static_cast<double>(1 << log_degree);
    const double exchange = log_degree == 0 ? 0
                                            : all_to_all_bytes * length / degree /
                                                  bandwidth[static_cast<std::size_t>(log_degree)];
    return (quadratic * length * length + linear * length) / degree + exchange;
  }
};

struct Assignment {
  double time = kNever;
  std::vector<int> degrees;   // log2, one a group
  std::vector<int> group_of;  // of each sequence, longest first
  bool proven = true;
};

// Assigns sequences (longest first) to the groups of one multiset of degrees.
class GroupSearch {
 public:
  GroupSearch(const std::vector<double>& lengths, const GroupCost& cost, std::vector<int> degrees,
              double bound, std::int64_t steps)
      : lengths_(lengths),
        cost_(cost),
        degrees_(std::move(degrees)),
        best_(bound),
        budget_(steps),
        load_(degrees_.size(), 0.0),
        tokens_(degrees_.size(), 0.0),
        chosen_(lengths.size(), 0) {}

  Assignment run() {
    place(0);
    return {group_of_.empty() ? kNever : best_, degrees_, group_of_, steps_ <= budget_};
  }
  std::int64_t steps() const { return steps_; }

 private:
  void place(std::size_t sequence) {
    if (++steps_ > budget_) {
      return;
    }
    if (sequence == lengths_.size()) {
      best_ = *std::max_element(load_.begin(), load_.end());
      group_of_ = chosen_;
      return;
    }
    for (const std::size_t group : by_end(sequence)) {
      const int log_degree = degrees_[group];
      const double time = cost_.of(lengths_[sequence], log_degree);
      const double before = load_[group];
      load_[group] += time + (before == 0 ? cost_.constant : 0);
      tokens_[group] += lengths_[sequence];
      chosen_[sequence] = static_cast<int>(group);
      if (load_[group] < best_) {
        place(sequence + 1);
      }
      tokens_[group] -= lengths_[sequence];
      load_[group] = before;
    }
  }

  // Groups that can hold the sequence, the soonest to end first; of equal groups only one.
  std::vector<std::size_t> by_end(std::size_t sequence) const {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t group = 0; group < degrees_.size(); ++group) {
      const double capacity = cost_.tokens_per_gpu * static_cast<double>(1 << degrees_[group]);
      if (tokens_[group] + lengths_[sequence] > capacity || same_as_earlier(group)) {
        continue;
      }
      order.emplace_back(load_[group] + cost_.of(lengths_[sequence], degrees_[group]), group);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> groups;
    groups.reserve(order.size());
    for (const auto& [end, group] : order) {
      groups.push_back(group);
    }
    return groups;
  }
  bool same_as_earlier(std::size_t group) const {
    for (std::size_t other = 0; other < group; ++other) {
      if (degrees_[other] == degrees_[group] && load_[other] == load_[group] &&
          tokens_[other] == tokens_[group]) {
        return true;
      }
    }
    return false;
  }

  const std::vector<double>& lengths_;
  const GroupCost& cost_;
  std::vector<int> degrees_;
  double best_;
  std::int64_t budget_;
  std::vector<double> load_, tokens_;
  std::vector<int> chosen_, group_of_;
  std::int64_t steps_ = 0;
};

// Multisets of degrees, largest first, that use all `gpus`.
void degree_sets(int gpus, int largest, std::vector<int>& current,
                 std::vector<std::vector<int>>& all) {
  if (gpus == 0) {
    all.push_back(current);
    return;
  }
  for (int log_degree = largest; log_degree >= 0; --log_degree) {
    if ((1 << log_degree) <= gpus) {
      current.push_back(log_degree);
      degree_sets(gpus - (1 << log_degree), log_degree, current, all);
      current.pop_back();
    }
  }
}

// Least time that any assignment to these groups can have: shared evenly, and the longest sequence
// on the largest group.
double lower_bound(const std::vector<double>& lengths, const GroupCost& cost,
                   const std::vector<int>& degrees) {
  double least_work = 0;
  double gpus = 0;
  for (const int log_degree : degrees) {
    gpus += static_cast<double>(1 << log_degree);
  }
  const int smallest = degrees.back();
  for (const double length : lengths) {
    double work = kNever;
    for (int d = smallest; d <= degrees.front(); ++d) {
      work = std::min(work, cost.of(length, d) * static_cast<double>(1 << d));
    }
    least_work += work;
  }
  double longest = kNever;
  for (const int log_degree : degrees) {
    longest = std::min(longest, cost.of(lengths.front(), log_degree));
  }
  return cost.constant + std::max(least_work / gpus, longest);
}

Assignment assign(std::vector<double> lengths, const GroupCost& cost,
                  const std::vector<std::vector<int>>& sets) {
  std::sort(lengths.rbegin(), lengths.rend());
  std::vector<std::pair<double, const std::vector<int>*>> order;
  for (const std::vector<int>& degrees : sets) {
    order.emplace_back(lower_bound(lengths, cost, degrees), &degrees);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Assignment best;
  bool proven = true;
  std::int64_t left = kAllSteps;
  for (const auto& [bound, degrees] : order) {
    if (bound >= best.time) {
      break;
    }
    if (left <= 0) {
      proven = false;
      break;
    }
    GroupSearch search(lengths, cost, *degrees, best.time, std::min(kSteps, left));
    Assignment found = search.run();
    left -= search.steps();
    proven = proven && found.proven;
    if (found.time < best.time) {
      best = std::move(found);
    }
  }
  best.proven = proven;
  return best;
}

// `count` micro-batches of sorted neighbours with the least maximum of tokens.
std::vector<std::vector<double>> cut_batch(const std::vector<double>& sorted, int count) {
  double low = std::max(*std::max_element(sorted.begin(), sorted.end()),
                        std::accumulate(sorted.begin(), sorted.end(), 0.0) / count);
  double high = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  const auto cut = [&sorted](double most) {
    std::vector<std::vector<double>> parts(1);
    double tokens = 0;
    for (const double length : sorted) {
      if (tokens + length > most && !parts.back().empty()) {
        parts.emplace_back();
        tokens = 0;
      }
      parts.back().push_back(length);
      tokens += length;
    }
    return parts;
  };
  for (int step = 0; step < 50; ++step) {
    const double middle = (low + high) / 2;
    (static_cast<int>(cut(middle).size()) <= count ? high : low) = middle;
  }
  return cut(high);
}

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

Json to_json(const Assignment& assignment, std::vector<double> lengths) {
  std::sort(lengths.rbegin(), lengths.rend());
  Json groups = Json::array();
  for (std::size_t g = 0; g < assignment.degrees.size(); ++g) {
    Json sequences = Json::array();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (assignment.group_of[i] == static_cast<int>(g)) {
        sequences.push(lengths[i]);
      }
    }
    Json group = Json::object();
    group.set("degree", 1 << assignment.degrees[g]);
    group.set("sequences", std::move(sequences));
    groups.push(std::move(group));
  }
  Json part = Json::object();
  part.set("time_s", assignment.time);
  part.set("groups", std::move(groups));
  return part;
}

Json plan(ObjectReader& problem) {
  const JsonReader gpus_reader = problem.required("gpus");
  const int gpus = static_cast<int>(gpus_reader.integer(1, 64));
  int log_gpus = 0;
  while ((1 << (log_gpus + 1)) <= gpus) {
    ++log_gpus;
  }
  const GroupCost cost = read_cost(problem, log_gpus);
  std::vector<double> lengths;
  for (const JsonReader& entry : problem.required("sequences").array(4096)) {
    lengths.push_back(entry.number(1, 1e9));
  }
  const int most = static_cast<int>(problem.integer_or("max_micro_batches", 8, 1, 64));
  if (lengths.empty()) {
    return infeasible("no sequences");
  }
  std::sort(lengths.begin(), lengths.end());
  const JsonReader one = problem.has("degree") ? problem.required("degree") : problem.value();
  const int degree = static_cast<int>(problem.integer_or("degree", 0, 1, gpus));
  std::vector<std::vector<int>> sets;
  std::vector<int> current;
  degree_sets(gpus, log_gpus, current, sets);
  // Every group of the given degree: what a homogeneous plan takes.
  if (degree > 0) {
    std::erase_if(sets, [degree](const std::vector<int>& set) {
      return (1 << set.front()) != degree || (1 << set.back()) != degree;
    });
    if (sets.empty()) {
      one.fail("expected a power of two that divides \"gpus\"");
    }
  }
  double best_time = kNever;
  Json best = Json::array();
  bool proven = true;
  for (int count = 1; count <= std::min(most, static_cast<int>(lengths.size())); ++count) {
    double total = 0;
    Json parts = Json::array();
    bool all = true;
    for (const std::vector<double>& part : cut_batch(lengths, count)) {
      const Assignment found = assign(part, cost, sets);
      total += found.time;
      all = all && found.proven;
      if (total >= best_time) {
        break;
      }
      parts.push(to_json(found, part));
    }
    if (total < best_time) {
      best_time = total;
      best = std::move(parts);
      proven = all;
    }
  }
  if (best_time == kNever) {
    return infeasible("the longest sequence does not fit all GPUs together");
  }
  Json answer = Json::object();
  answer.set("time_s", best_time);
  answer.set("micro_batches", std::move(best));
  answer.set("proven", proven);  // each assignment is the best for its micro-batch
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
