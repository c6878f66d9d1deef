// SPDX-License-Identifier: Apache-2.0
// Requests that are routed to replicas by turn, load and prefix, and replicas that compute in step.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/serving/engine.hpp"
#include "plan/serving/routing.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

ServingOptions routed(Routing routing) {
  ServingOptions options;
  options.routing = routing;
  return options;
}

std::int64_t found(const std::vector<BatchRun>& runs) {
  std::int64_t tokens = 0;
  for (const BatchRun& run : runs) {
    tokens += run.found;
  }
  return tokens;
}

TEST(ServingRouter, TakesTurns) {
  Router router(Routing::InTurn);
  const std::vector<ReplicaState> states = {{9, true}, {0, false}, {5, false}};
  EXPECT_EQ(router.route(states), 0u);
  EXPECT_EQ(router.route(states), 1u);
  EXPECT_EQ(router.route(states), 2u);
  EXPECT_EQ(router.route(states), 0u);
}

TEST(ServingRouter, FewestRequestsAndEqualOnesInTurn) {
  Router router(Routing::LeastLoaded);
  EXPECT_EQ(router.route(std::vector<ReplicaState>{{3, false}, {1, false}, {1, false}}), 1u);
  EXPECT_EQ(router.route(std::vector<ReplicaState>{{3, false}, {1, false}, {1, false}}), 2u);
  EXPECT_EQ(router.route(std::vector<ReplicaState>{{0, false}, {0, false}, {0, false}}), 0u);
}

// The prefix decides until one replica has 64 requests more and 1.5 times as many.
TEST(ServingRouter, PrefixUntilTheLoadIsUneven) {
  Router router(Routing::Prefix);
  EXPECT_EQ(router.route(std::vector<ReplicaState>{{64, true}, {0, false}}), 0u);
  EXPECT_EQ(router.route(std::vector<ReplicaState>{{65, true}, {0, false}}), 1u);
  EXPECT_EQ(router.route(std::vector<ReplicaState>{{265, true}, {200, false}}), 0u);
  EXPECT_EQ(router.route(std::vector<ReplicaState>{{8, true}, {7, true}, {0, false}}), 1u);
  EXPECT_EQ(router.route(std::vector<ReplicaState>{{8, false}, {7, false}}), 1u);
}

// Two prefixes, two replicas: in turn each replica computes both, by prefix each its own. Behind a
// request without a prefix turns and prefixes do not fall together.
TEST(ServingRouting, PrefixesAreComputedOnceOverAllReplicas) {
  std::vector<Request> requests;
  for (int i = 0; i < 40; ++i) {
    const int prefix = (i / 2) % 2;
    requests.push_back(request_of(i * 5000, 120, 4, prefix, 100));
  }
  const BatchEngine engine = unit_engine(100'000);
  EXPECT_EQ(found(run_routed(requests, routed(Routing::InTurn), engine, 2)), 36 * 100);
  EXPECT_EQ(found(run_routed(requests, routed(Routing::Prefix), engine, 2)), 38 * 100);
  // A cache that holds one prefix: in turn they replace each other all the time.
  const BatchEngine small = unit_engine(150);
  EXPECT_LT(found(run_routed(requests, routed(Routing::InTurn), small, 2)), 10 * 100);
  EXPECT_EQ(found(run_routed(requests, routed(Routing::Prefix), small, 2)), 38 * 100);
}

// A request that waits brings its prefix: the next one follows it.
TEST(ServingRouting, FollowsRequestsThatWait) {
  std::vector<Request> requests = {request_of(0, 50, 400), request_of(0, 50, 400)};
  for (int i = 0; i < 6; ++i) {
    requests.push_back(request_of(1500, 120, 4, 3, 100));
  }
  ServingOptions options = routed(Routing::Prefix);
  options.max_requests = 1;  // all six wait
  const std::vector<BatchRun> runs = run_routed(requests, options, unit_engine(100'000), 2);
  EXPECT_EQ(std::min(runs[0].requests.size(), runs[1].requests.size()), 1u);
  EXPECT_EQ(std::max(runs[0].requests.size(), runs[1].requests.size()), 7u);
}

// A long request keeps one replica busy: by load the others get what comes.
TEST(ServingRouting, LoadSparesTheBusyReplica) {
  std::vector<Request> requests;
  for (int i = 0; i < 20; ++i) {
    requests.push_back(request_of(i * 1000, 10, i % 2 == 0 ? 200 : 1));
  }
  ServingOptions options = routed(Routing::InTurn);
  options.max_requests = 4;
  const auto makespan = [&](Routing routing) {
    options.routing = routing;
    SimTime longest;
    for (const BatchRun& run : run_routed(requests, options, unit_engine(100'000), 2)) {
      longest = std::max(longest, run.makespan);
    }
    return longest;
  };
  EXPECT_LT(makespan(Routing::LeastLoaded), makespan(Routing::InTurn));
}

// Replicas in step: an iteration takes what the fullest needs, the other one waits for it.
TEST(ServingInStep, EndTogether) {
  BatchEngine engine = unit_engine(1000, 1, 2);
  engine.time_in_step = [](int, std::span<const Iteration> iterations) {
    EXPECT_EQ(iterations.size(), 2u);
    return SimTime{100 + std::max(iterations[0].tokens(), iterations[1].tokens())};
  };
  const std::vector<Request> requests = {request_of(0, 500, 2), request_of(0, 20, 2)};
  const std::vector<BatchRun> runs = run_routed(requests, {}, engine, 2);
  ASSERT_EQ(runs.size(), 2u);
  for (const BatchRun& run : runs) {
    EXPECT_EQ(run.requests[0].first_token, SimTime{600});
    EXPECT_EQ(run.requests[0].finished, SimTime{701});
    EXPECT_EQ(run.busy[0], SimTime{701});
  }
}

// One replica alone has work: the other one's iterations are empty and count as none.
TEST(ServingInStep, IdleOnesTakePart) {
  const std::vector<Request> requests = {request_of(0, 5, 7)};
  const std::vector<BatchRun> runs = run_routed(requests, {}, unit_engine(1000, 1, 2), 4);
  EXPECT_EQ(runs[0].iterations, 7);
  EXPECT_EQ(runs[1].iterations, 0);
  EXPECT_EQ(runs[1].busy[0], SimTime{7000});
  EXPECT_EQ(runs[2].busy[0], SimTime{});  // of another engine
}

}  // namespace
}  // namespace orrery::plan
