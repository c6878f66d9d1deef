// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/token_table.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/math.hpp"
#include "plan/schedule_traits.hpp"

namespace orrery::plan {

namespace {

const models::Block& block_of(const Plan& plan, const StagePiece& piece) {
  return plan.network.blocks[static_cast<std::size_t>(piece.block)];
}

// Of a network whose blocks in the chain share one.
bool shares_table(const models::Network& network) {
  return std::any_of(network.chain.begin(), network.chain.end(), [&](int block) {
    return uses_table(network.blocks[static_cast<std::size_t>(block)]);
  });
}

bool trains_table(const models::Network& network) {
  return std::any_of(network.blocks.begin(), network.blocks.end(), [](const models::Block& block) {
    return std::any_of(block.tensors.begin(), block.tensors.end(),
                       [](const models::Tensor& tensor) { return tensor.tied && !tensor.frozen; });
  });
}

bool cut_alike(const StagePiece& a, const StagePiece& b) {
  return a.layout.tp == b.layout.tp && a.layout.tensor_parallel == b.layout.tensor_parallel &&
         a.layout.tensor_shares == b.layout.tensor_shares && a.across_stages == b.across_stages;
}

// Elements of the table whose gradients a rank adds up where blocks that hold it have this layout.
double summed_elements(const Plan& plan, const BlockPlan& layout, BlockCosts& costs) {
  const Mesh mesh = mesh_of(layout, plan.data_ranks(layout));
  double most = 0;
  for (std::size_t index = 0; index < plan.network.blocks.size(); ++index) {
    if (!uses_table(plan.network.blocks[index])) {
      continue;
    }
    const auto block = static_cast<int>(index);
    double elements = 0;
    for (const StateGroup& group :
         costs.of(block, layout, plan.micro_batch_of(layout, block)).states) {
      const std::int64_t shards = layout.zero_stage >= 2 ? num_shards(group, mesh) : 1;
      elements +=
          group.tied && !group.frozen ? static_cast<double>(ceil_div(group.elements, shards)) : 0.0;
    }
    most = std::max(most, elements);
  }
  return most;
}

// Of the holders whose layout leaves most: the others wait for them.
double summed_elements(const Plan& plan, BlockCosts& costs) {
  double most = 0;
  auto position = plan.network.chain.begin();
  for (const BlockRun& run : plan.blocks) {
    const auto end = position + run.count;
    const bool holds = std::any_of(position, end, [&](int block) {
      return holds_table(plan.network.blocks[static_cast<std::size_t>(block)]);
    });
    most = holds ? std::max(most, summed_elements(plan, run.layout, costs)) : most;
    position = end;
  }
  return most;
}

}  // namespace

bool uses_table(const models::Block& block) {
  return std::any_of(block.tensors.begin(), block.tensors.end(),
                     [](const models::Tensor& tensor) { return tensor.tied; });
}

bool holds_table(const models::Block& block) {
  return block.kind == models::BlockKind::Embedding || uses_table(block);
}

bool layers_use_table(const models::Network& network) {
  return std::any_of(network.blocks.begin(), network.blocks.end(), [](const models::Block& block) {
    return block.kind == models::BlockKind::Layer && uses_table(block);
  });
}

int device_of_stage(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                    std::size_t stage) {
  return stage < device_of.size() ? device_of[stage]
                                  : static_cast<int>(stage % static_cast<std::size_t>(plan.pp));
}

void share_table(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                 std::vector<StageContent>& stages) {
  if (!shares_table(plan.network)) {
    return;
  }
  std::vector<bool> with_table;  // by block: their tensors are many, and so are the pieces
  for (const models::Block& block : plan.network.blocks) {
    with_table.push_back(holds_table(block));
  }
  std::vector<std::pair<int, const StagePiece*>> held;
  for (const bool embeds : {true, false}) {
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      const int device = device_of_stage(plan, device_of, stage);
      for (StagePiece& piece : stages[stage]) {
        const bool embedding = kind_of(piece, plan.network) == models::BlockKind::Embedding;
        if (!with_table[static_cast<std::size_t>(piece.block)] || embedding != embeds) {
          continue;
        }
        piece.table_elsewhere =
            !embedding && std::any_of(held.begin(), held.end(), [&](const auto& known) {
              return known.first == device && cut_alike(*known.second, piece);
            });
        if (!piece.table_elsewhere) {
          held.emplace_back(device, &piece);
        }
      }
    }
  }
}

std::vector<int> devices_with_table(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                                    const std::vector<StageContent>& stages) {
  if (!shares_table(plan.network) || !trains_table(plan.network)) {
    return {};
  }
  const bool mirrors = schedule_traits(plan).two_directions;
  std::set<int> devices;
  bool shards = false;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (const StagePiece& piece : stages[stage]) {
      if (!holds_table(block_of(plan, piece))) {
        continue;
      }
      shards = shards || piece.across_stages;
      const int device = device_of_stage(plan, device_of, stage);
      if (!piece.across_stages) {
        devices.insert(mirrors ? std::min(device, plan.pp - 1 - device) : device);
      }
    }
  }
  if (shards && !devices.empty()) {
    std::vector<int> all(static_cast<std::size_t>(plan.pp));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  return {devices.begin(), devices.end()};
}

void wait_for_uses(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                   const std::vector<StageContent>& stages, std::vector<SimTime>& complete) {
  std::vector<SimTime> last(static_cast<std::size_t>(plan.pp));  // of uses counted elsewhere
  const auto for_tables = [&](bool elsewhere, auto visit) {
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      const auto device = static_cast<std::size_t>(device_of_stage(plan, device_of, stage));
      for (const StagePiece& piece : stages[stage]) {
        if (holds_table(block_of(plan, piece)) && piece.table_elsewhere == elsewhere) {
          visit(stage, device);
        }
      }
    }
  };
  for_tables(true, [&](std::size_t stage, std::size_t device) {
    last[device] = std::max(last[device], complete[stage]);
  });
  for_tables(false, [&](std::size_t stage, std::size_t device) {
    complete[stage] = std::max(complete[stage], last[device]);
  });
}

bool may_sum_tables(const Plan& plan, const std::vector<std::uint16_t>& device_of) {
  const models::Network& network = plan.network;
  if (plan.pp == 1 || !trains_table(network) || !shares_table(network)) {
    return false;
  }
  const auto last = static_cast<std::size_t>(plan.pp * plan.chunks - 1);
  return layers_use_table(network) ||
         device_of_stage(plan, device_of, 0) != device_of_stage(plan, device_of, last);
}

costmodel::GroupShape group_over(const Plan& plan, const std::vector<int>& devices) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const int gpus = plan.cluster.node.gpus;
  const int ranks = layout.tp * layout.cp * plan.dp;  // of a device
  const auto size = static_cast<int>(devices.size());
  const int stride = ranks * (devices.back() - devices.front()) / (size - 1);
  if (ranks * (devices.back() + 1) > gpus) {
    return costmodel::make_group(size, stride, gpus);
  }
  costmodel::GroupShape group = costmodel::make_group(size, 1, gpus);  // one node has them all
  group.gpu_stride = stride;
  return group;
}

Bytes tied_gradients(const Plan& plan, BlockCosts& costs) {
  return Bytes(summed_elements(plan, costs) * gradient_bytes(plan.execution, plan.precision));
}

Seconds tied_embedding_time(const Plan& plan, const std::vector<int>& devices, BlockCosts& costs) {
  const Bytes bytes = devices.size() < 2 ? Bytes() : tied_gradients(plan, costs);
  if (bytes == Bytes()) {
    return Seconds();
  }
  const costmodel::GroupShape group = group_over(plan, devices);
  return costs.scaled(group, costs.collectives().time(sim::CommKind::AllReduce, bytes, group));
}

}  // namespace orrery::plan
