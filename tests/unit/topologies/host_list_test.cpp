// SPDX-License-Identifier: Apache-2.0
#include "topologies/host_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/limits.hpp"

namespace orrery::topologies {
namespace {

using testing::ElementsAre;

TEST(HostList, Expands) {
  EXPECT_THAT(expand_hosts("a", "t"), ElementsAre("a"));
  EXPECT_THAT(expand_hosts("a, b1", "t"), ElementsAre("a", "b1"));
  EXPECT_THAT(expand_hosts("n[1-3,7]", "t"), ElementsAre("n1", "n2", "n3", "n7"));
  EXPECT_THAT(expand_hosts("n[08-11]", "t"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(expand_hosts("r[0-1]n[0-1]x,z", "t"),
              ElementsAre("r0n0x", "r0n1x", "r1n0x", "r1n1x", "z"));
  EXPECT_THAT(expand_hosts("n[5]", "t"), ElementsAre("n5"));
}

TEST(HostList, ExpandsUpToTheLimit) {
  EXPECT_EQ(expand_hosts("n[0-999999]", "t").size(), 1'000'000U);
  EXPECT_EQ(expand_hosts("r[0-9]n[00-99],x", "t").size(), 1001U);
}

TEST(HostList, Bombs) {
  for (const char* text : {"n[0-1000000]", "n[1-999999999999999999]", "a[0-999]b[0-999]c[0-999]",
                           "a[0-999999],b[0-1]", "a[0-9]a[0-9]a[0-9]a[0-9]a[0-9]a[0-9]a[0-9]a[0-9]",
                           "a[0-999999999999999998,0-999999999999999998]"}) {
    EXPECT_THROW(expand_hosts(text, "t"), Error) << text;
  }
}

TEST(HostList, Malformed) {
  for (const char* text :
       {"", ",", "a,", "n[", "n]", "n[]", "n[1-]", "n[-1]", "n[a]", "n[3-1]", "n[1,,2]", "n[[1]]",
        "n[1-2-3]", "n[99999999999999999999]", "a[1]a[1]a[1]a[1]a[1]a[1]a[1]a[1]a[1]a[1]"}) {
    EXPECT_THROW(expand_hosts(text, "t"), Error) << text;
  }
}

}  // namespace
}  // namespace orrery::topologies
