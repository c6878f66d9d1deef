// SPDX-License-Identifier: Apache-2.0
// What travels beside the residual stream: the output of an encoder, which every block of the
// decoder reads (Block::memory). It goes from block to block, is converted and sent with the
// stream, and so does its gradient; a stage keeps it once for all its blocks. O(operators).
#pragma once

#include <algorithm>

#include "plan/block/steps.hpp"

namespace orrery::plan {

struct Carried {
  ByteCount bytes;          // on a rank, laid out as the stream is; 0: the block has none
  bool taken = false;       // from the block before; else it makes it itself
  bool read_again = false;  // by its backward, or what runs again there, where it was taken
  bool kept = false;        // among what it saves, where it made it
  bool trained = false;     // its gradient travels back
};

Carried carried_by(const BlockContext& context);
// Whether it comes from the block before.
bool takes_carried(const models::Block& block);

// What a stage keeps of it beside what its blocks save, a micro-batch.
class CarriedOnce {
 public:
  void add(const Carried& carried) {
    kept_ = kept_ || carried.kept;
    read_ = carried.read_again ? std::max(read_, carried.bytes) : read_;
  }
  ByteCount saved() const { return kept_ ? ByteCount() : read_; }

 private:
  bool kept_ = false;
  ByteCount read_;
};

}  // namespace orrery::plan
