// SPDX-License-Identifier: Apache-2.0
// What makes training another one enters a space by --allow alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "plan/document/plan_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refused_without(const std::string& fix, const std::string& allow,
                            DType precision = DType::Bf16) {
  plan::Plan base = base_plan();
  base.precision = precision;
  Constraints constraints = fixed(fix);
  if (!allow.empty()) {
    constraints.allow(allow);
  }
  try {
    const Space space(base, constraints);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Allowed, TrafficInFewerBitsIsLossy) {
  for (const std::string flag : {"quantised_gather", "quantised_reduce", "quantised_dispatch"}) {
    EXPECT_THAT(refused_without(flag + "=true", ""),
                AllOf(HasSubstr("--fix " + flag), HasSubstr("--allow lossy")));
    EXPECT_THAT(refused_without(flag + "=true", "offload,asynchronous"), HasSubstr("lossy"));
    EXPECT_EQ(refused_without(flag + "=true", "lossy"), "");
    EXPECT_EQ(refused_without(flag + "=false", ""), "");
  }
}

// Products in 8 bits read what is sent; gradients in 4 bits have fewer than any.
TEST(Allowed, ProductsThatRoundAnywayLoseNothing) {
  EXPECT_EQ(refused_without("quantised_gather=true", "", DType::Fp8), "");
  EXPECT_EQ(refused_without("quantised_dispatch=true", "", DType::Nvfp4), "");
  EXPECT_THAT(refused_without("quantised_reduce=true", "", DType::Fp8), HasSubstr("lossy"));
}

TEST(Allowed, AForbiddenFalseIsATrue) {
  Constraints constraints;
  constraints.forbid("quantised_reduce=false");
  EXPECT_THROW(constraints.check_allowed(DType::Bf16), Error);
}

TEST(Allowed, ADelayedUpdateIsStale) {
  EXPECT_THAT(refused_without("delayed_update=true", "lossy"),
              AllOf(HasSubstr("--fix delayed_update"), HasSubstr("--allow asynchronous")));
  EXPECT_EQ(refused_without("delayed_update=true", "asynchronous"), "");
  plan::Plan base = base_plan();
  Options options;
  options.jobs = 1;
  options.constraints =
      fixed("delayed_update=true,offload_optimizer=host,zero=1,tp=1,cp=1,pp=1,micro_batch=1");
  options.constraints.allow("asynchronous");
  options.constraints.apply(base.execution);
  const Outcome outcome = search(base, options);
  ASSERT_TRUE(outcome.best);
  EXPECT_FALSE(outcome.best->simulation.synchronous);
  EXPECT_EQ(outcome.best->simulation.staleness, 1);
  EXPECT_THAT(plan::layout_text(outcome.best->plan), HasSubstr("updates a step late"));
  plan::Plan in_step = outcome.best->plan;
  in_step.execution.delayed_update = false;
  EXPECT_TRUE(plan::simulate(in_step).synchronous);
  EXPECT_THAT(plan::layout_text(in_step), Not(HasSubstr("late")));
}

TEST(Allowed, LayoutsSayWhatIsLost) {
  plan::Plan base = base_plan();
  Options options;
  options.jobs = 1;
  options.constraints = fixed("quantised_gather=true,quantised_reduce=true,zero=3,tp=1,cp=1,pp=1");
  options.constraints.allow("lossy");
  options.constraints.apply(base.execution);
  const Outcome outcome = search(base, options);
  ASSERT_TRUE(outcome.best);
  EXPECT_THAT(plan::layout_text(outcome.best->plan),
              HasSubstr("parameters gathered in 8 bits, gradients reduced in 4 bits"));
  EXPECT_TRUE(outcome.best->simulation.synchronous);
}

}  // namespace
}  // namespace orrery::search
