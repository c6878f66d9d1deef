// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/work_bytes.hpp"

#include <cmath>
#include <utility>

namespace orrery::search {

namespace {

// Of a node with a pipeline.
DraftShape draft_shape(const PerBlockNode& node, const PerBlockSpace& space,
                       const CostsOf& costs_of) {
  const StageMesh& mesh = space.meshes()[node.mesh];
  return {virtual_stages(mesh, space.all_pipelines(mesh)[node.pipeline]),
          space.homogeneous().base().network.chain.size(), costs_of(node.mesh).strategies.size()};
}

bool has_draft(PerBlockTask task) {
  return task == PerBlockTask::Improve || task == PerBlockTask::Anneal;
}

bool can_be(const PerBlockWork& work) {
  const PerBlockStage stage = work.node.stage;
  switch (work.task) {
    case PerBlockTask::BoundMesh:
      return stage == PerBlockStage::Mesh;
    case PerBlockTask::Improve:
      return stage != PerBlockStage::Mesh;
    case PerBlockTask::BoundPipeline:
      return stage != PerBlockStage::Mesh && stage != PerBlockStage::Done;
    case PerBlockTask::Draft:
    case PerBlockTask::Anneal:
      return stage != PerBlockStage::Mesh && work.node.shares != nullptr;
    case PerBlockTask::Simulate:
      return stage == PerBlockStage::Done;
  }
  return false;
}

PlanRange read_range(ByteReader& in, const PerBlockNode& node, const PerBlockSpace& space) {
  const StageMesh& mesh = space.meshes()[node.mesh];
  const std::int64_t size =
      NumberedPlans(space, mesh, space.all_pipelines(mesh)[node.pipeline]).size();
  const auto first = static_cast<std::int64_t>(in.u64());
  const auto count = static_cast<std::int64_t>(in.u64());
  if (first < 0 || count < 1 || first > size || count > size - first) {
    in.fail("holds plans that are not of this space");
  }
  return {first, count};
}

}  // namespace

void write(ByteWriter& out, const PerBlockWork& work) {
  out.u8(static_cast<std::uint8_t>(work.task));
  out.real(work.best);
  out.real(work.until);
  PerBlockNodeWriter().write(out, work.node);
  if (has_draft(work.task)) {
    write(out, work.draft);
    out.u64(work.seed);
  } else if (work.task == PerBlockTask::Simulate) {
    out.u64(static_cast<std::uint64_t>(work.plans.first));
    out.u64(static_cast<std::uint64_t>(work.plans.count));
  }
}

PerBlockWork read_work(ByteReader& in, const PerBlockSpace& space, const CostsOf& costs_of) {
  PerBlockWork work;
  work.task = static_cast<PerBlockTask>(in.u8());
  work.best = in.real();
  work.until = in.real();
  work.node = PerBlockNodeReader(space, costs_of, PerBlockNodeReader::Pipelines::All).read(in);
  if (!can_be(work) || std::isnan(work.best) || std::isnan(work.until)) {
    in.fail("holds a question that cannot be");
  }
  if (has_draft(work.task)) {
    work.draft = read_draft(in, draft_shape(work.node, space, costs_of));
    work.seed = in.u64();
  } else if (work.task == PerBlockTask::Simulate) {
    work.plans = read_range(in, work.node, space);
  }
  return work;
}

void write(ByteWriter& out, const PerBlockDone& done) {
  out.real(done.bound);
  out.u8(static_cast<std::uint8_t>(done.stage));
  out.u8(done.shares ? 1 : 0);
  if (done.shares) {
    write(out, *done.shares);
  }
  out.u8(done.paths ? 1 : 0);
  if (done.paths) {
    write(out, *done.paths);
  }
  out.u8(done.draft ? 1 : 0);
  if (done.draft) {
    write(out, *done.draft);
  }
}

PerBlockDone read_done(ByteReader& in, const PerBlockWork& work, const PerBlockSpace& space,
                       const CostsOf& costs_of) {
  PerBlockDone done;
  done.bound = in.real();
  const std::uint8_t stage = in.u8();
  done.stage = static_cast<PerBlockStage>(stage);
  if (!(done.bound >= work.node.bound) || done.stage < work.node.stage ||
      stage > static_cast<std::uint8_t>(PerBlockStage::Done)) {
    in.fail("holds a bound that cannot be");
  }
  if (work.task == PerBlockTask::BoundMesh) {
    return done;  // has no pipeline
  }
  const StageMesh& mesh = space.meshes()[work.node.mesh];
  const bool has_shares = in.u8() != 0;
  if (has_shares) {
    const Pipeline pipeline = space.all_pipelines(mesh)[work.node.pipeline];
    done.shares = std::make_shared<const Shares>(
        read_shares(in, virtual_stages(mesh, pipeline), costs_of(work.node.mesh)));
  }
  if (in.u8() != 0) {
    const Pipeline pipeline = space.all_pipelines(mesh)[work.node.pipeline];
    const std::size_t both = pipeline.placement.two_directions ? 2 : 1;
    done.paths = std::make_shared<const std::vector<PassPath>>(
        read_paths(in, virtual_stages(mesh, pipeline) * both));
  }
  if (in.u8() != 0) {
    done.draft = read_draft_result(in, draft_shape(work.node, space, costs_of));
  }
  if (work.task == PerBlockTask::Improve && !done.draft) {
    in.fail("holds no draft");
  }
  return done;
}

}  // namespace orrery::search
