// SPDX-License-Identifier: Apache-2.0
// A per-block search by several ranks ends like one by one rank, also where it was stopped and goes
// on with another number of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "search/per_block/search.hpp"
#include "search/per_block/tools.hpp"
#include "search/per_block/work_bytes.hpp"
#include "search/per_block/worker_pool.hpp"
#include "tests/unit/search/local_ranks.hpp"
#include "tests/unit/search/outcome_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// Meshes, pipelines, parts of them and drafts.
plan::Plan some_base() {
  Shape shape;
  shape.spec = small_spec(3);
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
PerBlockOutcome search_per_block_by(int size, const plan::Plan& base, const Options& options,
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
    EXPECT_EQ(text_of(search_per_block_by(size, base, options, service_of(base, other))), alone)
        << size;
  }
}

// Cut short in the middle of batches, by turns with two ranks and alone.
TEST(PerBlockRanks, StoppedSearchGoesOnFromItsCheckpoint) {
  const plan::Plan base = some_base();
  Options options = some_options();
  const PerBlockOutcome whole = search_per_block(base, options);
  options.checkpoint = testing::TempDir() + "per_block_ranks_state";
  int stopped = 0;
  for (int runs = 1;; ++runs) {
    std::atomic<int> left = 25 * runs;  // more each time: batches are long
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
      outcome = search_per_block_by(2, base, options, theirs, std::nullopt);
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
    (void)search_per_block_by(3, base, options, service_of(larger, options));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("has other inputs than rank 0: workload"));
  }
}

// Questions and answers, some of which cannot be.
class PerBlockBytes : public testing::Test {
 protected:
  PerBlockBytes()
      : base_(some_base()), constraints_(some_options().constraints), space_(base_, constraints_) {
    PerBlockTools tools(space_);
    costs_ = tools.pricer.price(space_.meshes().front());
    const StageMesh& mesh = space_.meshes().front();
    draft_.stages = space_.first_cut(mesh, space_.pipelines(mesh).front());
    draft_.strategies.assign(base_.network.chain.size(), 0);
  }
  PerBlockWork question(PerBlockTask task, PerBlockStage stage) const {
    PerBlockWork work;
    work.task = task;
    work.node.stage = stage;
    work.draft = draft_;
    return work;
  }
  PerBlockDone answer() const {
    PerBlockDone done;
    done.stage = PerBlockStage::Pipeline;
    done.draft = DraftResult{draft_, true, Seconds(1), ByteCount(), 3};
    return done;
  }
  static std::string bytes_of(const auto& written) {
    ByteWriter out;
    write(out, written);
    return out.bytes();
  }
  // Whether the bytes are of a question, or an answer to `work`.
  bool is_read(const std::string& bytes, const PerBlockWork* work = nullptr) const {
    const auto costs_of = [this](std::uint32_t) -> const MeshCosts& { return costs_; };
    ByteReader in(bytes, "test");
    try {
      if (work == nullptr) {
        (void)read_work(in, space_, costs_of);
      } else {
        (void)read_done(in, *work, space_, costs_of);
      }
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  plan::Plan base_;
  Constraints constraints_;
  PerBlockSpace space_;
  MeshCosts costs_;
  Draft draft_;
};

TEST_F(PerBlockBytes, QuestionsThatCannotBeAreRefused) {
  using enum PerBlockTask;
  const auto is_question = [&](PerBlockTask task, PerBlockStage stage) {
    return is_read(bytes_of(question(task, stage)));
  };
  EXPECT_TRUE(is_question(BoundMesh, PerBlockStage::Mesh));
  EXPECT_TRUE(is_question(Improve, PerBlockStage::Pipeline));
  EXPECT_TRUE(is_question(BoundPipeline, PerBlockStage::Bounded));
  EXPECT_FALSE(is_question(BoundPipeline, PerBlockStage::Mesh));
  EXPECT_FALSE(is_question(BoundPipeline, PerBlockStage::Done));
  EXPECT_FALSE(is_question(Improve, PerBlockStage::Mesh));
  EXPECT_FALSE(is_question(Draft, PerBlockStage::Done));  // without shares
  EXPECT_FALSE(is_question(Anneal, PerBlockStage::Bounded));
  EXPECT_FALSE(is_question(Simulate, PerBlockStage::Pipeline));
  EXPECT_FALSE(is_question(static_cast<PerBlockTask>(6), PerBlockStage::Pipeline));
}

TEST_F(PerBlockBytes, AnnealingTakesItsDraftAndSeedAlong) {
  PerBlockWork work = question(PerBlockTask::Anneal, PerBlockStage::Bounded);
  Shares shares;
  for (std::size_t stage = 0; stage < draft_.stages.size(); ++stage) {
    auto& of_stage = shares.blocks.emplace_back();
    for (const std::vector<BlockChoice>& choices : costs_.choices) {
      of_stage.emplace_back(choices.size()).front() = 0.5;
    }
  }
  work.node.shares = std::make_shared<const Shares>(shares);
  work.seed = 7;
  const std::string bytes = bytes_of(work);
  ByteReader in(bytes, "test");
  const PerBlockWork read =
      read_work(in, space_, [this](std::uint32_t) -> const MeshCosts& { return costs_; });
  EXPECT_EQ(in.left(), 0U);
  EXPECT_EQ(read.task, PerBlockTask::Anneal);
  EXPECT_EQ(read.seed, 7U);
  EXPECT_EQ(read.draft, draft_);
  EXPECT_EQ(read.node.shares->blocks, shares.blocks);
}

TEST_F(PerBlockBytes, DraftsThatCannotBeAreRefused) {
  const auto is_draft = [&] {
    return is_read(bytes_of(question(PerBlockTask::Improve, PerBlockStage::Pipeline)));
  };
  const search::Draft draft = draft_;
  ASSERT_TRUE(is_draft());
  draft_.strategies.back() = static_cast<std::uint16_t>(costs_.strategies.size());
  EXPECT_FALSE(is_draft());
  draft_ = draft;
  ++draft_.stages.front();
  EXPECT_FALSE(is_draft());
  draft_.stages = {0, static_cast<int>(base_.network.chain.size())};
  EXPECT_FALSE(is_draft());
}

TEST_F(PerBlockBytes, AnswersThatCannotBeAreRefused) {
  const PerBlockWork work = question(PerBlockTask::Improve, PerBlockStage::Pipeline);
  ASSERT_TRUE(is_read(bytes_of(answer()), &work));
  PerBlockDone wrong = answer();
  wrong.bound = std::nan("");
  EXPECT_FALSE(is_read(bytes_of(wrong), &work));
  wrong.bound = -1;
  EXPECT_FALSE(is_read(bytes_of(wrong), &work));
  for (const int stage : {0, 5, 255}) {
    wrong = answer();
    wrong.stage = static_cast<PerBlockStage>(stage);
    EXPECT_FALSE(is_read(bytes_of(wrong), &work)) << stage;
  }
  wrong = answer();
  wrong.draft.reset();
  EXPECT_FALSE(is_read(bytes_of(wrong), &work));
}

TEST_F(PerBlockBytes, CutOffAndChangedBytesDoNoHarm) {
  const PerBlockWork work = question(PerBlockTask::Improve, PerBlockStage::Pipeline);
  const std::string asked = bytes_of(work);
  const std::string told = bytes_of(answer());
  int refused = 0;
  for (const bool is_asked : {true, false}) {
    const std::string& bytes = is_asked ? asked : told;
    const PerBlockWork* of = is_asked ? nullptr : &work;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      EXPECT_FALSE(is_read(bytes.substr(0, at), of)) << at;
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 0x80);
      refused += is_read(changed, of) ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 40);
}

TEST(PerBlockRanks, AnswersToOtherQuestionsAreRefused) {
  const plan::Plan base = some_base();
  const Options options = some_options();
  bool is_per_block = false;
  const ServiceOf theirs = [&](SearchKind kind) {
    is_per_block = kind == SearchKind::PerBlock;
    return per_block_service(kind, base, options);
  };
  const Forgery forged = [&](std::string bytes) {
    const bool is_result = static_cast<MessageKind>(bytes.front()) == MessageKind::Results;
    return is_result && is_per_block ? bytes.replace(5, 8, 8, '\7') : bytes;
  };
  const auto search = [&](const Options& how) { return search_per_block(base, how); };
  try {
    (void)searched_by(2, options, theirs, 1, search, 2, forged);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1: answers what it was not asked"));
  }
}

}  // namespace
}  // namespace orrery::search
