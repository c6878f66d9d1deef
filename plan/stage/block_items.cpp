// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/block_items.hpp"

#include <algorithm>

namespace orrery::plan {

Seconds total(const std::vector<BlockItem>& items, GatherOf part) {
  Seconds sum;
  for (const BlockItem& item : items) {
    sum += (item.*part)();
  }
  return sum;
}

StageProgram::Ends gathered_forward(const std::vector<BlockItem>& items, const BlockCosts& costs,
                                    GatherOf gather_of, std::size_t limit) {
  StageProgram program(costs.device());
  std::vector<sim::NodeId> blocks;
  for (std::size_t index = 0; index < items.size(); ++index) {
    const sim::NodeId gather = program.add_collective((items[index].*gather_of)());
    if (index >= limit) {
      program.depend(gather, blocks[index - limit]);
    }
    blocks.push_back(program.add_block(items[index].forward));
    program.depend(blocks.back(), gather);
  }
  return program.run();
}

StageProgram::Ends backward_with_traffic(const std::vector<BlockItem>& items,
                                         const BlockCosts& costs, const BackwardOptions& options) {
  StageProgram program(costs.device());
  const std::size_t count = items.size();
  std::vector<sim::NodeId> gathers(count, sim::kNone);
  std::vector<sim::NodeId> blocks;
  const bool early = options.prefetch == BackwardPrefetch::Pre;
  const auto gather = [&](std::size_t position) {  // 0 is the last block of the stage
    gathers[position] = program.add_collective(items[count - 1 - position].gather_backward);
    if (early && position >= options.limit) {
      program.depend(gathers[position], blocks[position - options.limit]);
    } else if (!early && position > 0) {
      program.depend(gathers[position], blocks[position - 1]);
    }
  };
  if (options.gather && count > 0) {
    gather(0);
  }
  int reductions = 0;
  Seconds pending;  // reductions of the bucket being filled
  ByteCount bucket;
  for (std::size_t position = 0; position < count; ++position) {
    const BlockItem& item = items[count - 1 - position];
    blocks.push_back(program.add_block(item.backward));
    const bool gathers_next = options.gather && position + 1 < count;
    if (options.gather) {
      program.depend(blocks.back(), gathers[position]);
    }
    if (gathers_next && options.prefetch != BackwardPrefetch::None) {
      gather(position + 1);
    }
    pending += options.last ? item.reduce : item.pass_reduce();
    bucket += item.gradient;
    const bool small = reductions == 0 && options.first_bucket.value() > 0;
    const ByteCount full = small ? std::min(options.first_bucket, options.bucket) : options.bucket;
    if (bucket >= full || position + 1 == count) {
      program.depend(program.add_collective(pending), blocks.back());
      pending = Seconds();
      bucket = ByteCount();
      ++reductions;
    }
    if (gathers_next && options.prefetch == BackwardPrefetch::None) {
      gather(position + 1);
    }
  }
  return program.run();
}

SimTime repeated_backward(const std::vector<BlockItem>& items, const BlockCosts& costs,
                          const BackwardOptions& options) {
  const auto ends = backward_with_traffic(items, costs, options);
  return std::max(ends.compute, ends.data);
}

}  // namespace orrery::plan
