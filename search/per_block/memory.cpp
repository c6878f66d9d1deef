// SPDX-License-Identifier: Apache-2.0
// The rows on memory of the program of per_block/program.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

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

// The most blocks of a virtual stage and of a device: every other stage keeps one, and no device
// works longer than `until`.
void PipelineProgram::count_blocks() {
  double fastest = std::numeric_limits<double>::infinity();
  double ends = 0;  // which take any time
  for (std::size_t block = 0; block < costs_.choices.size(); ++block) {
    const bool layer = plan_.network.blocks[block].kind == models::BlockKind::Layer;
    ends += layer ? 0 : costs_.count[block];
    for (const BlockChoice& one : costs_.choices[block]) {
      fastest = layer ? std::min(fastest, one.forward + one.backward) : fastest;
    }
  }
  const double positions = static_cast<double>(plan_.network.chain.size());
  const double copies = traits_.two_directions ? 2.0 : 1.0;  // that share the micro-batches
  const double batches = static_cast<double>(plan_.num_micro_batches()) / copies;
  most_by_time_ = std::floor(until_ / (batches * fastest)) + ends;
  most_in_stage_ =
      std::max(1.0, std::min(most_by_time_, positions - static_cast<double>(stages_) + 1));
  most_on_device_ = std::max(1.0, std::min(most_by_time_, positions));
}

// Buffers that the blocks of a stage share are spread over as many as there may be.
double PipelineProgram::bytes(const BlockChoice& choice, std::size_t block,
                              const Held& held) const {
  if (is_shared(block)) {
    return 0.0;
  }
  const double gathered = choice.gathered * std::min(1.0, costs_.in_flight / most_in_stage_);
  return choice.states + choice.saved * held.whole + choice.kept * held.cut + gathered +
         choice.unreduced / most_in_stage_ + choice.working / most_on_device_;
}

void PipelineProgram::add_memory() {
  for (const plan::LiveCounts& device : facts_.live) {
    const std::size_t chunks = device.stages.size();
    for (const std::vector<int>& counts : device.maxima) {
      std::map<int, double> terms;  // a stage of both directions is there twice
      for (std::size_t slot = 0; slot < chunks; ++slot) {
        const auto stage = static_cast<std::size_t>(device.stages[slot]);
        if (stage >= stages_ && !traits_.two_directions) {
          continue;  // shards of embedding and head
        }
        const Held held{static_cast<double>(counts[slot]),
                        device.splits ? static_cast<double>(counts[chunks + slot]) : 0.0};
        for (const Column& column : columns_[stage % stages_]) {
          terms[column.variable] -= bytes(choice_at(column), column.block, held) / room_;
        }
      }
      program_.add_row({terms.begin(), terms.end()}, -1.0);
    }
  }
}

// One micro-batch of every virtual stage: all are alive when the first backward begins.
void PipelineProgram::add_memory_of_any_order() {
  const std::size_t copies = traits_.two_directions ? 2 : 1;
  for (int device = 0; device < plan_.pp; ++device) {
    std::map<int, double> terms;
    for (std::size_t stage = 0; stage < stages_ * copies; ++stage) {
      if (pipeline_.placement.device_of[stage] != device) {
        continue;
      }
      for (const Column& column : columns_[stage % stages_]) {
        const Held held{stage < stages_ ? 1.0 : 0.0, 0.0};
        terms[column.variable] -= bytes(choice_at(column), column.block, held) / room_;
      }
    }
    program_.add_row({terms.begin(), terms.end()}, -1.0);
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
        little.push_back({column.variable, -bytes(choice_at(column), block, {}) * copies / whole});
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
