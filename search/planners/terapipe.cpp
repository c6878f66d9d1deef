// SPDX-License-Identifier: Apache-2.0
// TeraPipe's token slices: cut every sequence along its tokens, and the batch into micro-batches,
// so that a pipeline of K stages with all forwards before all backwards ends soonest. A layer's
// time for a slice of l tokens after ctx tokens of context is linear in l, ctx and the pairs that
// attention forms, l (ctx + l / 2), with a floor; a stage has so many layers, and two transfers.
// Total = sum of the slices + (K - 1) x the longest + updates, minimised by enumerating the
// longest; of longest slices within "gap" of each other only one is tried, which costs (K - 1) x
// gap at most.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/limits.hpp"
#include "search/planner.hpp"
#include "search/problems/attention_pairs.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// t(l, ctx) of a stage for a micro-batch of b sequences.
struct SliceTime {
  double floor = 0;      // launch-bound time of a small slice in a layer
  double base = 0;       // a0
  double per_token = 0;  // a1, per token and sequence
  double per_context = 0;
  double per_pair = 0;        // a3, per pair of tokens in attention
  double layers = 1;          // of a stage
  double send = 0;            // of each of a slice's two transfers
  double send_per_token = 0;  // and per token and sequence

  // What a layer and sequence adds, and what both transfers take.
  double of_sequence(double tokens, double context) const {
    return per_token * tokens + per_context * context + per_pair * attention_pairs(tokens, context);
  }
  double transfers(double tokens, double batch) const {
    return 2 * (send + batch * send_per_token * tokens);
  }
  double of_layers(double batch, double of_sequence) const {
    return layers * std::max(floor, base + batch * of_sequence);
  }
};

struct Shape {
  int stages = 1;
  int quanta = 1;  // of a sequence
  int quantum = 8;
  int batch = 1;  // sequences of an iteration
  int max_micro_batch = 1;
};

// Times of the slices of a micro-batch of so many sequences, by their end and by the context before
// them, in quanta: the slices that end at one place lie side by side.
class SliceTimes {
 public:
  SliceTimes(const SliceTime& time, const Shape& shape)
      : time_(time), shape_(shape), transfers_(static_cast<std::size_t>(shape.quanta) + 1) {
    for (int end = 1; end <= shape_.quanta; ++end) {
      for (int context = 0; context < end; ++context) {
        of_sequence_.push_back(
            time_.of_sequence((end - context) * shape_.quantum, context * shape_.quantum));
      }
    }
    times_.resize(of_sequence_.size());
  }

  void fill(int micro_batch) {
    for (int length = 1; length <= shape_.quanta; ++length) {
      transfers_[static_cast<std::size_t>(length)] =
          time_.transfers(length * shape_.quantum, micro_batch);
    }
    std::size_t place = 0;
    for (std::size_t end = 1; end < transfers_.size(); ++end) {
      for (std::size_t context = 0; context < end; ++context, ++place) {
        times_[place] =
            time_.of_layers(micro_batch, of_sequence_[place]) + transfers_[end - context];
      }
    }
  }
  std::span<const double> ending_at(int end) const {
    const auto count = static_cast<std::size_t>(end);
    return std::span(times_).subspan(count * (count - 1) / 2, count);
  }

 private:
  const SliceTime& time_;
  const Shape& shape_;
  std::vector<double> of_sequence_;
  std::vector<double> transfers_;  // by length
  std::vector<double> times_;
};

struct Slicing {
  double total = kNever;    // sum of the slices
  double longest = 0;       // of them
  std::vector<int> slices;  // in quanta, first slice first
};

// Slices of one sequence none of which takes longer than `longest`, with the least sum; of equal
// ones the one whose last slices are short.
Slicing slice_under(const SliceTimes& times, int quanta, double longest) {
  std::vector<double> best(static_cast<std::size_t>(quanta) + 1, kNever);
  best[0] = 0;
  const auto sum = [&](std::span<const double> time, std::size_t context) {
    return time[context] <= longest ? best[context] + time[context] : kNever;
  };
  for (int end = 1; end <= quanta; ++end) {
    const std::span<const double> time = times.ending_at(end);
    double least = kNever;
    for (std::size_t context = 0; context < time.size(); ++context) {
      least = std::min(least, sum(time, context));
    }
    best[static_cast<std::size_t>(end)] = least;
  }
  if (best.back() == kNever) {
    return {};
  }
  Slicing slicing{best.back(), 0, {}};
  for (int end = quanta; end > 0;) {
    const std::span<const double> time = times.ending_at(end);
    std::size_t context = time.size() - 1;
    while (sum(time, context) > best[static_cast<std::size_t>(end)]) {
      --context;
    }
    slicing.slices.push_back(end - static_cast<int>(context));
    slicing.longest = std::max(slicing.longest, time[context]);
    end = static_cast<int>(context);
  }
  std::ranges::reverse(slicing.slices);
  return slicing;
}

struct Best {
  double total = kNever;
  double longest = 0;
  std::vector<int> micro_batches;        // sequences of each
  std::vector<std::vector<int>> slices;  // of each, in quanta
};

// Slicings of micro-batches under bounds that fall.
class Batches {
 public:
  Batches(const SliceTime& time, const Shape& shape)
      : shape_(shape),
        times_(time, shape),
        of_size_(static_cast<std::size_t>(shape.max_micro_batch) + 1) {}

  // The end of every sequence is in some slice.
  double least_longest() {
    times_.fill(1);
    return std::ranges::min(times_.ending_at(shape_.quanta));
  }

  // The batch as micro-batches whose slices all stay under `longest`: a knapsack over sequences.
  Best under(double longest) {
    slice(longest);
    std::vector<double> sum(static_cast<std::size_t>(shape_.batch) + 1, kNever);
    std::vector<int> choice(sum.size(), 0);
    sum[0] = 0;
    for (int total = 1; total <= shape_.batch; ++total) {
      for (int b = 1; b <= std::min(total, shape_.max_micro_batch); ++b) {
        const double value = sum[static_cast<std::size_t>(total - b)] + of(b)->total;
        if (value < sum[static_cast<std::size_t>(total)]) {
          sum[static_cast<std::size_t>(total)] = value;
          choice[static_cast<std::size_t>(total)] = b;
        }
      }
    }
    Best best{sum.back(), 0, {}, {}};
    for (int total = shape_.batch; total > 0 && best.total < kNever;) {
      const int b = choice[static_cast<std::size_t>(total)];
      best.micro_batches.push_back(b);
      best.slices.push_back(of(b)->slices);
      best.longest = std::max(best.longest, of(b)->longest);
      total -= b;
    }
    return best;
  }

 private:
  std::optional<Slicing>& of(int size) { return of_size_[static_cast<std::size_t>(size)]; }

  // A slicing that stays under the new bound is still the best one; what had none has none.
  void slice(double longest) {
    for (int size = 1; size <= shape_.max_micro_batch; ++size) {
      if (!of(size) || (of(size)->total < kNever && of(size)->longest > longest)) {
        times_.fill(size);
        of(size) = slice_under(times_, shape_.quanta, longest);
      }
    }
  }

  const Shape& shape_;
  SliceTimes times_;
  std::vector<std::optional<Slicing>> of_size_;
};

double total_of(const Best& best, const Shape& shape) {
  return best.total + (shape.stages - 1) * best.longest;
}

// Bounds on the longest slice from none down. What is best under a bound is so under all bounds
// down to its own longest slice; the next bound is `gap` below that. Lower bounds give no lower
// sums. Also the bound `whole`, so that slices are never worse than none.
Best best_slices(const SliceTime& time, const Shape& shape, double gap, double whole) {
  Best best = Batches(time, shape).under(whole);
  Batches batches(time, shape);
  const double least = batches.least_longest();
  for (double bound = kNever; bound >= least;) {
    Best found = batches.under(bound);
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

// Every bound may ask anew for the slices of micro-batches of every size.
void check_size(const JsonReader& sequence, const Shape& shape) {
  if (std::int64_t{shape.quanta} * shape.quanta * shape.max_micro_batch > limits::kMaxSliceTimes) {
    sequence.fail(fmt::format("{} quanta in micro-batches of up to {} sequences are too many: "
                              "quanta^2 x sequences is at most {}",
                              shape.quanta, shape.max_micro_batch, limits::kMaxSliceTimes),
                  "choose a larger \"quantum\" or a smaller \"max_micro_batch\"");
  }
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
  check_size(sequence, shape);
  const SliceTime time{.floor = seconds_or(problem, "floor", 0),
                       .base = seconds_or(problem, "base", 0),
                       .per_token = problem.required("per_token").duration().value(),
                       .per_context = seconds_or(problem, "per_context", 0),
                       .per_pair = seconds_or(problem, "per_pair", 0),
                       .layers = problem.number_or("layers", 1, 1, 4096),
                       .send = seconds_or(problem, "send", 0),
                       .send_per_token = seconds_or(problem, "send_per_token", 0)};
  const double update = time.layers * seconds_or(problem, "update", 0);
  const double gap = seconds_or(problem, "gap", 1e-5);
  problem.finish();
  const int tokens = shape.quanta * shape.quantum;
  const double whole = time.of_layers(1, time.of_sequence(tokens, 0)) + time.transfers(tokens, 1);
  const Best best = best_slices(time, shape, gap, whole);
  Json answer = Json::object();
  answer.set("micro_batches", slices_json(best, shape.quantum));
  answer.set("time_s", total_of(best, shape) + update);
  answer.set("time_without_slices_s", whole * (shape.batch + shape.stages - 1) + update);
  return answer;
}

}  // namespace

extern const Planner planner_terapipe = {
    .name = "terapipe",
    .description = "token slices and micro-batches with the least pipeline time",
    .source = "Li et al., TeraPipe, ICML 2021 (arXiv 2102.07988), section 3.3",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "stages": 8, "sequence": 256, "quantum": 16, "batch": 2, "floor": "1 ms",
  "per_token": "10 us", "per_pair": "0.02 us", "layers": 3, "send": "50 us", "update": "2 ms"})",
    .plan = plan,
};

}  // namespace orrery::search
