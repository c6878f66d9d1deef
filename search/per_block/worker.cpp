// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/worker.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/parallel.hpp"
#include "plan/replay/memory_replay.hpp"
#include "search/tree/memory_check.hpp"

namespace orrery::search {

namespace {

constexpr int kSimulations = 800;  // of neighbours of one draft
constexpr int kSeedSimulations = 200;
// Of a micro-batch through a virtual stage, in plans beside the space: with more of them fewer
// neighbours are simulated.
constexpr std::int64_t kPassesBeside = 1'000;
// Rounds of paths of a pipeline's program, each time that its bound is the least.
constexpr int kRounds[] = {5, 20};
// Bounds are first raised to this part of the best time; whole blocks say more of shorter times.
constexpr double kAim = 0.9805;
// Drafts of this much more than the best time are improved.
constexpr double kPromising = 1.03;
constexpr double kWorkRounding = 1.0 - 1e-12;

}  // namespace

PerBlockWorker::PerBlockWorker(const PerBlockSpace& space, PricedMeshes& priced,
                               const Options& options, std::function<bool()> stop)
    : space_(space),
      priced_(priced),
      replay_reserve_(options.replay_reserve.value_or(space.homogeneous().base().memory_reserve)),
      jobs_(thread_count(options.jobs)),
      stop_(std::move(stop)),
      tools_(space) {
  tools_.bounds.stop_when(stop_);
}

PerBlockDone PerBlockWorker::evaluate(const PerBlockWork& work) {
  PerBlockDone done;
  done.bound = work.node.bound;
  done.stage = work.node.stage;
  switch (work.task) {
    case PerBlockTask::BoundMesh:
      bound_mesh(work, done);
      break;
    case PerBlockTask::Improve:
      improve(work, done);
      break;
    case PerBlockTask::BoundPipeline:
      bound_pipeline(work, done);
      break;
    case PerBlockTask::Draft:
      draft(work, done);
      break;
    case PerBlockTask::Simulate:
      simulate(work, done);
      break;
    case PerBlockTask::Anneal:
      anneal(work, done);
      break;
  }
  return done;
}

// By its work, then by its program.
void PerBlockWorker::bound_mesh(const PerBlockWork& work, PerBlockDone& done) {
  if (stop_()) {
    return;
  }
  const StageMesh& mesh = space_.meshes()[work.node.mesh];
  const double share = static_cast<double>(space_.micro_batches(mesh)) / mesh.pp;
  done.bound = std::max(done.bound, tools_.pricer.least_work(mesh) * share * kWorkRounding);
  if (done.bound < work.until) {
    const MeshCosts& costs = costs_of(work.node.mesh);
    done.bound = std::max(done.bound, tools_.bounds.mesh_bound(mesh, costs, work.until));
  }
}

// Lists of plans beside the space are made for each of them: of long ones fewer are simulated.
int PerBlockWorker::budget(const PerBlockNode& node, int simulations) const {
  const StageMesh& mesh = space_.meshes()[node.mesh];
  if (stop_()) {
    return 0;
  }
  if (node.pipeline < space_.pipelines(mesh).size()) {
    return simulations;
  }
  const Pipeline pipeline = space_.all_pipelines(mesh)[node.pipeline];
  const std::int64_t passes = static_cast<std::int64_t>(virtual_stages(mesh, pipeline)) *
                              space_.micro_batches(mesh) * pipeline.slices;
  return static_cast<int>(
      std::clamp<std::int64_t>(kPassesBeside * simulations / passes, 1, simulations));
}

void PerBlockWorker::improve(const PerBlockWork& work, PerBlockDone& done) {
  const StageMesh& mesh = space_.meshes()[work.node.mesh];
  done.draft = tools_.drafter.improve(mesh, space_.all_pipelines(mesh)[work.node.pipeline],
                                      costs_of(work.node.mesh), work.draft,
                                      budget(work.node, kSeedSimulations));
}

void PerBlockWorker::bound_pipeline(const PerBlockWork& work, PerBlockDone& done) {
  if (stop_()) {
    return;
  }
  const PerBlockNode& node = work.node;
  const StageMesh& mesh = space_.meshes()[node.mesh];
  const auto level =
      static_cast<std::size_t>(node.stage) - static_cast<std::size_t>(PerBlockStage::Pipeline);
  const double until = work.until;
  const double aim = node.bound < until * kAim ? until * kAim : until;
  const bool whole = node.part.ranges.empty();
  PipelineBound bound =
      tools_.bounds.bound(mesh, space_.all_pipelines(mesh)[node.pipeline], costs_of(node.mesh), aim,
                          kRounds[level], node.part, node.shares.get());
  done.bound = std::max(node.bound, bound.seconds);
  if (bound.seconds < aim || aim == until) {
    done.stage =
        whole ? static_cast<PerBlockStage>(static_cast<int>(node.stage) + 1) : PerBlockStage::Done;
  }
  if (!bound.paths.empty()) {
    done.paths = std::make_shared<const std::vector<PassPath>>(std::move(bound.paths));
  }
  if (!bound.shares) {
    return;
  }
  done.shares = std::make_shared<const Shares>(std::move(*bound.shares));
  if (!node.shares && whole && !stop_()) {
    done.draft = drafted(work, *done.shares, kPromising);
  }
}

void PerBlockWorker::draft(const PerBlockWork& work, PerBlockDone& done) {
  if (!stop_()) {
    done.draft = drafted(work, *work.node.shares, std::numeric_limits<double>::infinity());
  }
}

// Answered with a bound above all plans if every one was simulated.
void PerBlockWorker::simulate(const PerBlockWork& work, PerBlockDone& done) {
  if (stop_()) {
    return;
  }
  const StageMesh& mesh = space_.meshes()[work.node.mesh];
  const Pipeline pipeline = space_.pipelines(mesh)[work.node.pipeline];
  const NumberedPlans plans(space_, mesh, pipeline);
  DraftResult best;
  best.time = Seconds(work.best);
  Draft draft = plans.at(work.plans.first);
  best.draft = draft;
  const std::vector<plan::BlockPlan>& strategies = costs_of(work.node.mesh).strategies;
  plan::Plan plan = space_.homogeneous().base();
  for (std::int64_t left = work.plans.count; left > 0; --left, plans.advance(draft)) {
    space_.configure(mesh, pipeline, strategies, draft, plan);
    if (!tools_.simulator.fits(plan).fits) {
      continue;
    }
    ++best.simulated;
    const Seconds time = tools_.simulator.run(plan).iteration_time;
    if (time < best.time && replay_verdict(plan, tools_.simulator, replay_reserve_, jobs_).fits) {
      best.fits = true;
      best.time = time;
      best.draft = draft;
    }
  }
  done.bound = std::numeric_limits<double>::infinity();
  done.draft = std::move(best);
}

DraftAim PerBlockWorker::aim_of(const PerBlockWork& work, double promising) {
  const auto replay = [this](const plan::Plan& plan) {
    return replay_verdict(plan, tools_.simulator, replay_reserve_, jobs_);
  };
  const auto peaks = [this](plan::Plan plan) {
    plan.memory_reserve = replay_reserve_;
    std::vector<ByteCount> bytes;
    for (const plan::MemoryPeak& peak : plan::replay_memory(plan, {}, jobs_)) {
      bytes.push_back(peak.device());
    }
    return bytes;
  };
  return {work.best, work.best * promising, [&] { return budget(work.node, kSimulations); }, replay,
          peaks};
}

std::optional<DraftResult> PerBlockWorker::drafted(const PerBlockWork& work, const Shares& shares,
                                                   double promising) {
  const StageMesh& mesh = space_.meshes()[work.node.mesh];
  return tools_.drafted(
      space_,
      {mesh, space_.all_pipelines(mesh)[work.node.pipeline], costs_of(work.node.mesh), shares},
      aim_of(work, promising));
}

void PerBlockWorker::anneal(const PerBlockWork& work, PerBlockDone& done) {
  if (stop_()) {
    return;
  }
  const StageMesh& mesh = space_.meshes()[work.node.mesh];
  done.draft = tools_.annealed(space_,
                               {mesh, space_.all_pipelines(mesh)[work.node.pipeline],
                                costs_of(work.node.mesh), *work.node.shares},
                               aim_of(work, 1.0), work.draft, work.seed);
}

}  // namespace orrery::search
