// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/opened.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "search/per_block/capacity.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kMostBeside = 64;  // pipelines beside the space
// Of them, those that are drafted: micro-batches through virtual stages of all together.
constexpr std::int64_t kMostDraftedPasses = 12'000;
constexpr std::size_t kMostDraftedBeside = 16;

double bound_of(const PerBlockSpace& space, const MeshCosts& costs, const StageMesh& mesh,
                const Pipeline& pipeline) {
  const models::Network& network = space.homogeneous().base().network;
  const double whole = capacity_bound(network, costs, pipeline, mesh.pp,
                                      static_cast<double>(space.micro_batches(mesh)));
  return std::max(whole, chain_bound(network, costs, pipeline));
}

}  // namespace

std::vector<PerBlockNode> opened(const PerBlockSpace& space, const MeshCosts& costs,
                                 std::uint32_t mesh, double least, double until) {
  const StageMesh& shape = space.meshes()[mesh];
  const std::vector<Pipeline> pipelines = space.pipelines(shape);
  std::vector<PerBlockNode> nodes(pipelines.size());
  for (std::size_t index = 0; index < pipelines.size(); ++index) {
    nodes[index].mesh = mesh;
    nodes[index].stage = PerBlockStage::Pipeline;
    nodes[index].pipeline = static_cast<std::uint32_t>(index);
    nodes[index].bound =
        std::max(least, std::min(bound_of(space, costs, shape, pipelines[index]), until));
  }
  return nodes;
}

namespace {

void sort_by_bound(std::vector<PerBlockNode>& nodes) {
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const PerBlockNode& a, const PerBlockNode& b) { return a.bound < b.bound; });
}

// Pipelines of unnamed schedules of the plans found, those with the least bounds.
std::vector<PerBlockNode> opened_beside(const PerBlockSpace& space, const CostsOf& costs_of,
                                        std::span<const FoundPlan> found) {
  std::set<std::string> wanted;
  for (const FoundPlan& one : found) {
    wanted.insert(one.plan.schedule);
  }
  const std::vector<ScheduleChoice>& choices = space.homogeneous().schedules().choices();
  std::vector<PerBlockNode> nodes;
  for (std::uint32_t mesh = 0; mesh < space.meshes().size(); ++mesh) {
    const StageMesh& shape = space.meshes()[mesh];
    const std::vector<Pipeline> pipelines = space.all_pipelines(shape);
    for (std::size_t index = space.pipelines(shape).size(); index < pipelines.size(); ++index) {
      const Pipeline& pipeline = pipelines[index];
      const std::string& name = choices[static_cast<std::size_t>(pipeline.schedule)].name;
      if (!pipeline.takes_program || !wanted.contains(name)) {
        continue;
      }
      PerBlockNode node;
      node.mesh = mesh;
      node.stage = PerBlockStage::Pipeline;
      node.pipeline = static_cast<std::uint32_t>(index);
      node.bound = bound_of(space, costs_of(mesh), shape, pipeline);
      if (node.bound < found.front().time.value()) {
        nodes.push_back(std::move(node));
      }
    }
  }
  sort_by_bound(nodes);
  nodes.resize(std::min(nodes.size(), kMostBeside));
  return nodes;
}

// Those of which there are fractions, as many as do not take too long.
std::vector<PerBlockNode> worth_drafting(const PerBlockSpace& space,
                                         std::vector<PerBlockNode> nodes) {
  sort_by_bound(nodes);
  std::int64_t passes = 0;
  std::vector<PerBlockNode> worth;
  for (PerBlockNode& node : nodes) {
    if (!node.shares) {
      continue;
    }
    const StageMesh& mesh = space.meshes()[node.mesh];
    const Pipeline pipeline = space.all_pipelines(mesh)[node.pipeline];
    passes += static_cast<std::int64_t>(virtual_stages(mesh, pipeline)) * space.micro_batches(mesh);
    if (passes > kMostDraftedPasses || worth.size() == kMostDraftedBeside) {
      break;
    }
    worth.push_back(std::move(node));
  }
  return worth;
}

}  // namespace

void draft_beside(const PerBlockSpace& space, const CostsOf& costs_of, const FoundPlans& found,
                  const AskAll& ask, const TakeDraft& take) {
  std::vector<PerBlockNode> nodes = opened_beside(space, costs_of, found.fastest());
  for (const PerBlockTask task : {PerBlockTask::BoundPipeline, PerBlockTask::Draft}) {
    const std::vector<PerBlockDone> done = ask(task, nodes);
    for (std::size_t index = 0; index < nodes.size(); ++index) {
      if (done[index].draft) {
        take(nodes[index], *done[index].draft);
      }
      nodes[index].bound = std::max(nodes[index].bound, done[index].bound);
      nodes[index].shares = done[index].shares;
    }
    nodes = worth_drafting(space, std::move(nodes));
  }
}

}  // namespace orrery::search
