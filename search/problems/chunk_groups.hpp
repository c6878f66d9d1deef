// SPDX-License-Identifier: Apache-2.0
// Chunks of about equal work from sequences of very different length: long ones cut into slices of
// equal time, short ones packed (Wang et al., InfiniPipe, arXiv 2509.21275).
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "search/problems/live_chunks.hpp"

namespace orrery::search {

inline constexpr double kForwardShare = 1.0 / 3;  // of forward and backward

struct SequenceProblem {
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

struct SequenceChunk {
  double tokens = 0;
  double time = 0;  // of a layer
};

// Slices that a sequence has at least: of no more than the token limit, and of equal time, where
// the first is the longest.
double least_slices(const SequenceProblem& problem, double tokens);

// A long sequence as the fewest slices within the token limit, of equal time: later slices, which
// attend to more, are shorter.
void append_slices(const SequenceProblem& problem, double tokens,
                   std::vector<SequenceChunk>& chunks);

// Chunks of sequences that are added, longest first: slices of the long ones, then packs of the
// others by best fit; what their pipeline takes, and what its first stage keeps.
class ChunkGroup {
 public:
  explicit ChunkGroup(const SequenceProblem& problem) : problem_(problem), live_(problem.stages) {}

  void add(double tokens);

  // Seconds of the pipeline without recomputation: work, fill and drain.
  double time() const;
  // Seconds that the first stage recomputes at least: what exceeds its memory, where that is saved
  // in the shortest time. Infinite when even recomputing everything does not fit.
  double least_recompute() const;

  const std::vector<SequenceChunk>& chunks() const { return chunks_; }
  const LiveChunks& live() const { return live_; }

 private:
  void append(std::size_t slices);
  void grow(std::size_t at, const SequenceChunk& more);

  const SequenceProblem& problem_;
  LiveChunks live_;
  std::vector<SequenceChunk> chunks_;
  std::vector<double> held_;  // tokens on the first stage before each backward
  std::size_t packs_ = 0;     // the first pack
  double layer_time_ = 0;     // of a layer, all chunks
  double most_ = 0;           // tokens that the first stage keeps
  // Seconds for a token of a layer, of the chunk with the least: a pack only gains shorter
  // sequences, which take less.
  double least_rate_ = std::numeric_limits<double>::infinity();
};

}  // namespace orrery::search
