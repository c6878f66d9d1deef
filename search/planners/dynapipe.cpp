// SPDX-License-Identifier: Apache-2.0
// DynaPipe's micro-batches for samples of different length: order the samples so that neighbours
// pad little, cut the order into contiguous micro-batches by a dynamic program for each bound on
// the longest of them, and deal the micro-batches to data-parallel replicas by number partitioning.
// Score of a cut: (p - 1) x longest / chunks + sum / replicas.
#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <set>
#include <vector>

#include "search/planner.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Sample {
  double input = 0;   // tokens
  double target = 0;  // tokens of the decoder; 0 without one
};

// Stage time and activation bytes of a micro-batch of n samples padded to its longest.
struct MicroBatchModel {
  double base = 0;
  double per_token = 0;
  double per_token_squared = 0;
  double bytes_per_token = 0;
  double time(double n, const Sample& longest) const {
    return base + n * (per_token * (longest.input + longest.target) +
                       per_token_squared *
                           (longest.input * longest.input + longest.target * longest.target));
  }
  double bytes(double n, const Sample& longest) const {
    return n * bytes_per_token * (longest.input + longest.target);
  }
};

struct Cuts {
  double sum = kNever;
  double longest = 0;
  std::vector<int> ends;  // exclusive, one a micro-batch
};

class Splitter {
 public:
  Splitter(const std::vector<Sample>& samples, const MicroBatchModel& model, double cap)
      : n_(static_cast<int>(samples.size())),
        times_(static_cast<std::size_t>(n_) * static_cast<std::size_t>(n_ + 1), kNever) {
    for (int first = 0; first < n_; ++first) {
      Sample longest;
      for (int last = first + 1; last <= n_; ++last) {
        const Sample& sample = samples[static_cast<std::size_t>(last - 1)];
        longest = {std::max(longest.input, sample.input), std::max(longest.target, sample.target)};
        if (model.bytes(last - first, longest) > cap) {
          break;  // longer groups only need more
        }
        times_[at(first, last)] = model.time(last - first, longest);
      }
    }
  }

  double time(int first, int last) const { return times_[at(first, last)]; }

  // Distinct group times, at least `gap` apart: the bounds worth trying.
  std::vector<double> bounds(double gap) const {
    std::set<double> distinct(times_.begin(), times_.end());
    distinct.erase(kNever);
    std::vector<double> kept;
    for (auto it = distinct.rbegin(); it != distinct.rend(); ++it) {
      if (kept.empty() || kept.back() - *it >= gap) {
        kept.push_back(*it);  // the largest of a run, so that all of it fits
      }
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  // f(n) = min over i of f(i) + t(i, n) with t <= bound.
  Cuts split(double bound) const {
    std::vector<double> best(static_cast<std::size_t>(n_) + 1, kNever);
    std::vector<int> from(best.size(), 0);
    best[0] = 0;
    for (int last = 1; last <= n_; ++last) {
      for (int first = last - 1; first >= 0; --first) {
        const double t = time(first, last);
        if (t > bound) {
          break;
        }
        if (best[static_cast<std::size_t>(first)] + t < best[static_cast<std::size_t>(last)]) {
          best[static_cast<std::size_t>(last)] = best[static_cast<std::size_t>(first)] + t;
          from[static_cast<std::size_t>(last)] = first;
        }
      }
    }
    Cuts cuts{best.back(), 0, {}};
    for (int last = n_; last > 0 && cuts.sum < kNever;) {
      const int first = from[static_cast<std::size_t>(last)];
      cuts.longest = std::max(cuts.longest, time(first, last));
      cuts.ends.insert(cuts.ends.begin(), last);
      last = first;
    }
    return cuts;
  }

 private:
  std::size_t at(int first, int last) const {
    return static_cast<std::size_t>(first) * static_cast<std::size_t>(n_ + 1) +
           static_cast<std::size_t>(last);
  }
  int n_;
  std::vector<double> times_;
};

// Karmarkar-Karp differencing into `parts` sets: repeatedly joins the two partial partitions with
// the largest spread, largest sums of one to smallest of the other. Returns the set of each value.
std::vector<int> deal(const std::vector<double>& values, int parts) {
  struct Partial {
    double spread = 0;
    std::vector<double> sums;  // descending
    std::vector<std::vector<int>> members;
  };
  const auto less = [](const Partial& a, const Partial& b) { return a.spread < b.spread; };
  std::priority_queue<Partial, std::vector<Partial>, decltype(less)> queue(less);
  for (std::size_t i = 0; i < values.size(); ++i) {
    Partial one{values[i], std::vector<double>(static_cast<std::size_t>(parts), 0.0),
                std::vector<std::vector<int>>(static_cast<std::size_t>(parts))};
    one.sums[0] = values[i];
    one.members[0] = {static_cast<int>(i)};
    queue.push(std::move(one));
  }
  while (queue.size() > 1) {
    Partial a = queue.top();
    queue.pop();
    const Partial b = queue.top();
    queue.pop();
    std::vector<std::size_t> order(a.sums.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t other = order.size() - 1 - i;
      a.sums[i] += b.sums[other];
      a.members[i].insert(a.members[i].end(), b.members[other].begin(), b.members[other].end());
      order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&a](std::size_t x, std::size_t y) { return a.sums[x] > a.sums[y]; });
    Partial joined{0, {}, {}};
    for (const std::size_t i : order) {
      joined.sums.push_back(a.sums[i]);
      joined.members.push_back(std::move(a.members[i]));
    }
    joined.spread = joined.sums.front() - joined.sums.back();
    queue.push(std::move(joined));
  }
  std::vector<int> set_of(values.size(), 0);
  for (std::size_t s = 0; !queue.empty() && s < queue.top().members.size(); ++s) {
    for (const int i : queue.top().members[s]) {
      set_of[static_cast<std::size_t>(i)] = static_cast<int>(s);
    }
  }
  return set_of;
}

std::vector<Sample> read_samples(ObjectReader& problem) {
  std::vector<Sample> samples;
  const JsonReader list = problem.required("samples");
  for (const JsonReader& entry : list.array(4096)) {
    const std::vector<JsonReader> lengths = entry.array(2);
    if (lengths.empty()) {
      entry.fail("expected [input tokens] or [input tokens, target tokens]");
    }
    samples.push_back(
        {lengths[0].number(1, 1e9), lengths.size() > 1 ? lengths[1].number(0, 1e9) : 0.0});
  }
  if (samples.empty()) {
    list.fail("expected at least one sample");
  }
  // Decoder-only: by length. With targets a two-level sort, so that neighbours pad little in both.
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
    return a.input != b.input ? a.input < b.input : a.target < b.target;
  });
  return samples;
}

MicroBatchModel read_model(ObjectReader& problem) {
  MicroBatchModel model;
  model.base = problem.required("per_micro_batch").duration().value();
  model.per_token = problem.required("per_token").duration().value();
  model.per_token_squared = problem.required("per_token_squared").duration().value();
  model.bytes_per_token = problem.required("activations_per_token").bytes(true).value();
  return model;
}

struct Pipelines {
  int stages = 1;
  int chunks = 1;
  int replicas = 1;
};

struct Scored {
  Cuts cuts;
  double score = kNever;
};

Scored best_cuts(const std::vector<Sample>& samples, const MicroBatchModel& model,
                 const Pipelines& pipelines, double memory, double gap) {
  const auto [stages, chunks, replicas] = pipelines;
  Scored best;
  // A micro-batch may take 1 / p of the memory, so that 1F1B holds p of them; else all of it.
  for (const double cap : {memory / stages, memory}) {
    const Splitter splitter(samples, model, cap);
    for (const double bound : splitter.bounds(gap)) {
      const Cuts cuts = splitter.split(bound);
      const double score = (stages - 1) * cuts.longest / chunks + cuts.sum / replicas;
      if (score < best.score) {
        best = {cuts, score};
      }
    }
    if (best.score < kNever) {
      break;
    }
  }
  return best;
}

// Micro-batches in the order of the samples, each with its replica.
Json answer_of(const Scored& best, const Splitter& splitter, int replicas) {
  std::vector<double> times;
  int first = 0;
  for (const int last : best.cuts.ends) {
    times.push_back(splitter.time(first, last));
    first = last;
  }
  const std::vector<int> replica_of = deal(times, replicas);
  std::vector<double> load(static_cast<std::size_t>(replicas), 0.0);
  Json groups = Json::array();
  first = 0;
  for (std::size_t i = 0; i < best.cuts.ends.size(); ++i) {
    Json group = Json::object();
    group.set("samples", best.cuts.ends[i] - first);
    group.set("time_s", times[i]);
    group.set("replica", replica_of[i]);
    load[static_cast<std::size_t>(replica_of[i])] += times[i];
    groups.push(std::move(group));
    first = best.cuts.ends[i];
  }
  Json answer = Json::object();
  answer.set("count", static_cast<std::int64_t>(times.size()));
  answer.set("times_s", Json(Json::Array(times.begin(), times.end())));
  answer.set("micro_batches", std::move(groups));
  answer.set("score_s", best.score);
  answer.set("longest_s", best.cuts.longest);
  answer.set("largest_replica_s", *std::max_element(load.begin(), load.end()));
  return answer;
}

Json plan(ObjectReader& problem) {
  const std::vector<Sample> samples = read_samples(problem);
  Pipelines pipelines;
  pipelines.stages = static_cast<int>(problem.required("stages").integer(1, 4096));
  pipelines.chunks = static_cast<int>(problem.integer_or("chunks", 1, 1, 64));
  pipelines.replicas = static_cast<int>(problem.integer_or("replicas", 1, 1, 1024));
  const MicroBatchModel model = read_model(problem);
  const double memory = problem.required("memory").bytes().value();
  const auto gap_reader = problem.optional("gap");
  const double gap = gap_reader ? gap_reader->duration().value() : 0;
  const Scored best = best_cuts(samples, model, pipelines, memory, gap);
  if (best.score == kNever) {
    return infeasible("a single sample does not fit the memory");
  }
  return answer_of(best, Splitter(samples, model, memory), pipelines.replicas);
}

}  // namespace

extern const Planner planner_dynapipe = {
    .name = "dynapipe",
    .description = "micro-batches of samples of different length, and their replicas",
    .source = "Jiang et al., DynaPipe, EuroSys 2024 (arXiv 2311.10418), section 5",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "samples": [[512], [100], [120], [90], [480], [60]], "stages": 4, "replicas": 2,
  "per_micro_batch": "1 ms", "per_token": "10 us", "per_token_squared": "1 ns",
  "activations_per_token": "1 MB", "memory": "8 GB"})",
    .plan = plan,
};

}  // namespace orrery::search
