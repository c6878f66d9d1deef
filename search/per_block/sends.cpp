// SPDX-License-Identifier: Apache-2.0
// The rows of the program of per_block/program.hpp on transfers between stages and the optimizer,
// which depend on the strategies.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "search/per_block/program.hpp"

namespace orrery::search {

namespace {

// Unlike transfers of the fastest strategies of a layer that are taken for references: where those
// of the strategies in use are not among them, a row says little or nothing.
constexpr std::size_t kReferences = 6;

}  // namespace

// Of either copy of the model; parts that tensor-parallel ranks send are counted as nothing.
double PipelineProgram::send_of(const BlockChoice& choice, std::size_t stage) const {
  const auto bytes = ByteCount(static_cast<std::int64_t>(choice.boundary));
  double least = std::numeric_limits<double>::infinity();
  const std::size_t copies = traits_.two_directions ? 2 : 1;
  for (std::size_t at = stage; at < stages_ * copies; at += stages_) {
    const SimTime time = transfers_.of(plan_, bytes, 1, pipeline_.placement.device_of[at],
                                       pipeline_.placement.device_of[at + 1]);
    least = std::min(least, to_seconds(time).value());
  }
  return least;
}

// The last block of a stage says how long its transfer takes. For any reference R: without blocks
// whose transfer t is shorter it takes R at least; every such block makes it shorter by R - t at
// most, and the last one is among them.
void PipelineProgram::add_sends() {
  sends_.assign(stages_, -1);
  std::size_t layer = 0;
  while (
      layer + 1 < costs_.choices.size() &&
      (costs_.count[layer] == 0 || plan_.network.blocks[layer].kind != models::BlockKind::Layer)) {
    ++layer;
  }
  for (std::size_t stage = 0; stage < stages_; ++stage) {
    if (!sends_time(stage)) {
      continue;
    }
    const std::vector<BlockChoice>& choices = costs_.choices[layer];
    std::set<double> references;
    for (std::size_t index = 0; index < choices.size() && references.size() < kReferences;
         ++index) {
      references.insert(send_of(choices[index], stage));
    }
    if (references.empty() || *references.rbegin() <= 0) {
      continue;
    }
    sends_[stage] = program_.add_variable(1.0, 0.0);
    for (const double reference : references) {
      Terms terms = {{sends_[stage], 1.0}};
      for (const Column& column : columns_[stage]) {
        const double less = reference - send_of(choice_at(column), stage);
        if (less > 0) {
          terms.push_back({column.variable, less * kRounding / until_});
        }
      }
      program_.add_row(std::move(terms), reference * kRounding / until_);
    }
  }
}

// On the device with most to update; all meet at the end of the step.
void PipelineProgram::add_updates() {
  update_ = program_.add_variable(1.0, 0.0);
  program_.add_row({{update_, 1.0}}, costs_.optimizer * kRounding / until_);
  const std::size_t copies = traits_.two_directions ? 2 : 1;
  for (int device = 0; device < plan_.pp; ++device) {
    std::map<int, double> terms = {{update_, 1.0}};
    for (std::size_t index = 0; index < stages_ * copies; ++index) {
      if (pipeline_.placement.device_of[index] != device) {
        continue;
      }
      for (const Column& column : columns_[index % stages_]) {
        const double update = choice_at(column).update;
        if (update > 0 && !is_shared(column.block)) {
          terms[column.variable] -= update * kRounding / until_;
        }
      }
    }
    program_.add_row({terms.begin(), terms.end()}, costs_.launches * kRounding / until_);
  }
}

}  // namespace orrery::search
