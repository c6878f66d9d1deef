// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/fold.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "sim/engine/engine.hpp"
#include "sim/engine/metrics.hpp"

namespace orrery::sim {
namespace {

void expect_same_times(const Program& program, const Fold& folded) {
  const Timeline full = run(program);
  const Timeline small = run(folded.program);
  for (NodeId node = 0; node < program.num_nodes(); ++node) {
    EXPECT_EQ(full.start[node], small.start[folded.node_of[node]]) << node;
    EXPECT_EQ(full.end[node], small.end[folded.node_of[node]]) << node;
  }
  for (PoolId pool = 0; pool < program.pools().size(); ++pool) {
    EXPECT_EQ(full.peaks[pool].bytes, small.peaks[folded.pool_of[pool]].bytes) << pool;
    EXPECT_EQ(full.peaks[pool].at, small.peaks[folded.pool_of[pool]].at) << pool;
  }
  EXPECT_EQ(full.makespan, small.makespan);
  EXPECT_EQ(full.deadlock.has_value(), small.deadlock.has_value());
}

struct Replicas {
  Program program;
  std::vector<StreamId> streams;
};

// Forward and backward on every device, one all-reduce over all, then an optimizer step.
Replicas data_parallel(std::uint32_t devices, std::uint32_t straggler) {
  Replicas result;
  Program& program = result.program;
  for (std::uint32_t device = 0; device < devices; ++device) {
    result.streams.push_back(
        program.add_stream(device, StreamKind::Compute, "gpu " + std::to_string(device)));
    program.add_pool(device, ByteCount(1000), "hbm");
  }
  std::vector<NodeId> backward;
  for (std::uint32_t device = 0; device < devices; ++device) {
    const StreamId stream = result.streams[device];
    const NodeId forward = program.add_work(stream, {10}, {.pass = PassKind::Forward});
    const std::int64_t slow = device == straggler ? 7 : 0;
    backward.push_back(program.add_work(stream, {20 + slow}, {.pass = PassKind::Backward}));
    const BufferId saved =
        program.add_buffer(device, ByteCount(30), MemoryCategory::Activations, forward);
    program.consume(saved, backward.back());
  }
  const NodeId reduce = program.add_group(result.streams, {5}, {.comm = CommKind::AllReduce});
  for (std::uint32_t device = 0; device < devices; ++device) {
    program.depend(reduce, backward[device]);
    program.add_work(result.streams[device], {3}, {.pass = PassKind::Optimizer});
  }
  program.finalize();
  return result;
}

TEST(Fold, IdenticalReplicasBecomeOneDevice) {
  const Replicas replicas = data_parallel(16, kNone);
  const Fold folded = fold(replicas.program);
  EXPECT_EQ(folded.program.num_nodes(), 4U);
  ASSERT_EQ(folded.program.num_streams(), 1U);
  EXPECT_EQ(folded.program.streams()[0].multiplicity, 16U);
  EXPECT_EQ(folded.program.streams()[0].name, "gpu 0");
  EXPECT_EQ(folded.program.pools().size(), 1U);
  expect_same_times(replicas.program, folded);
}

// Forward and optimizer stay shared; only the slow backward is apart.
TEST(Fold, AStragglerUnfoldsOnlyWhatDiffers) {
  const Replicas replicas = data_parallel(16, 5);
  const Fold folded = fold(replicas.program);
  EXPECT_EQ(folded.program.num_nodes(), 5U);
  ASSERT_EQ(folded.program.num_streams(), 2U);
  EXPECT_EQ(folded.program.streams()[0].multiplicity, 15U);
  EXPECT_EQ(folded.program.streams()[1].multiplicity, 1U);
  expect_same_times(replicas.program, folded);
  // The folded streams are used like the ones they stand for.
  const auto full = stream_use(replicas.program, run(replicas.program));
  const auto small = stream_use(folded.program, run(folded.program));
  for (StreamId stream = 0; stream < full.size(); ++stream) {
    EXPECT_EQ(full[stream].busy, small[folded.stream_of[stream]].busy);
    EXPECT_EQ(full[stream].idle_for_peer, small[folded.stream_of[stream]].idle_for_peer);
  }
}

// Two tensor-parallel groups of four: collectives over peers, different work in each group.
TEST(Fold, TensorParallelPeersFold) {
  Program program;
  std::vector<StreamId> streams;
  for (std::uint32_t device = 0; device < 8; ++device) {
    streams.push_back(program.add_stream(device, StreamKind::Compute, "gpu"));
  }
  for (int layer = 0; layer < 3; ++layer) {
    for (std::size_t device = 0; device < 8; ++device) {
      program.add_work(streams[device], {device < 4 ? 10 : 12}, {});
    }
    program.add_group(std::span(streams).first(4), {2}, {.comm = CommKind::AllReduce});
    program.add_group(std::span(streams).last(4), {2}, {.comm = CommKind::AllReduce});
  }
  program.finalize();
  const Fold folded = fold(program);
  EXPECT_EQ(folded.program.num_streams(), 2U);
  EXPECT_EQ(folded.program.num_nodes(), 12U);
  expect_same_times(program, folded);
}

// Rank i sends to i + 2 over two links of the ring: each link carries two flows.
Program ring(std::size_t ranks, double slow_link) {
  Program program;
  std::vector<ResourceId> links;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    links.push_back(program.add_resource(rank == 0 ? slow_link : 1e12, "link"));
  }
  std::vector<NodeId> previous(ranks, kNone);
  for (std::uint32_t step = 0; step < 3; ++step) {
    std::vector<NodeId> now;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::array<ResourceId, 2> route = {links[rank], links[(rank + 1) % ranks]};
      now.push_back(program.add_flow({}, {5}, Bytes(1000), route, {.micro_batch = step}));
      if (step > 0) {
        program.depend(now[rank], previous[(rank + ranks - 1) % ranks]);
      }
    }
    previous = now;
  }
  program.finalize();
  return program;
}

TEST(Fold, ARingWithSharedLinksIsOneFlowThatCountsTwice) {
  const Program program = ring(9, 1e12);
  const Fold folded = fold(program);
  EXPECT_EQ(folded.program.num_nodes(), 3U);
  ASSERT_EQ(folded.program.resources().size(), 1U);
  ASSERT_EQ(folded.program.demands(0).size(), 1U);
  EXPECT_EQ(folded.program.demands(0)[0].amount, 2.0);
  EXPECT_EQ(run(folded.program).end[0], SimTime{5 + 2000});
  expect_same_times(program, folded);
}

TEST(Fold, ASlowLinkKeepsTheRingApartWhereItMatters) {
  const Program program = ring(9, 0.3e12);
  const Fold folded = fold(program);
  EXPECT_EQ(folded.program.resources().size(), 9U);  // every distance from the slow link
  expect_same_times(program, folded);
}

// Per device one credit that two streams compete for; the device with another order stays apart.
TEST(Fold, CountersFoldWithTheNodesThatUseThem) {
  Program program;
  for (std::uint32_t device = 0; device < 4; ++device) {
    const CounterId credit = program.add_counter(1);
    const StreamId a = program.add_stream(device, StreamKind::CopyIn, "in");
    const StreamId b = program.add_stream(device, StreamKind::CopyOut, "out");
    std::array<NodeId, 2> nodes{};
    for (std::size_t i = 0; i < 2; ++i) {
      const bool first = (i == 0) != (device == 3);
      nodes[i] = program.add_work(first ? a : b, {first ? 10 : 15}, {});
      program.wait_for(nodes[i], credit, 1);
      program.adjust(nodes[i], credit, -1, true);
      program.adjust(nodes[i], credit, 1, false);
    }
  }
  program.finalize();
  const Fold folded = fold(program);
  EXPECT_EQ(folded.program.num_nodes(), 4U);
  EXPECT_EQ(folded.program.counters().size(), 2U);
  EXPECT_EQ(folded.program.num_streams(), 4U);
  expect_same_times(program, folded);
}

TEST(Fold, DevicesWithOtherMemoryStayApart) {
  Program program;
  for (std::uint32_t device = 0; device < 3; ++device) {
    const StreamId stream = program.add_stream(device, StreamKind::Compute, "gpu");
    const PoolId pool = program.add_pool(device, ByteCount(100), "hbm");
    const NodeId node = program.add_work(stream, {1}, {});
    program.add_buffer(pool, ByteCount(device == 2 ? 50 : 40), MemoryCategory::Other, node);
  }
  program.finalize();
  const Fold folded = fold(program);
  EXPECT_EQ(folded.program.num_nodes(), 1U);  // the work itself is the same
  EXPECT_EQ(folded.program.num_streams(), 2U);
  EXPECT_EQ(folded.program.pools().size(), 2U);
  expect_same_times(program, folded);
}

TEST(Fold, WhatCannotRunStaysApart) {
  Program program;
  for (std::uint32_t device = 0; device < 2; ++device) {
    const StreamId stream = program.add_stream(device, StreamKind::Compute, "gpu");
    const NodeId node = program.add_work(stream, {1}, {});
    const NodeId loop = program.add_work(stream, {1}, {});
    program.depend(loop, loop);
    program.depend(loop, node);
  }
  program.finalize();
  const Fold folded = fold(program);
  EXPECT_EQ(folded.program.num_nodes(), 4U);
  EXPECT_EQ(run(folded.program).deadlock->nodes_left, 2U);
  expect_same_times(program, folded);
}

}  // namespace
}  // namespace orrery::sim
