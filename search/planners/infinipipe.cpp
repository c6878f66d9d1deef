// SPDX-License-Identifier: Apache-2.0
// InfiniPipe: chunks of about equal work from sequences of very different length - the long ones
// cut into slices, the short ones packed - grouped into pipelines, with just as much recomputation
// in every chunk as the memory of each stage needs. Groups of sorted sequences come from the
// recurrence dp[i + 1] = min over k of dp[k] + fill and drain + time of the group; the recomputed
// layers of a stage's chunks from an integer program over the sets of chunks that it keeps at once
// (search/problems/live_chunks.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/attention_pairs.hpp"
#include "search/problems/live_chunks.hpp"
#include "search/problems/recomputed_layers.hpp"

namespace orrery::search {
namespace {

constexpr int kMaxSlices = 4096;  // of all sequences
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
  return problem.per_token * tokens + problem.per_pair * attention_pairs(tokens, context);
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

// Slices of sequences [first, last): of each long one, then 1 for every pack.
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

// Chunks of sequences [first, last) and their time, while `last` grows: slices of the long ones,
// the others packed by best fit. Sequences come longest first, so that slices stand before packs.
class Group {
 public:
  explicit Group(const Problem& problem) : problem_(problem), live_(problem.stages) {}

  void add(double tokens) {
    if (tokens > problem_.chunk_tokens) {
      std::vector<Chunk> slices;
      append_slices(problem_, tokens, slices);
      std::size_t at = chunks_.size();
      append(slices.size());
      for (const Chunk& slice : slices) {
        grow(at++, slice);
      }
      packs_ = chunks_.size();
      return;
    }
    std::size_t fit = chunks_.size();
    for (std::size_t i = packs_; i < chunks_.size(); ++i) {
      if (chunks_[i].tokens + tokens <= problem_.chunk_tokens &&
          (fit == chunks_.size() || chunks_[i].tokens > chunks_[fit].tokens)) {
        fit = i;
      }
    }
    if (fit == chunks_.size()) {
      append(1);
    }
    grow(fit, {tokens, slice_time(problem_, 0, tokens)});
  }

  // Seconds of the pipeline: work, fill and drain, and the recomputation that the first stage needs
  // in proportion to what exceeds its memory (the estimate that grouping uses). Infinite when even
  // recomputing everything does not fit.
  double time() const {
    const double all = most_ * problem_.bytes_per_token * problem_.layers;
    const double least = most_ * problem_.kept_per_token * problem_.layers;
    if (least > problem_.memory) {
      return kNever;
    }
    const double work = layer_time_ * problem_.layers;
    const double fill = (problem_.stages - 1) * work / static_cast<double>(chunks_.size());
    const double share = all > problem_.memory ? (all - problem_.memory) / (all - least) : 0;
    return work + fill + share * work / 3;  // a forward is a third of forward and backward
  }

  const std::vector<Chunk>& chunks() const { return chunks_; }
  const LiveChunks& live() const { return live_; }

 private:
  // A sequence of so many slices, or a pack, still empty.
  void append(std::size_t slices) {
    live_.append(static_cast<int>(slices));
    chunks_.resize(chunks_.size() + slices);
    held_.resize(chunks_.size());
  }

  // What the first stage keeps only gains tokens, so that the most of it is known from the sets
  // that hold this chunk: those of its own sequence and of the ones shortly before.
  void grow(std::size_t at, const Chunk& more) {
    chunks_[at].tokens += more.tokens;
    chunks_[at].time += more.time;
    layer_time_ += more.time;
    const int chunk = static_cast<int>(at);
    for (int k = live_.end_of(chunk); k-- > 0;) {
      const LiveChunks::Set set = live_.before_backward(0, k);
      if (set.begun <= chunk) {
        break;
      }
      if (set.holds(chunk)) {
        double& held = held_[static_cast<std::size_t>(k)];
        held += more.tokens;
        most_ = std::max(most_, held);
      }
    }
  }

  const Problem& problem_;
  LiveChunks live_;
  std::vector<Chunk> chunks_;
  std::vector<double> held_;  // tokens on the first stage before each backward
  std::size_t packs_ = 0;     // the first pack
  double layer_time_ = 0;     // of a layer, all chunks
  double most_ = 0;           // tokens that the first stage keeps
};

Group group_of(const Problem& problem, int first, int last) {
  Group group(problem);
  for (int i = first; i < last; ++i) {
    group.add(problem.sequences[static_cast<std::size_t>(i)]);
  }
  return group;
}

// By stage. Stages that keep the same recompute the same.
std::vector<RecomputedLayers> recompute_by_stage(const Problem& problem, const Group& group) {
  RecomputedChunks chunks{
      {}, {}, problem.layers, problem.bytes_per_token, problem.kept_per_token, problem.memory};
  for (const Chunk& chunk : group.chunks()) {
    chunks.tokens.push_back(chunk.tokens);
    chunks.times.push_back(chunk.time);
  }
  std::vector<RecomputedLayers> stages;
  for (int stage = 0; stage < problem.stages; ++stage) {
    const bool same = stage > 0 && group.live().keeps_as_before(stage);
    stages.push_back(same ? stages.back()
                          : recompute_layers(chunks, group.live(), stage, 1.0 / problem.stages));
  }
  return stages;
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
  double slices = 0;
  for (const double sequence : problem.sequences) {
    slices += least_slices(problem, sequence);
  }
  if (slices > kMaxSlices) {
    tokens.fail(fmt::format("the sequences would have more than {} slices", kMaxSlices));
  }
  return problem;
}

Json group_json(const Problem& problem, int first, int last) {
  const Group whole = group_of(problem, first, last);
  const std::vector<Chunk>& chunks = whole.chunks();
  Json tokens = Json::array();
  Json times = Json::array();  // on a stage, forward and backward
  for (const Chunk& chunk : chunks) {
    tokens.push(chunk.tokens);
    times.push(chunk.time * problem.layers);
  }
  Json stages = Json::array();
  bool proven = true;
  for (const RecomputedLayers& recompute : recompute_by_stage(problem, whole)) {
    proven = proven && recompute.proven;
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
  group.set("proven", proven);
  group.set("time_s", whole.time());
  return group;
}

Json plan(ObjectReader& reader) {
  const Problem problem = read(reader);
  const int n = static_cast<int>(problem.sequences.size());
  std::vector<double> best(static_cast<std::size_t>(n) + 1, kNever);
  std::vector<int> from(best.size(), 0);
  best[0] = 0;
  for (int first = 0; first < n; ++first) {
    Group group(problem);
    for (int last = first + 1; last <= n; ++last) {
      group.add(problem.sequences[static_cast<std::size_t>(last - 1)]);
      const double time = best[static_cast<std::size_t>(first)] + group.time();
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
