// SPDX-License-Identifier: Apache-2.0
#include "search/problems/micro_batches.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <utility>

namespace orrery::search {
namespace {

constexpr double kNoBatch = std::numeric_limits<double>::infinity();
constexpr double kMostPasses = 2e7;  // of all permutations of all replicas

struct Cuts {
  double sum = kNoBatch;
  double longest = 0;
  std::vector<int> ends;  // exclusive, one a micro-batch
};

// Groups that keep no more than `cap`, by their last sample: what memory holds, not samples^2.
class Splitter {
 public:
  Splitter(const std::vector<Sample>& samples, const MicroBatchModel& model, double cap)
      : n_(static_cast<int>(samples.size())), begin_{0} {
    for (int last = 1; last <= n_; ++last) {
      Sample longest;
      for (int first = last - 1; first >= 0; --first) {
        const Sample& sample = samples[static_cast<std::size_t>(first)];
        longest = {std::max(longest.input, sample.input), std::max(longest.target, sample.target)};
        if (model.bytes(last - first, longest) > cap) {
          break;  // longer groups only need more
        }
        times_.push_back(model.time(last - first, longest));
      }
      begin_.push_back(times_.size());
    }
  }

  // Infinite where it does not fit.
  double time(int first, int last) const {
    const auto of_last = static_cast<std::size_t>(last);
    const std::size_t slot = begin_[of_last - 1] + static_cast<std::size_t>(last - 1 - first);
    return slot < begin_[of_last] ? times_[slot] : kNoBatch;
  }

  // Distinct group times, at least `gap` apart: the bounds worth trying.
  std::vector<double> bounds(double gap) const {
    std::vector<double> times = times_;
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    std::vector<double> kept;
    for (auto it = times.rbegin(); it != times.rend(); ++it) {
      if (kept.empty() || kept.back() - *it >= gap) {
        kept.push_back(*it);  // the largest of a run, so that all of it fits
      }
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  // f(n) = min over i of f(i) + t(i, n) with t <= bound.
  Cuts split(double bound) const {
    std::vector<double> best(static_cast<std::size_t>(n_) + 1, kNoBatch);
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
    for (int last = n_; last > 0 && cuts.sum < kNoBatch;) {
      const int first = from[static_cast<std::size_t>(last)];
      cuts.longest = std::max(cuts.longest, time(first, last));
      cuts.ends.insert(cuts.ends.begin(), last);
      last = first;
    }
    return cuts;
  }

 private:
  int n_;
  std::vector<double> times_;       // of the groups that end with a sample, the shortest first
  std::vector<std::size_t> begin_;  // in `times_`, by samples up to the last one
};

}  // namespace

double MicroBatchModel::time(double n, const Sample& longest) const {
  return base + n * (per_token * (longest.input + longest.target) +
                     per_token_squared *
                         (longest.input * longest.input + longest.target * longest.target));
}

double MicroBatchModel::bytes(double n, const Sample& longest) const {
  return n * bytes_per_token * (longest.input + longest.target);
}

void sort_samples(std::vector<Sample>& samples) {
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
    return a.input != b.input ? a.input < b.input : a.target < b.target;
  });
}

// Repeatedly joins the two partial partitions with the largest spread, largest sums of one to
// smallest of the other.
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

namespace {

struct Scored {
  Cuts cuts;
  double score = kNoBatch;
};

// The least score of all bounds. The sum falls with the bound, so that between two of them no score
// is below that of the shorter one's longest and the longer one's sum: halves that cannot win are
// left out.
class BoundSearch {
 public:
  BoundSearch(const Splitter& splitter, const Pipelines& pipelines, double gap)
      : splitter_(splitter), pipelines_(pipelines), bounds_(splitter.bounds(gap)) {}

  Scored run() {
    if (!bounds_.empty()) {
      search(0, bounds_.size() - 1, try_bound(bounds_.size() - 1));
    }
    return std::move(best_);
  }

 private:
  double score(double longest, double sum) const {
    return (pipelines_.stages - 1) * longest / pipelines_.chunks + sum / pipelines_.replicas;
  }
  double try_bound(std::size_t index) {
    Cuts cuts = splitter_.split(bounds_[index]);
    const double sum = cuts.sum;
    const double value = score(cuts.longest, sum);
    if (value < best_.score) {
      best_ = {std::move(cuts), value};
    }
    return sum;
  }
  // Of bounds from `first` to before `last`, whose sum is known.
  void search(std::size_t first, std::size_t last, double sum) {
    if (first == last || score(bounds_[first], sum) >= best_.score) {
      return;
    }
    const std::size_t middle = first + (last - first) / 2;
    const double sum_of_middle = try_bound(middle);
    search(middle + 1, last, sum);
    if (sum_of_middle < kNoBatch) {
      search(first, middle, sum_of_middle);
    }
  }

  const Splitter& splitter_;
  const Pipelines& pipelines_;
  std::vector<double> bounds_;
  Scored best_;
};

Sample longest_of(const std::vector<Sample>& samples, int first, int last) {
  Sample longest;
  for (int i = first; i < last; ++i) {
    const Sample& sample = samples[static_cast<std::size_t>(i)];
    longest = {std::max(longest.input, sample.input), std::max(longest.target, sample.target)};
  }
  return longest;
}

MicroBatches listed(const Scored& best, const std::vector<Sample>& samples,
                    const MicroBatchModel& model, const Pipelines& pipelines) {
  MicroBatches result;
  result.score = best.score;
  result.longest = best.cuts.longest;
  std::vector<double> times;
  int first = 0;
  for (const int last : best.cuts.ends) {
    const Sample longest = longest_of(samples, first, last);
    times.push_back(model.time(last - first, longest));
    result.list.push_back({first, last, times.back(), model.bytes(last - first, longest), 0});
    first = last;
  }
  const std::vector<int> replica_of = deal(times, pipelines.replicas);
  for (std::size_t i = 0; i < times.size(); ++i) {
    result.list[i].replica = replica_of[i];
  }
  return result;
}

}  // namespace

MicroBatches make_micro_batches(const std::vector<Sample>& samples,
                                const std::vector<MicroBatchModel>& models,
                                const Pipelines& pipelines, const std::vector<double>& caps,
                                double gap) {
  for (std::size_t mode = 0; mode < models.size(); ++mode) {
    for (const double cap : caps) {
      const Splitter splitter(samples, models[mode], cap);
      const Scored best = BoundSearch(splitter, pipelines, gap).run();
      if (best.score < kNoBatch) {
        MicroBatches result = listed(best, samples, models[mode], pipelines);
        result.mode = mode;
        return result;
      }
    }
  }
  return {};
}

std::vector<int> cluster(const std::vector<double>& values, int clusters) {
  const std::size_t n = values.size();
  std::vector<std::size_t> by_value(n);
  std::iota(by_value.begin(), by_value.end(), std::size_t{0});
  std::stable_sort(by_value.begin(), by_value.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> sums(n + 1, 0);  // and of squares, of the shortest ones
  std::vector<double> squares(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const double value = values[by_value[i]];
    sums[i + 1] = sums[i] + value;
    squares[i + 1] = squares[i] + value * value;
  }
  const auto spread = [&](std::size_t first, std::size_t last) {
    const double sum = sums[last] - sums[first];
    return squares[last] - squares[first] - sum * sum / static_cast<double>(last - first);
  };
  // best[k][i]: of the i shortest in k + 1 clusters, of which the last begins at from[k][i].
  const auto most = std::min(static_cast<std::size_t>(clusters), n);
  std::vector<std::vector<double>> best(most, std::vector<double>(n + 1, kNoBatch));
  std::vector<std::vector<std::size_t>> from(most, std::vector<std::size_t>(n + 1, 0));
  for (std::size_t k = 0; k < most; ++k) {
    for (std::size_t last = k + 1; last <= n; ++last) {
      for (std::size_t first = k; first < (k == 0 ? 1 : last); ++first) {
        const double sum = (k == 0 ? 0 : best[k - 1][first]) + spread(first, last);
        if (sum < best[k][last]) {
          best[k][last] = sum;
          from[k][last] = first;
        }
      }
    }
  }
  std::vector<int> cluster_of(n, 0);
  for (std::size_t k = most, last = n; k-- > 0;) {
    const std::size_t first = from[k][last];
    for (std::size_t i = first; i < last; ++i) {
      cluster_of[by_value[i]] = static_cast<int>(k);
    }
    last = first;
  }
  return cluster_of;
}

namespace {

// The schedule's lists for micro-batches in this order, and what they take.
OrderedMicroBatches run_in_order(const std::vector<MicroBatch>& list, std::vector<int> order,
                                 const PipelineModel& model) {
  OrderedMicroBatches ordered;
  sim::ScheduleParams params;
  params.stages = model.stages;
  params.micro_batches = static_cast<int>(order.size());
  params.cap = model.memory;
  sim::PipelineCosts costs;
  const auto stages = static_cast<std::size_t>(model.stages);
  for (const int index : order) {
    params.weights.push_back(list[static_cast<std::size_t>(index)].bytes);
  }
  for (std::size_t stage = 0; stage < stages; ++stage) {
    for (const int index : order) {
      const double time = list[static_cast<std::size_t>(index)].time;
      const SimTime whole = std::max(SimTime{2}, to_sim_time(Seconds(time)));
      const SimTime backward = to_sim_time(Seconds(time * model.backward_share));
      costs.unit_backward.push_back(std::clamp(backward, SimTime{1}, whole - SimTime{1}));
      costs.unit_forward.push_back(whole - costs.unit_backward.back());
    }
  }
  costs.forward.assign(stages, costs.unit_forward.front());
  costs.backward.assign(stages, costs.unit_backward.front());
  costs.send_forward.assign(stages - 1, to_sim_time(Seconds(model.send)));
  costs.send_backward = costs.send_forward;
  ordered.order = std::move(order);
  ordered.lists = sim::find_schedule("dynapipe", "planner").order(params);
  ordered.run = sim::evaluate_pipeline(ordered.lists, costs, {.record_spans = true});
  ordered.makespan = to_seconds(ordered.run.makespan).value();
  return ordered;
}

// As many clusters as permutations of which are not too many passes.
int few_clusters(std::size_t micro_batches, const PipelineModel& model) {
  double passes = 2.0 * static_cast<double>(micro_batches) * model.stages;
  int clusters = 1;
  while (clusters < model.clusters && passes * (clusters + 1) <= kMostPasses) {
    ++clusters;
    passes *= clusters;
  }
  return clusters;
}

}  // namespace

OrderedMicroBatches order_micro_batches(const std::vector<MicroBatch>& list, int replica,
                                        const PipelineModel& model) {
  std::vector<int> mine;
  std::vector<double> times;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].replica == replica) {
      mine.push_back(static_cast<int>(i));
      times.push_back(list[i].time);
    }
  }
  OrderedMicroBatches best;
  if (mine.empty()) {
    best.makespan = 0;
    return best;
  }
  best = run_in_order(list, mine, model);
  const double as_sorted = best.makespan;
  const std::vector<int> cluster_of = cluster(times, few_clusters(list.size(), model));
  std::vector<int> permutation(
      static_cast<std::size_t>(*std::max_element(cluster_of.begin(), cluster_of.end())) + 1);
  std::iota(permutation.begin(), permutation.end(), 0);
  do {
    std::vector<int> order;
    for (const int next : permutation) {
      for (std::size_t i = 0; i < mine.size(); ++i) {
        if (cluster_of[i] == next) {
          order.push_back(mine[i]);
        }
      }
    }
    OrderedMicroBatches tried = run_in_order(list, std::move(order), model);
    if (tried.makespan < best.makespan) {
      best = std::move(tried);
    }
  } while (std::next_permutation(permutation.begin(), permutation.end()));
  best.as_sorted = as_sorted;
  return best;
}

}  // namespace orrery::search
