// SPDX-License-Identifier: Apache-2.0
// Collective algorithms as steps of point-to-point messages, for detail mode and for link loads.
// One file in sim/collectives/ defines one constant `collective_<file name>`. Bytes follow the
// bandwidth-optimal conventions: all-reduce and all-to-all of S bytes per rank, all-gather whose
// result is S, reduce-scatter whose input is S, broadcast of S from rank 0.
// Steps are local to a rank: it begins a step when all it sent and received in earlier steps has
// ended; no rank waits for the others. So messages depend on earlier steps only, and a step can be
// made when it is needed: a collective of millions of messages is never held at once.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "sim/engine/tags.hpp"

namespace orrery::sim {

struct CollectiveMessage {
  std::uint32_t step;
  std::uint32_t from;  // rank within the group
  std::uint32_t to;
  bool reduces;  // the receiver adds the bytes to its own
  ByteCount bytes;
};

struct CollectiveAlgorithm {
  std::string_view name;  // "ring-all-reduce"
  CommKind kind;
  std::string_view description;
  std::string_view source;
  std::uint32_t (*num_steps)(int ranks, ByteCount size);  // 0 for one rank
  // Appends the messages of a step, in order of sender. Pieces of S differ by at most one byte, the
  // larger ones first, so that bytes are conserved exactly; a piece of zero bytes is a message too.
  void (*append_step)(int ranks, ByteCount size, std::uint32_t step,
                      std::vector<CollectiveMessage>& messages);
};

std::span<const CollectiveAlgorithm* const> collective_table();  // generated; sorted by file name
// Error (citing `where`) with the nearest name where none is called so.
const CollectiveAlgorithm& find_collective(std::string_view name, std::string_view where);

// All messages in order of step. Bad input when there are more than limits allow.
std::vector<CollectiveMessage> collective_messages(const CollectiveAlgorithm& algorithm, int ranks,
                                                   ByteCount size);

// For the algorithms.
ByteCount piece_bytes(ByteCount size, int pieces, int index);
ByteCount bytes_of_pieces(ByteCount size, int pieces, int first, int count);
// Chunks of about 512 KiB that a pipelined algorithm cuts `size` into, 1 to 256.
int pipeline_chunks(ByteCount size);
// Every rank r sends piece (r + first - step) mod ranks to rank r + 1.
void append_ring_step(int ranks, ByteCount size, std::uint32_t step, int first, bool reduces,
                      std::vector<CollectiveMessage>& messages);

}  // namespace orrery::sim
