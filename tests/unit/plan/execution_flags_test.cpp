// SPDX-License-Identifier: Apache-2.0
#include "plan/execution_flags.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "base/json.hpp"
#include "plan/document/execution_json.hpp"

namespace orrery::plan {
namespace {

TEST(ExecutionFlags, EachIsNamedOnceAndStatedWhereItIsNotRare) {
  std::set<std::string_view> names;
  const Execution usual;
  const Json document = to_json(usual);
  for (const ExecutionFlag& flag : execution_flags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_EQ(flag_name(flag.member), flag.name);
    EXPECT_EQ(document.find(flag.name) != nullptr, !flag.is_rare) << flag.name;
    EXPECT_FALSE(flag.is_rare && usual.*flag.member) << flag.name;
    Execution changed;
    changed.*flag.member = !(usual.*flag.member);
    EXPECT_NE(to_json(changed).find(flag.name), nullptr) << flag.name;
  }
}

}  // namespace
}  // namespace orrery::plan
