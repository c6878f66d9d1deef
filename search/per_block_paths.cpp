// SPDX-License-Identifier: Apache-2.0
// The rows on time of the program of per_block_program.hpp: paths through passes, and whole blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/random.hpp"
#include "search/per_block_capacity.hpp"
#include "search/per_block_program.hpp"

namespace orrery::search {

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
    const bool waits = copies == 1 && placement.flushes;
    const bool drains = waits && placement.whole_backwards && !placement.shares_ends;
    for (std::size_t stage = 0; stage < first && waits; ++stage) {
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
    const int tail = tails_.empty() ? -1
                     : drains       ? tails_.front()
                                    : device_tails_[static_cast<std::size_t>(device)];
    add_ends(terms, tail, drains ? placement.device_of.front() : static_cast<std::size_t>(device));
    program_.add_row(std::move(terms), (sends + costs_.optimizer) * kRounding / until_);
  }
}

// variable >= value, less `loss` x columns of some kinds; all in seconds.
void PipelineProgram::add_step_ends() {
  if (!pipeline_.placement.flushes || pipeline_.placement.shares_ends) {
    return;
  }
  const auto front = static_cast<std::size_t>(plan_.network.chain.front());
  const bool one_front = costs_.count[front] == 1;
  const auto scaled = [&](double seconds) { return seconds * kRounding / until_; };
  // The block of a stage that is reduced last is its first one. What it takes is R, less R - r for
  // every block of a strategy that takes r only: the first one is among them. A stage with ZeRO-2
  // or 3 may have waited for its traffic already; then nothing is counted.
  const auto least = [&](std::size_t stage) {
    double reduce = std::numeric_limits<double>::infinity();
    for (const Column& column : columns_[stage]) {
      const double value = choice_at(column).reduce;
      reduce = value > 0 ? std::min(reduce, value) : reduce;
    }
    return std::isfinite(reduce) ? reduce : 0.0;
  };
  const auto less = [&](Terms& terms, std::size_t stage, double most) {
    for (const Column& column : columns_[stage]) {
      const double loss = most - choice_at(column).reduce;
      if (loss > 0) {
        terms.push_back({column.variable, scaled(loss)});
      }
    }
  };
  device_tails_.assign(static_cast<std::size_t>(plan_.pp), -1);
  std::vector<double> of_stage;
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    of_stage.push_back(least(stage));
    Terms terms = {{program_.add_variable(1.0, 0.0), 1.0}};
    tails_.push_back(terms.front().first);
    if (stage == 0 && one_front) {
      double most = 0;
      for (const Column& column : columns_[stage]) {
        most = column.block == front ? std::max(most, choice_at(column).reduce) : most;
      }
      for (const Column& column : columns_[stage]) {
        const double reduce = choice_at(column).reduce;
        const double gain = column.block == front ? reduce : reduce > 0 ? 0.0 : -most;
        if (gain != 0) {
          terms.push_back({column.variable, -scaled(gain)});
        }
      }
      program_.add_row(std::move(terms), 0.0);
      continue;
    }
    less(terms, stage, of_stage[stage]);
    program_.add_row(std::move(terms), scaled(of_stage[stage]));
  }
  const std::size_t copies = traits_.two_directions ? 2 : 1;
  for (std::size_t device = 0; device < device_tails_.size(); ++device) {
    std::vector<std::size_t> mine;
    for (std::size_t index = 0; index < stages_ * copies; ++index) {
      const std::size_t stage = index % stages_;
      if (pipeline_.placement.device_of[index] == device &&
          std::find(mine.begin(), mine.end(), stage) == mine.end()) {
        mine.push_back(stage);
      }
    }
    double most = std::numeric_limits<double>::infinity();
    for (const std::size_t stage : mine) {
      most = std::min(most, of_stage[stage]);
    }
    if (mine.empty() || most <= 0) {
      continue;
    }
    Terms terms = {{program_.add_variable(1.0, 0.0), 1.0}};
    device_tails_[device] = terms.front().first;
    for (const std::size_t stage : mine) {
      less(terms, stage, most);
    }
    program_.add_row(std::move(terms), scaled(most));
  }
  if (!one_front) {
    return;
  }
  head_ = program_.add_variable(1.0, 0.0);
  tied_ = program_.add_variable(1.0, 0.0);
  Terms head = {{head_, 1.0}};
  Terms tied = {{tied_, 1.0}};
  double most = 0;
  for (const Column& column : columns_.front()) {
    most = std::max(most, choice_at(column).step_gather);
  }
  for (const Column& column : columns_.front()) {
    const BlockChoice& one = choice_at(column);
    if (column.block == front) {
      head.push_back({column.variable, -scaled(one.step_gather)});
      tied.push_back({column.variable, -scaled(one.tied)});
    } else if (one.gather > 0) {  // such passes may have waited for their parameters
      head.push_back({column.variable, scaled(most)});
    }
  }
  program_.add_row(std::move(head), 0.0);
  program_.add_row(std::move(tied), 0.0);
}

void PipelineProgram::add_ends(Terms& terms, int tail, std::size_t device) const {
  if (head_ >= 0) {
    terms.push_back({head_, -1.0});
  }
  if (tail >= 0) {
    terms.push_back({tail, -1.0});
  }
  if (tied_ >= 0 && (device == 0 || device + 1 == static_cast<std::size_t>(plan_.pp))) {
    terms.push_back({tied_, -1.0});
  }
}

// Whole layers within the time that is asked for.
void PipelineProgram::add_capacities() {
  const std::vector<DeviceFloor> floors = device_floors(
      plan_.network, costs_, pipeline_, plan_.pp, static_cast<double>(plan_.num_micro_batches()));
  const std::size_t copies = traits_.two_directions ? 2 : 1;
  for (std::size_t device = 0; device < floors.size(); ++device) {
    std::map<int, double> terms;  // a stage of both directions is there twice
    for (std::size_t index = 0; index < stages_ * copies; ++index) {
      if (pipeline_.placement.device_of[index] != device) {
        continue;
      }
      for (const Column& column : columns_[index % stages_]) {
        if (plan_.network.blocks[column.block].kind == models::BlockKind::Layer) {
          terms[column.variable] -= 1.0;
        }
      }
    }
    program_.add_row({terms.begin(), terms.end()}, -floors[device].layers_within(until_));
  }
}

PipelineProgram::PassTimes PipelineProgram::PassTimes::mixed(const PassTimes& other,
                                                             double share) const {
  PassTimes result = *this;
  const auto mix = [&](std::vector<double>& mine, const std::vector<double>& others) {
    for (std::size_t stage = 0; stage < mine.size(); ++stage) {
      mine[stage] = share * mine[stage] + (1.0 - share) * others[stage];
    }
  };
  mix(result.forward, other.forward);
  mix(result.backward, other.backward);
  mix(result.input_grad, other.input_grad);
  mix(result.weight_grad, other.weight_grad);
  return result;
}

PipelineProgram::PassTimes PipelineProgram::PassTimes::even() const {
  PassTimes result = *this;
  for (std::vector<double>* times :
       {&result.forward, &result.backward, &result.input_grad, &result.weight_grad}) {
    double sum = 0;
    for (const double time : *times) {
      sum += time;
    }
    std::fill(times->begin(), times->end(), sum / static_cast<double>(times->size()));
  }
  return result;
}

PipelineProgram::PassTimes PipelineProgram::PassTimes::varied(int variant, double part) const {
  PassTimes result = *this;
  Random random(static_cast<std::uint64_t>(variant));
  for (std::size_t stage = 0; stage < forward.size(); ++stage) {
    const double factor = 1.0 + part * (random.uniform() - 0.5);
    for (std::vector<double>* times :
         {&result.forward, &result.backward, &result.input_grad, &result.weight_grad}) {
      if (stage < times->size()) {
        (*times)[stage] *= factor;
      }
    }
  }
  return result;
}

PipelineProgram::PassTimes PipelineProgram::cut_times() const {
  PassTimes times;
  std::size_t position = 0;
  for (const int count : plan_.stage_blocks) {
    BlockChoice sum;
    for (int index = 0; index < count; ++index, ++position) {
      const auto block = static_cast<std::size_t>(plan_.network.chain[position]);
      const BlockChoice& one = costs_.choices[block].front();
      const double part = is_shared(block) ? 0.0 : 1.0;
      sum.forward += part * one.forward;
      sum.backward += part * one.backward;
      sum.input_grad += part * one.input_grad;
      sum.weight_grad += part * one.weight_grad;
    }
    times.forward.push_back(sum.forward);
    times.backward.push_back(sum.backward);
    if (traits_.splits_backward) {
      times.input_grad.push_back(sum.input_grad);
      times.weight_grad.push_back(sum.weight_grad);
    }
  }
  return times;
}

// What the blocks of the answer take; the program's own variables may be longer where nothing
// presses on them.
PipelineProgram::PassTimes PipelineProgram::pass_times(const LinearProgram::Answer& answer) const {
  PassTimes times;
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    BlockChoice sum;
    for (const Column& column : columns_[stage]) {
      const double count = std::max(0.0, answer.values[static_cast<std::size_t>(column.variable)]);
      if (count > 0 && !is_shared(column.block)) {
        const BlockChoice& one = choice_at(column);
        sum.forward += count * (one.forward + one.gather * costs_.beside);
        sum.backward += count * (one.backward + one.traffic * costs_.beside);
        sum.gather += count * one.gather;
        sum.traffic += count * one.traffic;
        sum.input_grad += count * one.input_grad;
        sum.weight_grad += count * one.weight_grad;
      }
    }
    times.forward.push_back(std::max(sum.forward, sum.gather));
    times.backward.push_back(std::max(sum.backward, sum.traffic));
    if (traits_.splits_backward) {
      const double rest = times.backward.back() - sum.input_grad;
      times.input_grad.push_back(sum.input_grad);
      times.weight_grad.push_back(std::max(sum.weight_grad, rest));
    }
  }
  return times;
}

double PipelineProgram::add_path(const sim::PipelineOrder& order, const PassTimes& times,
                                 const LinearProgram::Answer& answer, double slack) {
  sim::PipelineCosts costs;
  for (std::size_t index = 0; index <= sends_.size(); ++index) {
    const std::size_t stage = index % stages_;  // of either copy
    costs.forward.push_back(to_sim_time(Seconds(times.forward[stage])));
    costs.backward.push_back(to_sim_time(Seconds(times.backward[stage])));
    if (traits_.splits_backward) {
      costs.input_grad.push_back(to_sim_time(Seconds(times.input_grad[stage])));
      costs.weight_grad.push_back(to_sim_time(Seconds(times.weight_grad[stage])));
    }
  }
  costs.send_forward = sends_;
  costs.send_backward = sends_;
  const PassPath path = longest_path(order, costs);
  Terms terms = {{time_, 1.0}};
  const auto add = [&](const std::vector<int>& variables, const std::vector<double>& counts) {
    for (std::size_t stage = 0; stage < variables.size(); ++stage) {
      const bool twice = counts.size() > stages_;
      const double count = counts[stage] + (twice ? counts[stages_ + stage] : 0.0);
      if (count > 0) {
        terms.push_back({variables[stage], -count});
      }
    }
  };
  add(forward_, path.forwards);
  add(backward_, path.backwards);
  add(input_grad_, path.input_grads);
  add(weight_grad_, path.weight_grads);
  const bool ends = !tails_.empty() && path.ends_stage;
  add_ends(
      terms, ends ? tails_[path.last_stage % stages_] : -1,
      ends ? pipeline_.placement.device_of[path.last_stage] : static_cast<std::size_t>(plan_.pp));
  const double low = (path.sends + costs_.optimizer) * kRounding / until_;
  double missing = low;
  double beyond = costs_.optimizer;
  for (const auto& [variable, coefficient] : terms) {
    const double value = std::clamp(answer.values[static_cast<std::size_t>(variable)], 0.0, 1.0);
    missing -= coefficient * value;
    const bool end = variable == head_ || variable == tied_ ||
                     (ends && variable == tails_[path.last_stage % stages_]);
    beyond += end ? value * until_ : 0.0;
  }
  if (missing * until_ > slack) {
    program_.add_row(std::move(terms), low);
  }
  return path.seconds + beyond;
}

}  // namespace orrery::search
