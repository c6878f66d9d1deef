// SPDX-License-Identifier: Apache-2.0
// A search by several ranks, here threads with queues between them, ends like one by one rank;
// ranks with other inputs or without any are found out.
#include "search/tree/ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.hpp"
#include "tests/unit/search/local_ranks.hpp"
#include "tests/unit/search/outcome_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

std::vector<Outcome> search_by(int size, const plan::Plan& base, const Options& options,
                               const ServiceOf& theirs, int searches = 1) {
  return searched_by(size, options, theirs, searches,
                     [&](const Options& how) { return search(base, how); });
}

TEST(Ranks, AnswerDoesNotDependOnTheirNumber) {
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:2", {}, 64, 2048});
  Options options;
  options.jobs = 1;
  const std::string alone = text_of(search(base, options));
  for (const int size : {1, 2, 4}) {
    for (const int jobs : {1, 2}) {
      options.jobs = jobs;
      const ServiceOf same = [&](SearchKind) {
        Options how = options;
        how.jobs = 3 - jobs;  // ranks may differ in threads
        return homogeneous_service(base, how);
      };
      for (const Outcome& outcome : search_by(size, base, options, same, 2)) {
        EXPECT_EQ(text_of(outcome), alone) << size << " " << jobs;
      }
    }
  }
}

TEST(Ranks, OtherInputsAreFoundOut) {
  Options options;
  options.jobs = 1;
  const auto other = [&](SearchKind) {
    plan::Plan base = base_plan();
    base.batch *= 2;
    return homogeneous_service(base, options);
  };
  try {
    (void)search_by(3, base_plan(), options, other);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("has other inputs than rank 0: workload"));
  }
}

TEST(Ranks, FailuresElsewhereAreReported) {
  Options options;
  options.jobs = 1;
  const auto broken = [](SearchKind) -> std::unique_ptr<Service> {
    bad_input("net.json", "is not there");
  };
  try {
    (void)search_by(2, base_plan(), options, broken);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1: net.json: is not there"));
  }
}

TEST(Ranks, StoppedSearchHasItsBestSoFar) {
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:2", {}, 64, 2048});
  Options options;
  options.jobs = 1;
  const Seconds best = search(base, options).best->simulation.iteration_time;
  std::atomic<int> left = 400;
  options.stop = [&left] { return left-- <= 0; };
  const ServiceOf same = [&](SearchKind) { return homogeneous_service(base, options); };
  const Outcome outcome = search_by(2, base, options, same).front();
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_LE(outcome.lower_bound, best);
  if (outcome.best) {
    EXPECT_GE(outcome.best->simulation.iteration_time, best);
  }
}

}  // namespace
}  // namespace orrery::search
