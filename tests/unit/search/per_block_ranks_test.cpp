// SPDX-License-Identifier: Apache-2.0
// A per-block search by several ranks ends like one by one rank, also where it was stopped and goes
// on with another number of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "search/per_block/crew.hpp"
#include "search/per_block/search.hpp"
#include "tests/unit/search/local_ranks.hpp"
#include "tests/unit/search/outcome_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// Meshes, pipelines, parts of them and drafts.
plan::Plan some_base() {
  Shape shape;
  shape.overrides = {"node.gpus=4", "gpu.memory=3 GiB"};
  return base_plan(shape);
}

Options some_options(int jobs = 1) {
  Options options;
  options.jobs = jobs;
  options.constraints = fixed("cp=1,pp=2,micro_batch=1");
  return options;
}

// The ranks serve a homogeneous search, too.
PerBlockOutcome search_by(int size, const plan::Plan& base, const Options& options,
                          const ServiceOf& theirs, std::optional<int> parts = 2) {
  const auto search = [&](const Options& how) { return search_per_block(base, how); };
  return std::move(searched_by(size, options, theirs, 1, search, parts).front());
}

ServiceOf service_of(const plan::Plan& base, const Options& options) {
  return [&base, &options](SearchKind kind) { return per_block_service(kind, base, options); };
}

TEST(PerBlockRanks, AnswerDoesNotDependOnTheirNumber) {
  const plan::Plan base = some_base();
  const PerBlockOutcome outcome = search_per_block(base, some_options());
  EXPECT_GT(outcome.drafted, 0);
  EXPECT_GT(outcome.parts, 0);
  const std::string alone = text_of(outcome);
  for (const int size : {1, 2, 4}) {
    const Options options = some_options(1 + size % 4 / 2);
    const Options other = some_options(2);  // ranks may differ in threads
    EXPECT_EQ(text_of(search_by(size, base, options, service_of(base, other))), alone) << size;
  }
}

// Cut short in the middle of batches, by turns with two ranks and alone.
TEST(PerBlockRanks, StoppedSearchGoesOnFromItsCheckpoint) {
  const plan::Plan base = some_base();
  Options options = some_options();
  const PerBlockOutcome whole = search_per_block(base, options);
  options.checkpoint = testing::TempDir() + "per_block_ranks_" + std::to_string(getpid()) + "state";
  int stopped = 0;
  for (int runs = 1;; ++runs) {
    std::atomic<int> left = 50 * runs;  // more each time: batches are long
    options.stop = [&left] { return left-- <= 0; };
    PerBlockOutcome outcome;
    if (runs % 2 == 0) {
      outcome = search_per_block(base, options);
    } else {
      // A search that goes on from its own state has no homogeneous one before it.
      int begun = 0;
      const ServiceOf theirs = [&](SearchKind kind) {
        ++begun;
        return per_block_service(kind, base, options);
      };
      outcome = search_by(2, base, options, theirs, std::nullopt);
      EXPECT_GT(begun, 0);
    }
    if (!outcome.outcome.interrupted) {
      EXPECT_EQ(text_of(outcome), text_of(whole));
      break;
    }
    ++stopped;
    EXPECT_LE(outcome.outcome.lower_bound, whole.outcome.best->simulation.iteration_time);
    ASSERT_LE(runs, 1'000);
    options.resume = options.checkpoint;
  }
  EXPECT_GT(stopped, 3);
}

TEST(PerBlockRanks, OtherInputsAreFoundOut) {
  const plan::Plan base = some_base();
  plan::Plan larger = base;
  larger.batch *= 2;
  const Options options = some_options();
  try {
    (void)search_by(3, base, options, service_of(larger, options));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("has other inputs than rank 0: workload"));
  }
}

}  // namespace
}  // namespace orrery::search
