// SPDX-License-Identifier: Apache-2.0
// The rows of the program of per_block/program.hpp on buffers that blocks share. They are as large
// as the largest block needs, but a program that spreads them over all blocks that there may be
// hardly counts them. Where more is known of some of the blocks, buffers are variables: as large as
// those of all blocks, spread; as those of the some, spread over as many as there are at most; and
// as the least of them, where there is one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "search/per_block/program.hpp"

namespace orrery::search {

namespace {

constexpr double kLargeEnd = 0.02;  // of the memory: buffers of an embedding or head that count

}  // namespace

void PipelineProgram::find_groups() {
  for (const StageRange& range : ranges_) {
    if (range.of == StageRange::Of::Strategies) {
      groups_.push_back({range.stages, range.least, std::max(1, range.most), &range, 0});
    }
  }
  // The chain's ends are where they are.
  const auto add_end = [&](int kind, std::size_t stage) {
    const auto block = static_cast<std::size_t>(kind);
    double most = 0;
    for (const BlockChoice& one : costs_.choices[block]) {
      most = std::max(most, one.overhead());
    }
    if (!is_layer(block) && !is_shared(block) && costs_.count[block] == 1 &&
        most > kLargeEnd * room_) {
      groups_.push_back({{stage}, 1, 1, nullptr, block});
    }
  };
  add_end(plan_.network.chain.front(), 0);
  add_end(plan_.network.chain.back(), stages_ - 1);
  apart_.assign(stages_, false);
  for (const BufferGroup& group : groups_) {
    for (std::size_t device = 0; device < static_cast<std::size_t>(plan_.pp); ++device) {
      const std::vector<std::size_t> mine = stages_of(device);
      if (std::find_first_of(mine.begin(), mine.end(), group.stages.begin(), group.stages.end()) !=
          mine.end()) {
        for (const std::size_t stage : mine) {
          apart_[stage] = true;
        }
      }
    }
  }
}

bool PipelineProgram::belongs(const Column& column, const BufferGroup& group) const {
  return group.range != nullptr ? group.range->has(choice_at(column).strategy)
                                : column.block == group.block;
}

// Gathered are so many consecutive blocks as make the largest sum: no fewer bytes than those of any
// block, nor than the mean of as many runs as cover the stage.
double PipelineProgram::stage_buffer(const BlockChoice& choice, std::size_t block, double most,
                                     std::size_t stage) const {
  const double runs = std::max(1.0, std::ceil(most_[stage].in_stage / costs_.in_flight));
  const double gathered =
      keeps_gathered() ? 0.0 : choice.gathered * std::max(1.0 / most, 1.0 / runs);
  return is_shared(block) ? 0.0 : gathered + choice.unreduced / most;
}

double PipelineProgram::device_buffer(const BlockChoice& choice, std::size_t block, double most,
                                      std::size_t /*stage*/) const {
  return is_shared(block) ? 0.0 : choice.working / most;
}

void PipelineProgram::share_buffers() {
  share_.assign(stages_, 1.0);
  const std::size_t slots = stages_ * (traits_.two_directions ? 2 : 1);
  const auto begin = pipeline_.placement.device_of.begin();
  for (std::size_t slot = 0; slot < slots && !traits_.joins_passes; ++slot) {
    const auto on_device = std::count(begin, begin + static_cast<std::ptrdiff_t>(slots),
                                      pipeline_.placement.device_of[slot]);
    double& share = share_[slot % stages_];
    share = std::min(share, 1.0 / static_cast<double>(on_device));
  }
}

void PipelineProgram::add_buffers() {
  buffer_.assign(stages_, -1);
  working_.assign(static_cast<std::size_t>(plan_.pp), -1);
  for (const BufferGroup& group : groups_) {
    std::vector<int> some;
    for (const std::size_t stage : group.stages) {
      if (buffer_[stage] < 0) {
        buffer_[stage] = program_.add_variable(1.0, 0.0);
        add_buffer(buffer_[stage], {stage}, &PipelineProgram::stage_buffer, most_[stage].in_stage);
      }
      add_buffer(buffer_[stage], {stage}, &PipelineProgram::stage_buffer, group.most, &group);
      some.push_back(buffer_[stage]);
    }
    add_least(some, &PipelineProgram::stage_buffer, group);
    add_working(group);
  }
  add_largest();
}

// Where buffers of some stages of a device are variables, that of the device is as large as any.
void PipelineProgram::add_largest() {
  largest_.assign(static_cast<std::size_t>(plan_.pp), -1);
  for (std::size_t device = 0; device < largest_.size() && !traits_.joins_passes; ++device) {
    const std::vector<std::size_t> mine = stages_of(device);
    if (std::none_of(mine.begin(), mine.end(), [&](auto stage) { return buffer_[stage] >= 0; })) {
      continue;
    }
    largest_[device] = program_.add_variable(1.0, 0.0);
    for (const std::size_t stage : mine) {
      if (buffer_[stage] >= 0) {
        program_.add_row({{largest_[device], 1.0}, {buffer_[stage], -1.0}}, 0.0);
      } else {
        add_buffer(largest_[device], {stage}, &PipelineProgram::stage_buffer,
                   most_[stage].in_stage);
      }
    }
  }
}

// The same of what blocks that recompute share, all those of a device.
void PipelineProgram::add_working(const BufferGroup& group) {
  for (std::size_t device = 0; device < working_.size(); ++device) {
    const std::vector<std::size_t> mine = stages_of(device);
    const bool is_all = std::all_of(group.stages.begin(), group.stages.end(), [&](auto stage) {
      return std::find(mine.begin(), mine.end(), stage) != mine.end();
    });
    if (!is_all) {
      continue;
    }
    if (working_[device] < 0) {
      working_[device] = program_.add_variable(1.0, 0.0);
      add_buffer(working_[device], mine, &PipelineProgram::device_buffer,
                 most_[mine.front()].on_device);
    }
    add_buffer(working_[device], group.stages, &PipelineProgram::device_buffer, group.most, &group);
    add_least({working_[device]}, &PipelineProgram::device_buffer, group);
  }
}

// buffer >= the sum over blocks of stages, or those of the group, spread over `most`.
void PipelineProgram::add_buffer(int buffer, const std::vector<std::size_t>& stages, BufferOf part,
                                 double most, const BufferGroup* group) {
  Terms terms = {{buffer, 1.0}};
  for (const std::size_t stage : stages) {
    for (const Column& column : columns_[stage]) {
      const double share = (this->*part)(choice_at(column), column.block, most, stage) / room_;
      if (share > 0 && (group == nullptr || belongs(column, *group))) {
        terms.push_back({column.variable, -share});
      }
    }
  }
  if (terms.size() > 1) {
    program_.add_row(std::move(terms), 0.0);
  }
}

// Where the group has a block: the sum of buffers >= the least that one of it needs.
void PipelineProgram::add_least(const std::vector<int>& buffers, BufferOf part,
                                const BufferGroup& group) {
  double least = std::numeric_limits<double>::infinity();
  for (const std::size_t stage : group.stages) {
    for (const Column& column : columns_[stage]) {
      if (belongs(column, group)) {
        least = std::min(least, (this->*part)(choice_at(column), column.block, 1.0, stage) / room_);
      }
    }
  }
  if (group.least > 0 && least > 0 && std::isfinite(least)) {
    Terms terms;
    for (const int buffer : buffers) {
      terms.push_back({buffer, 1.0});
    }
    program_.add_row(std::move(terms), least);
  }
}

}  // namespace orrery::search
