// SPDX-License-Identifier: Apache-2.0
// A per-block search that was stopped anywhere and goes on from its checkpoint ends like one that
// was not; checkpoints of the other space, and damaged or hostile ones, are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/files.hpp"
#include "search/per_block/checkpoint.hpp"
#include "search/per_block/tools.hpp"
#include "tests/unit/search/outcome_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kMaxFileBytes = 1LL << 26;

std::string path_of(const std::string& name) {
  return testing::TempDir() + "per_block_checkpoint_" + name;
}

// Meshes, pipelines, parts of them and drafts.
plan::Plan small_base() {
  Shape shape;
  shape.spec = small_spec(3);
  shape.overrides = {"node.gpus=4", "gpu.memory=3250 MiB"};
  return base_plan(shape);
}

Options small_options(int jobs = 1) {
  Options options;
  options.jobs = jobs;
  options.interval_draws = 0;
  options.constraints = fixed("cp=1,pp=2,micro_batch=1");
  return options;
}

// What is on disk after every step, without repetitions.
std::vector<std::string> all_checkpoints(const plan::Plan& base, Options options,
                                         std::string& text) {
  options.checkpoint = path_of("all");
  options.checkpoint_every = Seconds(0);
  std::vector<std::string> all;
  std::set<std::string> known;
  const auto keep = [&] {
    std::string content = read_file(options.checkpoint, kMaxFileBytes);
    if (known.insert(content).second) {
      all.push_back(std::move(content));
    }
  };
  text = text_of(search_per_block(base, options, [&](const ProgressReport&) { keep(); }));
  keep();
  return all;
}

TEST(PerBlockCheckpoint, GoesOnFromEveryOneToTheSameAnswer) {
  const plan::Plan base = small_base();
  Options options = small_options();
  const PerBlockOutcome outcome = search_per_block(base, options);
  ASSERT_TRUE(outcome.outcome.best);
  EXPECT_GT(outcome.pipelines, 8);
  EXPECT_GT(outcome.drafted, 0);
  EXPECT_GT(outcome.parts, 0);
  const std::string whole = text_of(outcome);
  std::string kept;
  const std::vector<std::string> all = all_checkpoints(base, options, kept);
  EXPECT_EQ(kept, whole);
  EXPECT_GT(all.size(), 8U);
  options.resume = path_of("one");
  for (std::size_t index = 0; index < all.size(); ++index) {
    options.jobs = 1 + static_cast<int>(index % 2);
    write_file_atomically(options.resume, all[index]);
    EXPECT_EQ(text_of(search_per_block(base, options)), whole) << index;
  }
}

// Each run ends after so many questions whether to stop, in the middle of batches.
TEST(PerBlockCheckpoint, GoesOnAfterRunsThatWereCutShort) {
  const plan::Plan base = small_base();
  Options options = small_options();
  const std::string whole = text_of(search_per_block(base, options));
  options.checkpoint = path_of("pieces");
  for (int runs = 1;; ++runs) {
    std::atomic<int> left = 25 * runs;  // more each time: batches are long
    options.stop = [&left] { return left-- <= 0; };
    const PerBlockOutcome outcome = search_per_block(base, options);
    if (!outcome.outcome.interrupted) {
      EXPECT_EQ(text_of(outcome), whole);
      EXPECT_GT(runs, 3);
      break;
    }
    ASSERT_LE(runs, 10'000);
    options.resume = options.checkpoint;
  }
}

// However short the time of a run is, one that goes on takes a step.
TEST(PerBlockCheckpoint, ComesForwardUnderAnyTimeLimit) {
  const plan::Plan base = small_base();
  Options options = small_options();
  const std::string whole = text_of(search_per_block(base, options));
  options.checkpoint = path_of("limited");
  options.time_limit = Seconds(1e-9);
  PerBlockOutcome outcome = search_per_block(base, options);
  int runs = 1;
  for (; outcome.outcome.timed_out && runs < 1000; ++runs) {
    options.resume = options.checkpoint;
    outcome = search_per_block(base, options);
  }
  EXPECT_FALSE(outcome.outcome.timed_out);
  EXPECT_GT(runs, 8);
  EXPECT_EQ(text_of(outcome), whole);
}

TEST(PerBlockCheckpoint, OfASearchWhereNothingFits) {
  const plan::Plan base =
      base_plan({small_spec(), "dgx-a100:1", {"node.gpus=4", "gpu.memory=1100 MiB"}, 8, 2048});
  Options options = small_options();
  const PerBlockOutcome outcome = search_per_block(base, options);
  ASSERT_FALSE(outcome.outcome.best);
  std::string kept;
  options.resume = path_of("nothing");
  for (const std::string& content : all_checkpoints(base, small_options(), kept)) {
    write_file_atomically(options.resume, content);
    EXPECT_EQ(text_of(search_per_block(base, options)), text_of(outcome));
  }
  EXPECT_EQ(kept, text_of(outcome));
}

// A finished one answers at once; its file does not change.
TEST(PerBlockCheckpoint, OfAFinishedSearch) {
  Options options = small_options();
  options.checkpoint = path_of("finished");
  const std::string whole = text_of(search_per_block(small_base(), options));
  const std::string content = read_file(options.checkpoint, kMaxFileBytes);
  options.resume = options.checkpoint;
  int steps = 0;
  const auto count = [&](const ProgressReport& report) { steps += report.to_draw == 0 ? 1 : 0; };
  EXPECT_EQ(text_of(search_per_block(small_base(), options, count)), whole);
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(read_file(options.checkpoint, kMaxFileBytes), content);
}

// Of every device and of every virtual stage something may be known.
TEST(PerBlockCheckpoint, NodesWithAllRangesComeBack) {
  const plan::Plan base = base_plan(Shape{.overrides = {"node.gpus=4"}});
  const Constraints constraints = fixed("cp=1,pp=2,micro_batch=1,schedule=interleaved,chunks=2");
  const PerBlockSpace space(base, constraints);
  PerBlockNode node;
  node.stage = PerBlockStage::Bounded;
  node.part.ranges = {{{0, 2}, 2, 5}, {{1, 3}, 2, 4}, {{0, 1}, 2, 9, StageRange::Of::One}};
  node.part.ranges.push_back({{1, 3}, 0, 2, StageRange::Of::Strategies, {0, 2}});
  for (std::size_t stage = 0; stage < 4; ++stage) {
    node.part.ranges.push_back({{stage}, 1, 3});
  }
  ByteWriter out;
  PerBlockNodeWriter().write(out, node);
  ByteReader in(out.bytes(), "test");
  const MeshCosts none;
  const auto costs_of = [&](std::uint32_t) -> const MeshCosts& { return none; };
  const PerBlockNode back = PerBlockNodeReader(space, costs_of).read(in);
  in.end();
  ASSERT_EQ(back.part.ranges.size(), node.part.ranges.size());
  EXPECT_EQ(back.part.ranges.front().stages, node.part.ranges.front().stages);
  EXPECT_EQ(back.part.ranges[1].of, StageRange::Of::Together);
  EXPECT_EQ(back.part.ranges[2].of, StageRange::Of::One);
  EXPECT_EQ(back.part.ranges[3].of, StageRange::Of::Strategies);
  EXPECT_EQ(back.part.ranges[3].strategies, node.part.ranges[3].strategies);
  EXPECT_EQ(back.part.ranges.back().most, 3);
}

template <typename Search>
std::string message_of(Search search) {
  try {
    (void)search();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

// Stages that a pipeline has, in order where one of them is meant, and a kind of range that is one.
TEST(PerBlockCheckpoint, RangesThatCannotBeAreRefused) {
  using Of = StageRange::Of;
  constexpr std::size_t kStages = 4;
  const auto message_for = [&](const StageRange& range) {
    ByteWriter out;
    write(out, std::vector<StageRange>{range});
    return message_of([&] {
      ByteReader in(out.bytes(), "test");
      return read_ranges(in, kStages);
    });
  };
  EXPECT_EQ(message_for({{0, 2, 3}, 2, 5, Of::One}), "");
  EXPECT_EQ(message_for({{0, 2, 3}, 0, 2, Of::Each}), "");
  EXPECT_EQ(message_for({{0, 2}, 0, 2, Of::Strategies, {1, 4}}), "");
  const auto refused = testing::HasSubstr("a range of stages that cannot be");
  EXPECT_THAT(message_for({{2, 0}, 2, 5, Of::One}), refused);
  EXPECT_THAT(message_for({{1, 1}, 2, 5, Of::One}), refused);
  EXPECT_THAT(message_for({{}, 2, 5, Of::One}), refused);
  EXPECT_THAT(message_for({{2, 0}, 0, 2, Of::Strategies, {1, 4}}), refused);
  EXPECT_THAT(message_for({{0, 2}, 0, 2, Of::Strategies, {4, 1}}), refused);
  EXPECT_THAT(message_for({{0}, 2, 5, static_cast<Of>(4)}), refused);
  EXPECT_NE(message_for({{kStages}, 2, 5}), "");
  EXPECT_NE(message_for({{0, 1, 2, 3, 3}, 2, 5}), "");
  EXPECT_NE(message_for({{0}, -1, 5}), "");
  EXPECT_NE(message_for({{0}, 1, -5}), "");
}

TEST(PerBlockCheckpoint, OfAnotherSearchIsRefused) {
  const plan::Plan base = small_base();
  Options options = small_options();
  options.checkpoint = path_of("per_block");
  (void)search_per_block(base, options);
  Options other = small_options();
  other.checkpoint = path_of("homogeneous");
  (void)search(base, other);
  other.checkpoint = "";
  other.resume = options.checkpoint;
  EXPECT_THAT(message_of([&] { return search(base, other); }), testing::HasSubstr("--space"));
  other.resume = path_of("homogeneous");
  EXPECT_EQ(message_of([&] { return search(base, other); }), "");
  EXPECT_THAT(message_of([&] { return search_per_block(base, other); }),
              testing::HasSubstr("--space"));
  other.resume = options.checkpoint;
  EXPECT_EQ(message_of([&] { return search_per_block(base, other); }), "");
  other.constraints.forbid("zero=3");
  EXPECT_THAT(message_of([&] { return search_per_block(base, other); }),
              testing::HasSubstr("--forbid"));
  plan::Plan larger = base;
  larger.batch *= 2;
  other.constraints = options.constraints;
  EXPECT_THAT(message_of([&] { return search_per_block(larger, other); }),
              testing::HasSubstr("workload"));
}

// With a right hash over wrong contents: nothing that is read is trusted.
TEST(PerBlockCheckpoint, HostileContentsAreErrors) {
  const plan::Plan base = small_base();
  std::string text;
  const std::vector<std::string> all = all_checkpoints(base, small_options(), text);
  const Options options = [] {
    Options of_file = small_options();
    of_file.space = SpaceKind::PerBlock;
    return of_file;
  }();
  const PerBlockSpace space(base, options.constraints);
  PerBlockTools tools(space);
  std::vector<std::optional<MeshCosts>> costs(space.meshes().size());
  const auto costs_of = [&](std::uint32_t mesh) -> const MeshCosts& {
    if (!costs[mesh]) {
      costs[mesh] = tools.pricer.price(space.meshes()[mesh]);
    }
    return *costs[mesh];
  };
  const Space all_plans(base, options.constraints);
  std::string state;
  write_file_atomically(path_of("hostile"), all[all.size() * 2 / 3]);
  ASSERT_EQ(read_checkpoint(path_of("hostile"),
                            input_hashes(all_plans, all_plans.groups(), options), state),
            Progress::PerBlock);
  const auto refuses = [&](const std::string& bytes) {
    return message_of([&] {
      PerBlockState read(FoundPlans(9, ByteCount(), 1));
      ByteReader in(bytes, "test");
      read.read(in, space, costs_of);
      in.end();
      ByteWriter again;
      read.write(again);
      return again.bytes();
    });
  };
  EXPECT_EQ(refuses(state), "");
  EXPECT_THAT(refuses(state + "x"), testing::HasSubstr("after its end"));
  for (std::size_t size = 0; size < state.size(); size += 1 + state.size() / 200) {
    EXPECT_NE(refuses(state.substr(0, size)), "") << size;
  }
  int refused = 0;
  for (std::size_t at = 0; at < state.size(); at += 1 + state.size() / 400) {
    std::string changed = state;
    changed[at] = static_cast<char>(changed[at] ^ 0x80);
    refused += refuses(changed).empty() ? 0 : 1;  // bounds and counts may be plausible
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace orrery::search
