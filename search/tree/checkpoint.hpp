// SPDX-License-Identifier: Apache-2.0
// A search on disk: what it searches, as hashes by name, and its state between two batches. A
// search that goes on from it ends with the same plans, counts and certificate. The file is
// replaced as a whole (temporary file, rename), so that a kill leaves the one before; of the
// homogeneous space about 28 bytes a node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "search/tree/frontier.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

// One thing that two searches have to agree on, in words.
struct InputHash {
  std::string name;
  std::uint64_t hash = 0;
  bool operator==(const InputHash&) const = default;
};

// Of a plan: network, cluster, profile, workload, execution, memory reserve.
std::vector<InputHash> plan_hashes(plan::Plan plan);
// What is fixed, forbidden, allowed and named, in any order.
InputHash asked_hash(const Constraints& constraints);
// Those of the plan; which space, what of it, gap, number of plans kept.
std::vector<InputHash> input_hashes(const Space& space, const std::vector<Group>& groups,
                                    const Options& options);

// Names what differs: "network and batch"; empty when nothing does.
std::string difference(const std::vector<InputHash>& ours, const std::vector<InputHash>& theirs);

void write_inputs(ByteWriter& out, const std::vector<InputHash>& inputs);
std::vector<InputHash> read_inputs(ByteReader& in);

// What a checkpoint holds behind its inputs.
enum class Progress : std::uint8_t {
  None,      // the search has not come to its first batch
  Frontier,  // of the homogeneous space
  PerBlock,  // search/per_block/state.hpp
  Pareto,    // search/pareto_log.hpp
  Mixed,     // search/mixed/state.hpp
  Serving,   // search/serving_search.cpp
  Packed,    // search/packed_tries.hpp
};

// `bytes` are the state.
void write_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                      Progress progress, const std::string& bytes);
// Error when it is no checkpoint, damaged, of another version or of other inputs.
Progress read_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                         std::string& bytes);

// `frontier` null: the search has not come to its first batch.
void write_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                      const Frontier* frontier);

// Fills a frontier that has not begun; false when the checkpoint has not, either.
bool read_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                     Frontier& frontier);

}  // namespace orrery::search
