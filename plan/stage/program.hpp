// SPDX-License-Identifier: Apache-2.0
// The blocks of one pass of a stage on a compute stream, and its data-parallel collectives in the
// order in which they are issued on a second stream; both share the streaming multiprocessors.
#pragma once

#include "base/error.hpp"
#include "plan/block/cost.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::plan {

class StageProgram {
 public:
  explicit StageProgram(const costmodel::DeviceModel& device)
      : compute_(program_.add_stream(0, sim::StreamKind::Compute, "compute")),
        data_(program_.add_stream(0, sim::StreamKind::Collective, "data")),
        processors_(program_.add_resource(1.0, "streaming multiprocessors")),
        beside_(collective_demand(device)) {}

  sim::NodeId add_block(SimTime time) {
    const sim::Demand demand{processors_, 1.0};
    return program_.add_shared_work(compute_, SimTime{}, to_seconds(time), {&demand, 1}, {});
  }
  sim::NodeId add_collective(Seconds time) {
    const sim::Demand demand{processors_, beside_};
    return program_.add_shared_work(data_, SimTime{}, time, {&demand, 1}, {});
  }
  void depend(sim::NodeId consumer, sim::NodeId producer) { program_.depend(consumer, producer); }

  struct Ends {
    SimTime compute;
    SimTime data;
  };
  Ends run() {
    program_.finalize();
    const sim::Timeline timeline = sim::run(program_);
    ORRERY_CHECK(!timeline.deadlock, "a stage's blocks wait for each other");
    return {end_of(timeline, compute_), end_of(timeline, data_)};
  }

 private:
  SimTime end_of(const sim::Timeline& timeline, sim::StreamId stream) const {
    const auto nodes = program_.nodes_of(stream);
    return nodes.empty() ? SimTime{} : timeline.end[nodes.back()];
  }

  sim::Program program_;
  sim::StreamId compute_;
  sim::StreamId data_;
  sim::ResourceId processors_;
  double beside_;
};

}  // namespace orrery::plan
