// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/quantity_text.hpp"
#include "plan/block_rules.hpp"

namespace orrery::plan {

namespace {

// CUDA context and framework state outside the allocator. Galvatron's artifact reserves the same
// 1,024 MB (Miao et al. 2022).
constexpr ByteCount kContextBytes(1024LL << 20);
// Buffers of one receiving connection for the Simple, LL and LL128 protocols (NVIDIA/nccl
// src/init.cc: 4 MiB, 512 KiB, 4800 KiB).
constexpr ByteCount kConnection((4LL << 20) + (512 << 10) + (4800 << 10));
constexpr int kRingAndTrees = 3;  // a rank receives from its ring neighbour and in two trees

}  // namespace

ByteCount context_bytes() { return kContextBytes; }

ByteCount communicator_bytes(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  struct Group {
    int degree;
    std::int64_t span;  // consecutive ranks that it is among
  };
  const std::int64_t inner = std::int64_t{layout.tp} * layout.cp;
  const int replicas = plan.serving ? 1 : plan.dp;  // which do not talk in serving
  const Mesh mesh = mesh_of(layout, expert_replicas(layout));
  const std::array<Group, 5> groups = {{{layout.tp, mesh.span(kTensorAxes)},
                                        {layout.cp, mesh.span(kContextAxes)},
                                        {layout.ep, expert_span(layout)},
                                        {replicas, inner * replicas},
                                        {plan.pp, inner * plan.dp * plan.pp}}};
  const topologies::Node& node = plan.cluster.node;
  ByteCount bytes;
  for (const Group& group : groups) {
    if (group.degree > 1) {
      // Channels found by NCCL's search are doubled, at half the speed each.
      const bool within = group.span <= node.gpus;
      const int channels = within ? node.scale_up.nccl_channels : node.scale_out.nics;
      bytes += kConnection * (kRingAndTrees * 2 * std::max(1, channels));
    }
  }
  return bytes;
}

NodeMemory node_memory(const Plan& plan, const std::vector<StageMemory>& memory) {
  const bool any = std::any_of(memory.begin(), memory.end(), [](const StageMemory& stage) {
    return stage.host.value() > 0 || stage.disk.value() > 0;
  });
  NodeMemory fullest;
  if (!any) {
    return fullest;
  }
  // Ranks are ordered by stage, so that a node holds consecutive stages.
  const int gpus = plan.cluster.node.gpus;
  const int ranks = plan.num_gpus();
  const int per_stage = std::max(1, ranks / static_cast<int>(memory.size()));
  for (int node = 0; node * gpus < ranks; ++node) {
    NodeMemory here;
    for (int rank = node * gpus; rank < std::min(ranks, (node + 1) * gpus); ++rank) {
      const auto stage = std::min(static_cast<std::size_t>(rank / per_stage), memory.size() - 1);
      here.host += memory[stage].host;
      here.disk += memory[stage].disk;
    }
    fullest.host = std::max(fullest.host, here.host);
    fullest.disk = std::max(fullest.disk, here.disk);
  }
  return fullest;
}

namespace {

// Host memory and disks of the nodes.
MemoryVerdict node_verdict(const Plan& plan, const std::vector<StageMemory>& memory) {
  const NodeMemory needed = node_memory(plan, memory);
  const topologies::Node& node = plan.cluster.node;
  MemoryVerdict verdict;
  const auto check = [&](const char* name, ByteCount bytes, ByteCount capacity) {
    if (verdict.fits && bytes > capacity) {
      verdict.fits = false;
      verdict.excess = bytes - capacity;
      verdict.text =
          fmt::format("offloaded tensors need {} of {} of {} on each {}",
                      format_bytes(bytes.bytes()), format_bytes(capacity.bytes()), name, node.name);
    }
  };
  check("host memory", needed.host, node.host_memory);
  check("disk", needed.disk, node.disk);
  return verdict;
}

}  // namespace

MemoryVerdict memory_verdict(const Plan& plan, const std::vector<StageMemory>& memory) {
  const auto worst = std::max_element(
      memory.begin(), memory.end(),
      [](const StageMemory& a, const StageMemory& b) { return a.total() < b.total(); });
  const ByteCount capacity = plan.cluster.gpu.memory - plan.memory_reserve;
  if (worst->total() <= capacity) {
    return node_verdict(plan, memory);
  }
  MemoryVerdict verdict;
  verdict.fits = false;
  verdict.excess = worst->total() - capacity;
  verdict.text = fmt::format(
      "stage {} needs {} of {} on each {}, {} too much; the largest part is {}",
      worst - memory.begin(), format_bytes(worst->total().bytes()), format_bytes(capacity.bytes()),
      plan.cluster.gpu.name, format_bytes(verdict.excess.bytes()), worst->peak_owner);
  return verdict;
}

}  // namespace orrery::plan
