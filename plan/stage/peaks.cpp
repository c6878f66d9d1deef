// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/peaks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/math.hpp"
#include "base/quantity_text.hpp"
#include "plan/block_rules.hpp"
#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/spread_attention.hpp"

namespace orrery::plan {

namespace {

// What a forward that a recompute pass repeats keeps: what the stage before handed on. Of the first
// stage of the network that is token ids.
ByteCount input_of(const Plan& plan, const std::vector<StageCost>& stages, std::size_t index) {
  return index % plan.stage_blocks.size() == 0 ? ByteCount() : stages[index - 1].boundary;
}

// Of what leaves the device the part that its copies have in buffers: a stage's own bytes, of one
// stage at a time, of both where two passes run as one.
ByteCount copied_at(const std::vector<StageCost>& stages, const LiveCounts& live,
                    const std::vector<int>& counts, bool joins) {
  ByteCount buffers;
  for (std::size_t slot = 0; slot < live.stages.size(); ++slot) {
    const StageCost& stage = stages[static_cast<std::size_t>(live.stages[slot])];
    const ByteCount copied = stage.copied_of(stage.away() * counts[slot]);
    buffers = joins ? buffers + copied : std::max(buffers, copied);
  }
  return buffers;
}

void add_peak_activations(const Plan& plan, const std::vector<StageCost>& stages,
                          const LiveCounts& live, const std::vector<SplitBackwards::Kept>& kept,
                          StageMemory& memory) {
  const std::size_t chunks = live.stages.size();
  const std::size_t inputs = live.splits ? 2 * chunks : chunks;
  const bool joins = schedule_traits(plan).joins_passes;
  ByteCount peak_copied;
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
      if (live.recomputes) {
        layers += input_of(plan, stages, index) * counts[inputs + slot];
      }
    }
    const ByteCount copied = copied_at(stages, live, counts, joins);
    if (layers + ends + copied > memory.activations + memory.ends + peak_copied) {
      memory.activations = layers;
      memory.ends = ends;
      peak_copied = copied;
    }
  }
  memory.workspace += peak_copied;
}

// Saved activations on host and disk, at their own peaks.
void add_peak_away(const std::vector<StageCost>& stages, const LiveCounts& live,
                   StageMemory& memory) {
  const std::size_t chunks = live.stages.size();
  ByteCount host;
  ByteCount disk;
  for (const std::vector<int>& counts : live.maxima) {
    ByteCount on_host;
    ByteCount on_disk;
    for (std::size_t slot = 0; slot < (live.splits ? 2 * chunks : chunks); ++slot) {
      // What waits for weight gradients is counted whole; inputs alone stay on the device.
      const StageCost& stage = stages[static_cast<std::size_t>(live.stages[slot % chunks])];
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

struct Part {
  const char* name;
  ByteCount bytes;
};

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

// What copies of a frozen encoder have made for an iteration stays until its micro-batches begin,
// beside what they make for the next one.
ByteCount features_of(const Plan& plan, const std::vector<StageCost>& stages, int portions,
                      std::size_t device) {
  if (!schedule_traits(plan).fills_frozen) {
    return ByteCount();
  }
  const std::int64_t micro_batches = ceil_div(portions, frozen_portions(plan.network));
  return stages[plan.stage_blocks.size() + device].boundary * (2 * micro_batches);
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
    DeviceBuffers buffers(schedule_traits(plan).joins_passes, plan.execution);
    const bool everything = live[device].updates.empty();
    for (std::size_t slot = 0; slot < live[device].stages.size(); ++slot) {
      const auto index = static_cast<std::size_t>(live[device].stages[slot]);
      const StageCost& stage = stages[index];
      const int copies = !everything        ? live[device].versions[slot]
                         : versions.empty() ? 1
                                            : versions[index];
      memory.parameters += stage.states.held_parameters() * copies;
      if (everything || live[device].updates[slot]) {
        memory.gradients += stage.states.gradients;
        memory.optimizer += stage.states.optimizer;
      }
      buffers.add(stage.buffers);
      memory.host += stage.states.host;
      memory.disk += stage.states.disk;
    }
    memory.workspace += buffers.total();
    if (slice_peaks.empty()) {
      add_peak_activations(plan, stages, live[device], kept, memory);
      add_peak_away(stages, live[device], memory);
    } else {
      memory.host += slice_peaks[device].host;
      memory.disk += slice_peaks[device].disk;
      memory.activations = slice_peaks[device].layers;
      memory.ends = slice_peaks[device].ends;
      memory.workspace += slice_peaks[device].gradients + slice_peaks[device].copied;
    }
    memory.activations +=
        features_of(plan, stages, live[device].portions, device) + shipped_weights(plan);
    memory.communication = communicator_bytes(plan);
    memory.context = context_bytes();
    const Part part = largest_part(memory);
    memory.peak_owner = fmt::format("{} {}", part.name, format_bytes(part.bytes.bytes()));
  }
  return result;
}

}  // namespace orrery::plan
