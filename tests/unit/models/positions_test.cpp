// SPDX-License-Identifier: Apache-2.0
// Tables of learned positions and the sequences that they are long enough for.
#include "models/positions.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "tests/unit/models/specs.hpp"

namespace orrery::models {
namespace {

using testing::HasSubstr;

std::string problem(const NetworkSpec& spec, std::int64_t sequence) {
  try {
    check_positions(spec, sequence, "--seq");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

TEST(Positions, ASequenceIsNoLongerThanItsTable) {
  const NetworkSpec gpt2 = load_network("gpt2").spec;
  EXPECT_EQ(position_rows(gpt2), 1024);
  EXPECT_EQ(problem(gpt2, 1024), "");
  const std::string text = problem(gpt2, 1025);
  EXPECT_THAT(text, HasSubstr("--seq: sequences have 1025 tokens"));
  EXPECT_THAT(text, HasSubstr("gpt2 has learned positions for 1024"));
  EXPECT_THAT(text, HasSubstr("--set max_positions=1025"));
  EXPECT_EQ(problem(load_network("gpt2", {"max_positions=1025"}).spec, 1025), "");
}

TEST(Positions, AStatedTableCounts) {
  NetworkSpec spec = small_spec(Family::Bert);
  spec.max_positions = spec.sequence + 2;
  EXPECT_EQ(problem(spec, spec.sequence + 2), "");
  EXPECT_NE(problem(spec, spec.sequence + 3), "");
}

TEST(Positions, OtherKindsHaveNoTable) {
  for (const Family family : {Family::Llama, Family::T5}) {
    EXPECT_EQ(position_rows(small_spec(family)), 0);
    EXPECT_EQ(problem(small_spec(family), 1 << 20), "");
  }
}

// The embedding has as many rows as the check counts.
TEST(Positions, TheEmbeddingHoldsTheTable) {
  for (const std::int64_t stated : {0, 48}) {
    NetworkSpec spec = small_spec(Family::Gpt);
    spec.max_positions = stated;
    const Network network = build_network(spec, "test");
    EXPECT_EQ(tensor_named(network.blocks.front(), "w_positions").dims.front().extent,
              position_rows(spec));
  }
}

}  // namespace
}  // namespace orrery::models
