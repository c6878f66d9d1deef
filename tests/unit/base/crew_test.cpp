// SPDX-License-Identifier: Apache-2.0
#include "base/crew.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

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

}  // namespace
}  // namespace orrery
