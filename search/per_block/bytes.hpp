// SPDX-License-Identifier: Apache-2.0
// Paths, shares, ranges and drafts of the per-block search as bytes, for checkpoints and messages.
// Counts take as many bytes as they need, shares those of choices that have one: of a pipeline with
// 80 virtual stages about 500 bytes a path.
#pragma once

#include <vector>

#include "base/bytes.hpp"
#include "search/per_block/draft.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

// What there is of each in the drafts of a pipeline.
struct DraftShape {
  std::size_t stages = 0;  // virtual
  std::size_t positions = 0;
  std::size_t strategies = 0;
};

void write(ByteWriter& out, const Shares& shares);
void write(ByteWriter& out, const std::vector<StageRange>& ranges);
void write(ByteWriter& out, const std::vector<PassPath>& paths);
void write(ByteWriter& out, const Draft& draft);
void write(ByteWriter& out, const DraftResult& result);

// Error where it cannot be one of `all` virtual stages, of both directions.
std::vector<PassPath> read_paths(ByteReader& in, std::size_t all);
// Of so many virtual stages, and of the choices that `costs` has.
Shares read_shares(ByteReader& in, std::size_t stages, const MeshCosts& costs);
std::vector<StageRange> read_ranges(ByteReader& in, std::size_t stages);
Draft read_draft(ByteReader& in, const DraftShape& shape);
DraftResult read_draft_result(ByteReader& in, const DraftShape& shape);

}  // namespace orrery::search
