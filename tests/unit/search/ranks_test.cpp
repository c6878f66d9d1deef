// SPDX-License-Identifier: Apache-2.0
// A search by several ranks, here threads with queues between them, ends like one by one rank;
// ranks with other inputs or without any are found out.
#include "search/tree/ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "tests/unit/search/outcome_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// Messages of all ranks of one process.
struct Mail {
  std::mutex mutex;
  std::vector<std::deque<Message>> boxes;
  std::int64_t sent = 0;
};

class LocalRanks : public Ranks {
 public:
  LocalRanks(Mail& mail, int rank) : mail_(mail), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mail_.boxes.size()); }
  void send(int to, std::string_view bytes) override {
    const std::lock_guard lock(mail_.mutex);
    mail_.boxes[static_cast<std::size_t>(to)].push_back({rank_, std::string(bytes)});
    ++mail_.sent;
  }
  std::optional<Message> receive() override {
    const std::lock_guard lock(mail_.mutex);
    std::deque<Message>& box = mail_.boxes[static_cast<std::size_t>(rank_)];
    if (box.empty()) {
      return std::nullopt;
    }
    Message message = std::move(box.front());
    box.pop_front();
    return message;
  }

 private:
  Mail& mail_;
  int rank_;
};

// `searches` searches by `size` ranks; `theirs` is what the others read.
std::vector<Outcome> search_by(int size, const plan::Plan& base, const Options& options,
                               const ProblemOf& theirs, int searches = 1) {
  Mail mail;
  mail.boxes.resize(static_cast<std::size_t>(size));
  std::vector<std::thread> others;
  std::atomic<int> served = 0;
  for (int rank = 1; rank < size; ++rank) {
    others.emplace_back([&, rank] {
      LocalRanks ranks(mail, rank);
      while (serve(ranks, theirs)) {
        ++served;
      }
    });
  }
  LocalRanks ranks(mail, 0);
  Options how = options;
  how.ranks = &ranks;
  std::vector<Outcome> outcomes;
  std::string failure;
  try {
    for (int count = 0; count < searches; ++count) {
      outcomes.push_back(search(base, how));
    }
  } catch (const Error& error) {
    failure = error.what();
  }
  say_goodbye(ranks);
  for (std::thread& other : others) {
    other.join();
  }
  if (!failure.empty()) {
    throw Error(ErrorKind::BadInput, "", failure);
  }
  EXPECT_EQ(served, (size - 1) * searches);
  EXPECT_EQ(mail.sent > size * 3, size > 1);
  return outcomes;
}

TEST(Ranks, AnswerDoesNotDependOnTheirNumber) {
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:2", {}, 64, 2048});
  Options options;
  options.jobs = 1;
  const std::string alone = text_of(search(base, options));
  for (const int size : {1, 2, 4}) {
    for (const int jobs : {1, 2}) {
      options.jobs = jobs;
      const ProblemOf same = [&](plan::Plan& their_base, Options& how) {
        their_base = base;
        how = options;
        how.jobs = 3 - jobs;  // ranks may differ in threads
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
  const auto other = [&](plan::Plan& base, Options& how) {
    base = base_plan();
    base.batch *= 2;
    how = options;
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
  const auto broken = [](plan::Plan&, Options&) { bad_input("net.json", "is not there"); };
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
  const ProblemOf same = [&](plan::Plan& their_base, Options& how) {
    their_base = base;
    how = options;
  };
  const Outcome outcome = search_by(2, base, options, same).front();
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_LE(outcome.lower_bound, best);
  if (outcome.best) {
    EXPECT_GE(outcome.best->simulation.iteration_time, best);
  }
}

}  // namespace
}  // namespace orrery::search
