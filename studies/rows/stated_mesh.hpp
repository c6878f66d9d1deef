// SPDX-License-Identifier: Apache-2.0
// Meshes of copies and shards in remarks: "HSDP 2x8", "device mesh (2, 8)", "2-way replicate, 8-way
// shard". Linear in the length of the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::studies {

struct StatedMesh {
  int shards = 0;      // 0 where nothing says which of its numbers shards
  std::string remark;  // that states it
};

// Remarks in the form of settings; the ranks of data parallelism and those of one node, which the
// shards are where no word says so.
std::optional<StatedMesh> stated_mesh(std::string_view remarks, std::int64_t ranks, int of_node);

}  // namespace orrery::studies
