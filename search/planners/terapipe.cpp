// SPDX-License-Identifier: Apache-2.0
// TeraPipe's token slices: cut every sequence along its tokens, and the batch into micro-batches,
// so that a pipeline of K stages with all forwards before all backwards ends soonest. The time of a
// slice of l tokens after ctx tokens of context is linear in l, ctx and l ctx with a floor.
// Total = sum of the slices + (K - 1) x the longest, minimised by enumerating the longest; of
// longest slices within "gap" of each other only one is tried, which costs (K - 1) x gap at most.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "search/planner.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// t(l, ctx) for a micro-batch of b sequences.
struct SliceTime {
  double floor = 0;      // launch-bound time of a small slice
  double base = 0;       // a0
  double per_token = 0;  // a1, per token and sequence
  double per_context = 0;
  double per_pair = 0;  // a3, per token and context token
  double operator()(double tokens, double context, double batch) const {
    return std::max(floor, base + batch * (per_token * tokens + per_context * context +
                                           per_pair * tokens * context));
  }
};

struct Slicing {
  double total = kNever;    // sum of the slices
  double longest = 0;       // of them
  std::vector<int> slices;  // in quanta, first slice first
};

// Slices of one sequence none of which takes longer than `longest`, with the least sum.
Slicing slice_under(const std::vector<double>& time, int quanta, double longest) {
  std::vector<double> best(static_cast<std::size_t>(quanta) + 1, kNever);
  std::vector<int> choice(best.size(), 0);
  best[0] = 0;
  for (int end = 1; end <= quanta; ++end) {
    for (int length = 1; length <= end; ++length) {
      const auto before = static_cast<std::size_t>(end - length);
      const double t = time[static_cast<std::size_t>(length) * best.size() + before];
      if (t <= longest && best[before] + t < best[static_cast<std::size_t>(end)]) {
        best[static_cast<std::size_t>(end)] = best[before] + t;
        choice[static_cast<std::size_t>(end)] = length;
      }
    }
  }
  Slicing slicing{best.back(), 0, {}};
  for (int end = quanta; end > 0 && slicing.total < kNever;) {
    const int length = choice[static_cast<std::size_t>(end)];
    slicing.slices.insert(slicing.slices.begin(), length);
    end -= length;
    slicing.longest = std::max(
        slicing.longest,
        time[static_cast<std::size_t>(length) * best.size() + static_cast<std::size_t>(end)]);
  }
  return slicing;
}

struct Shape {
  int stages = 1;
  int quanta = 1;  // of a sequence
  int quantum = 8;
  int batch = 1;  // sequences of an iteration
  int max_micro_batch = 1;
};

// Times of slices by length and context, in quanta: [length x (quanta + 1) + context].
std::vector<double> slice_times(const SliceTime& time, const Shape& shape, int micro_batch) {
  const auto row = static_cast<std::size_t>(shape.quanta) + 1;
  std::vector<double> times(row * row, kNever);
  for (int length = 1; length <= shape.quanta; ++length) {
    for (int context = 0; context + length <= shape.quanta; ++context) {
      times[static_cast<std::size_t>(length) * row + static_cast<std::size_t>(context)] =
          time(length * shape.quantum, context * shape.quantum, micro_batch);
    }
  }
  return times;
}

struct Best {
  double total = kNever;
  double longest = 0;
  std::vector<int> micro_batches;        // sequences of each
  std::vector<std::vector<int>> slices;  // of each, in quanta
};

// The batch as micro-batches whose slices all stay under `longest`: a knapsack over sequences.
Best batch_under(const std::vector<std::vector<double>>& times, const Shape& shape,
                 double longest) {
  std::vector<Slicing> by_size(static_cast<std::size_t>(shape.max_micro_batch) + 1);
  for (int b = 1; b <= shape.max_micro_batch; ++b) {
    by_size[static_cast<std::size_t>(b)] =
        slice_under(times[static_cast<std::size_t>(b)], shape.quanta, longest);
  }
  std::vector<double> sum(static_cast<std::size_t>(shape.batch) + 1, kNever);
  std::vector<int> choice(sum.size(), 0);
  sum[0] = 0;
  for (int total = 1; total <= shape.batch; ++total) {
    for (int b = 1; b <= std::min(total, shape.max_micro_batch); ++b) {
      const double value =
          sum[static_cast<std::size_t>(total - b)] + by_size[static_cast<std::size_t>(b)].total;
      if (value < sum[static_cast<std::size_t>(total)]) {
        sum[static_cast<std::size_t>(total)] = value;
        choice[static_cast<std::size_t>(total)] = b;
      }
    }
  }
  Best best{sum.back(), 0, {}, {}};
  for (int total = shape.batch; total > 0 && best.total < kNever;) {
    const int b = choice[static_cast<std::size_t>(total)];
    best.micro_batches.push_back(b);
    best.slices.push_back(by_size[static_cast<std::size_t>(b)].slices);
    best.longest = std::max(best.longest, by_size[static_cast<std::size_t>(b)].longest);
    total -= b;
  }
  return best;
}

// The end of every sequence is in some slice.
double least_longest(const std::vector<double>& times, int quanta) {
  const auto row = static_cast<std::size_t>(quanta) + 1;
  double least = kNever;
  for (std::size_t length = 1; length < row; ++length) {
    least = std::min(least, times[length * row + row - 1 - length]);
  }
  return least;
}

double total_of(const Best& best, const Shape& shape) {
  return best.total + (shape.stages - 1) * best.longest;
}

// Bounds on the longest slice from none down. What is best under a bound is so under all bounds
// down to its own longest slice; the next bound is `gap` below that. Lower bounds give no lower
// sums. Also the bound `whole`, so that slices are never worse than none.
Best best_slices(const std::vector<std::vector<double>>& times, const Shape& shape, double gap,
                 double whole) {
  const double least = least_longest(times[1], shape.quanta);
  Best best = batch_under(times, shape, whole);
  for (double bound = kNever; bound >= least;) {
    Best found = batch_under(times, shape, bound);
    if (found.total + (shape.stages - 1) * least >= total_of(best, shape)) {
      break;
    }
    bound = std::nextafter(found.longest - gap, -kNever);
    if (total_of(found, shape) < total_of(best, shape)) {
      best = std::move(found);
    }
  }
  return best;
}

Json slices_json(const Best& best, int quantum) {
  Json list = Json::array();
  for (std::size_t i = 0; i < best.slices.size(); ++i) {
    Json tokens = Json::array();
    for (const int slice : best.slices[i]) {
      tokens.push(slice * quantum);
    }
    Json entry = Json::object();
    entry.set("sequences", best.micro_batches[i]);
    entry.set("slices", std::move(tokens));
    list.push(std::move(entry));
  }
  return list;
}

double seconds_or(ObjectReader& problem, std::string_view key, double fallback) {
  const auto value = problem.optional(key);
  return value ? value->duration().value() : fallback;
}

Json plan(ObjectReader& problem) {
  Shape shape;
  shape.stages = static_cast<int>(problem.required("stages").integer(1, 4096));
  shape.quantum = static_cast<int>(problem.integer_or("quantum", 8, 1, 1 << 20));
  const JsonReader sequence = problem.required("sequence");
  shape.quanta = static_cast<int>(sequence.integer(1, 1 << 20)) / shape.quantum;
  if (shape.quanta * shape.quantum != sequence.json().as_integer() || shape.quanta > 512) {
    sequence.fail("expected a multiple of \"quantum\" of at most 512 quanta",
                  "choose a larger \"quantum\"");
  }
  shape.batch = static_cast<int>(problem.integer_or("batch", 1, 1, 4096));
  shape.max_micro_batch =
      static_cast<int>(problem.integer_or("max_micro_batch", shape.batch, 1, shape.batch));
  const SliceTime time{seconds_or(problem, "floor", 0), seconds_or(problem, "base", 0),
                       problem.required("per_token").duration().value(),
                       seconds_or(problem, "per_context", 0), seconds_or(problem, "per_pair", 0)};
  const double gap = seconds_or(problem, "gap", 1e-5);
  std::vector<std::vector<double>> times(1);
  for (int b = 1; b <= shape.max_micro_batch; ++b) {
    times.push_back(slice_times(time, shape, b));
  }
  const double whole = time(shape.quanta * shape.quantum, 0, 1);
  const Best best = best_slices(times, shape, gap, whole);
  Json answer = Json::object();
  answer.set("micro_batches", slices_json(best, shape.quantum));
  answer.set("time_s", total_of(best, shape));
  answer.set("time_without_slices_s", whole * (shape.batch + shape.stages - 1));
  return answer;
}

}  // namespace

extern const Planner planner_terapipe = {
    .name = "terapipe",
    .description = "token slices and micro-batches with the least pipeline time",
    .source = "Li et al., TeraPipe, ICML 2021 (arXiv 2102.07988), section 3.3",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "stages": 8, "sequence": 256, "quantum": 16, "batch": 2, "floor": "1 ms",
  "per_token": "10 us", "per_pair": "0.02 us"})",
    .plan = plan,
};

}  // namespace orrery::search
