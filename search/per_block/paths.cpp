// SPDX-License-Identifier: Apache-2.0
// The rows on time of the program of per_block/program.hpp: paths through passes, and whole blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "search/per_block/capacity.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kMostKept = 80;  // tight paths, the last ones
constexpr double kTight = 1e-7;        // of the time that is asked for

double value_of(const LinearProgram::Answer& answer, int variable) {
  return std::clamp(answer.values[static_cast<std::size_t>(variable)], 0.0, 1.0);
}

}  // namespace

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
    Terms terms = {{time_, 1.0}, {update_, -1.0}};
    const bool waits = copies == 1 && placement.flushes;
    const bool drains = waits && placement.whole_backwards && !placement.shares_ends;
    for (std::size_t stage = 0; stage < first && waits; ++stage) {
      forwards[stage] += 1;
      backwards[stage] += drains ? 1 : 0;
      if (sends_[stage] >= 0) {
        terms.push_back({sends_[stage], drains ? -2.0 : -1.0});
      }
    }
    for (std::size_t stage = 1; stage <= first && waits; ++stage) {
      if (heads_[stage] >= 0) {
        terms.push_back({heads_[stage], -1.0});
      }
    }
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
    program_.add_row(std::move(terms), fixed_end() * kRounding / until_);
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
        if (is_layer(column.block)) {
          terms[column.variable] -= 1.0;
        }
      }
    }
    program_.add_row({terms.begin(), terms.end()}, -floors[device].layers_within(until_));
  }
}

double PipelineProgram::add_path(const sim::PipelineOrder& order, const PassTimes& times,
                                 const LinearProgram::Answer& answer, double slack) {
  sim::PipelineCosts costs;
  std::vector<SimTime> behind;
  const std::size_t all = stages_ * (traits_.two_directions ? 2 : 1);
  const auto seconds = [&](int variable) {
    return variable >= 0 ? until_ * value_of(answer, variable) : 0.0;
  };
  for (std::size_t index = 0; index < all; ++index) {
    const std::size_t stage = index % stages_;  // of either copy
    if (index + 1 < all) {
      costs.send_forward.push_back(to_sim_time(Seconds(times.send[stage])));
    }
    costs.forward.push_back(to_sim_time(Seconds(times.forward[stage])));
    costs.backward.push_back(to_sim_time(Seconds(times.backward[stage])));
    costs.first_forward_extra.push_back(to_sim_time(Seconds(seconds(heads_[stage]))));
    costs.last_backward_extra.push_back(to_sim_time(Seconds(seconds(extras_[stage]))));
    if (traits_.splits_backward) {
      costs.input_grad.push_back(to_sim_time(Seconds(times.input_grad[stage])));
      costs.weight_grad.push_back(to_sim_time(Seconds(times.weight_grad[stage])));
    }
    double after = tails_.empty() ? 0.0 : seconds(tails_[stage]);
    for (const std::size_t other : facts_.reduced_later[index]) {
      after += tails_.empty() ? 0.0 : seconds(reductions_[other % stages_]);
    }
    behind.push_back(to_sim_time(Seconds(after)));
  }
  costs.send_backward = costs.send_forward;
  const PassPath path = longest_path(order, costs, behind);
  PathRow row = row_of(path);
  double beyond = fixed_end() + seconds(update_);
  if (path.ends_stage) {
    beyond += to_seconds(behind[path.last_stage]).value();
    beyond += std::any_of(row.terms.begin(), row.terms.end(),
                          [&](const auto& term) { return term.first == tied_; })
                  ? seconds(tied_)
                  : 0.0;
  }
  if (missing(row, answer) * until_ > slack) {
    program_.begin_part(LinearProgram::Part::Rest);
    row.number = program_.add_row(row.terms, row.low);
    paths_.push_back(std::move(row));
  }
  return path.seconds + beyond;
}

int PipelineProgram::tail_of(const PassPath& path) const {
  return !tails_.empty() && path.ends_stage ? tails_[path.last_stage % stages_] : -1;
}

PipelineProgram::PathRow PipelineProgram::row_of(const PassPath& path) const {
  Terms terms = {{time_, 1.0}, {update_, -1.0}};
  const auto add = [&](const std::vector<int>& variables, const std::vector<double>& counts) {
    for (std::size_t stage = 0; stage < variables.size(); ++stage) {
      const bool twice = counts.size() > stages_;
      const double count = counts[stage] + (twice ? counts[stages_ + stage] : 0.0);
      if (count > 0 && variables[stage] >= 0) {
        terms.push_back({variables[stage], -count});
      }
    }
  };
  add(forward_, path.forwards);
  add(backward_, path.backwards);
  add(input_grad_, path.input_grads);
  add(weight_grad_, path.weight_grads);
  add(sends_, path.sends);
  for (std::size_t index = 0; index < path.firsts.size(); ++index) {
    const std::size_t stage = index % stages_;  // on the path in one copy at most
    if (stage > 0 && path.firsts[index] && heads_[stage] >= 0) {
      terms.push_back({heads_[stage], -1.0});
    }
  }
  std::map<int, double> extras;
  for (std::size_t index = 0; index < path.finals.size(); ++index) {
    if (path.finals[index] && extras_[index % stages_] >= 0) {
      extras[extras_[index % stages_]] -= 1.0;
    }
  }
  terms.insert(terms.end(), extras.begin(), extras.end());
  const int tail = tail_of(path);
  add_later(terms, path);
  add_ends(terms, tail,
           tail >= 0 ? pipeline_.placement.device_of[path.last_stage]
                     : static_cast<std::size_t>(plan_.pp));
  return {path, std::move(terms), fixed_end() * kRounding / until_};
}

double PipelineProgram::missing(const PathRow& row, const LinearProgram::Answer& answer) const {
  double missing = row.low;
  for (const auto& [variable, coefficient] : row.terms) {
    missing -= coefficient * value_of(answer, variable);
  }
  return missing;
}

void PipelineProgram::add_path(const PassPath& path) {
  program_.begin_part(LinearProgram::Part::Paths);
  paths_.push_back(row_of(path));
  paths_.back().number = program_.add_row(paths_.back().terms, paths_.back().low);
}

void PipelineProgram::forget_paths(const LinearProgram::Answer& answer, std::size_t most) {
  if (paths_.size() <= most) {
    return;
  }
  std::vector<std::pair<double, int>> spare;
  for (const PathRow& row : paths_) {
    const double missed = missing(row, answer);
    if (missed < -kTight) {
      spare.push_back({missed, row.number});
    }
  }
  std::sort(spare.begin(), spare.end());  // those with most to spare first
  spare.resize(std::min(spare.size(), paths_.size() - most));
  std::vector<int> rows;
  for (const auto& [missed, number] : spare) {
    rows.push_back(number);
  }
  program_.drop_rows(rows);
  std::sort(rows.begin(), rows.end());
  std::erase_if(paths_, [&](const PathRow& row) {
    return std::binary_search(rows.begin(), rows.end(), row.number);
  });
}

std::vector<const PipelineProgram::PathRow*> PipelineProgram::tight(
    const LinearProgram::Answer& answer) const {
  std::vector<const PathRow*> tight;
  for (auto row = paths_.rbegin(); row != paths_.rend() && tight.size() < kMostKept; ++row) {
    if (missing(*row, answer) > -kTight) {
      tight.push_back(&*row);
    }
  }
  return tight;
}

std::vector<PassPath> PipelineProgram::tight_paths(const LinearProgram::Answer& answer) const {
  std::vector<PassPath> paths;
  for (const PathRow* row : tight(answer)) {
    paths.push_back(row->path);
  }
  return paths;
}

LinearProgram::Basis PipelineProgram::basis(const LinearProgram::Answer& answer) const {
  std::vector<int> rows;
  for (const PathRow* row : tight(answer)) {
    rows.push_back(row->number);
  }
  return program_.basis(rows);
}

// Which one of several stages has them is for per_block/peak_rows.cpp.
void PipelineProgram::add_layers(const StageRange& range) {
  const bool each = range.of == StageRange::Of::Each;
  for (const std::size_t stage :
       each || range.stages.size() == 1 ? range.stages : std::vector<std::size_t>()) {
    Terms layers;
    for (const Column& column : columns_[stage]) {
      if (is_layer(column.block)) {
        layers.push_back({column.variable, each ? -1.0 : 1.0});
      }
    }
    program_.add_row(std::move(layers), each ? -range.most : range.least);
  }
}

void PipelineProgram::add_ranges() {
  program_.begin_part(LinearProgram::Part::Ranges);
  for (const StageRange& range : ranges_) {
    const bool of_strategies = range.of == StageRange::Of::Strategies;
    if (range.of != StageRange::Of::Together && !of_strategies) {
      add_layers(range);
      continue;
    }
    Terms blocks;
    for (const std::size_t stage : range.stages) {
      for (const Column& column : columns_[stage]) {
        if (!of_strategies || range.has(choice_at(column).strategy)) {
          blocks.push_back({column.variable, 1.0});
        }
      }
    }
    program_.add_row(blocks, range.least);
    for (auto& [variable, coefficient] : blocks) {
      coefficient = -1.0;
    }
    program_.add_row(std::move(blocks), -range.most);
  }
}

}  // namespace orrery::search
