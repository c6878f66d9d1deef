// SPDX-License-Identifier: Apache-2.0
// InfiniPipe: chunks of about equal work from sequences of very different length - the long ones
// cut into slices, the short ones packed - grouped into pipelines, with just as much recomputation
// in every chunk as the memory of each stage needs. Groups of sorted sequences come from the
// recurrence dp[i + 1] = min over k of dp[k] + fill and drain + time of the group; the recomputed
// layers of a stage's chunks from an integer program over the sets of chunks that it keeps at once
// (search/problems/live_chunks.hpp). The recurrence solves it for groups that may be part of the
// best answer by a bound from below, the likeliest first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/chunk_groups.hpp"
#include "search/problems/recomputed_layers.hpp"

namespace orrery::search {
namespace {

constexpr int kMaxSlices = 4096;  // of all sequences
constexpr double kNever = std::numeric_limits<double>::infinity();
// Chunks kept at once, over all sets of all groups whose recomputation is solved for the
// recurrence; the share of the usual work for those of many, and how many may end unproven.
constexpr std::int64_t kMostSolved = 1'000'000;
constexpr std::int64_t kFewKept = 1000;
constexpr double kShareOfMany = 1.0 / 32;
constexpr int kMostUnproven = 8;

// Slices of sequences [first, last): of each long one, then 1 for every pack.
Json slices_json(const SequenceProblem& problem, int first, int last, std::size_t chunks) {
  Json slices = Json::array();
  std::size_t counted = 0;
  for (int i = first; i < last; ++i) {
    if (const double tokens = problem.sequences[static_cast<std::size_t>(i)];
        tokens > problem.chunk_tokens) {
      std::vector<SequenceChunk> of;
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

ChunkGroup group_of(const SequenceProblem& problem, int first, int last) {
  ChunkGroup group(problem);
  for (int i = first; i < last; ++i) {
    group.add(problem.sequences[static_cast<std::size_t>(i)]);
  }
  return group;
}

RecomputedChunks recomputed_chunks(const SequenceProblem& problem, const ChunkGroup& group) {
  RecomputedChunks chunks{
      {}, {}, problem.layers, problem.bytes_per_token, problem.kept_per_token, problem.memory};
  for (const SequenceChunk& chunk : group.chunks()) {
    chunks.tokens.push_back(chunk.tokens);
    chunks.times.push_back(chunk.time);
  }
  return chunks;
}

double recompute_time(const RecomputedChunks& chunks, const RecomputedLayers& recomputed) {
  return kForwardShare * std::inner_product(chunks.times.begin(), chunks.times.end(),
                                            recomputed.layers.begin(), 0.0);
}

// By stage. A stage keeps no more than the one before it, so that what is recomputed there is an
// answer here, too: the first one recomputes longest.
std::vector<RecomputedLayers> recompute_by_stage(const SequenceProblem& problem,
                                                 const ChunkGroup& group) {
  const RecomputedChunks chunks = recomputed_chunks(problem, group);
  std::vector<RecomputedLayers> stages;
  for (int stage = 0; stage < problem.stages; ++stage) {
    if (stage > 0 && group.live().keeps_as_before(stage)) {
      stages.push_back(stages.back());
      continue;
    }
    RecomputedLayers own = recompute_layers(chunks, group.live(), stage, 1.0 / problem.stages);
    const bool longer =
        stage > 0 && recompute_time(chunks, own) > recompute_time(chunks, stages.back());
    stages.push_back(longer ? RecomputedLayers{stages.back().layers, own.proven} : std::move(own));
  }
  return stages;
}

// The recurrence. `best` is by number of sequences, longest first, and `from` where the last group
// of them begins.
class Grouping {
 public:
  explicit Grouping(const SequenceProblem& problem) : problem_(problem) {
    const std::size_t n = problem.sequences.size();
    groups_.resize(n);
    for (std::size_t first = 0; first < n; ++first) {
      ChunkGroup group(problem);
      for (std::size_t last = first; last < n; ++last) {
        group.add(problem.sequences[last]);
        groups_[first].push_back({group.time(), group.least_recompute()});
      }
    }
    best_.assign(n + 1, kNever);
    from_.assign(n + 1, 0);
    best_[0] = 0;
    for (std::size_t last = 1; last <= n; ++last) {
      extend_to(last);
    }
  }

  double time() const { return best_.back(); }
  bool proven() const { return proven_; }
  int begin_of(int last) const { return from_[static_cast<std::size_t>(last)]; }

 private:
  struct Times {
    double run = 0;        // without recomputation
    double recompute = 0;  // at least
    double least() const { return run + recompute; }
  };

  const Times& times(std::size_t first, std::size_t last) const {
    return groups_[first][last - first - 1];
  }

  void extend_to(std::size_t last) {
    std::vector<std::pair<double, int>> begins;  // by a bound of the whole time
    for (std::size_t first = 0; first < last; ++first) {
      const double least = best_[first] + times(first, last).least();
      if (least < kNever) {
        begins.emplace_back(least, static_cast<int>(first));
      }
    }
    std::sort(begins.begin(), begins.end());
    for (const auto& [least, first] : begins) {
      if (least >= best_[last]) {
        return;
      }
      const double time =
          best_[static_cast<std::size_t>(first)] + time_of(first, static_cast<int>(last));
      if (time < best_[last]) {
        best_[last] = time;
        from_[last] = first;
      }
    }
  }

  double time_of(int first, int last) {
    const Times& times =
        this->times(static_cast<std::size_t>(first), static_cast<std::size_t>(last));
    if (times.recompute == 0) {
      return times.run;
    }
    const ChunkGroup group = group_of(problem_, first, last);
    const std::int64_t kept = chunks_kept(group.live());
    if (kept > kMostSolved - solved_ || unproven_ == kMostUnproven) {
      proven_ = false;
      return times.least();
    }
    solved_ += kept;
    const RecomputedChunks chunks = recomputed_chunks(problem_, group);
    const RecomputedLayers layers = recompute_layers(
        chunks, group.live(), 0, (kept > kFewKept ? kShareOfMany : 1.0) / problem_.stages);
    proven_ = proven_ && layers.proven;
    unproven_ += layers.proven ? 0 : 1;
    return times.run + recompute_time(chunks, layers);
  }

  static std::int64_t chunks_kept(const LiveChunks& live) {
    std::int64_t kept = 0;
    for (int k = 0; k < live.size(); ++k) {
      const LiveChunks::Set set = live.before_backward(0, k);
      kept += set.kept - set.first + set.begun - set.end;
    }
    return kept;
  }

  const SequenceProblem& problem_;
  std::vector<std::vector<Times>> groups_;  // by first sequence and size
  std::vector<double> best_;
  std::vector<int> from_;
  std::int64_t solved_ = 0;
  int unproven_ = 0;
  bool proven_ = true;
};

SequenceProblem read(ObjectReader& reader) {
  SequenceProblem problem;
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

Json group_json(const SequenceProblem& problem, int first, int last) {
  const ChunkGroup whole = group_of(problem, first, last);
  const std::vector<SequenceChunk>& chunks = whole.chunks();
  Json tokens = Json::array();
  Json times = Json::array();  // on a stage, forward and backward
  for (const SequenceChunk& chunk : chunks) {
    tokens.push(chunk.tokens);
    times.push(chunk.time * problem.layers);
  }
  Json stages = Json::array();
  bool proven = true;
  double recompute = 0;
  const RecomputedChunks recomputed = recomputed_chunks(problem, whole);
  for (const RecomputedLayers& of_stage : recompute_by_stage(problem, whole)) {
    proven = proven && of_stage.proven;
    recompute = std::max(recompute, recompute_time(recomputed, of_stage));
    Json layers = Json::array();
    for (const int count : of_stage.layers) {
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
  group.set("time_s", whole.time() + recompute);
  return group;
}

Json plan(ObjectReader& reader) {
  const SequenceProblem problem = read(reader);
  reader.finish();
  const Grouping grouping(problem);
  if (grouping.time() == kNever) {
    return infeasible("the chunks in flight do not fit even with full recomputation");
  }
  Json::Array groups;
  double time = 0;
  for (int last = static_cast<int>(problem.sequences.size()); last > 0;) {
    const int first = grouping.begin_of(last);
    groups.insert(groups.begin(), group_json(problem, first, last));
    time += groups.front().find("time_s")->as_number();
    last = first;
  }
  Json answer = Json::object();
  answer.set("groups", Json(std::move(groups)));
  answer.set("proven", grouping.proven());
  answer.set("time_s", time);
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
