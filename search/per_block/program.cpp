// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/program.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace orrery::search {

namespace {

constexpr double kLeastMore = 1e-9;  // seconds: strategies that differ by less take the same time

}  // namespace

PipelineProgram::PipelineProgram(const plan::Plan& plan, const Pipeline& pipeline,
                                 const plan::ScheduleTraits& traits, const MeshCosts& costs,
                                 double until, ListFacts facts,
                                 const std::vector<StageRange>& ranges,
                                 plan::TransferTimes& transfers)
    : plan_(plan),
      pipeline_(pipeline),
      traits_(traits),
      costs_(costs),
      until_(until),
      room_(std::max(1.0, device_memory(plan, costs))),
      stages_(plan.stage_blocks.size()),
      facts_(std::move(facts)),
      ranges_(ranges),
      transfers_(transfers) {
  program_.stop_at(1.0);  // `until`
  time_ = program_.add_variable(1.0, 1.0);
  count_held();
  count_blocks();
  share_buffers();
  find_groups();
  add_columns();
  program_.begin_part(LinearProgram::Part::Ranges);
  add_buffers();
  program_.begin_part(LinearProgram::Part::Base);
  add_first_blocks();
  add_passes();
  add_sends();
  add_updates();
  add_step_ends();
  program_.add_idle_rows(true);  // few of these are met
  add_streams();
  add_queues();
  add_device_paths();
  add_capacities();
  if (facts_.live.empty()) {
    add_memory_of_any_order();
    add_little();
  } else {
    add_memory();
  }
  add_ranges();
  program_.add_idle_rows(false);
}

bool PipelineProgram::is_shared(std::size_t block) const {
  return traits_.shares_output_layer &&
         plan_.network.blocks[block].kind != models::BlockKind::Layer;
}

std::vector<const StageRange*> PipelineProgram::strategies_known(std::size_t stage) const {
  std::vector<const StageRange*> known;
  for (const StageRange& range : ranges_) {
    if (range.of == StageRange::Of::Strategies &&
        std::binary_search(range.stages.begin(), range.stages.end(), stage)) {
      known.push_back(&range);
    }
  }
  return known;
}

// What a strategy adds to rows of a stage; one that is no larger anywhere beats it. Where buffers
// are variables they count by themselves, and only strategies that ranges count alike compare.
std::vector<double> PipelineProgram::parts_of(const BlockChoice& one, std::size_t stage,
                                              std::size_t block, const StageKind& kind) const {
  std::vector<double> parts = {one.forward,    one.backward,    one.gather, one.traffic,
                               one.reduce,     one.step_gather, one.tied,   one.update,
                               one.reduce_all, one.pass_reduce};
  if (stage < kHeads) {
    parts.push_back(one.gather_all);
  }
  if (sends_time(stage)) {
    parts.push_back(one.boundary);
  }
  if (traits_.splits_backward) {
    parts.insert(parts.end(), {one.input_grad, one.weight_grad, one.regather});
  }
  if (kind.apart) {
    parts.insert(parts.end(), {one.gathered, one.unreduced, one.working});
  }
  const auto bytes_of = [&](const Held& held) {
    return kind.apart ? own_bytes(one, block, held) : bytes(one, block, stage, held);
  };
  if (kind.held.empty()) {
    parts.insert(parts.end(), {bytes_of({}), one.saved});
  }
  for (const Held& peak : kind.held) {
    parts.push_back(bytes_of(peak));
  }
  for (const StageRange* range : kind.ranges) {
    const double counts = range->has(one.strategy) ? 1.0 : 0.0;
    parts.insert(parts.end(), {counts, -counts});
  }
  return parts;
}

const PipelineProgram::Choices& PipelineProgram::choices_of(std::size_t stage, std::size_t block) {
  StageKind kind{block,         sends_time(stage), stage < kHeads, apart_[stage],
                 share_[stage], most_[stage],      held_[stage],   strategies_known(stage)};
  std::sort(kind.held.begin(), kind.held.end());
  kind.held.erase(std::unique(kind.held.begin(), kind.held.end()), kind.held.end());
  const auto [slot, is_new] = choices_.try_emplace(std::move(kind));
  if (!is_new) {
    return slot->second;
  }
  Choices& choices = slot->second;
  std::vector<std::vector<double>> kept;
  for (std::size_t index = 0; index < costs_.choices[block].size(); ++index) {
    std::vector<double> parts = parts_of(costs_.choices[block][index], stage, block, slot->first);
    const bool beaten = std::any_of(kept.begin(), kept.end(), [&](const auto& other) {
      return std::equal(other.begin(), other.end(), parts.begin(), std::less_equal<>());
    });
    if (!beaten) {
      kept.push_back(std::move(parts));
      choices.best.push_back(index);
    }
  }
  choices.likely = likely_of(stage, block, choices.best);
  return choices;
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

// From the fastest on, each time the one that saves most memory for its time where its device holds
// most, down to the one that needs least: mixtures of the others are mostly no better.
std::set<std::size_t> PipelineProgram::likely_of(std::size_t stage, std::size_t block,
                                                 const std::vector<std::size_t>& choices) const {
  struct Point {
    double takes;
    double needs;
  };
  std::vector<Point> points;
  for (const std::size_t choice : choices) {
    const BlockChoice& one = costs_.choices[block][choice];
    double needs = held_[stage].empty() ? bytes(one, block, stage, {}) : 0.0;
    for (const Held& held : held_[stage]) {
      needs = std::max(needs, bytes(one, block, stage, held));
    }
    points.push_back({std::max(one.forward + one.gather * costs_.beside, one.gather) +
                          std::max(one.backward + one.traffic * costs_.beside, one.traffic),
                      needs});
  }
  std::size_t here = 0;
  for (std::size_t index = 1; index < points.size(); ++index) {
    if (std::pair(points[index].takes, points[index].needs) <
        std::pair(points[here].takes, points[here].needs)) {
      here = index;
    }
  }
  std::set<std::size_t> likely;
  for (bool found = true; found;) {
    likely.insert(choices[here]);
    found = false;
    std::size_t next = here;
    double most = 0;  // bytes saved for a second more
    for (std::size_t other = 0; other < points.size(); ++other) {
      const double saved = points[here].needs - points[other].needs;
      const double rate = saved / std::max(points[other].takes - points[here].takes, kLeastMore);
      if (saved > 0 && rate > most) {
        most = rate;
        next = other;
        found = true;
      }
    }
    here = next;
  }
  return likely;
}

void PipelineProgram::add_columns() {
  columns_.resize(stages_);
  const models::Network& network = plan_.network;
  std::vector<Terms> every(network.blocks.size());
  std::vector<int> groups;
  for (const int count : costs_.count) {
    groups.push_back(program_.add_group(count));
  }
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    Terms some;
    for (std::size_t block = 0; block < network.blocks.size(); ++block) {
      if (costs_.count[block] == 0 || !may_hold(stage, block)) {
        continue;
      }
      const Choices& choices = choices_of(stage, block);
      for (const std::size_t choice : choices.best) {
        const bool idle = choice != choices.best.front() && !choices.likely.contains(choice);
        const int variable = program_.add_variable(costs_.count[block], 0.0, idle, groups[block]);
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
void PipelineProgram::at_least(int variable, std::size_t stage, double BlockChoice::*part,
                               double BlockChoice::*beside, Terms more) {
  Terms terms = std::move(more);
  terms.push_back({variable, 1.0});
  for (const Column& column : columns_[stage]) {
    const BlockChoice& one = choice_at(column);
    const double shared = beside != nullptr ? one.*beside * costs_.beside : 0.0;
    const double value = (one.*part + shared) * kRounding / until_;
    if (value > 0 && !is_shared(column.block)) {
      terms.push_back({column.variable, -value});
    }
  }
  if (terms.size() > 1) {
    program_.add_row(std::move(terms), 0.0);
  }
}

// The first block of a stage comes last in its backward: no other runs beside its reduction.
void PipelineProgram::add_first_blocks() {
  first_.resize(stages_);
  if (!pipeline_.placement.flushes || pipeline_.placement.shares_ends) {
    return;
  }
  const auto front = static_cast<std::size_t>(plan_.network.chain.front());
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    const bool known = stage == 0 && costs_.count[front] == 1;  // the chain's first block
    Terms terms;
    double least = std::numeric_limits<double>::infinity();
    for (const Column& column : columns_[stage]) {
      const BlockChoice& one = choice_at(column);
      if (costs_.strategies[one.strategy].zero_stage >= 2 && (!known || column.block == front)) {
        terms.push_back({column.variable, known ? -1.0 : 1.0});
        least = std::min(least, one.pass_reduce);
      }
    }
    if (!terms.empty()) {
      first_[stage] = {program_.add_variable(1.0, 0.0), least};
      terms.push_back({first_[stage].sharded, known ? 1.0 : -1.0});
      program_.add_row(std::move(terms), 0.0);
    }
  }
}

// Kernels and collectives share the multiprocessors, and collectives their stream.
void PipelineProgram::add_passes() {
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    forward_.push_back(program_.add_variable(1.0, 0.0));
    backward_.push_back(program_.add_variable(1.0, 0.0));
    at_least(forward_[stage], stage, &BlockChoice::forward, &BlockChoice::gather);
    Terms behind;
    if (exposed(stage) > 0) {
      behind.push_back({first_[stage].sharded, -exposed(stage) * kRounding / until_});
    }
    at_least(backward_[stage], stage, &BlockChoice::backward, &BlockChoice::traffic, behind);
    if (traits_.splits_backward) {
      input_grad_.push_back(program_.add_variable(1.0, 0.0));
      weight_grad_.push_back(program_.add_variable(1.0, 0.0));
      at_least(input_grad_[stage], stage, &BlockChoice::input_grad, &BlockChoice::regather);
      at_least(weight_grad_[stage], stage, &BlockChoice::weight_grad, &BlockChoice::pass_reduce,
               std::move(behind));
      program_.add_row(
          {{input_grad_[stage], 1.0}, {weight_grad_[stage], 1.0}, {backward_[stage], -1.0}}, 0.0);
    }
  }
}

void PipelineProgram::add_streams() {
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    at_least(forward_[stage], stage, &BlockChoice::gather);
    at_least(backward_[stage], stage, &BlockChoice::traffic);
    if (traits_.splits_backward) {
      at_least(input_grad_[stage], stage, &BlockChoice::regather);
      at_least(weight_grad_[stage], stage, &BlockChoice::pass_reduce);
    }
  }
}

void PipelineProgram::begin_with(const Shares& shares) {
  program_.begin_with(shares.basis);
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    for (const Column& column : columns_[stage]) {
      if (shares.blocks[stage][column.block][column.choice] > 0) {
        program_.begin_with(column.variable);
      }
    }
  }
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
