// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/offload_time.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace orrery::plan {

namespace {

constexpr int kDevice = 0;
constexpr int kHost = 1;
constexpr int kDisk = 2;

int index_of(Tier tier) { return static_cast<int>(tier); }

// A block of a pass: its time, what it needs from elsewhere and what it leaves there.
struct CopiedBlock {
  SimTime time;
  std::vector<sim::TierMove> parameters;
  std::vector<sim::TierMove> loads;  // what it saved
  std::vector<sim::TierMove> stores;
};

void add_move(Tier tier, ByteCount bytes, std::vector<sim::TierMove>& moves) {
  if (tier != Tier::Device && bytes.value() > 0) {
    moves.push_back({index_of(tier), bytes});
  }
}

// A pass that begins with the block that the pass before ended with, the other way: the parameters
// of its first `there` blocks are still there. What its first block saved came during the pass
// before and that of the next pass comes during this one; the last block's stores go out during the
// next. The pass ends when its blocks and copies have ended.
SimTime copied_pass(const std::vector<CopiedBlock>& blocks, const sim::TierGraph& graph,
                    const sim::TierPolicy& window, int there) {
  std::vector<sim::TierObject> objects = {{"the pass before", ByteCount(), {}}};
  std::vector<sim::TierStep> steps = {{0, SimTime{}, blocks.back().stores}};
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    const CopiedBlock& block = blocks[index];
    const bool first = index == 0;
    const bool last = index + 1 == blocks.size();
    std::vector<sim::TierMove> loads = first ? std::vector<sim::TierMove>() : block.loads;
    if (index >= static_cast<std::size_t>(there)) {
      loads.insert(loads.end(), block.parameters.begin(), block.parameters.end());
    }
    objects.push_back({"block", ByteCount(), std::move(loads)});
    steps.push_back({static_cast<int>(objects.size()) - 1, block.time,
                     last ? std::vector<sim::TierMove>() : block.stores});
  }
  objects.push_back({"the next pass", ByteCount(), blocks.front().loads});
  steps.push_back({static_cast<int>(objects.size()) - 1, SimTime{}, {}});
  return sim::run_tiers(graph, kDevice, objects, steps, window).drained;
}

bool copies(const std::vector<CopiedBlock>& blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [](const CopiedBlock& block) {
    return !block.parameters.empty() || !block.loads.empty() || !block.stores.empty();
  });
}

// The blocks' times fill what the pass takes without copies.
void stretch(std::vector<CopiedBlock>& blocks, SimTime pass) {
  SimTime sum;
  for (const CopiedBlock& block : blocks) {
    sum += block.time;
  }
  if (sum.ps <= 0) {
    return;
  }
  const double factor = static_cast<double>(pass.ps) / static_cast<double>(sum.ps);
  SimTime used;
  for (CopiedBlock& block : blocks) {
    block.time = SimTime{static_cast<std::int64_t>(static_cast<double>(block.time.ps) * factor)};
    used += block.time;
  }
  blocks.back().time += pass - used;  // rounding
}

}  // namespace

sim::TierGraph tier_graph(const topologies::Cluster& cluster, const costmodel::Profile& profile) {
  const topologies::Node& node = cluster.node;
  const double gpus = node.gpus;
  const double behind_switch = std::max(1, node.gpus_per_pcie_switch);
  const BytesPerSecond link = node.host_link_per_gpu * (profile.host_copy.fraction / behind_switch);
  const Seconds latency = profile.host_copy.latency;
  sim::TierGraph graph;
  graph.tiers = {{"device", cluster.gpu.memory, BytesPerSecond()},
                 {"host", node.host_memory, node.host_memory_bandwidth / gpus},
                 {"disk", node.disk, BytesPerSecond()}};
  graph.channels = {{kHost, kDevice, link, latency, -1}, {kDevice, kHost, link, latency, -1}};
  if (node.disk_bandwidth.value() > 0) {
    const BytesPerSecond disk = node.disk_bandwidth / gpus;
    graph.channels.push_back({kDisk, kHost, disk, Seconds(), 0});
    graph.channels.push_back({kHost, kDisk, disk, Seconds(), 0});
  }
  return graph;
}

ByteCount away_bytes(const StagePiece& piece, const BlockCost& block,
                     const models::Network& network) {
  const bool is_layer =
      network.blocks[static_cast<std::size_t>(piece.block)].kind == models::BlockKind::Layer;
  const Offload& offload = piece.layout.offload;
  ByteCount leaving = block.saved - std::min(block.saved, block.context_gradients);
  if (!offload.activations_of.empty()) {
    ORRERY_CHECK(block.saved_by_group.has_value(), "the cost was asked for without its offload");
    leaving = ByteCount();
    for (const OperatorGroup group : offload.activations_of.groups()) {
      leaving += (*block.saved_by_group)[static_cast<std::size_t>(group)];
    }
  }
  const double share = is_layer ? offload.activations : 0.0;
  return ByteCount(std::llround(static_cast<double>(leaving.value()) * share));
}

void add_offload(const StageContent& content, const Plan& plan, BlockCosts& costs,
                 const Slice& slice, StageCost& stage) {
  const bool any = std::any_of(content.begin(), content.end(),
                               [](const StagePiece& piece) { return piece.layout.offload.any(); });
  if (!any) {
    return;
  }
  const int resident = blocks_on_device(content, plan.execution);
  const bool fetches = std::any_of(content.begin(), content.end(), [](const StagePiece& piece) {
    return piece.layout.offload.parameters != Tier::Device;
  });
  const sim::TierPolicy window{
      .resident = resident,
      .batch = fetches ? std::min(plan.execution.fetched_together, resident) : 1};
  std::vector<CopiedBlock> forward;
  std::vector<CopiedBlock> backward;
  for (const StagePiece& piece : content) {
    const Offload& offload = piece.layout.offload;
    const BlockCost& block =
        costs.of(piece.block, piece.layout, micro_batch_of(piece, plan), slice);
    const StateBytes states =
        state_bytes(block, piece.layout, mesh_of(piece.layout, data_ranks_of(piece, plan)),
                    plan.execution, plan.precision, piece.table_elsewhere);
    const ByteCount away = away_bytes(piece, block, costs.network());
    CopiedBlock ahead{block.forward.time, {}, {}, {}};
    CopiedBlock back{block.backward.time, {}, {}, {}};
    add_move(offload.parameters, states.fetched, ahead.parameters);
    add_move(offload.parameters, states.fetched, back.parameters);
    add_move(offload.home_of_activations(), away, ahead.stores);
    add_move(offload.home_of_activations(), away, back.loads);
    add_move(offload.gradients, states.sent, back.stores);
    forward.insert(forward.end(), static_cast<std::size_t>(piece.count), ahead);
    backward.insert(backward.end(), static_cast<std::size_t>(piece.count), back);
  }
  std::reverse(backward.begin(), backward.end());
  const sim::TierGraph graph = tier_graph(plan.cluster, costs.device().profile());
  if (copies(forward)) {
    stretch(forward, stage.forward);
    const SimTime time = std::max(stage.forward, copied_pass(forward, graph, window, resident));
    stage.exposed_offload_forward = to_seconds(time - stage.forward);
    // What the last step left there has been updated since.
    const SimTime first = std::max(time, copied_pass(forward, graph, window, 0));
    stage.exposed_offload_first = to_seconds(first - time);
    stage.forward = time;
    stage.gathered_forward = std::max(stage.gathered_forward, first);
  }
  if (copies(backward)) {
    stretch(backward, stage.backward);
    const SimTime time = std::max(stage.backward, copied_pass(backward, graph, window, resident));
    stage.exposed_offload_backward = to_seconds(time - stage.backward);
    stage.last_backward += time - stage.backward;
    stage.backward = time;
  }
}

Seconds host_update_time(const Plan& plan, const HostUpdate& update, int blocks,
                         int bytes_per_update) {
  if (update.parameters == 0) {
    return Seconds();
  }
  const sim::TierGraph graph = tier_graph(plan.cluster, plan.profile);
  const Bytes traffic(static_cast<double>(update.parameters) * bytes_per_update);
  const Seconds work = traffic / graph.tiers[kHost].bandwidth;
  const int parts = std::max(1, blocks);
  std::vector<sim::TierObject> objects;
  std::vector<sim::TierStep> steps;
  const auto part = [parts](ByteCount bytes, int index) {
    return ByteCount(bytes.value() * (index + 1) / parts - bytes.value() * index / parts);
  };
  for (int index = 0; index < parts; ++index) {
    sim::TierObject object{"update", ByteCount(), {}};
    sim::TierStep step{index, to_sim_time(work / static_cast<double>(parts)), {}};
    const auto move = [&](int tier, ByteCount bytes, std::vector<sim::TierMove>& moves) {
      if (bytes.value() > 0) {
        moves.push_back({tier, part(bytes, index)});
      }
    };
    move(kDevice, update.down, object.loads);
    move(kDisk, update.from_disk, object.loads);
    move(kDevice, update.up, step.stores);
    move(kDisk, update.to_disk, step.stores);
    objects.push_back(std::move(object));
    steps.push_back(std::move(step));
  }
  return to_seconds(
      sim::run_tiers(graph, kHost, objects, steps, {.resident = kOffloadBuffers}).drained);
}

}  // namespace orrery::plan
