// SPDX-License-Identifier: Apache-2.0
// A search on disk: what it searches, as hashes by name, and its frontier between two batches. A
// search that goes on from it ends with the same plans, counts and certificate. The file is
// replaced as a whole (temporary file, rename), so that a kill leaves the one before; about 28
// bytes a node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "search/frontier.hpp"
#include "search/search.hpp"

namespace orrery::search {

// One thing that two searches have to agree on, in words.
struct InputHash {
  std::string name;
  std::uint64_t hash = 0;
  bool operator==(const InputHash&) const = default;
};

// Network, cluster, profile, workload, execution, memory reserve, space, gap, number of plans kept.
std::vector<InputHash> input_hashes(const Space& space, const std::vector<Group>& groups,
                                    const Options& options);

// Names what differs: "network and batch"; empty when nothing does.
std::string difference(const std::vector<InputHash>& ours, const std::vector<InputHash>& theirs);

void write_inputs(ByteWriter& out, const std::vector<InputHash>& inputs);
std::vector<InputHash> read_inputs(ByteReader& in);

// `frontier` null: the search has not come to its first batch.
void write_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                      const Frontier* frontier);

// Fills a frontier that has not begun; false when the checkpoint has not, either. Error when it is
// no checkpoint, damaged, of another version or of other inputs.
bool read_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                     Frontier& frontier);

}  // namespace orrery::search
