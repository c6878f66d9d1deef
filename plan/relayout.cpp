// SPDX-License-Identifier: Apache-2.0
#include "plan/relayout.hpp"

#include <algorithm>

namespace orrery::plan {

namespace {

// Into how many parts the stream is cut along each of its sharded dimensions.
struct Shards {
  int batch;
  int sequence;
  bool operator==(const Shards&) const = default;
};

Shards shards_of(const Plan& plan, const BlockPlan& layout) {
  return {plan.data_ranks(layout), layout.cp * (layout.sequence_parallel ? layout.tp : 1)};
}

// Ranks that hold the pieces of one shard of the other layout.
int partners(int a, int b) { return std::max(a, b) / std::min(a, b); }

}  // namespace

Relayout relayout(const Plan& plan, const BlockPlan& from, ByteCount before, const BlockPlan& to,
                  ByteCount after, const BlockCosts& costs) {
  const Shards old_shards = shards_of(plan, from);
  const Shards new_shards = shards_of(plan, to);
  if (old_shards == new_shards) {
    return {};
  }
  const bool coarser =
      new_shards.batch <= old_shards.batch && new_shards.sequence <= old_shards.sequence;
  const bool finer =
      new_shards.batch >= old_shards.batch && new_shards.sequence >= old_shards.sequence;
  const int by_batch = partners(old_shards.batch, new_shards.batch);
  const int by_sequence = partners(old_shards.sequence, new_shards.sequence);
  const int stride = std::min(from.tp * from.cp, to.tp * to.cp);
  const auto time = [&](sim::CommKind kind, ByteCount bytes, int ranks) {
    const auto group = costmodel::make_group(ranks, stride, costs.cluster().node.gpus);
    return costs.scaled(group, costs.collectives().time(kind, bytes.bytes(), group));
  };
  if (coarser) {
    return {time(sim::CommKind::AllGather, after, by_batch * by_sequence), Seconds()};
  }
  if (finer) {
    return {Seconds(), time(sim::CommKind::AllGather, before, by_batch * by_sequence)};
  }
  const Seconds exchange = time(sim::CommKind::AllToAll, std::max(before, after),
                                std::max(by_batch, by_sequence));
  return {exchange, exchange};
}

}  // namespace orrery::plan
