// SPDX-License-Identifier: Apache-2.0
// The rows of the program of per_block/program.hpp on what begins and ends a step: gathers of
// parameters, reductions of gradients and the sum of tied ones.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "search/per_block/program.hpp"

namespace orrery::search {

// The chain's first block stands alone: its gathers and reductions are its own.
bool PipelineProgram::has_one_front() const {
  return costs_.count[static_cast<std::size_t>(plan_.network.chain.front())] == 1;
}

// variable >= value, less `loss` x columns of some kinds; all in seconds.
void PipelineProgram::add_step_ends() {
  heads_.assign(stages_, -1);
  extras_.assign(stages_, -1);
  if (!pipeline_.placement.flushes || pipeline_.placement.shares_ends) {
    return;
  }
  std::vector<double> last;  // reductions, by stage
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    last.push_back(least_reduction(stage));
    add_stage_tail(stage, last.back());
  }
  add_device_tails(last);
  if (has_one_front()) {
    add_front();
  }
}

// The block of a stage that is reduced last is its first one.
double PipelineProgram::least_reduction(std::size_t stage) const {
  double reduce = std::numeric_limits<double>::infinity();
  for (const Column& column : columns_[stage]) {
    const double value = choice_at(column).reduce;
    reduce = value > 0 ? std::min(reduce, value) : reduce;
  }
  return std::isfinite(reduce) ? reduce : 0.0;
}

// What the reduction of a stage's first block takes is R, less R - r for every block of a strategy
// that takes r only: the first one is among them. Under ZeRO-2 or 3 it was reduced in the last
// backward.
void PipelineProgram::take_less(Terms& terms, std::size_t stage, double most) const {
  for (const Column& column : columns_[stage]) {
    const BlockChoice& one = choice_at(column);
    const double loss = most - one.reduce;
    if (loss > 0 && costs_.strategies[one.strategy].zero_stage < 2) {
      terms.push_back({column.variable, scaled(loss)});
    }
  }
  if (first_[stage].sharded >= 0) {
    terms.push_back({first_[stage].sharded, scaled(most)});
  }
}

void PipelineProgram::add_stage_tail(std::size_t stage, double reduction) {
  tails_.push_back(program_.add_variable(1.0, 0.0));
  Terms terms = {{tails_.back(), 1.0}};
  if (stage > 0 || !has_one_front()) {
    take_less(terms, stage, reduction);
    program_.add_row(std::move(terms), scaled(reduction));
    return;
  }
  for (const Column& column : columns_[stage]) {
    if (column.block == static_cast<std::size_t>(plan_.network.chain.front())) {
      terms.push_back({column.variable, -scaled(choice_at(column).reduce)});
    }
  }
  program_.add_row(std::move(terms), 0.0);
}

std::vector<std::size_t> PipelineProgram::stages_of(std::size_t device) const {
  const std::size_t copies = traits_.two_directions ? 2 : 1;
  std::vector<std::size_t> stages;
  for (std::size_t index = 0; index < stages_ * copies; ++index) {
    const std::size_t stage = index % stages_;
    if (pipeline_.placement.device_of[index] == device &&
        std::find(stages.begin(), stages.end(), stage) == stages.end()) {
      stages.push_back(stage);
    }
  }
  return stages;
}

void PipelineProgram::add_device_tails(const std::vector<double>& reductions) {
  device_tails_.assign(static_cast<std::size_t>(plan_.pp), -1);
  for (std::size_t device = 0; device < device_tails_.size(); ++device) {
    const std::vector<std::size_t> mine = stages_of(device);
    double most = std::numeric_limits<double>::infinity();
    for (const std::size_t stage : mine) {
      most = std::min(most, reductions[stage]);
    }
    if (mine.empty() || most <= 0) {
      continue;
    }
    device_tails_[device] = program_.add_variable(1.0, 0.0);
    Terms terms = {{device_tails_[device], 1.0}};
    for (const std::size_t stage : mine) {
      take_less(terms, stage, most);
    }
    program_.add_row(std::move(terms), scaled(most));
  }
}

// Of the first and the last device: others have both ends, or a sum of copies carries the table.
bool PipelineProgram::sums_tables() const {
  const std::vector<std::uint16_t>& devices = pipeline_.placement.device_of;
  return !traits_.two_directions && devices.front() == 0 && devices[stages_ - 1] + 1 == plan_.pp;
}

// The gather that holds up the first forward of all, and the sum of tied gradients.
void PipelineProgram::add_front() {
  heads_.front() = program_.add_variable(1.0, 0.0);
  Terms head = {{heads_.front(), 1.0}};
  Terms tied;
  double most = 0;
  for (const Column& column : columns_.front()) {
    most = std::max(most, choice_at(column).step_gather);
  }
  for (const Column& column : columns_.front()) {
    const BlockChoice& one = choice_at(column);
    if (column.block == static_cast<std::size_t>(plan_.network.chain.front())) {
      head.push_back({column.variable, -scaled(one.step_gather)});
      tied.push_back({column.variable, -scaled(one.tied)});
    } else if (one.gather > 0) {  // such passes may have waited for their parameters
      head.push_back({column.variable, scaled(most)});
    }
  }
  program_.add_row(std::move(head), 0.0);
  if (sums_tables()) {
    tied_ = program_.add_variable(1.0, 0.0);
    tied.push_back({tied_, 1.0});
    program_.add_row(std::move(tied), 0.0);
  }
}

void PipelineProgram::add_ends(Terms& terms, int tail, std::size_t device) const {
  if (heads_.front() >= 0) {
    terms.push_back({heads_.front(), -1.0});
  }
  if (tail >= 0) {
    terms.push_back({tail, -1.0});
  }
  if (tied_ >= 0 && (device == 0 || device + 1 == static_cast<std::size_t>(plan_.pp))) {
    terms.push_back({tied_, -1.0});
  }
}

double PipelineProgram::shortest(std::size_t stage, double BlockChoice::*part) const {
  double least = std::numeric_limits<double>::infinity();
  for (const Column& column : columns_[stage]) {
    least = std::min(least, choice_at(column).*part);
  }
  return std::isfinite(least) ? least : 0.0;
}

bool PipelineProgram::ends_cut(std::size_t stage) const {
  const std::size_t copies = traits_.two_directions ? 2 : 1;
  bool is_cut = traits_.splits_backward && !facts_.ends_cut.empty();
  for (std::size_t index = stage; index < stages_ * copies && is_cut; index += stages_) {
    is_cut = facts_.ends_cut[index];
  }
  return is_cut;
}

// A stage reduces its gradients from the start of the last pass that makes them on, one block after
// the other, each after its own gradients: if together they take longer than the pass, the rest is
// behind it. The reductions of every pass are in the same queue.
void PipelineProgram::add_queues() {
  for (std::size_t stage = 0; stage < tails_.size(); ++stage) {
    reductions_.push_back(program_.add_variable(1.0, 0.0));
    Terms all = {{reductions_.back(), 1.0}};
    for (const Column& column : columns_[stage]) {
      const double reduce = choice_at(column).reduce_all;
      if (reduce > 0) {
        all.push_back({column.variable, -reduce * kRounding / until_});
      }
    }
    program_.add_row(std::move(all), 0.0);
    const bool is_cut = ends_cut(stage);
    Terms queue = {{tails_[stage], 1.0},
                   {(is_cut ? weight_grad_ : backward_)[stage], 1.0},
                   {reductions_[stage], -1.0}};
    for (const Column& column : columns_[stage]) {
      const double reduce = choice_at(column).pass_reduce;
      if (reduce > 0) {
        queue.push_back({column.variable, -scaled(reduce)});
      }
    }
    const double first =
        shortest(stage, is_cut ? &BlockChoice::weight_grad : &BlockChoice::backward);
    program_.add_row(std::move(queue), first * kRounding / until_);
  }
  add_heads();
  add_extras();
}

// Reductions slow the blocks of the last pass that makes gradients beside them. Each but that of
// the block that comes last has at least one whole block to run beside: it adds its share of the
// shorter of both.
void PipelineProgram::add_extras() {
  const plan::Execution& execution = plan_.execution;
  const bool by_block = execution.bucket_bytes == 0 && execution.first_bucket_bytes == 0;
  if (tails_.empty() || !execution.overlap_grad_reduce || !by_block) {
    return;
  }
  const auto front = static_cast<std::size_t>(plan_.network.chain.front());
  const auto back = static_cast<std::size_t>(plan_.network.chain.back());
  const auto is_end = [&](std::size_t block) {
    return (block == front || block == back) && costs_.count[block] == 1;
  };
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    const bool is_cut = ends_cut(stage);
    double BlockChoice::*const part = is_cut ? &BlockChoice::weight_grad : &BlockChoice::backward;
    double shortest = std::numeric_limits<double>::infinity();
    for (const Column& column : columns_[stage]) {
      shortest = is_end(column.block) ? shortest : std::min(shortest, choice_at(column).*part);
    }
    if (!std::isfinite(shortest)) {
      continue;
    }
    extras_[stage] = program_.add_variable(1.0, 0.0);
    Terms terms = {{extras_[stage], 1.0}, {(is_cut ? weight_grad_ : backward_)[stage], 1.0}};
    double most = 0;
    for (const Column& column : columns_[stage]) {
      const BlockChoice& one = choice_at(column);
      const double extra = std::min(one.reduce_all + one.pass_reduce, shortest) * costs_.beside;
      most = std::max(most, extra);
      terms.push_back({column.variable, -(one.*part + extra) * kRounding / until_});
    }
    // The chain's first block may be as short as nothing.
    const double left = stage == 0 && is_end(front) ? 2.0 : 1.0;
    program_.add_row(std::move(terms), -left * most / until_);
  }
}

// A stage's first forward ends when the parameters of all its blocks are gathered, one after the
// other from the beginning of the step on, and the last block has run: of the first stages, which
// get their input early, that takes longer than the passes until there. Gathers and the blocks that
// run beside them slow each other (StageProgram): all blocks but the last may be beside gathers,
// and all gathers but the first one are beside blocks or leave the blocks idle. What is missing
// then is added to the first forward.
void PipelineProgram::add_heads() {
  if (heads_.front() < 0) {
    return;
  }
  const bool overlaps = plan_.execution.overlap_param_gather;
  const double beside = overlaps ? costs_.beside : 0.0;
  Terms before;  // passes, their waits and transfers until the stage has its parameters
  for (std::size_t stage = 0; stage < std::min(stages_, kHeads); ++stage) {
    if (stage > 0 && (!overlaps || sends_[stage - 1] < 0)) {
      return;  // after the optimizer, or a transfer of which nothing is known
    }
    if (stage > 0) {
      before.push_back({heads_[stage - 1], 1.0});
      before.push_back({sends_[stage - 1], 1.0});
      heads_[stage] = program_.add_variable(1.0, 0.0);
    }
    before.push_back({forward_[stage], 1.0});
    Terms queue = before;
    queue.push_back({heads_[stage], 1.0});
    Terms work = queue;
    for (const Column& column : columns_[stage]) {
      const BlockChoice& one = choice_at(column);
      const bool first =
          stage == 0 && column.block == static_cast<std::size_t>(plan_.network.chain.front());
      queue.push_back({column.variable, -scaled(one.gather_all + one.forward * beside)});
      work.push_back(
          {column.variable, -scaled(one.forward + one.gather_all * (first ? 1.0 : beside))});
    }
    const double last = shortest(stage, &BlockChoice::forward) * (1.0 - beside);
    program_.add_row(std::move(queue), scaled(last));
    if (overlaps) {
      program_.add_row(std::move(work), 0.0);
    }
  }
}

// Reductions of a device follow one another: those of stages that are ready later come behind.
void PipelineProgram::add_later(Terms& terms, const PassPath& path) const {
  if (tails_.empty() || !path.ends_stage) {
    return;
  }
  std::map<int, double> later;
  for (const std::size_t other : facts_.reduced_later[path.last_stage]) {
    later[reductions_[other % stages_]] -= 1.0;
  }
  terms.insert(terms.end(), later.begin(), later.end());
}

}  // namespace orrery::search
