// SPDX-License-Identifier: Apache-2.0
// The rows on time of the program of per_block_program.hpp: paths through passes, and whole blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

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

void PipelineProgram::add_loads() {
  const std::vector<int>& chain = plan_.network.chain;
  std::vector<double> work(costs_.choices.size(), 0.0);
  double layer = std::numeric_limits<double>::infinity();
  double layers = 0;
  for (std::size_t block = 0; block < work.size(); ++block) {
    double least = std::numeric_limits<double>::infinity();
    for (const BlockChoice& one : costs_.choices[block]) {
      least = std::min(least, one.forward + one.backward);
    }
    const bool is_layer = plan_.network.blocks[block].kind == models::BlockKind::Layer;
    work[block] = is_layer || is_shared(block) || costs_.count[block] == 0 ? 0.0 : least;
    layer = is_layer && costs_.count[block] > 0 ? std::min(layer, least) : layer;
    layers += is_layer ? costs_.count[block] : 0;
  }
  const std::size_t copies = traits_.two_directions ? 2 : 1;
  const auto devices = static_cast<std::size_t>(plan_.pp);
  std::vector<double> ends(devices, 0.0);
  std::vector<std::map<int, double>> terms(devices);
  const double part = 1.0 / static_cast<double>(copies);
  for (std::size_t index = 0; index < stages_ * copies; ++index) {
    const std::size_t device = pipeline_.placement.device_of[index];
    const std::size_t stage = index % stages_;
    const auto end = [&](int block) { return part * work[static_cast<std::size_t>(block)]; };
    ends[device] += stage == 0 ? end(chain.front()) : 0.0;
    ends[device] += stage + 1 == stages_ ? end(chain.back()) : 0.0;
    for (const Column& column : columns_[stage]) {
      const bool is_layer = plan_.network.blocks[column.block].kind == models::BlockKind::Layer;
      const bool is_end = (stage == 0 && static_cast<int>(column.block) == chain.front()) ||
                          (stage + 1 == stages_ && static_cast<int>(column.block) == chain.back());
      const double load = is_layer ? layer : is_end ? work[column.block] : 0.0;
      terms[device][column.variable] += part * load;
    }
  }
  // The least load that all devices may have at most: a candidate is a whole number on one device.
  const double unit = part * layer;
  const auto whole = [&](double load, double end) {
    return std::floor((load - end) / unit + 1e-9);
  };
  const auto enough = [&](double load) {
    double sum = 0;
    for (const double end : ends) {
      sum += std::max(0.0, whole(load, end));
    }
    return sum >= layers * static_cast<double>(copies);
  };
  double best = std::numeric_limits<double>::infinity();
  for (const double end : ends) {
    double low = 0;
    double high = layers * static_cast<double>(copies);
    while (low < high) {
      const double middle = std::floor((low + high) / 2);
      (enough(end + middle * unit) ? high : low) = middle + (enough(end + middle * unit) ? 0 : 1);
    }
    best = enough(end + high * unit) ? std::min(best, end + high * unit) : best;
  }
  for (std::size_t device = 0; device < devices; ++device) {
    const double blocks = std::ceil((best - ends[device]) / unit - 1e-9);
    loads_.push_back((ends[device] + std::max(0.0, blocks) * unit) * kRounding * (1.0 - 1e-9) /
                     until_);
    Terms row(terms[device].begin(), terms[device].end());
    for (auto& term : row) {
      term.second /= until_;
    }
    load_rows_.push_back(program_.add_row(std::move(row), 0.0));
  }
}

void PipelineProgram::require(int device) {
  for (std::size_t index = 0; index < load_rows_.size(); ++index) {
    program_.set_low(load_rows_[index], static_cast<int>(index) == device ? loads_[index] : 0.0);
  }
}

double PipelineProgram::add_path(const sim::PipelineOrder& order,
                                 const LinearProgram::Answer& answer) {
  const auto time = [&](int variable) {
    const double value = std::clamp(answer.values[static_cast<std::size_t>(variable)], 0.0, 1.0);
    return to_sim_time(Seconds(value * until_));
  };
  sim::PipelineCosts costs;
  for (std::size_t index = 0; index <= sends_.size(); ++index) {
    const std::size_t stage = index % stages_;  // of either copy
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
  program_.add_row(std::move(terms), path.sends * kRounding / until_);
  return path.seconds;
}

}  // namespace orrery::search
