// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/search.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>

#include "base/parallel.hpp"
#include "search/per_block/capacity.hpp"
#include "search/per_block/checkpoint.hpp"
#include "search/per_block/clock.hpp"
#include "search/per_block/split.hpp"
#include "search/per_block/tools.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kAtOnce = 8;           // fixed, so that results do not depend on threads
constexpr int kMostDrafted = 200;            // pipelines
constexpr std::int64_t kMostParts = 20'000;  // of pipelines
constexpr int kSimulations = 800;            // of neighbours of one draft
constexpr int kSeedSimulations = 200;
// Rounds of paths of a pipeline's program, each time that its bound is the least.
constexpr int kRounds[] = {5, 20, 80};
// Bounds are first raised to this part of the best time; whole blocks say more of shorter times.
constexpr double kAim = 0.9805;
// Drafts of this much more than the best time are improved.
constexpr double kPromising = 1.03;
// Without a plan, bounds look no further than this many times the roofline.
constexpr double kHorizon = 1e3;

class PerBlockSearch {
 public:
  PerBlockSearch(const plan::Plan& base, const Options& options)
      : options_(options),
        first_(first_options(options)),
        clock_(options),
        base_(base),
        constraints_(without_slices(options.constraints)),
        space_(base_, constraints_),
        checkpoint_(base, first_, clock_),
        state_(FoundPlans(static_cast<std::size_t>(first_.top) + 1,
                          options.replay_reserve.value_or(base.memory_reserve),
                          options.jobs > 0 ? options.jobs : available_cores())) {
    const int jobs = options.jobs > 0 ? options.jobs : available_cores();
    for (int index = 0; index < jobs; ++index) {
      tools_.push_back(std::make_unique<PerBlockTools>(space_));
    }
    for (const auto& tools : tools_) {
      tools->bounds.stop_when([this] { return clock_.cuts_short(); });
    }
    costs_.resize(space_.meshes().size());
  }

  PerBlockOutcome run(const std::function<void(const ProgressReport&)>& progress) {
    progress_ = progress;
    if (!has_resumed()) {
      search_homogeneous();
      bound_meshes();
      checkpoint_.save(state_);
    }
    if (!state_.seeded) {
      improve_seeds();
      checkpoint_.save(state_);
    }
    while (has_work() && !stopped()) {
      step();
      report();
      checkpoint_.save_when_due(state_);
    }
    checkpoint_.save(state_);
    return finish();
  }

 private:
  // The homogeneous search keeps what neighbours are looked for of; intervals are drawn at the end.
  static Options first_options(Options options) {
    options.top = std::max(options.top, 3);
    options.interval_draws = 0;
    options.begins_per_block = true;
    return options;
  }

  bool has_resumed() {
    const auto costs_of = [this](std::uint32_t mesh) -> const MeshCosts& {
      return this->costs_of(*tools_.front(), mesh);
    };
    return checkpoint_.read(space_, costs_of, state_);
  }

  template <typename Body>
  void spread(std::size_t count, Body body) {
    const std::size_t jobs = tools_.size();
    std::atomic<std::size_t> next = 0;
    parallel_for(jobs, static_cast<int>(jobs), [&](std::size_t worker) {
      for (std::size_t index = next++; index < count; index = next++) {
        body(*tools_[worker], index);
      }
    });
  }

  void search_homogeneous() {
    const Outcome outcome = search(base_, first_, progress_);
    if (outcome.interrupted || outcome.timed_out) {
      clock_.cut();
    }
    state_.closed = outcome.best ? outcome.lower_bound.value() : state_.closed;
    result_.outcome.simulated = outcome.simulated;
    result_.outcome.closest_overflow = outcome.closest_overflow;
    if (outcome.best) {
      result_.homogeneous = outcome.best->simulation.iteration_time;
      found_.keep({outcome.best->simulation.iteration_time, outcome.best->plan});
      for (const Found& found : outcome.alternatives) {
        found_.keep({found.simulation.iteration_time, found.plan});
      }
    }
  }

  // Meshes by their work, then by their program; those that are left are opened best first.
  void bound_meshes() {
    const std::vector<StageMesh>& meshes = space_.meshes();
    std::vector<double> bounds(meshes.size(), space_.homogeneous().roofline().value());
    const double until = this->until();
    spread(meshes.size(), [&](PerBlockTools& tools, std::size_t index) {
      if (clock_.cuts_short()) {
        return;
      }
      const StageMesh& mesh = meshes[index];
      const double share = static_cast<double>(space_.micro_batches(mesh)) / mesh.pp;
      bounds[index] = std::max(bounds[index], tools.pricer.least_work(mesh) * share * kRounding);
      if (bounds[index] >= until) {
        return;
      }
      costs_[index] = std::make_unique<MeshCosts>(tools.pricer.price(mesh));
      bounds[index] = std::max(bounds[index], tools.bounds.mesh_bound(mesh, *costs_[index], until));
    });
    for (std::size_t index = 0; index < meshes.size(); ++index) {
      PerBlockNode node;
      node.bound = bounds[index];
      node.mesh = static_cast<std::uint32_t>(index);
      state_.push(std::move(node));
    }
    result_.meshes = static_cast<std::int64_t>(meshes.size());
  }

  const MeshCosts& costs_of(PerBlockTools& tools, std::uint32_t mesh) {
    if (!costs_[mesh]) {
      costs_[mesh] = std::make_unique<MeshCosts>(tools.pricer.price(space_.meshes()[mesh]));
    }
    return *costs_[mesh];
  }

  // Neighbours of the plans of the homogeneous search.
  void improve_seeds() {
    std::vector<PerBlockSpace::Place> places;
    std::vector<Draft> drafts;
    for (const FoundPlan& seed : found_.plans()) {
      if (const auto place = space_.place_of(seed.plan)) {
        drafts.push_back(draft_of(seed.plan, costs_of(*tools_.front(), place->mesh)));
        places.push_back(*place);
      }
    }
    std::vector<DraftResult> improved(places.size());
    spread(places.size(), [&](PerBlockTools& tools, std::size_t index) {
      const auto& [mesh, pipeline] = places[index];
      improved[index] = tools.drafter.improve(space_.meshes()[mesh], pipeline, *costs_[mesh],
                                              drafts[index], budget(kSeedSimulations));
    });
    for (std::size_t index = 0; index < places.size(); ++index) {
      take(places[index].mesh, places[index].pipeline, improved[index]);
    }
    state_.seeded = true;
  }

  int budget(int simulations) { return clock_.cuts_short() ? 0 : simulations; }

  void take(std::uint32_t mesh, const Pipeline& pipeline, const DraftResult& draft) {
    result_.outcome.simulated += draft.simulated;
    if (!draft.fits) {
      return;
    }
    FoundPlan found{draft.time, base_};
    space_.configure(space_.meshes()[mesh], pipeline, costs_[mesh]->strategies, draft.draft,
                     found.plan);
    found_.offer(std::move(found), tools_.front()->simulator);
  }

  void step() {
    std::vector<PerBlockNode> batch;
    const PerBlockStage stage = open_.top().stage;
    while (!open_.empty() && batch.size() < kAtOnce && open_.top().bound < cutoff() &&
           go_together(open_.top().stage, stage)) {
      batch.push_back(state_.pop());
      (void)costs_of(*tools_.front(), batch.back().mesh);
    }
    if (stage == PerBlockStage::Mesh) {
      for (PerBlockNode& node : batch) {
        open_mesh(node);
      }
    } else if (stage != PerBlockStage::Done) {
      bound_pipelines(batch);
    } else {
      draft(batch);
    }
  }

  void open_mesh(PerBlockNode& node) {
    const MeshCosts& costs = costs_of(*tools_.front(), node.mesh);
    const StageMesh& mesh = space_.meshes()[node.mesh];
    const double of_mesh = node.bound;
    const auto pipelines = space_.pipelines(space_.meshes()[node.mesh]);
    node.stage = PerBlockStage::Pipeline;
    for (std::size_t index = 0; index < pipelines.size(); ++index) {
      node.pipeline = static_cast<std::uint32_t>(index);
      const double whole = capacity_bound(base_.network, costs, pipelines[index], mesh.pp,
                                          static_cast<double>(space_.micro_batches(mesh)));
      node.bound = std::max(of_mesh, std::min(whole, until()));
      state_.push(node);
    }
  }

  // One more round of bounds; a first draft as soon as there is something to round.
  void bound_pipelines(std::vector<PerBlockNode>& batch) {
    const double until = this->until();
    std::stable_sort(batch.begin(), batch.end(), [](const auto& one, const auto& other) {
      return one.stage > other.stage;  // most rounds first: others are bounded beside it
    });
    const std::vector<PerBlockNode> before = batch;
    std::vector<DraftResult> drafts(batch.size());
    spread(batch.size(), [&](PerBlockTools& tools, std::size_t index) {
      PerBlockNode& node = batch[index];
      if (budget(1) == 0) {
        return;
      }
      const StageMesh& mesh = space_.meshes()[node.mesh];
      const Pipeline pipeline = pipeline_of(node);
      const MeshCosts& costs = *costs_[node.mesh];
      const auto level =
          static_cast<std::size_t>(node.stage) - static_cast<std::size_t>(PerBlockStage::Pipeline);
      const double aim = node.bound < until * kAim ? until * kAim : until;
      PipelineBound bound = tools.bounds.bound(mesh, pipeline, costs, aim, kRounds[level],
                                               node.part, node.shares.get());
      node.bound = std::max(node.bound, bound.seconds);
      if (bound.seconds < aim || aim == until) {
        node.stage = node.part.ranges.empty()
                         ? static_cast<PerBlockStage>(static_cast<int>(node.stage) + 1)
                         : PerBlockStage::Done;
      }
      if (!bound.paths.empty()) {
        node.part.paths = std::make_shared<const std::vector<PassPath>>(std::move(bound.paths));
      }
      const bool first = !node.shares && bound.shares;
      const bool whole = node.part.ranges.empty();
      node.shares = bound.shares ? std::make_shared<const Shares>(*bound.shares) : node.shares;
      if (first && whole && budget(1) > 0) {
        drafts[index] = drafted(tools, node, *bound.shares, kPromising).value_or(DraftResult());
      }
    });
    checkpoint_.save_before(before, state_);
    for (std::size_t index = 0; index < batch.size(); ++index) {
      ++result_.pipelines;
      take(batch[index].mesh, pipeline_of(batch[index]), drafts[index]);
      state_.push(std::move(batch[index]));
    }
  }

  std::optional<DraftResult> drafted(PerBlockTools& tools, const PerBlockNode& node,
                                     const Shares& shares, double promising) {
    const auto replay = [&](const plan::Plan& plan) {
      return found_.verdict(plan, tools.simulator);
    };
    return tools.drafted(
        space_, {space_.meshes()[node.mesh], pipeline_of(node), *costs_[node.mesh], shares},
        {best(), best() * promising, budget(kSimulations), replay});
  }

  Pipeline pipeline_of(const PerBlockNode& node) const {
    return space_.pipelines(space_.meshes()[node.mesh])[node.pipeline];
  }

  void draft(const std::vector<PerBlockNode>& batch) {
    std::vector<std::optional<DraftResult>> drafts(batch.size());
    spread(batch.size(), [&](PerBlockTools& tools, std::size_t index) {
      const PerBlockNode& node = batch[index];
      if (!node.shares || !node.part.ranges.empty() || budget(1) == 0) {
        return;
      }
      drafts[index] = drafted(tools, node, *node.shares, std::numeric_limits<double>::infinity());
    });
    checkpoint_.save_before(batch, state_);
    for (std::size_t index = 0; index < batch.size(); ++index) {
      if (drafts[index]) {
        ++result_.drafted;
        take(batch[index].mesh, pipeline_of(batch[index]), *drafts[index]);
      }
      split(batch[index]);
    }
  }

  void split(const PerBlockNode& node) {
    auto parts = node.shares && result_.parts < kMostParts
                     ? split_stages(*node.shares, pipeline_of(node), node.part.ranges)
                     : std::vector<std::vector<StageRange>>();
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
  double cutoff() const { return best() * (1.0 - options_.gap_fraction); }
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
      const double gap = found_.empty() ? 1.0 : 1.0 - state_.lower_bound() / best();
      progress_({result_.outcome.simulated, Seconds(best()), gap, Seconds(state_.lower_bound())});
    }
  }

  PerBlockOutcome finish() {
    Outcome& outcome = result_.outcome;
    std::vector<Found> reported(found_.plans().size());
    spread(reported.size(), [&](PerBlockTools& tools, std::size_t index) {
      Found& found = reported[index];
      found.plan = found_.plans()[index].plan;
      found.simulation = tools.simulator.run(found.plan, {.interval_draws = plan::kIntervalDraws});
    });
    if (!reported.empty()) {
      const auto most = std::min(reported.size(), static_cast<std::size_t>(options_.top) + 1);
      outcome.best = reported.front();
      outcome.alternatives.assign(reported.begin() + 1,
                                  reported.begin() + static_cast<std::ptrdiff_t>(most));
    }
    result_.size = space_.size();
    outcome.plans = result_.size.exact;
    if (!found_.empty()) {
      outcome.lower_bound = Seconds(state_.lower_bound());
      outcome.gap_fraction = std::max(0.0, 1.0 - state_.lower_bound() / best());
    }
    outcome.search_time = clock_.elapsed();
    return std::move(result_);
  }

  static constexpr double kRounding = 1.0 - 1e-12;

  const Options& options_;
  const Options first_;  // of the homogeneous search
  PerBlockClock clock_;
  plan::Plan base_;
  Constraints constraints_;
  PerBlockSpace space_;
  PerBlockCheckpoint checkpoint_;
  PerBlockState state_;
  FoundPlans& found_ = state_.found;
  PerBlockQueue& open_ = state_.open;
  PerBlockOutcome& result_ = state_.result;
  std::vector<std::unique_ptr<PerBlockTools>> tools_;
  std::vector<std::unique_ptr<MeshCosts>> costs_;  // by mesh, once it is priced
  std::function<void(const ProgressReport&)> progress_;
};

}  // namespace

PerBlockOutcome search_per_block(const plan::Plan& base, const Options& options,
                                 const std::function<void(const ProgressReport&)>& progress) {
  return PerBlockSearch(base, options).run(progress);
}

}  // namespace orrery::search
