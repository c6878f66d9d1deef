// SPDX-License-Identifier: Apache-2.0
// A search that was stopped anywhere and goes on from its checkpoint ends like one that was not;
// checkpoints of other searches, and damaged or hostile ones, are refused with one message.
#include "search/tree/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "base/error.hpp"
#include "base/files.hpp"
#include "search/tree/build.hpp"
#include "tests/unit/search/outcome_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kMaxTestBytes = 1LL << 26;

std::string checkpoint_path(const std::string& name) {
  return testing::TempDir() + "checkpoint_" + name;
}

plan::Plan two_node_base() { return base_plan({small_spec(8), "dgx-a100:2", {}, 64, 2048}); }

// Each run ends after so many questions whether to stop; how many runs it took.
int search_in_pieces(const plan::Plan& base, Options options, int questions, std::string& text) {
  for (int runs = 1;; ++runs) {
    std::atomic<int> left = questions * runs;  // more each time: the first batches are long
    options.stop = [&left] { return left-- <= 0; };
    const Outcome outcome = search(base, options);
    if (!outcome.interrupted) {
      text = text_of(outcome);
      return runs;
    }
    EXPECT_LE(runs, 100'000);
    options.resume = options.checkpoint;
  }
}

TEST(Checkpoint, GoesOnAnywhereToTheSameAnswer) {
  const plan::Plan base = two_node_base();
  Options options;
  options.jobs = 1;
  const std::string whole = text_of(search(base, options));
  options.checkpoint = checkpoint_path("pieces");
  int most = 0;
  for (const int questions : {41, 351, 2000}) {
    for (const int jobs : {1, 2}) {
      options.jobs = jobs;
      std::string text;
      most = std::max(most, search_in_pieces(base, options, questions, text));
      EXPECT_EQ(text, whole) << questions;
    }
  }
  EXPECT_GT(most, 5);
}

// However short the time of a run is, one that goes on evaluates a batch.
TEST(Checkpoint, ComesForwardUnderAnyTimeLimit) {
  const plan::Plan base = two_node_base();
  Options options;
  options.jobs = 1;
  options.interval_draws = 0;
  const std::string whole = text_of(search(base, options));
  options.checkpoint = checkpoint_path("limited");
  options.time_limit = Seconds(1e-9);
  Outcome outcome = search(base, options);
  int runs = 1;
  for (; outcome.timed_out && runs < 1000; ++runs) {
    options.resume = options.checkpoint;
    outcome = search(base, options);
    EXPECT_TRUE(outcome.best);
  }
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_GT(runs, 3);
  EXPECT_EQ(text_of(outcome), whole);
}

TEST(Checkpoint, OfASearchWhereNothingFits) {
  const plan::Plan base =
      base_plan({small_spec(), "dgx-a100:1", {"node.gpus=4", "gpu.memory=1300 MiB"}, 8, 2048});
  Options options;
  options.jobs = 1;
  const Outcome outcome = search(base, options);
  ASSERT_FALSE(outcome.best);
  options.checkpoint = checkpoint_path("nothing");
  std::string text;
  (void)search_in_pieces(base, options, 50, text);
  EXPECT_EQ(text, text_of(outcome));
}

// A finished one answers at once; its file does not change.
TEST(Checkpoint, OfAFinishedSearch) {
  Options options;
  options.jobs = 1;
  options.checkpoint = checkpoint_path("finished");
  const std::string whole = text_of(search(base_plan(), options));
  const std::string content = read_file(options.checkpoint, kMaxTestBytes);
  options.resume = options.checkpoint;
  int batches = 0;
  const auto count = [&](const ProgressReport& report) { batches += report.to_draw == 0 ? 1 : 0; };
  EXPECT_EQ(text_of(search(base_plan(), options, count)), whole);
  EXPECT_EQ(batches, 0);
  EXPECT_EQ(read_file(options.checkpoint, kMaxTestBytes), content);
}

class Refusal : public testing::Test {
 protected:
  Refusal() {
    options_.jobs = 1;
    options_.checkpoint = checkpoint_path("refused");
    std::atomic<int> left = 600;
    options_.stop = [&left] { return left-- <= 0; };
    EXPECT_TRUE(search(base_, options_).interrupted);
    options_.stop = nullptr;
    content_ = read_file(options_.checkpoint, kMaxTestBytes);
    options_.resume = options_.checkpoint;
    options_.checkpoint = "";
  }
  std::string message(const plan::Plan& base, const Options& options) {
    try {
      (void)search(base, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      return error.what();
    }
    return "";
  }
  std::string message_of(const std::string& content) {
    write_file_atomically(options_.resume, content);
    const Space space(base_, options_.constraints);
    const std::vector<Group> groups = space.groups();
    std::vector<std::uint64_t> first_order;
    std::uint64_t plans = 0;
    for (const Group& group : groups) {
      first_order.push_back(plans);
      plans += static_cast<std::uint64_t>(space.num_members(group));
    }
    Frontier frontier({space, groups, first_order}, options_.gap_fraction, options_.top);
    try {
      (void)read_checkpoint(options_.resume, input_hashes(space, groups, options_), frontier);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      return error.what();
    }
    return "";
  }
  plan::Plan base_ = two_node_base();
  Options options_;
  std::string content_;
};

TEST_F(Refusal, OtherInputsAreNamed) {
  EXPECT_EQ(message(base_, options_), "");
  plan::Plan other = base_;
  other.batch = 128;
  EXPECT_THAT(message(other, options_), testing::HasSubstr("workload"));
  other = base_plan({small_spec(8), "dgx-a100:2", {"gpu.memory=40 GiB"}, 64, 2048});
  EXPECT_THAT(message(other, options_), testing::HasSubstr("cluster"));
  other = base_plan({small_spec(6), "dgx-a100:2", {}, 64, 2048});
  EXPECT_THAT(message(other, options_), testing::HasSubstr("network"));
  other = base_;
  other.memory_reserve = ByteCount(1);
  EXPECT_THAT(message(other, options_), testing::HasSubstr("memory reserve"));
  other = base_;
  other.execution.overlap_p2p = !other.execution.overlap_p2p;
  EXPECT_THAT(message(other, options_), testing::HasSubstr("execution"));
  Options constrained = options_;
  constrained.constraints.forbid("recompute=full");
  EXPECT_THAT(message(base_, constrained), testing::HasSubstr("--forbid"));
  for (const char* field : {"zigzag=false", "keep_gathered=true"}) {  // of no choice of the space
    constrained = options_;
    constrained.constraints.fix(field);
    EXPECT_THAT(message(base_, constrained), testing::HasSubstr("--fix")) << field;
  }
  constrained = options_;
  constrained.gap_fraction = 0.1;
  EXPECT_THAT(message(base_, constrained), testing::HasSubstr("--gap"));
  constrained = options_;
  constrained.top = 9;
  EXPECT_THAT(message(base_, constrained), testing::HasSubstr("--top"));
}

TEST_F(Refusal, DamagedFilesAreErrors) {
  EXPECT_THAT(message_of(""), testing::HasSubstr("not a checkpoint"));
  EXPECT_THAT(message_of("{}"), testing::HasSubstr("not a checkpoint"));
  for (const std::size_t size : {25u, 28u, 33u, 60u, 400u}) {
    EXPECT_NE(message_of(content_.substr(0, size)), "") << size;
  }
  EXPECT_THAT(message_of(content_.substr(0, content_.size() - 1)), testing::HasSubstr("damaged"));
  EXPECT_THAT(message_of(content_ + "x"), testing::HasSubstr("damaged"));
  for (std::size_t at = 25; at < content_.size(); at += content_.size() / 40) {
    std::string changed = content_;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    EXPECT_NE(message_of(changed), "") << at;
  }
}

// With a right hash over wrong contents: nothing that is read is trusted.
TEST_F(Refusal, HostileContentsAreErrors) {
  const std::size_t begin = 25 + 8;
  const auto with = [&](std::string body) {
    ByteWriter hash;
    hash.u64(hash_of(body));
    return content_.substr(0, 25) + hash.bytes() + body;
  };
  const std::string body = content_.substr(begin);
  EXPECT_EQ(message_of(with(body)), "");
  EXPECT_THAT(message_of(with(body + "x")), testing::HasSubstr("after its end"));
  std::string other = body;  // of a build whose sources have another hash
  char& last = other[8 + build_text().size() - 1];
  last = last == '7' ? '8' : '7';
  EXPECT_THAT(message_of(with(other)),
              testing::AllOf(testing::HasSubstr("of version " + other.substr(8, 20)),
                             testing::HasSubstr("this is " + build_text())));
  int refused = 0;
  for (std::size_t at = 8; at < body.size(); at += 1 + body.size() / 300) {
    std::string changed = body;
    changed[at] = static_cast<char>(changed[at] ^ 0x80);
    refused += message_of(with(changed)).empty() ? 0 : 1;  // bounds and counts may be plausible
  }
  EXPECT_GT(refused, 20);
  for (std::size_t size = 0; size < body.size(); size += 1 + body.size() / 100) {
    EXPECT_NE(message_of(with(body.substr(0, size))), "") << size;
  }
}

TEST(Checkpoint, MissingFileIsAnInputOutputError) {
  Options options;
  options.resume = checkpoint_path("nowhere");
  std::filesystem::remove(options.resume);
  try {
    (void)search(base_plan(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::InputOutput);
  }
}

}  // namespace
}  // namespace orrery::search
