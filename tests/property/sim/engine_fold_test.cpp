// SPDX-License-Identifier: Apache-2.0
// A folded program has the times of the program it stands for.
#include <gtest/gtest.h>

#include "sim/engine/fold.hpp"
#include "tests/property/sim/engine_programs.hpp"

namespace orrery::sim {
namespace {

struct Replicated {
  ProgramSpec spec;
  std::size_t distinct;  // nodes of one replica, common groups included
};

// Copies of one program side by side, with groups over the same stream of all copies in between.
Replicated replicate(const ProgramSpec& base, std::uint32_t copies, bool groups) {
  Replicated result{base, 0};
  ProgramSpec& all = result.spec;
  all.nodes.clear();
  all.buffers.clear();
  all.num_streams *= copies;
  all.num_pools *= copies;
  for (std::uint32_t copy = 1; copy < copies; ++copy) {
    all.capacities.insert(all.capacities.end(), base.capacities.begin(), base.capacities.end());
    all.counters.insert(all.counters.end(), base.counters.begin(), base.counters.end());
  }
  const auto num_common = static_cast<std::uint32_t>(pick(0, 1));  // links that all copies use
  const auto num_links = static_cast<std::uint32_t>(base.capacities.size());
  const auto num_counters = static_cast<std::uint32_t>(base.counters.size());
  std::vector<std::vector<NodeId>> ids(copies);
  for (const NodeSpec& node : base.nodes) {
    ++result.distinct;
    for (std::uint32_t copy = 0; copy < copies; ++copy) {
      NodeSpec copied = node;
      ids[copy].push_back(static_cast<NodeId>(all.nodes.size()));
      for (StreamId& stream : copied.streams) {
        stream += copy * base.num_streams;
      }
      for (NodeId& input : copied.inputs) {
        input = ids[copy][input];
      }
      for (ResourceId& link : copied.route) {
        link += link >= num_common ? copy * num_links : 0;
      }
      for (CounterWait& wait : copied.waits) {
        wait.counter += copy * num_counters;
      }
      for (CounterChange& change : copied.changes) {
        change.counter += copy * num_counters;
      }
      all.nodes.push_back(std::move(copied));
    }
    if (groups && pick(0, 3) == 0) {
      ++result.distinct;
      NodeSpec group;
      group.duration = pick(0, 9);
      const auto stream = static_cast<StreamId>(pick(0, static_cast<int>(base.num_streams) - 1));
      for (std::uint32_t copy = 0; copy < copies; ++copy) {
        group.streams.push_back(stream + copy * base.num_streams);
      }
      all.nodes.push_back(std::move(group));
    }
  }
  for (std::uint32_t copy = 0; copy < copies; ++copy) {
    for (BufferSpec buffer : base.buffers) {
      buffer.pool += copy * base.num_pools;
      buffer.producer = buffer.producer == kNone ? kNone : ids[copy][buffer.producer];
      for (NodeId& consumer : buffer.consumers) {
        consumer = ids[copy][consumer];
      }
      all.buffers.push_back(std::move(buffer));
    }
  }
  return result;
}

// Folding adds up loads in another order, which may move an end by a rounding error.
void assert_same(const Program& program, const Fold& folded, std::int64_t tolerance) {
  const Timeline full = run(program);
  const Timeline small = run(folded.program);
  const auto near = [&](SimTime a, SimTime b) { return std::abs(a.ps - b.ps) <= tolerance; };
  for (NodeId node = 0; node < program.num_nodes(); ++node) {
    RC_ASSERT(near(full.start[node], small.start[folded.node_of[node]]));
    RC_ASSERT(near(full.end[node], small.end[folded.node_of[node]]));
  }
  RC_ASSERT(near(full.makespan, small.makespan));
  RC_ASSERT(full.deadlock.has_value() == small.deadlock.has_value());
  for (PoolId pool = 0; tolerance == 0 && pool < program.pools().size(); ++pool) {
    RC_ASSERT(full.peaks[pool].bytes == small.peaks[folded.pool_of[pool]].bytes);
    RC_ASSERT(full.peaks[pool].by_category == small.peaks[folded.pool_of[pool]].by_category);
  }
}

std::int64_t tolerance_of(const ProgramSpec& spec) {
  return spec.capacities.empty() ? 0 : static_cast<std::int64_t>(spec.nodes.size());
}

void check_replicas(const SpecOptions& options) {
  const ProgramSpec base = any_spec(options);
  const auto copies = static_cast<std::uint32_t>(pick(2, 4));
  Replicated replicated = replicate(base, copies, true);
  const Program program = build(replicated.spec);
  const Fold folded = fold(program);
  if (!run(program).deadlock) {  // a deadlock of counters folds, one of dependencies does not
    RC_ASSERT(folded.program.num_nodes() <= replicated.distinct);
  }
  assert_same(program, folded, tolerance_of(replicated.spec));
  if (!replicated.spec.nodes.empty()) {  // a straggler
    const int last = static_cast<int>(replicated.spec.nodes.size()) - 1;
    replicated.spec.nodes[static_cast<std::size_t>(pick(0, last))].duration += pick(1, 5);
    const Program slower = build(replicated.spec);
    assert_same(slower, fold(slower), tolerance_of(replicated.spec));
  }
}

TEST(FoldProperty, ReplicasFold) {
  EXPECT_TRUE(rc::check("fixed durations", [] { check_replicas({.max_nodes = 25}); }));
}

TEST(FoldProperty, ReplicasWithCountersFold) {
  EXPECT_TRUE(rc::check("counters", [] { check_replicas({.counters = true, .max_nodes = 25}); }));
}

TEST(FoldProperty, ReplicasWithSharedLinksFold) {
  EXPECT_TRUE(rc::check("shared links", [] { check_replicas({.shared = true, .max_nodes = 25}); }));
}

TEST(FoldProperty, AnyProgramFoldsToTheSameTimes) {
  EXPECT_TRUE(rc::check("no symmetry by construction", [] {
    const ProgramSpec spec =
        any_spec({.counters = pick(0, 1) == 1, .cycles = true, .shared = pick(0, 1) == 1});
    const Program program = build(spec);
    assert_same(program, fold(program), tolerance_of(spec));
  }));
}

}  // namespace
}  // namespace orrery::sim
