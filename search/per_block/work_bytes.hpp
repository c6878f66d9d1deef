// SPDX-License-Identifier: Apache-2.0
// Questions and answers of the per-block search as bytes, for messages between processes.
#pragma once

#include "search/per_block/node_bytes.hpp"
#include "search/per_block/worker.hpp"

namespace orrery::search {

void write(ByteWriter& out, const PerBlockWork& work);
void write(ByteWriter& out, const PerBlockDone& done);

PerBlockWork read_work(ByteReader& in, const PerBlockSpace& space, const CostsOf& costs_of);
// The answer to `work`.
PerBlockDone read_done(ByteReader& in, const PerBlockWork& work, const PerBlockSpace& space,
                       const CostsOf& costs_of);

}  // namespace orrery::search
