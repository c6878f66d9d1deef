// SPDX-License-Identifier: Apache-2.0
// The rows on memory of the program of per_block/program.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "search/per_block/capacity.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

namespace {

// Positions of a kind of block in as many runs, for Little's law.
constexpr int kRuns = 12;

}  // namespace

double device_memory(const plan::Plan& plan, const MeshCosts& costs) {
  const ByteCount capacity = plan.cluster.gpu.memory - plan.memory_reserve;
  return static_cast<double>(capacity.value()) - costs.context - costs.communicators;
}

// At each peak of the device of a stage; of lists that are not known one micro-batch of each copy's
// states, and of one copy its activations.
void PipelineProgram::count_held() {
  held_.resize(stages_);
  for (const plan::LiveCounts& device : facts_.live) {
    const std::size_t chunks = device.stages.size();
    for (const std::vector<int>& counts : device.maxima) {
      for (std::size_t slot = 0; slot < chunks; ++slot) {
        const auto stage = static_cast<std::size_t>(device.stages[slot]);
        if (stage < stages_ || traits_.two_directions) {
          const int cut = device.splits ? counts[chunks + slot] : 0;
          held_[stage % stages_].push_back(
              {static_cast<double>(counts[slot]), static_cast<double>(cut)});
        }
      }
    }
  }
}

// The most blocks of every virtual stage and of its device: no device works longer than `until`,
// every other stage has one, and ranges say more.
void PipelineProgram::count_blocks() {
  const std::vector<DeviceFloor> floors = device_floors(
      plan_.network, costs_, pipeline_, plan_.pp, static_cast<double>(plan_.num_micro_batches()));
  const auto positions = static_cast<double>(plan_.network.chain.size());
  const auto others = static_cast<double>(stages_) - 1.0;
  const std::size_t slots = stages_ * (traits_.two_directions ? 2 : 1);
  std::vector<double> on_device;
  for (std::size_t device = 0; device < floors.size(); ++device) {
    double held = 0;
    double ends = 0;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      if (pipeline_.placement.device_of[slot] == device) {
        held += 1.0;
        ends += most_ends(slot % stages_);
      }
    }
    on_device.push_back(floors[device].layers_within(until_) + ends - held);  // beyond one each
  }
  most_.assign(stages_, {positions - others, 0.0});
  for (std::size_t slot = 0; slot < slots; ++slot) {
    double& most = most_[slot % stages_].in_stage;
    most = std::min(most, 1.0 + on_device[pipeline_.placement.device_of[slot]]);
  }
  for (const StageRange& range : ranges_) {
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      most_[stage].in_stage = std::min(most_[stage].in_stage, most_within(range, stage));
    }
  }
  std::vector<double> in_stages(floors.size(), 0.0);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    Most& most = most_[slot % stages_];
    most.in_stage = std::max(1.0, most.in_stage);
    in_stages[pipeline_.placement.device_of[slot]] += most.in_stage;
  }
  for (std::size_t slot = 0; slot < slots; ++slot) {
    double& most = most_[slot % stages_].on_device;
    most = std::max(most, in_stages[pipeline_.placement.device_of[slot]]);
  }
}

// Blocks of a virtual stage that are no layers.
double PipelineProgram::most_ends(std::size_t stage) const {
  double ends = 0;
  for (std::size_t block = 0; block < costs_.count.size(); ++block) {
    ends += !is_layer(block) && may_hold(stage, block) ? costs_.count[block] : 0;
  }
  return ends;
}

double PipelineProgram::most_within(const StageRange& range, std::size_t stage) const {
  const auto known = static_cast<double>(range.stages.size());
  const bool inside = std::binary_search(range.stages.begin(), range.stages.end(), stage);
  switch (range.of) {
    case StageRange::Of::Together: {
      const auto positions = static_cast<double>(plan_.network.chain.size());
      const double outside = static_cast<double>(stages_) - known;
      return inside ? range.most - (known - 1.0) : positions - range.least - (outside - 1.0);
    }
    case StageRange::Of::Each:
      if (inside) {
        return range.most + most_ends(stage);
      }
      break;
    case StageRange::Of::One:
    case StageRange::Of::Strategies:
      break;
  }
  return std::numeric_limits<double>::infinity();
}

double PipelineProgram::own_bytes(const BlockChoice& choice, std::size_t block,
                                  const Held& held) const {
  const double gathered = keeps_gathered() ? choice.gathered : 0.0;
  return is_shared(block)
             ? 0.0
             : choice.states + gathered + choice.saved * held.whole + choice.kept * held.cut;
}

// Buffers that blocks share are spread over as many as there may be.
double PipelineProgram::bytes(const BlockChoice& choice, std::size_t block, std::size_t stage,
                              const Held& held) const {
  const Most& most = most_[stage];
  return own_bytes(choice, block, held) +
         stage_buffer(choice, block, most.in_stage, stage) * share_[stage] +
         device_buffer(choice, block, most.on_device, stage);
}

// That a device has room for what it holds of its stages at a time; one of both directions is there
// twice.
void PipelineProgram::add_room(std::size_t device, const StagesHeld& stages) {
  Terms terms;
  for (const auto& [stage, all_held] : stages) {
    const double times = static_cast<double>(all_held.size());
    const bool spreads = buffer_[stage] < 0 && largest_[device] < 0;
    for (const Column& column : columns_[stage]) {
      const BlockChoice& one = choice_at(column);
      double sum = 0;
      for (const Held& held : all_held) {
        sum += own_bytes(one, column.block, held);
      }
      if (spreads) {
        sum +=
            stage_buffer(one, column.block, most_[stage].in_stage, stage) * times * share_[stage];
      }
      if (working_[device] < 0) {
        sum += device_buffer(one, column.block, most_[stage].on_device, stage) * times;
      }
      terms.push_back({column.variable, -sum / room_});
    }
    if (buffer_[stage] >= 0 && largest_[device] < 0) {
      terms.push_back({buffer_[stage], -times});
    }
  }
  if (largest_[device] >= 0) {
    terms.push_back({largest_[device], -1.0});
  }
  if (working_[device] >= 0) {
    terms.push_back({working_[device], -1.0});
  }
  program_.add_row(std::move(terms), -1.0);
}

void PipelineProgram::add_memory() {
  for (const plan::LiveCounts& device : facts_.live) {
    const std::size_t chunks = device.stages.size();
    for (const std::vector<int>& counts : device.maxima) {
      StagesHeld stages;
      std::size_t number = 0;  // of the device
      for (std::size_t slot = 0; slot < chunks; ++slot) {
        const auto stage = static_cast<std::size_t>(device.stages[slot]);
        if (stage < stages_ || traits_.two_directions) {  // else shards of embedding and head
          const int cut = device.splits ? counts[chunks + slot] : 0;
          stages[stage % stages_].push_back(
              {static_cast<double>(counts[slot]), static_cast<double>(cut)});
          number = pipeline_.placement.device_of[stage];
        }
      }
      add_room(number, stages);
    }
  }
}

// One micro-batch of every virtual stage: all are alive when the first backward begins.
void PipelineProgram::add_memory_of_any_order() {
  const std::size_t copies = traits_.two_directions ? 2 : 1;
  for (std::size_t device = 0; device < static_cast<std::size_t>(plan_.pp); ++device) {
    StagesHeld stages;
    for (std::size_t stage = 0; stage < stages_ * copies; ++stage) {
      if (pipeline_.placement.device_of[stage] == device) {
        stages[stage % stages_].push_back({stage < stages_ ? 1.0 : 0.0, 0.0});
      }
    }
    add_room(device, stages);
  }
}

// By kind of block: its pass and that of its gradient take at least so long; 0 where nothing of it
// stays.
std::vector<double> PipelineProgram::least_passes() const {
  std::vector<double> pass(costs_.choices.size(), 0.0);
  for (std::size_t block = 0; block < pass.size(); ++block) {
    double least = std::numeric_limits<double>::infinity();
    for (const BlockChoice& one : costs_.choices[block]) {
      const double gradient = pipeline_.placement.whole_backwards
                                  ? one.backward
                                  : std::min(one.backward, one.input_grad);
      least = std::min(least, one.forward + gradient);
    }
    pass[block] = costs_.count[block] > 0 && !is_shared(block) ? least : 0.0;
  }
  return pass;
}

// Little's law over all devices: m sum of saved x stay <= (room of all - states) x time. A block
// stays for the passes of all blocks behind it, which by positions of the chain depends on no cut:
// in runs of positions, each block staying at least as long as the last of its run.
void PipelineProgram::add_little() {
  if (!pipeline_.placement.flushes) {
    return;
  }
  const std::vector<int>& chain = plan_.network.chain;
  const std::vector<double> pass = least_passes();
  Terms little;
  for (std::size_t block = 0; block < costs_.choices.size(); ++block) {
    if (costs_.count[block] == 0 || is_shared(block)) {
      continue;
    }
    std::vector<double> stays;  // of the blocks of this kind, last first
    double stay = 0;
    for (std::size_t position = chain.size(); position-- > 0;) {
      stay += pass[static_cast<std::size_t>(chain[position])];
      if (chain[position] == static_cast<int>(block)) {
        stays.push_back(stay);
      }
    }
    add_stays(block, stays, little);
  }
  program_.add_row(std::move(little), -1.0);
}

// Which strategy each run of the blocks of a kind takes, as the columns have it, and what it keeps.
void PipelineProgram::add_stays(std::size_t block, const std::vector<double>& stays,
                                Terms& little) {
  const double whole = room_ * plan_.pp;
  const double share = static_cast<double>(plan_.num_micro_batches()) * kRounding / until_ / whole;
  const double copies = traits_.two_directions ? 2.0 : 1.0;
  std::vector<Terms> used(costs_.choices[block].size());
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    for (const Column& column : columns_[stage]) {
      if (column.block == block) {
        used[column.choice].push_back({column.variable, -1.0});
        const double held = bytes(choice_at(column), block, stage, {});
        little.push_back({column.variable, -held * copies / whole});
      }
    }
  }
  const std::size_t size = (stays.size() + kRuns - 1) / kRuns;
  for (std::size_t first = 0; first < stays.size(); first += size) {
    const std::size_t count = std::min(size, stays.size() - first);
    Terms taken;
    for (std::size_t index = 0; index < used.size(); ++index) {
      if (used[index].empty()) {
        continue;
      }
      const int variable = program_.add_variable(static_cast<double>(count), 0.0);
      used[index].push_back({variable, 1.0});
      taken.push_back({variable, -1.0});
      const double saved = costs_.choices[block][index].saved;
      little.push_back({variable, -saved * stays[first] * share});
    }
    program_.add_row(std::move(taken), -static_cast<double>(count));
  }
  for (Terms& terms : used) {
    if (!terms.empty()) {
      program_.add_row(std::move(terms), 0.0);
    }
  }
}

}  // namespace orrery::search
