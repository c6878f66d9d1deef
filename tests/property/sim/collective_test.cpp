// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "sim/collective_program.hpp"
#include "sim/collective_time.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::sim {
namespace {

struct Case {
  const CollectiveAlgorithm* algorithm;
  int ranks;
  ByteCount size;
  CollectiveCosts costs;
};

Case any_case() {
  const auto table = collective_table();
  const auto index = *rc::gen::inRange<std::size_t>(0, table.size());
  const std::int64_t reduce_ps = *rc::gen::inRange<std::int64_t>(0, 100);
  return {table[index],
          *rc::gen::inRange(1, 11),
          ByteCount(*rc::gen::inRange<std::int64_t>(0, 3'000'000)),
          {SimTime{*rc::gen::inRange<std::int64_t>(0, 1'000'000)},
           BytesPerSecond(1e8 * *rc::gen::inRange(7, 4000)),
           SimTime{*rc::gen::inRange<std::int64_t>(0, 50'000)},
           [reduce_ps](ByteCount bytes) { return SimTime{bytes.value() * reduce_ps}; }}};
}

// Streaming holds a few steps at a time and takes a shortcut while no two messages meet; the
// program holds every message. Rates differ in the last bits where solver calls come in another
// order, so that an end may fall on the next picosecond, once a step at most.
TEST(CollectiveProperty, StreamingEqualsTheExpandedProgram) {
  EXPECT_TRUE(rc::check([] {
    const Case c = any_case();
    Program program;
    for (int port = 0; port < 2 * c.ranks; ++port) {
      program.add_resource(c.costs.bandwidth.value(), "port");
    }
    const auto routes = [&](std::uint32_t from, std::uint32_t to) {
      return std::vector<ResourceId>{from, static_cast<ResourceId>(c.ranks) + to};
    };
    expand_collective(program, *c.algorithm, c.ranks, c.size, c.costs, routes, Tag{});
    program.finalize();
    const Timeline timeline = run(program);
    const CollectiveRun streamed = collective_time(*c.algorithm, c.ranks, c.size, c.costs);
    const std::int64_t steps = c.algorithm->num_steps(c.ranks, c.size);
    RC_ASSERT(!timeline.deadlock.has_value());
    RC_ASSERT(std::abs(timeline.makespan.ps - streamed.time.ps) <= steps);
    RC_ASSERT(streamed.messages == collective_messages(*c.algorithm, c.ranks, c.size).size());
  }));
}

TEST(CollectiveProperty, SameInputSameTime) {
  EXPECT_TRUE(rc::check([] {
    const Case c = any_case();
    RC_ASSERT(collective_time(*c.algorithm, c.ranks, c.size, c.costs).time ==
              collective_time(*c.algorithm, c.ranks, c.size, c.costs).time);
  }));
}

// T(a + b) <= T(a) + T(b): one collective of all the bytes is not slower than two in a row.
TEST(CollectiveProperty, OneCollectiveIsNotSlowerThanTwo) {
  EXPECT_TRUE(rc::check([] {
    const Case c = any_case();
    const ByteCount other(*rc::gen::inRange<std::int64_t>(0, 500'000));
    const auto time = [&](ByteCount size) {
      return collective_time(*c.algorithm, c.ranks, size, c.costs).time.ps;
    };
    RC_PRE(c.algorithm->num_steps(c.ranks, c.size + other) ==
           c.algorithm->num_steps(c.ranks, other));
    // A piece of a + b may be a byte larger than those of a and b together.
    const std::int64_t byte_ps =
        c.costs.message(ByteCount(1)).ps - c.costs.latency.ps + c.costs.reduce(ByteCount(1)).ps;
    const std::int64_t slack =
        2 * c.ranks * byte_ps * std::int64_t{c.algorithm->num_steps(c.ranks, other)};
    RC_ASSERT(time(c.size + other) <= time(c.size) + time(other) + slack);
  }));
}

}  // namespace
}  // namespace orrery::sim
