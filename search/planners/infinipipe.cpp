// SPDX-License-Identifier: Apache-2.0
// InfiniPipe: chunks of about equal work from sequences of very different length - the long ones
// cut into slices, the short ones packed - grouped into pipelines, with just as much recomputation
// in every chunk as the memory of each stage needs. Groups of sorted sequences come from the
// recurrence dp[i + 1] = min over k of dp[k] + fill and drain + time of the group; the recomputed
// layers of a stage's chunks from an integer program over the windows of live chunks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/milp.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Problem {
  std::vector<double> sequences;  // tokens, longest first
  int stages = 1;
  int layers = 1;              // of a stage
  double per_token = 0;        // seconds of a layer, forward and backward
  double per_pair = 0;         // and per pair of tokens
  double bytes_per_token = 0;  // activations of a layer
  double kept_per_token = 0;   // of a recomputed layer: its input
  double memory = 0;           // of a stage, for activations
  double chunk_tokens = 0;     // most tokens of a chunk
};

struct Chunk {
  double tokens = 0;
  double time = 0;  // of a layer
};

double slice_time(const Problem& problem, double context, double tokens) {
  return problem.per_token * tokens + problem.per_pair * tokens * (context + tokens / 2);
}

// Slices that a sequence has at least: of no more than the token limit, and of equal time, where
// the first is the longest.
double least_slices(const Problem& problem, double tokens) {
  const double by_time =
      slice_time(problem, 0, tokens) / slice_time(problem, 0, problem.chunk_tokens);
  return std::max(std::ceil(tokens / problem.chunk_tokens), std::floor(by_time * (1 - 1e-6)));
}

// A long sequence as the fewest slices within the token limit, of equal time: later slices, which
// attend to more, are shorter.
void append_slices(const Problem& problem, double tokens, std::vector<Chunk>& chunks) {
  for (int count = static_cast<int>(least_slices(problem, tokens));; ++count) {
    const double each = slice_time(problem, 0, tokens) / count;
    std::vector<Chunk> slices;
    double context = 0;
    for (int k = 0; k < count; ++k) {
      // Positive root of per_pair / 2 x^2 + (per_token + per_pair context) x - each = 0.
      const double b = problem.per_token + problem.per_pair * context;
      const double length = k + 1 == count
                                ? tokens - context
                                : 2 * each / (b + std::sqrt(b * b + 2 * problem.per_pair * each));
      slices.push_back({length, slice_time(problem, context, length)});
      context += length;
    }
    // Equal times make the first slice the longest.
    if (slices.front().tokens <= problem.chunk_tokens * (1 + 1e-9)) {
      chunks.insert(chunks.end(), slices.begin(), slices.end());
      return;
    }
  }
}

// Chunks of sequences [first, last): slices of the long ones, the others packed by best fit.
std::vector<Chunk> chunks_of(const Problem& problem, int first, int last) {
  std::vector<Chunk> chunks;
  std::vector<Chunk> packed;
  for (int i = first; i < last; ++i) {
    const double tokens = problem.sequences[static_cast<std::size_t>(i)];
    if (tokens > problem.chunk_tokens) {
      append_slices(problem, tokens, chunks);
      continue;
    }
    Chunk* fit = nullptr;
    for (Chunk& chunk : packed) {
      if (chunk.tokens + tokens <= problem.chunk_tokens &&
          (fit == nullptr || chunk.tokens > fit->tokens)) {
        fit = &chunk;
      }
    }
    if (fit == nullptr) {
      packed.emplace_back();
      fit = &packed.back();
    }
    fit->tokens += tokens;
    fit->time += slice_time(problem, 0, tokens);
  }
  chunks.insert(chunks.end(), packed.begin(), packed.end());
  return chunks;
}

// Slices of each of those: of long sequences, then 1 for every pack.
Json slices_json(const Problem& problem, int first, int last, std::size_t chunks) {
  Json slices = Json::array();
  std::size_t counted = 0;
  for (int i = first; i < last; ++i) {
    if (const double tokens = problem.sequences[static_cast<std::size_t>(i)];
        tokens > problem.chunk_tokens) {
      std::vector<Chunk> of;
      append_slices(problem, tokens, of);
      slices.push(static_cast<std::int64_t>(of.size()));
      counted += of.size();
    }
  }
  for (; counted < chunks; ++counted) {
    slices.push(1);
  }
  return slices;
}

// Chunks that stage s keeps at once in 1F1B.
std::size_t window_size(const Problem& problem, int stage) {
  return static_cast<std::size_t>(problem.stages - stage);
}

// Seconds of recomputation that the first stage needs in proportion to what exceeds its memory: the
// estimate that grouping uses. Infinite when even recomputing everything does not fit.
double recompute_estimate(const Problem& problem, const std::vector<Chunk>& chunks) {
  const std::size_t window = window_size(problem, 0);
  double worst_share = 0;
  double forward = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    double tokens = 0;
    for (std::size_t j = i; j < std::min(chunks.size(), i + window); ++j) {
      tokens += chunks[j].tokens;
    }
    const double all = tokens * problem.bytes_per_token * problem.layers;
    const double least = tokens * problem.kept_per_token * problem.layers;
    if (least > problem.memory) {
      return kNever;
    }
    if (all > problem.memory) {
      worst_share = std::max(worst_share, (all - problem.memory) / (all - least));
    }
    forward += chunks[i].time * problem.layers / 3;  // a third of forward and backward
  }
  return worst_share * forward;
}

double group_time(const Problem& problem, const std::vector<Chunk>& chunks) {
  double sum = 0;
  for (const Chunk& chunk : chunks) {
    sum += chunk.time * problem.layers;
  }
  const double fill = (problem.stages - 1) * sum / static_cast<double>(chunks.size());
  return sum + fill + recompute_estimate(problem, chunks);
}

// Recomputed layers of every chunk on one stage: least time within the memory of every window.
struct Recompute {
  bool feasible = false;
  std::vector<int> layers;
};
Recompute recompute_layers(const Problem& problem, const std::vector<Chunk>& chunks, int stage) {
  Milp milp;
  for (const Chunk& chunk : chunks) {
    milp.add_variable(0, problem.layers, chunk.time, true);
  }
  const std::size_t window = window_size(problem, stage);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    std::vector<std::pair<int, double>> saved;
    double all = 0;
    for (std::size_t j = i; j < std::min(chunks.size(), i + window); ++j) {
      all += chunks[j].tokens * problem.bytes_per_token * problem.layers;
      saved.emplace_back(
          static_cast<int>(j),
          chunks[j].tokens * (problem.bytes_per_token - problem.kept_per_token) / problem.memory);
    }
    if (all > problem.memory) {
      milp.add_row(std::move(saved), all / problem.memory - 1, Milp::kInfinity);
    }
  }
  const auto answer = milp.solve();
  Recompute result;
  if (answer) {
    result.feasible = true;
    for (const double value : answer->values) {
      result.layers.push_back(static_cast<int>(value));
    }
  }
  return result;
}

Problem read(ObjectReader& reader) {
  Problem problem;
  const JsonReader list = reader.required("sequences");
  for (const JsonReader& entry : list.array(2048)) {
    problem.sequences.push_back(entry.number(1, 1e8));
  }
  if (problem.sequences.empty()) {
    list.fail("expected at least one sequence");
  }
  std::sort(problem.sequences.rbegin(), problem.sequences.rend());
  problem.stages = static_cast<int>(reader.required("stages").integer(1, 256));
  problem.layers = static_cast<int>(reader.required("layers_per_stage").integer(1, 1024));
  problem.per_token = reader.required("per_token").duration(false).value();
  problem.per_pair = reader.required("per_token_pair").duration().value();
  problem.bytes_per_token = reader.required("activations_per_token").bytes().value();
  const JsonReader kept = reader.required("input_per_token");
  problem.kept_per_token = kept.bytes(true).value();
  if (problem.kept_per_token > problem.bytes_per_token) {
    kept.fail("expected at most \"activations_per_token\"");
  }
  problem.memory = reader.required("memory").bytes().value();
  const JsonReader tokens = reader.required("chunk_tokens");
  problem.chunk_tokens = tokens.number(1, 1e8);
  if (least_slices(problem, problem.sequences.front()) > 4096) {
    tokens.fail("the longest sequence would have more than 4096 slices");
  }
  return problem;
}

Json group_json(const Problem& problem, int first, int last) {
  const std::vector<Chunk> chunks = chunks_of(problem, first, last);
  Json tokens = Json::array();
  Json times = Json::array();  // on a stage, forward and backward
  for (const Chunk& chunk : chunks) {
    tokens.push(chunk.tokens);
    times.push(chunk.time * problem.layers);
  }
  Json stages = Json::array();
  for (int stage = 0; stage < problem.stages; ++stage) {
    const Recompute recompute = recompute_layers(problem, chunks, stage);
    Json layers = Json::array();
    for (const int count : recompute.layers) {
      layers.push(count);
    }
    stages.push(std::move(layers));
  }
  Json group = Json::object();
  group.set("sequences", last - first);
  group.set("chunk_tokens", std::move(tokens));
  group.set("chunk_time_s", std::move(times));
  Json slices = slices_json(problem, first, last, chunks.size());
  group.set("count", static_cast<std::int64_t>(slices.as_array().size()));
  group.set("slices_of", std::move(slices));
  group.set("recomputed_layers_by_stage", std::move(stages));
  group.set("time_s", group_time(problem, chunks));
  return group;
}

Json plan(ObjectReader& reader) {
  const Problem problem = read(reader);
  const int n = static_cast<int>(problem.sequences.size());
  std::vector<double> best(static_cast<std::size_t>(n) + 1, kNever);
  std::vector<int> from(best.size(), 0);
  best[0] = 0;
  for (int last = 1; last <= n; ++last) {
    for (int first = 0; first < last; ++first) {
      const double time = best[static_cast<std::size_t>(first)] +
                          group_time(problem, chunks_of(problem, first, last));
      if (time < best[static_cast<std::size_t>(last)]) {
        best[static_cast<std::size_t>(last)] = time;
        from[static_cast<std::size_t>(last)] = first;
      }
    }
  }
  if (best.back() == kNever) {
    return infeasible("the chunks in flight do not fit even with full recomputation");
  }
  Json::Array groups;
  for (int last = n; last > 0;) {
    const int first = from[static_cast<std::size_t>(last)];
    groups.insert(groups.begin(), group_json(problem, first, last));
    last = first;
  }
  Json answer = Json::object();
  answer.set("groups", Json(std::move(groups)));
  answer.set("time_s", best.back());
  return answer;
}

}  // namespace

extern const Planner planner_infinipipe = {
    .name = "infinipipe",
    .description = "slices and packs of sequences, their pipelines, and recomputation by chunk",
    .source = "Wang et al., Elastic Pipeline Parallelism (InfiniPipe), 2025 (arXiv 2509.21275)",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "sequences": [65536, 8192, 8192, 2048, 1024], "chunk_tokens": 16384, "stages": 4,
  "layers_per_stage": 8, "per_token": "20 ns", "per_token_pair": "2 ps",
  "activations_per_token": "300 kB", "input_per_token": "8 kB", "memory": "60 GB"})",
    .plan = plan,
};

}  // namespace orrery::search
