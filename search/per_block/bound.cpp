// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/bound.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "plan/stage/layout_bounds.hpp"
#include "search/per_block/device_program.hpp"
#include "search/per_block/peaks.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

namespace {

// Lists longer than this are not traced.
constexpr std::int64_t kMostTraced = 400'000;
constexpr double kEnough = 1e-3;  // of the bound: what the lists take beyond it
// Where many paths are equally long, passes that differ tell them apart: a little does so near the
// program's answer; more makes any device the slowest, since it has many micro-batches. A pipeline
// that is looked at for the first time is mostly ruled out by few paths.
struct Variants {
  int first;      // of each centre
  int later;      // in a round, of each place between the answer and a centre
  double spread;  // of the later ones
};
constexpr Variants kFew = {12, 1, 0.02};
constexpr Variants kMany = {60, 4, 0.3};
constexpr double kSpreads[] = {0.02, 0.2};  // of the first ones
constexpr std::ptrdiff_t kSlow = 10;        // rounds that raise the bound by less than
constexpr double kLeastRise = 2e-4;         // of it: it is settled
constexpr std::size_t kMostPaths = 200;  // that a program goes on with: more slow the solver down
constexpr double kAlways = -1e300;       // slack
// Larger programs are left to the bounds that need none. The largest that was met has 21,050 (94
// stages of Qwen3-235B) and takes a second.
constexpr std::size_t kMostColumns = 30'000;

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
  program.stop_when(stop_);
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
    const int group = program.add_group(costs.count[block]);
    for (const BlockChoice& choice : costs.choices[block]) {
      const bool idle = choice.strategy != costs.choices[block].front().strategy;
      const int column = program.add_variable(costs.count[block], 0.0, idle, group);
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
                                    const MeshCosts& costs, double until, int rounds,
                                    const PipelinePart& part, const Shares* before) {
  PipelineBound result;
  const sim::PipelineOrder* order = lists_of(mesh, pipeline, costs);
  const plan::ScheduleTraits traits = plan::schedule_traits(plan_);
  ListFacts facts;
  if (order != nullptr) {
    facts = {plan::live_counts(*order), plan::ends_cut(*order), reduced_later(*order)};
  }
  const bool is_new = before == nullptr && part.ranges.empty();
  if (is_new && pipeline.chunks > 1) {
    result.seconds = device_bound(plan_, pipeline, traits, costs, facts.live, until, stop_);
    if (result.seconds >= until) {
      return result;
    }
  }
  PipelineProgram program(plan_, pipeline, traits, costs, until, std::move(facts), part.ranges,
                          simulator_.transfer_times());
  program.stop_when(stop_);
  if (program.num_columns() > kMostColumns) {
    result.shares = program.even_shares();
    return result;
  }
  if (before != nullptr) {
    program.begin_with(*before);
  }
  PipelineBound bound = refined(program, is_traced(order) ? order : nullptr, until, rounds, part);
  bound.seconds = std::max(bound.seconds, result.seconds);
  return bound;
}

const sim::PipelineOrder* PipelineBounds::lists_of(const StageMesh& mesh, const Pipeline& pipeline,
                                                   const MeshCosts& costs) {
  Draft draft;
  draft.stages = space_.first_cut(mesh, pipeline);
  draft.strategies.assign(plan_.network.chain.size(), 0);
  space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
  return plan::schedule_traits(plan_).uses_times ? nullptr : &simulator_.order(plan_);
}

bool PipelineBounds::is_traced(const sim::PipelineOrder* lists) const {
  const std::int64_t passes =
      3 * plan_.num_micro_batches() * static_cast<std::int64_t>(plan_.stage_blocks.size());
  return lists != nullptr && lists->edges.empty() && lists->slices == 1 && lists->iterations == 1 &&
         passes <= kMostTraced;
}

bool PipelineBounds::knows_peaks(const StageMesh& mesh, const Pipeline& pipeline,
                                 const MeshCosts& costs) {
  const sim::PipelineOrder* lists = lists_of(mesh, pipeline, costs);
  return is_traced(lists) && PeakPaths(*lists).known();
}

PipelineBound PipelineBounds::refined(PipelineProgram& program, const sim::PipelineOrder* traced,
                                      double until, int rounds, const PipelinePart& part) const {
  PipelineBound result;
  const bool goes_on = part.paths && !part.paths->empty();
  const Variants& variants = goes_on ? kMany : kFew;
  for (std::size_t path = 0; traced != nullptr && goes_on && path < part.paths->size(); ++path) {
    program.add_path((*part.paths)[path]);
  }
  const auto add_around = [&](const PipelineProgram::PassTimes& centre,
                              const LinearProgram::Answer& answer, double slack) {
    for (int variant = 0; variant < variants.first; ++variant) {
      (void)program.add_path(*traced, centre.varied(variant, kSpreads[variant % 2]), answer, slack);
    }
  };
  if (traced != nullptr && !goes_on) {  // these alone rule out most pipelines, in one solution
    add_around(program.cut_times(), program.unsolved(), kAlways);
  }
  PeakPaths peaks;
  const auto look_at_peaks = [&] {
    peaks = PeakPaths(*traced);
    if (peaks.known()) {
      program.add_peaks();
    }
  };
  const bool whole = part.ranges.empty();
  if (traced != nullptr && !whole) {
    look_at_peaks();
  }
  std::vector<PipelineProgram::PassTimes> centres;
  std::vector<double> bounds;  // by round
  for (int round = 0;; ++round) {
    const LinearProgram::Answer answer = program.solve();
    if (answer.bound >= 1.0) {
      return {until, std::nullopt, {}};
    }
    result.seconds = std::max(result.seconds, answer.bound * until);
    if (!answer.solved) {
      result.shares = result.shares ? result.shares : program.even_shares();
      return result;
    }
    result.shares = program.shares(answer);
    result.shares->basis = program.basis(answer);
    result.paths = program.tight_paths(answer);
    bounds.push_back(result.seconds);
    const bool settled = std::ssize(bounds) > 2 * kSlow &&
                         result.seconds < bounds.end()[-1 - kSlow] * (1.0 + kLeastRise);
    if (traced == nullptr || round >= rounds || settled || (stop_ && stop_())) {
      return result;
    }
    // Paths where the program ended; and between there and where passes are even or as the usual
    // cut has them, which bind longer.
    program.forget_paths(answer, kMostPaths);
    const PipelineProgram::PassTimes here = program.pass_times(answer);
    const double slack = result.seconds * kEnough / 4;
    if (round == 0) {
      centres = {program.cut_times(), here.even()};
      if (goes_on) {
        add_around(centres.front(), answer, slack);
      }
      add_around(centres.back(), answer, goes_on ? slack : kAlways);
    }
    const bool begins = round == 0 && whole;  // most pipelines are ruled out before
    if (begins) {
      look_at_peaks();
    }
    const bool peaked = peaks.known() && (begins || program.add_peak_paths(peaks, answer, slack));
    const double longest = program.add_path(*traced, here, answer, slack);
    if (!peaked && longest <= result.seconds * (1.0 + kEnough)) {
      return result;
    }
    PipelineProgram::PassTimes& centre = centres[static_cast<std::size_t>(round) % centres.size()];
    for (const double share : {0.75, 0.5, 0.25, 0.1, 0.0}) {
      const PipelineProgram::PassTimes between = here.mixed(centre, share);
      (void)program.add_path(*traced, between, answer, slack);
      for (int variant = 0; variant < variants.later; ++variant) {
        const int number = round * variants.later + variant;
        (void)program.add_path(*traced, between.varied(number, variants.spread), answer, slack);
      }
    }
    centre = centre.mixed(here, 0.8);
  }
}

}  // namespace orrery::search
