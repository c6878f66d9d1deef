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
                                 double until, ListFacts facts, plan::TransferTimes& transfers)
    : plan_(plan),
      pipeline_(pipeline),
      traits_(traits),
      costs_(costs),
      until_(until),
      room_(std::max(1.0, device_memory(plan, costs))),
      stages_(plan.stage_blocks.size()),
      facts_(std::move(facts)),
      transfers_(transfers) {
  program_.stop_at(1.0);  // `until`
  time_ = program_.add_variable(1.0, 1.0);
  count_held();
  count_blocks();
  add_columns();
  add_first_blocks();
  add_passes();
  add_sends();
  add_updates();
  add_step_ends();
  add_queues();
  add_device_paths();
  add_capacities();
  if (facts_.live.empty()) {
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

const std::vector<std::size_t>& PipelineProgram::choices_of(std::size_t stage, std::size_t block) {
  std::vector<Held> held = held_[stage];
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  const auto [slot, is_new] = best_.try_emplace({block, sends_time(stage), stage < kHeads, held});
  if (!is_new) {
    return slot->second;
  }
  std::vector<std::vector<double>> kept;
  for (std::size_t index = 0; index < costs_.choices[block].size(); ++index) {
    const BlockChoice& one = costs_.choices[block][index];
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
    if (held.empty()) {
      parts.insert(parts.end(), {bytes(one, block, {}), one.saved});
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

// From the fastest on, each time the one that saves most memory for its time where its device holds
// most, down to the one that needs least: mixtures of the others are mostly no better.
std::set<std::size_t> PipelineProgram::likely_of(std::size_t stage, std::size_t block,
                                                 const std::vector<std::size_t>& choices) const {
  const auto needs = [&](std::size_t choice) {
    const BlockChoice& one = costs_.choices[block][choice];
    double most = held_[stage].empty() ? bytes(one, block, {}) : 0.0;
    for (const Held& held : held_[stage]) {
      most = std::max(most, bytes(one, block, held));
    }
    return most;
  };
  const auto takes = [&](std::size_t choice) {
    const BlockChoice& one = costs_.choices[block][choice];
    return std::max(one.forward + one.gather * costs_.beside, one.gather) +
           std::max(one.backward + one.traffic * costs_.beside, one.traffic);
  };
  std::size_t here = *std::min_element(choices.begin(), choices.end(), [&](auto a, auto b) {
    return std::pair(takes(a), needs(a)) < std::pair(takes(b), needs(b));
  });
  std::set<std::size_t> likely;
  for (bool found = true; found;) {
    likely.insert(here);
    found = false;
    std::size_t next = here;
    double most = 0;  // bytes saved for a second more
    for (const std::size_t other : choices) {
      const double saved = needs(here) - needs(other);
      const double rate = saved / std::max(takes(other) - takes(here), kLeastMore);
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
      const std::vector<std::size_t>& choices = choices_of(stage, block);
      const std::set<std::size_t> likely = likely_of(stage, block, choices);
      for (const std::size_t choice : choices) {
        const bool idle = choice != choices.front() && !likely.contains(choice);
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

void PipelineProgram::add_passes() {
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    forward_.push_back(program_.add_variable(1.0, 0.0));
    backward_.push_back(program_.add_variable(1.0, 0.0));
    // Kernels and collectives share the multiprocessors, and collectives their stream.
    at_least(forward_[stage], stage, &BlockChoice::forward, &BlockChoice::gather);
    at_least(forward_[stage], stage, &BlockChoice::gather);
    Terms behind;
    if (exposed(stage) > 0) {
      behind.push_back({first_[stage].sharded, -exposed(stage) * kRounding / until_});
    }
    at_least(backward_[stage], stage, &BlockChoice::backward, &BlockChoice::traffic, behind);
    at_least(backward_[stage], stage, &BlockChoice::traffic);
    if (traits_.splits_backward) {
      input_grad_.push_back(program_.add_variable(1.0, 0.0));
      weight_grad_.push_back(program_.add_variable(1.0, 0.0));
      at_least(input_grad_[stage], stage, &BlockChoice::input_grad, &BlockChoice::regather);
      at_least(input_grad_[stage], stage, &BlockChoice::regather);
      at_least(weight_grad_[stage], stage, &BlockChoice::weight_grad, &BlockChoice::pass_reduce,
               std::move(behind));
      at_least(weight_grad_[stage], stage, &BlockChoice::pass_reduce);
      program_.add_row(
          {{input_grad_[stage], 1.0}, {weight_grad_[stage], 1.0}, {backward_[stage], -1.0}}, 0.0);
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
