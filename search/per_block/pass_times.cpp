// SPDX-License-Identifier: Apache-2.0
// Durations of passes for which the program of per_block/program.hpp asks for paths.
#include <algorithm>

#include "base/random.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

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
  mix(result.send, other.send);
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
    const std::size_t stage = times.send.size();
    const auto last = static_cast<std::size_t>(plan_.network.chain[position - 1]);
    times.send.push_back(sends_[stage] < 0 ? 0.0 : send_of(costs_.choices[last].front(), stage));
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
        sum.input_grad += count * (one.input_grad + one.regather * costs_.beside);
        sum.regather += count * one.regather;
        sum.weight_grad += count * (one.weight_grad + one.pass_reduce * costs_.beside);
        sum.pass_reduce += count * one.pass_reduce;
      }
    }
    // Transfers are as long as the program says, but for those that press on nothing.
    times.send.push_back(
        sends_[stage] < 0
            ? 0.0
            : until_ *
                  std::clamp(answer.values[static_cast<std::size_t>(sends_[stage])], 0.0, 1.0));
    times.forward.push_back(std::max(sum.forward, sum.gather));
    const int sharded = first_[stage].sharded;
    const double behind =
        sharded < 0 ? 0.0
                    : exposed(stage) *
                          std::clamp(answer.values[static_cast<std::size_t>(sharded)], 0.0, 1.0);
    times.backward.push_back(std::max(sum.backward + behind, sum.traffic));
    if (traits_.splits_backward) {
      times.input_grad.push_back(std::max(sum.input_grad, sum.regather));
      times.weight_grad.push_back(std::max(sum.weight_grad + behind, sum.pass_reduce));
    }
  }
  return times;
}

}  // namespace orrery::search
