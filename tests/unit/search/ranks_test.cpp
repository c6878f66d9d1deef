// SPDX-License-Identifier: Apache-2.0
// A search by several ranks, here threads with queues between them, ends like one by one rank;
// ranks with other inputs or without any are found out.
#include "search/tree/ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.hpp"
#include "search/tree/remote_threads.hpp"
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

std::string refusal(const Forgery& forged) {
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:2", {}, 64, 2048});
  Options options;
  options.jobs = 1;
  const ServiceOf same = [&](SearchKind) { return homogeneous_service(base, options); };
  const auto search_it = [&](const Options& how) { return search(base, how); };
  try {
    (void)searched_by(2, options, same, 1, search_it, 1, forged);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Forgery of_results(const Forgery& forged) {
  return [forged](std::string bytes) {
    const bool is_result = static_cast<MessageKind>(bytes.front()) == MessageKind::Results;
    return is_result ? forged(std::move(bytes)) : bytes;
  };
}

TEST(Ranks, ResultsThatAreCutOffAreRefused) {
  for (const std::size_t size : {0, 1, 5, 13, 29}) {
    const Forgery cut = [size](const std::string& bytes) { return bytes.substr(0, size); };
    EXPECT_THAT(refusal(of_results(cut)), testing::StartsWith("rank 1: ")) << size;
  }
}

// Of a message: `count` bytes behind `at` are all `byte`.
Forgery overwritten(std::size_t at, std::size_t count, char byte) {
  return [=](std::string bytes) { return bytes.replace(at, count, count, byte); };
}

TEST(Ranks, ResultsThatCannotBeAreRefused) {
  EXPECT_THAT(refusal(of_results(overwritten(0, 1, '\0'))), testing::HasSubstr("not asked"));
  EXPECT_THAT(refusal(of_results(overwritten(1, 4, '\7'))), testing::HasSubstr("not asked"));
  EXPECT_THAT(refusal(of_results(overwritten(13, 8, '\x7f'))), testing::HasSubstr("not asked"));
}

TEST(Ranks, GreetingsThatCannotBeAreRefused) {
  const auto with_threads = [](char byte) {
    return [byte](std::string bytes) { return bytes.replace(bytes.size() - 4, 4, 4, byte); };
  };
  EXPECT_THAT(refusal(with_threads('\0')), testing::HasSubstr("rank 1: has 0 threads"));
  EXPECT_THAT(refusal(with_threads('\1')), testing::HasSubstr("threads, not 1 to"));
  EXPECT_THAT(refusal(overwritten(0, 1, '\x7f')), testing::HasSubstr("does not say hello"));
}

// Another rank goes on serving.
TEST(Ranks, QuestionsThatCannotBeAreAnsweredWithTheFault) {
  const auto said = [](MessageKind kind, const std::string& more = "") {
    return std::string(1, static_cast<char>(kind)) + more;
  };
  const std::string begin = said(MessageKind::Begin, std::string(1, '\0'));
  Options options;
  options.jobs = 1;
  const ServiceOf service = [&](SearchKind) { return homogeneous_service(base_plan(), options); };
  for (const std::vector<std::string>& questions : std::vector<std::vector<std::string>>{
           {""},
           {said(MessageKind::Begin)},
           {said(MessageKind::Begin, "\7")},
           {begin, ""},
           {begin, said(MessageKind::Work)},
           {begin, said(MessageKind::Work, "\1\1\1\1"), "left"}}) {
    Mail mail;
    mail.boxes.resize(2);
    for (const std::string& question : questions) {
      mail.boxes[1].push_back({0, question});
    }
    mail.boxes[1].push_back({0, said(MessageKind::End)});
    LocalRanks ranks(mail, 1);
    EXPECT_TRUE(serve(ranks, service));
    ASSERT_FALSE(mail.boxes[0].empty());
    ByteReader in(mail.boxes[0].back().bytes, "test");
    EXPECT_EQ(static_cast<MessageKind>(in.u8()), MessageKind::Failed);
    EXPECT_EQ(in.u32(), 0xffffffff);
    EXPECT_THAT(in.text(), testing::StartsWith("rank 0: "));
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
