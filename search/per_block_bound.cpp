// SPDX-License-Identifier: Apache-2.0
#include "search/per_block_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/layout_bounds.hpp"
#include "search/per_block_program.hpp"

namespace orrery::search {

namespace {

// Lists longer than this are not traced.
constexpr std::int64_t kMostTraced = 400'000;
constexpr int kMostRounds = 40;
constexpr int kRoundsOfDevice = 5;
constexpr double kEnough = 1e-3;  // of the bound: what the lists take beyond it
// Larger programs are left to the bounds that need none.
constexpr std::size_t kMostColumns = 20'000;

}  // namespace

PipelineBounds::PipelineBounds(const PerBlockSpace& space, plan::Simulator& simulator)
    : space_(space), simulator_(simulator), plan_(space.homogeneous().base()) {}

double PipelineBounds::mesh_bound(const StageMesh& mesh, const MeshCosts& costs,
                                  double until) const {
  const models::Network& network = plan_.network;
  const double share = static_cast<double>(space_.micro_batches(mesh)) / mesh.pp / until;
  const bool shares_ends = mesh.pp > 1 && space_.homogeneous().schedules().shares_ends();
  const double room = device_memory(plan_, costs) * mesh.pp;
  LinearProgram program;
  const int time = program.add_variable(1.0, 1.0);
  std::vector<std::pair<int, double>> forward = {{time, 1.0}};
  std::vector<std::pair<int, double>> streams = {{time, 1.0}};
  std::vector<std::pair<int, double>> memory;
  for (std::size_t block = 0; block < network.blocks.size(); ++block) {
    const bool end = network.blocks[block].kind != models::BlockKind::Layer;
    if (costs.count[block] == 0 || (end && shares_ends)) {
      continue;
    }
    std::vector<std::pair<int, double>> all;
    for (const BlockChoice& choice : costs.choices[block]) {
      const int column = program.add_variable(costs.count[block], 0.0);
      all.push_back({column, 1.0});
      const double beside = costs.beside * (choice.gather + choice.traffic);
      forward.push_back({column, -(choice.forward + choice.backward + beside) * share});
      streams.push_back({column, -(choice.gather + choice.traffic) * share});
      memory.push_back({column, -(choice.states + choice.saved) / room});
    }
    program.add_row(std::move(all), costs.count[block]);
  }
  program.add_row(std::move(forward), 0.0);
  program.add_row(std::move(streams), 0.0);
  program.add_row(std::move(memory), -1.0);
  return std::min(1.0, program.solve().bound) * until;
}

PipelineBound PipelineBounds::bound(const StageMesh& mesh, const Pipeline& pipeline,
                                    const MeshCosts& costs, double until, bool whole) {
  PipelineBound result;
  Draft draft;
  draft.stages = space_.first_cut(mesh, pipeline);
  draft.strategies.assign(plan_.network.chain.size(), 0);
  space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
  const plan::ScheduleTraits traits = plan::schedule_traits(plan_);
  const sim::PipelineOrder* order = traits.uses_times ? nullptr : &simulator_.order(plan_);
  PipelineProgram program(
      plan_, pipeline, traits, costs, until,
      order != nullptr ? plan::live_counts(*order) : std::vector<plan::LiveCounts>(),
      simulator_.transfer_times());
  if (program.num_columns() > kMostColumns) {
    result.shares = program.even_shares();
    return result;
  }
  const std::int64_t passes =
      3 * space_.micro_batches(mesh) * static_cast<std::int64_t>(draft.stages.size());
  const bool traced =
      order != nullptr && order->edges.empty() && order->slices == 1 && passes <= kMostTraced;
  const sim::PipelineOrder* lists = traced ? order : nullptr;
  result = refined(program, lists, until, kMostRounds);
  if (result.seconds >= until || !whole) {
    return result;
  }
  program.add_loads();
  PipelineBound best;
  best.seconds = until;
  for (int device = 0; device < mesh.pp; ++device) {
    program.require(device);
    PipelineBound one = refined(program, lists, until, kRoundsOfDevice);
    if (one.seconds < best.seconds) {
      best = std::move(one);
    }
    if (best.seconds <= result.seconds * (1.0 + kEnough)) {
      return result;  // nothing to be gained
    }
  }
  return best;
}

PipelineBound PipelineBounds::refined(PipelineProgram& program, const sim::PipelineOrder* traced,
                                      double until, int rounds) const {
  PipelineBound result;
  for (int round = 0;; ++round) {
    const LinearProgram::Answer answer = program.solve();
    if (answer.bound >= 1.0) {
      return {until, std::nullopt};
    }
    result.seconds = std::max(result.seconds, answer.bound * until);
    if (!answer.solved) {
      result.shares = result.shares ? result.shares : program.even_shares();
      return result;
    }
    result.shares = program.shares(answer);
    if (traced == nullptr || round >= rounds ||
        program.add_path(*traced, answer) <= result.seconds * (1.0 + kEnough)) {
      return result;
    }
  }
}

}  // namespace orrery::search
