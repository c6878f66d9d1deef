// SPDX-License-Identifier: Apache-2.0
// The chunks that a stage keeps in 1F1B over slices of sequences (InfiniPipe, whose lists are those
// of Seq1F1B for one long sequence): slices of a sequence go forward in order
// and back in reverse, so that the first one lives through the backwards of all others. The lists
// are those of sim/schedules/infinipipe.cpp.
#pragma once

#include <vector>

namespace orrery::search {

class LiveChunks {
 public:
  explicit LiveChunks(int stages) : stages_(stages) {}

  // Another sequence, of so many slices: no more than the one before it.
  void append(int slices);
  int size() const { return static_cast<int>(sequence_of_.size()); }
  // One behind the last slice of the sequence that a chunk belongs to.
  int end_of(int chunk) const { return of(chunk).end; }

  // Of one sequence the slices [first, kept), and the chunks [end, begun) of later ones.
  struct Set {
    int first = 0;
    int kept = 0;
    int end = 0;
    int begun = 0;
    bool holds(int chunk) const {
      return (first <= chunk && chunk < kept) || (end <= chunk && chunk < begun);
    }
  };
  // What a stage (0 the first) keeps when its backward number k begins. It keeps the most right
  // then: forwards come before, and it keeps no more than before the previous backward unless
  // `begun` has grown.
  Set before_backward(int stage, int k) const;
  // Whether a stage always keeps what the one before it keeps: it begins no fewer chunks before any
  // backward.
  bool keeps_as_before(int stage) const;

 private:
  struct Sequence {
    int first = 0;
    int end = 0;
    int longest_after = 0;  // slices of the longest later sequence
  };
  const Sequence& of(int chunk) const {
    return sequences_[static_cast<std::size_t>(sequence_of_[static_cast<std::size_t>(chunk)])];
  }

  int stages_;
  std::vector<Sequence> sequences_;
  std::vector<int> sequence_of_;  // by chunk
};

}  // namespace orrery::search
