// SPDX-License-Identifier: Apache-2.0
// The rows of the program of per_block/program.hpp on stages of which only a set is known: whole
// layers of one of them (per_block/peaks.hpp).
#include <algorithm>
#include <map>
#include <numeric>

#include "search/per_block/peaks.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kPathsAtOnce = 3;  // paths of a set that are added after a solution

}  // namespace

std::vector<std::size_t> able_to_hold(std::vector<std::size_t> stages, int layers,
                                      const std::vector<StageRange>& known) {
  for (const StageRange& range : known) {
    if (range.of == StageRange::Of::Each && range.most < layers) {
      std::erase_if(stages, [&](std::size_t stage) {
        return std::binary_search(range.stages.begin(), range.stages.end(), stage);
      });
    }
  }
  return stages;
}

// Where nothing else is known, one of all stages that may have as many layers as the mean, rounded
// up, has.
void PipelineProgram::add_peaks() {
  program_.begin_part(LinearProgram::Part::Peaks);
  int layers = 0;
  for (std::size_t block = 0; block < costs_.count.size(); ++block) {
    layers += is_layer(block) ? costs_.count[block] : 0;
  }
  const int mean = (layers + static_cast<int>(stages_) - 1) / static_cast<int>(stages_);
  bool is_known = false;  // that a stage has as many as the mean, at least
  for (const StageRange& range : ranges_) {
    if (range.of == StageRange::Of::One && !follows(range)) {
      add_peak(able_to_hold(range.stages, range.least, ranges_), range.least);
      is_known = is_known || range.least >= mean;
    }
  }
  std::vector<std::size_t> all(stages_);
  std::iota(all.begin(), all.end(), std::size_t{0});
  all = able_to_hold(std::move(all), mean, ranges_);
  if (!is_known && mean > 0 && !all.empty()) {
    add_peak(all, mean);
  }
}

// Whether one of fewer of its stages is known to have as many layers: paths through these are no
// shorter.
bool PipelineProgram::follows(const StageRange& range) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const StageRange& other) {
    return other.of == StageRange::Of::One && other.least >= range.least &&
           other.stages.size() < range.stages.size() &&
           std::includes(range.stages.begin(), range.stages.end(), other.stages.begin(),
                         other.stages.end());
  });
}

void PipelineProgram::add_peak(const std::vector<std::size_t>& stages, int layers) {
  std::map<std::pair<std::size_t, std::size_t>, int> own;  // by kind of layer and choice
  const int group = program_.add_group(layers);
  Terms all;
  for (const std::size_t stage : stages) {
    for (const Column& column : columns_[stage]) {
      if (!is_layer(column.block)) {
        continue;
      }
      const auto [place, is_new] = own.try_emplace({column.block, column.choice}, 0);
      if (is_new) {
        place->second = program_.add_variable(layers, 0.0, !all.empty(), group);
        all.push_back({place->second, 1.0});
      }
    }
  }
  program_.add_row(all, layers);
  if (stages.empty()) {
    return;  // no plan is in such a part
  }
  const auto pass = [&](double BlockChoice::*part, double BlockChoice::*beside) {
    const int variable = program_.add_variable(1.0, 0.0);
    raise(variable, own, part, beside);
    if (beside != nullptr) {
      raise(variable, own, beside, nullptr);
    }
    return variable;
  };
  Peak peak{stages, pass(&BlockChoice::forward, &BlockChoice::gather),
            pass(&BlockChoice::backward, &BlockChoice::traffic), -1};
  if (traits_.splits_backward) {
    const int whole = peak.gradient;
    peak.gradient = pass(&BlockChoice::input_grad, nullptr);
    peak.weight_grad = pass(&BlockChoice::weight_grad, nullptr);
    program_.add_row({{peak.gradient, 1.0}, {peak.weight_grad, 1.0}, {whole, -1.0}}, 0.0);
  }
  peaks_.push_back(std::move(peak));
}

// A pass of the stage takes at least what its layers do.
void PipelineProgram::raise(int variable,
                            const std::map<std::pair<std::size_t, std::size_t>, int>& own,
                            double BlockChoice::*part, double BlockChoice::*beside) {
  Terms terms = {{variable, 1.0}};
  for (const auto& [place, column] : own) {
    const BlockChoice& one = costs_.choices[place.first][place.second];
    const double shared = beside != nullptr ? one.*beside * costs_.beside : 0.0;
    const double value = scaled(one.*part + shared);
    if (value > 0) {
      terms.push_back({column, -value});
    }
  }
  if (terms.size() > 1) {
    program_.add_row(std::move(terms), 0.0);
  }
}

bool PipelineProgram::add_peak_paths(const PeakPaths& paths, const LinearProgram::Answer& answer,
                                     double slack) {
  program_.begin_part(LinearProgram::Part::Rest);
  const auto values = [&](const std::vector<int>& variables) {
    std::vector<double> result;
    for (const int variable : variables) {
      result.push_back(variable < 0 ? 0.0 : answer.values[static_cast<std::size_t>(variable)]);
    }
    return result;
  };
  const auto value = [&](int variable) {
    return variable < 0 ? 0.0 : answer.values[static_cast<std::size_t>(variable)];
  };
  bool added = false;
  for (const Peak& peak : peaks_) {
    const PeakTimes times = {
        values(forward_),
        values(traits_.splits_backward ? input_grad_ : backward_),
        traits_.splits_backward ? values(weight_grad_) : std::vector<double>(stages_, 0.0),
        values(sends_),
        value(peak.forward),
        value(peak.gradient),
        value(peak.weight_grad)};
    for (const PeakPath& path : paths.longest(peak.stages, times, kPathsAtOnce)) {
      PathRow row = row_of(path.common);
      row.terms.push_back({peak.forward, -path.forwards});
      row.terms.push_back({peak.gradient, -path.gradients});
      if (peak.weight_grad >= 0) {
        row.terms.push_back({peak.weight_grad, -path.weight_grads});
      }
      // Few, so none is dropped: without those that are slack bounds are no faster and lower.
      if (missing(row, answer) * until_ > slack) {
        program_.add_row(std::move(row.terms), row.low);
        added = true;
      }
    }
  }
  return added;
}

}  // namespace orrery::search
