// SPDX-License-Identifier: Apache-2.0
#include "search/per_block_program.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace orrery::search {

namespace {

// A margin for sums in another order than the simulator's.
constexpr double kRounding = 1.0 - 1e-10;
// Positions of a kind of block in as many runs, for Little's law.
constexpr int kRuns = 12;

}  // namespace

double device_memory(const plan::Plan& plan, const MeshCosts& costs) {
  double overhead = std::numeric_limits<double>::infinity();
  for (const auto& of_block : costs.choices) {
    for (const BlockChoice& choice : of_block) {
      overhead = std::min(overhead, choice.overhead);
    }
  }
  const ByteCount capacity = plan.cluster.gpu.memory - plan.memory_reserve;
  return static_cast<double>(capacity.value()) - costs.context - costs.communicators - overhead;
}

PipelineProgram::PipelineProgram(const plan::Plan& plan, const Pipeline& pipeline,
                                 const plan::ScheduleTraits& traits, const MeshCosts& costs,
                                 double until, std::vector<plan::LiveCounts> live,
                                 plan::TransferTimes& transfers)
    : plan_(plan),
      pipeline_(pipeline),
      traits_(traits),
      costs_(costs),
      until_(until),
      room_(std::max(1.0, device_memory(plan, costs))),
      stages_(plan.stage_blocks.size()),
      live_(std::move(live)) {
  double boundary = std::numeric_limits<double>::infinity();
  for (const auto& of_block : costs.choices) {
    for (const BlockChoice& choice : of_block) {
      boundary = std::min(boundary, choice.boundary);
    }
  }
  for (std::size_t stage = 0; stage + 1 < stages_; ++stage) {
    // One part of a boundary that is sent whole by all ranks is no more than any way to send it.
    const bool split = plan.execution.split_transfers;
    sends_.push_back(split ? SimTime{}
                           : transfers.of(plan, ByteCount(static_cast<std::int64_t>(boundary)), 1,
                                          pipeline.placement.device_of[stage],
                                          pipeline.placement.device_of[stage + 1]));
  }
  time_ = program_.add_variable(1.0, 1.0);
  count_held();
  add_columns();
  add_passes();
  add_device_paths();
  if (live_.empty()) {
    add_memory_of_any_order();
    add_little();
  } else {
    add_memory();
  }
}

bool PipelineProgram::is_shared(std::size_t block) const {
  return traits_.shares_output_layer &&
         plan_.network.blocks[block].kind != models::BlockKind::Layer;
}

// At each peak of the device of a stage; of lists that are not known one micro-batch of each copy's
// states, and of one copy its activations.
void PipelineProgram::count_held() {
  held_.resize(stages_);
  for (const plan::LiveCounts& device : live_) {
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

double PipelineProgram::bytes(const BlockChoice& choice, std::size_t block,
                              const Held& held) const {
  return is_shared(block) ? 0.0
                          : choice.states + choice.saved * held.whole + choice.kept * held.cut;
}

const std::vector<std::size_t>& PipelineProgram::choices_of(std::size_t stage,
                                                            std::size_t block) {
  std::vector<Held> held = held_[stage];
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  const auto [slot, is_new] = best_.try_emplace({block, held});
  if (!is_new) {
    return slot->second;
  }
  std::vector<std::vector<double>> kept;
  for (std::size_t index = 0; index < costs_.choices[block].size(); ++index) {
    const BlockChoice& one = costs_.choices[block][index];
    std::vector<double> parts = {one.forward, one.backward, one.gather, one.traffic};
    if (traits_.splits_backward) {
      parts.insert(parts.end(), {one.input_grad, one.weight_grad});
    }
    if (held.empty()) {
      parts.insert(parts.end(), {one.states, one.saved});
    }
    for (const Held& peak : held) {
      parts.push_back(bytes(one, block, peak));
    }
    const bool beaten = std::any_of(kept.begin(), kept.end(), [&](const auto& other) {
      return std::equal(other.begin(), other.end(), parts.begin(), std::less_equal<>());
    });
    if (!beaten) {
      kept.push_back(std::move(parts));
      slot->second.push_back(index);
    }
  }
  return slot->second;
}

// The first position is in the first stage and the last one in the last; in between every stage
// leaves at least one position to each of the others.
bool PipelineProgram::may_hold(std::size_t stage, std::size_t block) const {
  const std::vector<int>& chain = plan_.network.chain;
  const auto length = chain.size();
  for (std::size_t position = 0; position < length; ++position) {
    if (chain[position] != static_cast<int>(block)) {
      continue;
    }
    const bool first = position == 0 ? stage == 0 : position >= stage;
    const bool last = position + 1 == length ? stage + 1 == stages_
                                             : length - 1 - position >= stages_ - 1 - stage;
    if (first && last) {
      return true;
    }
  }
  return false;
}

void PipelineProgram::add_columns() {
  columns_.resize(stages_);
  const models::Network& network = plan_.network;
  std::vector<Terms> every(network.blocks.size());
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    Terms some;
    for (std::size_t block = 0; block < network.blocks.size(); ++block) {
      if (costs_.count[block] == 0 || !may_hold(stage, block)) {
        continue;
      }
      for (const std::size_t choice : choices_of(stage, block)) {
        const int variable = program_.add_variable(costs_.count[block], 0.0);
        columns_[stage].push_back({block, choice, variable});
        every[block].push_back({variable, 1.0});
        some.push_back({variable, 1.0});
        ++num_columns_;
      }
    }
    program_.add_row(std::move(some), 1.0);
  }
  for (std::size_t block = 0; block < every.size(); ++block) {
    if (costs_.count[block] > 0) {
      program_.add_row(std::move(every[block]), costs_.count[block]);
    }
  }
}

// variable >= the stage's sum of one part of its blocks.
void PipelineProgram::at_least(int variable, std::size_t stage, double BlockChoice::* part) {
  Terms terms = {{variable, 1.0}};
  for (const Column& column : columns_[stage]) {
    const double value = choice_at(column).*part * kRounding / until_;
    if (value > 0 && !is_shared(column.block)) {
      terms.push_back({column.variable, -value});
    }
  }
  if (terms.size() > 1) {
    program_.add_row(std::move(terms), 0.0);
  }
}

void PipelineProgram::add_passes() {
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    forward_.push_back(program_.add_variable(1.0, 0.0));
    backward_.push_back(program_.add_variable(1.0, 0.0));
    at_least(forward_[stage], stage, &BlockChoice::forward);
    at_least(forward_[stage], stage, &BlockChoice::gather);
    at_least(backward_[stage], stage, &BlockChoice::backward);
    at_least(backward_[stage], stage, &BlockChoice::traffic);
    if (traits_.splits_backward) {
      input_grad_.push_back(program_.add_variable(1.0, 0.0));
      weight_grad_.push_back(program_.add_variable(1.0, 0.0));
      at_least(input_grad_[stage], stage, &BlockChoice::input_grad);
      at_least(weight_grad_[stage], stage, &BlockChoice::weight_grad);
      program_.add_row(
          {{input_grad_[stage], 1.0}, {weight_grad_[stage], 1.0}, {backward_[stage], -1.0}}, 0.0);
    }
  }
}

void PipelineProgram::add_device_paths() {
  const plan::StagePlacement& placement = pipeline_.placement;
  const int copies = placement.two_directions ? 2 : 1;
  const double units = static_cast<double>(plan_.num_micro_batches() / copies);
  for (int device = 0; device < plan_.pp; ++device) {
    std::vector<double> forwards(stages_, 0.0);
    std::vector<double> backwards(stages_, 0.0);
    std::size_t first = stages_;
    for (std::size_t stage = 0; stage < stages_ * static_cast<std::size_t>(copies); ++stage) {
      if (placement.device_of[stage] == device) {
        forwards[stage % stages_] += units;
        backwards[stage % stages_] += units;
        first = std::min(first, stage % stages_);
      }
    }
    if (first == stages_) {
      continue;
    }
    double sends = 0;
    for (std::size_t stage = 0; stage < first && copies == 1 && placement.flushes; ++stage) {
      const bool drains = placement.whole_backwards && !placement.shares_ends;
      forwards[stage] += 1;
      backwards[stage] += drains ? 1 : 0;
      sends += to_seconds(sends_[stage]).value() * (drains ? 2 : 1);
    }
    Terms terms = {{time_, 1.0}};
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      if (forwards[stage] > 0) {
        terms.push_back({forward_[stage], -forwards[stage]});
      }
      if (backwards[stage] > 0) {
        terms.push_back({backward_[stage], -backwards[stage]});
      }
    }
    program_.add_row(std::move(terms), sends * kRounding / until_);
  }
}

void PipelineProgram::add_memory() {
  for (const plan::LiveCounts& device : live_) {
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

// Little's law over all devices: m sum of saved x stay <= (room of all - states) x time. A block
// stays for the passes of all blocks behind it, which by positions of the chain depends on no cut:
// in runs of positions, each block staying at least as long as the last of its run.
void PipelineProgram::add_little() {
  if (!pipeline_.placement.flushes) {
    return;
  }
  const std::vector<int>& chain = plan_.network.chain;
  std::vector<double> pass(costs_.choices.size(), 0.0);  // of a block and its gradient, at least
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
  const double whole = room_ * plan_.pp;
  const double share = static_cast<double>(plan_.num_micro_batches()) * kRounding / until_ / whole;
  const double copies = traits_.two_directions ? 2.0 : 1.0;
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
    std::vector<Terms> used(costs_.choices[block].size());
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      for (const Column& column : columns_[stage]) {
        if (column.block == block) {
          used[column.choice].push_back({column.variable, -1.0});
          little.push_back({column.variable, -choice_at(column).states * copies / whole});
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
  program_.add_row(std::move(little), -1.0);
}

void PipelineProgram::add_path(const sim::PipelineOrder& order,
                               const LinearProgram::Answer& answer) {
  const auto time = [&](int variable) {
    const double value = std::max(0.0, answer.values[static_cast<std::size_t>(variable)]);
    return to_sim_time(Seconds(value * until_));
  };
  sim::PipelineCosts costs;
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    costs.forward.push_back(time(forward_[stage]));
    costs.backward.push_back(time(backward_[stage]));
    if (traits_.splits_backward) {
      costs.input_grad.push_back(time(input_grad_[stage]));
      costs.weight_grad.push_back(time(weight_grad_[stage]));
    }
  }
  costs.send_forward = sends_;
  costs.send_backward = sends_;
  const PassPath path = longest_path(order, costs);
  Terms terms = {{time_, 1.0}};
  const auto add = [&](const std::vector<int>& variables, const std::vector<double>& counts) {
    for (std::size_t stage = 0; stage < variables.size(); ++stage) {
      if (counts[stage] > 0) {
        terms.push_back({variables[stage], -counts[stage]});
      }
    }
  };
  add(forward_, path.forwards);
  add(backward_, path.backwards);
  add(input_grad_, path.input_grads);
  add(weight_grad_, path.weight_grads);
  program_.add_row(std::move(terms), path.sends * kRounding / until_);
}

Shares PipelineProgram::shares(const LinearProgram::Answer& answer) const {
  Shares shares;
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    std::vector<std::vector<double>> of_stage(costs_.choices.size());
    for (std::size_t block = 0; block < of_stage.size(); ++block) {
      of_stage[block].assign(costs_.choices[block].size(), 0.0);
    }
    for (const Column& column : columns_[stage]) {
      of_stage[column.block][column.choice] =
          std::max(0.0, answer.values[static_cast<std::size_t>(column.variable)]);
    }
    shares.blocks.push_back(std::move(of_stage));
  }
  return shares;
}

Shares PipelineProgram::even_shares() const {
  Shares shares;
  std::size_t position = 0;
  for (const int count : plan_.stage_blocks) {
    std::vector<std::vector<double>> of_stage(costs_.choices.size());
    for (std::size_t block = 0; block < of_stage.size(); ++block) {
      of_stage[block].assign(costs_.choices[block].size(), 0.0);
    }
    for (int index = 0; index < count; ++index, ++position) {
      of_stage[static_cast<std::size_t>(plan_.network.chain[position])].front() += 1.0;
    }
    shares.blocks.push_back(std::move(of_stage));
  }
  return shares;
}

}  // namespace orrery::search
