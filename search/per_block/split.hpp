// SPDX-License-Identifier: Apache-2.0
// Blocks are whole: where the program of a pipeline ends with parts of blocks on neighbouring
// devices, these have the whole number below together or the one above in every plan, and both
// halves have a bound of their own. Where hardly any device can have less than it can work off, the
// half below says that all others are full, and the half above that these are: half of the devices
// are decided by one split. Where all devices have whole numbers the peaks of chunks are asked for,
// and then the same as of devices of consecutive virtual stages. Empty where these are whole, too.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "search/per_block/bound.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

std::vector<std::vector<StageRange>> split_stages(const Shares& shares, const Pipeline& pipeline,
                                                  const std::vector<StageRange>& known);

// Some stage has at least as many layers as the mean, rounded up: one before the last chunk; or all
// of these have fewer, and one of the last chunk has. Paths that stay at such a stage
// (per_block/peaks.hpp) go through more of the pipeline where its last chunk is behind it. Empty
// where they are longer by less than 2 % of the time, or there is one chunk.
std::vector<std::vector<StageRange>> split_peak(const models::Network& network,
                                                const Pipeline& pipeline, std::size_t stages,
                                                std::int64_t micro_batches);

// Once split_peak was asked: of the chunk with most blocks of which it is not known, whether one of
// its stages has as many layers or all have fewer. Fractions are spread over all chunks alike;
// where all stages of a chunk have fewer, the other chunks have what is left. Empty where it is
// known of every chunk.
std::vector<std::vector<StageRange>> split_chunks(const Shares& shares, const Pipeline& pipeline,
                                                  const std::vector<StageRange>& known);

// Blocks of some strategies on a device, or in a stage, that are no whole number: strategies that
// recompute, that shard gradients, that have some degree and the like, farthest from a whole number
// first; single strategies where all of these are whole. Empty where these are whole, too.
std::vector<std::vector<StageRange>> split_strategies(const Shares& shares,
                                                      const Pipeline& pipeline,
                                                      const MeshCosts& costs,
                                                      const std::vector<StageRange>& known);

// Whether a stage or a device has any block of strategies that need a buffer which blocks share,
// where a program spreads it over many. Empty where none does.
std::vector<std::vector<StageRange>> split_buffers(const Shares& shares, const Pipeline& pipeline,
                                                   const MeshCosts& costs,
                                                   const std::vector<StageRange>& known);

// By a peak where nothing is split yet and `knows_peaks` says that the lists have such paths
// (PipelineBounds::knows_peaks; asked at most once), else by stages, and where these are whole by
// strategies. Parts of a part; every plan is in one of them.
std::vector<std::vector<StageRange>> split_part(const Shares& shares, const Pipeline& pipeline,
                                                const models::Network& network,
                                                const MeshCosts& costs, std::int64_t micro_batches,
                                                const std::vector<StageRange>& known,
                                                const std::function<bool()>& knows_peaks);

}  // namespace orrery::search
