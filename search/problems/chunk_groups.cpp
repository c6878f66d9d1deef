// SPDX-License-Identifier: Apache-2.0
#include "search/problems/chunk_groups.hpp"

#include <algorithm>
#include <cmath>

#include "search/problems/attention_pairs.hpp"

namespace orrery::search {
namespace {

double slice_time(const SequenceProblem& problem, double context, double tokens) {
  return problem.per_token * tokens + problem.per_pair * attention_pairs(tokens, context);
}

}  // namespace

double least_slices(const SequenceProblem& problem, double tokens) {
  const double by_time =
      slice_time(problem, 0, tokens) / slice_time(problem, 0, problem.chunk_tokens);
  return std::max(std::ceil(tokens / problem.chunk_tokens), std::floor(by_time * (1 - 1e-6)));
}

void append_slices(const SequenceProblem& problem, double tokens,
                   std::vector<SequenceChunk>& chunks) {
  for (int count = static_cast<int>(least_slices(problem, tokens));; ++count) {
    const double each = slice_time(problem, 0, tokens) / count;
    std::vector<SequenceChunk> slices;
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

void ChunkGroup::add(double tokens) {
  if (tokens > problem_.chunk_tokens) {
    std::vector<SequenceChunk> slices;
    append_slices(problem_, tokens, slices);
    std::size_t at = chunks_.size();
    append(slices.size());
    for (const SequenceChunk& slice : slices) {
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

double ChunkGroup::time() const {
  const double work = layer_time_ * problem_.layers;
  return work + (problem_.stages - 1) * work / static_cast<double>(chunks_.size());
}

double ChunkGroup::least_recompute() const {
  if (most_ * problem_.kept_per_token * problem_.layers > problem_.memory) {
    return std::numeric_limits<double>::infinity();
  }
  const double over = most_ * problem_.layers * problem_.bytes_per_token - problem_.memory;
  return over > 0 ? over / (problem_.bytes_per_token - problem_.kept_per_token) * least_rate_ *
                        kForwardShare * (1 - 1e-12)
                  : 0;
}

// A sequence of so many slices, or a pack, still empty.
void ChunkGroup::append(std::size_t slices) {
  live_.append(static_cast<int>(slices));
  chunks_.resize(chunks_.size() + slices);
  held_.resize(chunks_.size());
}

// What the first stage keeps only gains tokens, so that the most of it is known from the sets
// that hold this chunk: those of its own sequence and of the ones shortly before.
void ChunkGroup::grow(std::size_t at, const SequenceChunk& more) {
  chunks_[at].tokens += more.tokens;
  chunks_[at].time += more.time;
  layer_time_ += more.time;
  least_rate_ = std::min(least_rate_, chunks_[at].time / chunks_[at].tokens);
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

}  // namespace orrery::search
