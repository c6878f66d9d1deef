// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/work_bytes.hpp"

#include <utility>

namespace orrery::search {

void write(ByteWriter& out, const PerBlockWork& work) {
  out.u8(static_cast<std::uint8_t>(work.task));
  out.real(work.best);
  out.real(work.until);
  PerBlockNodeWriter().write(out, work.node);
  if (work.task == PerBlockTask::Improve) {
    write(out, work.draft);
  }
}

PerBlockWork read_work(ByteReader& in, const PerBlockSpace& space, const CostsOf& costs_of) {
  PerBlockWork work;
  work.task = static_cast<PerBlockTask>(in.u8());
  work.best = in.real();
  work.until = in.real();
  work.node = PerBlockNodeReader(space, costs_of).read(in);
  if (work.task == PerBlockTask::Improve) {
    work.draft = read_draft(in);
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
  done.stage = static_cast<PerBlockStage>(in.u8());
  const StageMesh& mesh = space.meshes()[work.node.mesh];
  const bool has_shares = in.u8() != 0;
  if (has_shares) {
    const Pipeline pipeline = space.pipelines(mesh)[work.node.pipeline];
    done.shares = std::make_shared<const Shares>(
        read_shares(in, virtual_stages(mesh, pipeline), costs_of(work.node.mesh)));
  }
  if (in.u8() != 0) {
    const Pipeline pipeline = space.pipelines(mesh)[work.node.pipeline];
    const std::size_t both = pipeline.placement.two_directions ? 2 : 1;
    done.paths = std::make_shared<const std::vector<PassPath>>(
        read_paths(in, virtual_stages(mesh, pipeline) * both));
  }
  if (in.u8() != 0) {
    done.draft = read_draft_result(in);
  }
  return done;
}

}  // namespace orrery::search
