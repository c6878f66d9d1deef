// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/search.hpp"

#include <algorithm>
#include <cmath>

#include "base/parallel.hpp"
#include "search/per_block/annealed.hpp"
#include "search/per_block/answer.hpp"
#include "search/per_block/checkpoint.hpp"
#include "search/per_block/clock.hpp"
#include "search/per_block/opened.hpp"
#include "search/per_block/split.hpp"
#include "search/per_block/worker_pool.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kNodesAtOnce = 16;      // fixed, so that results do not depend on threads
constexpr int kMostDrafted = 200;             // pipelines
constexpr std::int64_t kMostParts = 20'000;   // of pipelines
constexpr std::int64_t kMostTried = 500'000;  // plans of pipelines with few
constexpr std::int64_t kTriedAtOnce = 250;    // by one thread
// Without a plan, bounds look no further than this many times the roofline.
constexpr double kHorizon = 1e3;

class PerBlockSearch {
 public:
  PerBlockSearch(const plan::Plan& base, const Options& options)
      : options_(options),
        first_(first_options(options)),
        clock_(options),
        base_(base),
        constraints_(per_block_constraints(options.constraints)),
        space_(base_, constraints_),
        inputs_(make_inputs()),
        checkpoint_(first_, clock_, inputs_),
        state_(FoundPlans(static_cast<std::size_t>(first_.top) + 1,
                          options.replay_reserve.value_or(base.memory_reserve),
                          thread_count(options.jobs))),
        pool_(space_, options, [this] { return clock_.cuts_short(); }) {}

  PerBlockOutcome run(const std::function<void(const ProgressReport&)>& progress) {
    progress_ = progress;
    const bool resumed = has_resumed();
    if (!resumed) {
      search_homogeneous();
    }
    result_.homogeneous_is_closed = !clock_.is_cut();
    if (is_spread()) {
      pool_.join(*options_.ranks, inputs_);
    }
    if (!resumed) {
      bound_meshes();
      keep();
    }
    if (!state_.seeded && !stopped()) {  // the costs of a mesh alone may take seconds
      improve_seeds();
      keep();
    }
    while (has_work() && !stopped()) {
      step();
      clock_.came_forward();
      report();
      checkpoint_.save_when_due(state_);
    }
    if (!has_work() && !state_.looked_beside && !stopped()) {
      look_beside();
      state_.looked_beside = !stopped();
    }
    checkpoint_.save(state_);
    state_.result.outcome.search_time = clock_.elapsed();
    return per_block_answer(std::move(state_), space_, options_, until(), progress_);
  }

 private:
  void keep() {
    checkpoint_.save(state_);
    clock_.came_forward();
  }

  bool is_spread() const { return options_.ranks != nullptr && options_.ranks->size() > 1; }

  // Only where they are of use: hashing takes some milliseconds.
  std::vector<InputHash> make_inputs() const {
    const bool compares = is_spread() || !first_.checkpoint.empty() || !first_.resume.empty();
    return compares ? per_block_inputs(base_, first_) : std::vector<InputHash>();
  }

  bool has_resumed() { return checkpoint_.read(space_, all_costs(), state_); }

  PerBlockWork work(PerBlockTask task, PerBlockNode node) const {
    return {task, best(), until(), std::move(node), {}, {}, 0};
  }

  void search_homogeneous() {
    const Outcome outcome = search(base_, first_, [this](ProgressReport report) {
      if (progress_) {
        report.bound = space_.homogeneous().roofline();  // its own is not that of this space
        report.gap_fraction = 1.0 - report.bound / report.best;
        progress_(report);
      }
    });
    if (outcome.interrupted || outcome.timed_out) {
      clock_.cut();
    }
    state_.closed = outcome.best ? outcome.lower_bound.value() : state_.closed;
    result_.outcome.simulated = outcome.simulated;
    result_.outcome.closest_overflow = outcome.closest_overflow;
    result_.outcome.closest = outcome.closest;
    result_.outcome.closest_by_categories = outcome.closest_by_categories;
    if (outcome.best) {
      result_.homogeneous = outcome.best->simulation.iteration_time;
      found_.keep({outcome.best->simulation.iteration_time, outcome.best->plan});
      for (const Found& found : outcome.alternatives) {
        found_.keep({found.simulation.iteration_time, found.plan});
      }
    }
  }

  void bound_meshes() {
    std::vector<PerBlockWork> batch;
    for (std::uint32_t mesh = 0; mesh < space_.meshes().size(); ++mesh) {
      if (space_.pipelines(space_.meshes()[mesh]).empty()) {
        continue;
      }
      PerBlockNode node;
      node.bound = space_.homogeneous().roofline().value();
      node.mesh = mesh;
      batch.push_back(work(PerBlockTask::BoundMesh, std::move(node)));
    }
    const std::vector<PerBlockDone> done = pool_.run(batch);
    for (std::size_t index = 0; index < batch.size(); ++index) {
      batch[index].node.bound = done[index].bound;
      state_.push(std::move(batch[index].node));
    }
    result_.meshes = static_cast<std::int64_t>(batch.size());
  }

  const MeshCosts& costs_of(std::uint32_t mesh) { return pool_.leader().costs_of(mesh); }
  CostsOf all_costs() {
    return [this](std::uint32_t mesh) -> const MeshCosts& { return costs_of(mesh); };
  }

  // Neighbours of the plans of the homogeneous search.
  void improve_seeds() {
    std::vector<PerBlockWork> batch;
    for (const FoundPlan& seed : found_.fastest()) {
      if (const auto place = space_.place_of(seed.plan)) {
        PerBlockNode node;
        node.mesh = place->mesh;
        node.pipeline = place->pipeline;
        node.stage = PerBlockStage::Pipeline;
        batch.push_back(work(PerBlockTask::Improve, std::move(node)));
        batch.back().draft = draft_of(seed.plan, costs_of(place->mesh));
      }
    }
    const std::vector<PerBlockDone> done = pool_.run(batch);
    for (std::size_t index = 0; index < batch.size(); ++index) {
      take(batch[index].node, *done[index].draft);
    }
    state_.seeded = true;
  }

  // Plans of schedules whose bounds say too little for a proof.
  void look_beside() {
    draft_beside(
        space_, all_costs(), found_,
        [this](PerBlockTask task, const std::vector<PerBlockNode>& nodes) {
          return ask(task, nodes);
        },
        [this](const PerBlockNode& node, const DraftResult& draft) { take(node, draft); });
  }

  void take(const PerBlockNode& node, const DraftResult& draft) {
    result_.outcome.simulated += draft.simulated;
    if (!draft.fits) {
      return;
    }
    FoundPlan found{draft.time, base_};
    space_.configure(space_.meshes()[node.mesh], pipeline_of(node), costs_of(node.mesh).strategies,
                     draft.draft, found.plan);
    found_.offer(std::move(found), pool_.leader().simulator());
  }

  void step() {
    if (num_tried(open_.top()) >= 0) {
      simulate(state_.pop());
      return;
    }
    std::vector<PerBlockNode> batch = next_batch();
    if (batch.empty() || batch.front().stage != PerBlockStage::Mesh) {
      evaluate(batch);
      return;
    }
    for (const PerBlockNode& mesh : batch) {
      for (PerBlockNode& node :
           opened(space_, costs_of(mesh.mesh), mesh.mesh, mesh.bound, until())) {
        state_.push(std::move(node));
      }
    }
  }

  // Meshes, or pipelines to bound and to draft, each with the rounds that it is due; parts that are
  // bounded are split on the way.
  std::vector<PerBlockNode> next_batch() {
    std::vector<PerBlockNode> batch;
    const PerBlockStage stage = open_.top().stage;
    while (!open_.empty() && batch.size() < kNodesAtOnce && open_.top().bound < cutoff() &&
           go_together(open_.top().stage, stage) && num_tried(open_.top()) < 0) {
      PerBlockNode node = state_.pop();
      if (is_settled(node)) {
        continue;
      }
      const bool is_whole = node.shares && node.part.ranges.empty();
      if (node.stage == PerBlockStage::Done && !is_whole) {
        split(node);
        continue;
      }
      batch.push_back(std::move(node));
      (void)costs_of(batch.back().mesh);  // by nobody else: answers are read with them
    }
    return batch;
  }

  // A part of a pipeline, which is bounded alone, no longer holds the bound: another one that
  // cannot be split is below it.
  bool is_settled(const PerBlockNode& node) const {
    return !node.part.ranges.empty() && node.bound >= state_.closed;
  }

  std::vector<PerBlockDone> ask(PerBlockTask task, const std::vector<PerBlockNode>& nodes) {
    std::vector<PerBlockWork> batch;
    for (const PerBlockNode& node : nodes) {
      batch.push_back(work(task, node));
    }
    return pool_.run(batch);
  }

  // One more round of bounds, or a draft of what is bounded.
  void evaluate(std::vector<PerBlockNode>& batch) {
    std::stable_sort(batch.begin(), batch.end(), [](const auto& one, const auto& other) {
      return one.stage > other.stage;  // longest first: others are worked on beside it
    });
    std::vector<PerBlockWork> questions;
    for (const PerBlockNode& node : batch) {
      const bool is_bounded = node.stage == PerBlockStage::Done;
      questions.push_back(
          work(is_bounded ? PerBlockTask::Draft : PerBlockTask::BoundPipeline, node));
    }
    std::vector<PerBlockDone> done = pool_.run(questions);
    anneal_best(batch, done, best(), space_,
                [this](const std::vector<PerBlockWork>& chains) { return pool_.run(chains); });
    checkpoint_.save_before(batch, state_);
    for (std::size_t index = 0; index < batch.size(); ++index) {
      take(std::move(batch[index]), done[index]);
    }
  }

  void take(PerBlockNode node, const PerBlockDone& done) {
    if (done.draft) {
      take(node, *done.draft);
    }
    if (node.stage == PerBlockStage::Done) {
      result_.drafted += done.draft ? 1 : 0;
      split(node);
      return;
    }
    ++result_.pipelines;
    node.bound = done.bound;
    node.stage = done.stage;
    node.shares = done.shares ? done.shares : node.shares;
    node.part.paths = done.paths ? done.paths : node.part.paths;
    state_.push(std::move(node));
  }

  Pipeline pipeline_of(const PerBlockNode& node) const {
    return space_.all_pipelines(space_.meshes()[node.mesh])[node.pipeline];
  }

  // Of a pipeline that is to be simulated plan by plan; negative: not this one.
  std::int64_t num_tried(const PerBlockNode& node) const {
    if (node.stage != PerBlockStage::Done || !node.part.ranges.empty()) {
      return -1;
    }
    const StageMesh& mesh = space_.meshes()[node.mesh];
    const NumberedPlans plans(space_, mesh, pipeline_of(node));
    const bool are_few =
        plans.are_few(space_.micro_batches(mesh)) && result_.tried + plans.size() <= kMostTried;
    return are_few ? plans.size() : -1;
  }

  // The next plans of a pipeline all of whose plans are simulated.
  void simulate(PerBlockNode node) {
    const std::int64_t plans = num_tried(node);
    std::vector<PerBlockWork> batch;
    for (std::int64_t first = node.tried; first < plans && batch.size() < kNodesAtOnce;
         first += kTriedAtOnce) {
      batch.push_back(work(PerBlockTask::Simulate, node));
      batch.back().plans = {first, std::min(kTriedAtOnce, plans - first)};
    }
    const std::vector<PerBlockDone> done = pool_.run(batch);
    checkpoint_.save_before({node}, state_);
    for (std::size_t index = 0; index < done.size() && done[index].draft; ++index) {
      take(node, *done[index].draft);
      node.tried += batch[index].plans.count;
    }
    if (node.tried < plans) {
      state_.push(std::move(node));
    } else {
      result_.tried += plans;
    }
  }

  void split(const PerBlockNode& node) {
    if (node.bound >= state_.closed) {
      return;  // no part of it would hold the bound
    }
    std::vector<std::vector<StageRange>> parts;
    if (node.shares && result_.parts < kMostParts) {
      const StageMesh& mesh = space_.meshes()[node.mesh];
      const Pipeline pipeline = pipeline_of(node);
      parts = split_part(
          *node.shares, pipeline, base_.network, costs_of(node.mesh), space_.micro_batches(mesh),
          node.part.ranges,
          [&] { return pool_.leader().bounds().knows_peaks(mesh, pipeline, costs_of(node.mesh)); });
    }
    if (parts.empty()) {
      state_.closed = std::min(state_.closed, node.bound);
    }
    for (std::vector<StageRange>& ranges : parts) {
      PerBlockNode part = node;
      part.stage = PerBlockStage::Bounded;
      part.part.ranges = std::move(ranges);
      state_.push(std::move(part));
      ++result_.parts;
    }
  }

  double best() const { return state_.best(); }
  bool has_work() const {
    return !open_.empty() && open_.top().bound < cutoff() && result_.drafted < kMostDrafted;
  }
  double cutoff() const {
    return std::isinf(best()) ? best() : best() * (1.0 - options_.gap_fraction);
  }
  double until() const {
    return found_.empty() ? space_.homogeneous().roofline().value() * kHorizon : best();
  }

  // A batch that was cut short is the last one.
  bool stopped() {
    Outcome& outcome = result_.outcome;
    outcome.interrupted = clock_.is_interrupted();
    outcome.timed_out = !outcome.interrupted && (clock_.is_cut() || clock_.is_out_of_time());
    return outcome.interrupted || outcome.timed_out;
  }

  void report() const {
    if (progress_) {
      progress_(state_.report());
    }
  }

  const Options& options_;
  const Options first_;  // of the homogeneous search
  PerBlockClock clock_;
  plan::Plan base_;
  Constraints constraints_;
  PerBlockSpace space_;
  std::vector<InputHash> inputs_;
  PerBlockCheckpoint checkpoint_;
  PerBlockState state_;
  FoundPlans& found_ = state_.found;
  PerBlockQueue& open_ = state_.open;
  PerBlockOutcome& result_ = state_.result;
  PerBlockPool pool_;
  std::function<void(const ProgressReport&)> progress_;
};

}  // namespace

PerBlockOutcome search_per_block(const plan::Plan& base, const Options& options,
                                 const std::function<void(const ProgressReport&)>& progress) {
  return PerBlockSearch(base, options).run(progress);
}

}  // namespace orrery::search
