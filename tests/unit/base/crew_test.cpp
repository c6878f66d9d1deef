// SPDX-License-Identifier: Apache-2.0
#include "base/crew.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/worker_crew.hpp"

namespace orrery {
namespace {

TEST(Crew, AMemberIsTheSameThreadInEveryLoop) {
  Crew crew(3);
  ASSERT_EQ(crew.size(), 3);
  std::vector<std::vector<std::thread::id>> threads(3);
  for (int loop = 0; loop < 50; ++loop) {
    crew.run([&](int member) {
      threads[static_cast<std::size_t>(member)].push_back(std::this_thread::get_id());
    });
  }
  for (const std::vector<std::thread::id>& of_member : threads) {
    EXPECT_EQ(of_member, std::vector<std::thread::id>(50, of_member.front()));
  }
  EXPECT_EQ(threads[0].front(), std::this_thread::get_id());
  EXPECT_NE(threads[1].front(), threads[2].front());
}

TEST(Crew, AllEndBeforeTheExceptionOfTheLowestMember) {
  Crew crew(4);
  std::vector<int> ended(4, 0);
  const auto thrown = [&]() -> std::string {
    try {
      crew.run([&](int member) {
        ended[static_cast<std::size_t>(member)] += 1;
        if (member % 2 == 1) {
          throw std::runtime_error("member " + std::to_string(member));
        }
      });
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(thrown(), "member 1");
  EXPECT_EQ(thrown(), "member 1");  // what was thrown before is forgotten
  EXPECT_EQ(ended, std::vector<int>(4, 2));
}

TEST(Crew, OneMemberIsTheCallingThread) {
  Crew crew(1);
  std::thread::id ran;
  crew.run([&](int) { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

struct Tally {
  bool is_copy = false;
  std::set<std::thread::id> threads;
};

std::unique_ptr<Tally> next_tally(const Tally* first) {
  return std::make_unique<Tally>(Tally{first != nullptr, {}});
}

TEST(WorkerCrew, WorkersAreMadeFromTheFirstAndKeepTheirThread) {
  WorkerCrew<Tally> crew(3, next_tally);
  ASSERT_EQ(crew.size(), 3);
  EXPECT_FALSE(crew.leader().is_copy);
  EXPECT_TRUE(crew.of(1).is_copy && crew.of(2).is_copy);
  for (int loop = 0; loop < 20; ++loop) {
    crew.run([&](Tally& tally, int member) {
      ASSERT_EQ(&tally, &crew.of(member));
      tally.threads.insert(std::this_thread::get_id());
    });
  }
  std::set<std::thread::id> threads;
  for (int member = 0; member < 3; ++member) {
    EXPECT_EQ(crew.of(member).threads.size(), 1U);
    threads.merge(crew.of(member).threads);
  }
  EXPECT_EQ(threads.size(), 3U);
}

TEST(WorkerCrew, EachIndexIsTakenOnce) {
  WorkerCrew<Tally> crew(4, next_tally);
  for (const std::size_t count : {0U, 1U, 1000U}) {
    std::multiset<std::size_t> taken;
    std::mutex mutex;
    crew.for_each(count, [&](Tally&, std::size_t index) {
      const std::lock_guard lock(mutex);
      taken.insert(index);
    });
    std::multiset<std::size_t> all;
    for (std::size_t index = 0; index < count; ++index) {
      all.insert(index);
    }
    EXPECT_EQ(taken, all);
  }
}

// As in parallel_for, whoever fails first.
TEST(WorkerCrew, TheLowestFailingIndexIsThrown) {
  WorkerCrew<Tally> crew(4, next_tally);
  for (int round = 0; round < 20; ++round) {
    try {
      crew.for_each(100, [&](Tally&, std::size_t index) {
        if (index == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        if (index >= 2) {
          throw std::runtime_error(std::to_string(index));
        }
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "2");
    }
  }
}

}  // namespace
}  // namespace orrery
