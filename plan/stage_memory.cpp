// SPDX-License-Identifier: Apache-2.0
#include "plan/stage_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/math.hpp"
#include "base/quantity_text.hpp"
#include "plan/block_rules.hpp"
#include "plan/plan_schedule.hpp"
#include "plan/spread_attention.hpp"

namespace orrery::plan {

namespace {

// CUDA context and framework state outside the allocator. Galvatron's artifact reserves the same
// 1,024 MB (Miao et al. 2022).
constexpr ByteCount kContextBytes(1024LL << 20);
// Buffers of one receiving connection for the Simple, LL and LL128 protocols (NVIDIA/nccl
// src/init.cc: 4 MiB, 512 KiB, 4800 KiB).
constexpr ByteCount kConnection((4LL << 20) + (512 << 10) + (4800 << 10));
constexpr int kRingAndTrees = 3;  // a rank receives from its ring neighbour and in two trees

void add_peak_activations(const std::vector<StageCost>& stages, const LiveCounts& live,
                          const std::vector<SplitBackwards::Kept>& kept, StageMemory& memory) {
  const std::size_t chunks = live.stages.size();
  for (const std::vector<int>& counts : live.maxima) {
    ByteCount layers;
    ByteCount ends;
    for (std::size_t slot = 0; slot < chunks; ++slot) {
      const auto index = static_cast<std::size_t>(live.stages[slot]);
      layers += stages[index].saved * counts[slot];
      ends += stages[index].saved_ends * counts[slot];
      if (live.splits) {
        layers += kept[index].layers * counts[chunks + slot];
        ends += kept[index].ends * counts[chunks + slot];
      }
    }
    if (layers + ends > memory.activations + memory.ends) {
      memory.activations = layers;
      memory.ends = ends;
    }
  }
}

struct Part {
  const char* name;
  ByteCount bytes;
};

// Saved activations on host and disk, at their own peaks.
void add_peak_away(const std::vector<StageCost>& stages, const LiveCounts& live,
                   StageMemory& memory) {
  ByteCount host;
  ByteCount disk;
  for (const std::vector<int>& counts : live.maxima) {
    ByteCount on_host;
    ByteCount on_disk;
    for (std::size_t slot = 0; slot < counts.size(); ++slot) {
      // What waits for weight gradients is counted whole.
      const int index = live.stages[slot % live.stages.size()];
      const StageCost& stage = stages[static_cast<std::size_t>(index)];
      on_host += stage.saved_host * counts[slot];
      on_disk += stage.saved_disk * counts[slot];
    }
    host = std::max(host, on_host);
    disk = std::max(disk, on_disk);
  }
  for (std::size_t slot = 0; slot < live.on_host.size(); ++slot) {
    const StageCost& stage = stages[static_cast<std::size_t>(live.stages[slot])];
    host += (stage.saved + stage.saved_ends) * live.on_host[slot];
  }
  memory.host += host;
  memory.disk += disk;
}

Part largest_part(const StageMemory& memory) {
  const std::array<Part, 8> parts = {{{"parameters", memory.parameters},
                                      {"gradients", memory.gradients},
                                      {"optimizer", memory.optimizer},
                                      {"activations", memory.activations},
                                      {"embedding and logits", memory.ends},
                                      {"workspace", memory.workspace},
                                      {"communication", memory.communication},
                                      {"context", memory.context}}};
  return *std::max_element(parts.begin(), parts.end(),
                           [](const Part& a, const Part& b) { return a.bytes < b.bytes; });
}

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
  const std::array<Group, 5> groups = {{{layout.tp, layout.tp},
                                        {layout.cp, inner},
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

namespace {

// What copies of a frozen encoder have made for an iteration stays until its micro-batches begin,
// beside what they make for the next one.
ByteCount features_of(const Plan& plan, const std::vector<StageCost>& stages, std::size_t device) {
  if (!schedule_traits(plan).fills_frozen) {
    return ByteCount();
  }
  const std::int64_t shares = ceil_div(plan.num_micro_batches(), std::int64_t{plan.pp});
  return stages[plan.stage_blocks.size() + device].boundary * (2 * shares);
}

}  // namespace

std::vector<StageMemory> stage_memory(const Plan& plan, const std::vector<StageCost>& stages,
                                      const std::vector<LiveCounts>& live,
                                      const std::vector<SplitBackwards::Kept>& kept,
                                      const std::vector<int>& versions,
                                      const std::vector<SlicePeak>& slice_peaks) {
  std::vector<StageMemory> result(live.size());
  for (std::size_t device = 0; device < live.size(); ++device) {
    StageMemory& memory = result[device];
    ByteCount working;
    const bool everything = live[device].updates.empty();
    for (std::size_t slot = 0; slot < live[device].stages.size(); ++slot) {
      const auto index = static_cast<std::size_t>(live[device].stages[slot]);
      const StageCost& stage = stages[index];
      const int copies = !everything        ? live[device].versions[slot]
                         : versions.empty() ? 1
                                            : versions[index];
      memory.parameters += stage.states.parameters * copies;
      if (everything || live[device].updates[slot]) {
        memory.gradients += stage.states.gradients;
        memory.optimizer += stage.states.optimizer;
      }
      memory.workspace += stage.gathered;
      memory.host += stage.states.host;
      memory.disk += stage.states.disk;
      working = std::max(working, stage.working);
    }
    memory.workspace += working;
    if (slice_peaks.empty()) {
      add_peak_activations(stages, live[device], kept, memory);
      add_peak_away(stages, live[device], memory);
    } else {
      memory.host += slice_peaks[device].host;
      memory.disk += slice_peaks[device].disk;
      memory.activations = slice_peaks[device].layers;
      memory.ends = slice_peaks[device].ends;
      memory.workspace += slice_peaks[device].gradients;
    }
    memory.activations += features_of(plan, stages, device) + shipped_weights(plan);
    memory.communication = communicator_bytes(plan);
    memory.context = kContextBytes;
    const Part part = largest_part(memory);
    memory.peak_owner = fmt::format("{} {}", part.name, format_bytes(part.bytes.bytes()));
  }
  return result;
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
