// SPDX-License-Identifier: Apache-2.0
#include "plan/dispatchers.hpp"

#include <gtest/gtest.h>

#include "plan/expert_kernels.hpp"

namespace orrery::plan {
namespace {

constexpr Dispatcher kAllDispatchers[] = {Dispatcher::AllToAll, Dispatcher::DeepEp,
                                          Dispatcher::HybridEp};

TEST(Dispatchers, FlagsNameOneAndBack) {
  for (const Dispatcher dispatcher : kAllDispatchers) {
    for (const Dispatcher before : kAllDispatchers) {
      Execution execution;
      set_dispatcher(before, execution);
      set_dispatcher(dispatcher, execution);
      EXPECT_EQ(dispatcher_facts(execution).dispatcher, dispatcher);
    }
  }
  EXPECT_EQ(dispatcher_facts(Execution()).dispatcher, Dispatcher::AllToAll);
  Execution idle;  // a document may say so: there is no exchange that could order tokens
  idle.fused_permutation = true;
  EXPECT_EQ(dispatcher_facts(idle).dispatcher, Dispatcher::AllToAll);
  EXPECT_FALSE(dispatcher_facts(idle).orders_tokens);
}

TEST(Dispatchers, BackendsOfTheFlexDispatcherAreTheLibraries) {
  EXPECT_EQ(dispatcher_of_backend("deepep"), Dispatcher::DeepEp);
  EXPECT_EQ(dispatcher_of_backend("hybridep"), Dispatcher::HybridEp);
  EXPECT_EQ(dispatcher_of_backend("alltoall"), std::nullopt);
  EXPECT_EQ(dispatcher_of_backend(""), std::nullopt);
}

TEST(Dispatchers, ExpertRowsArePaddedOnceIfAtAll) {
  const auto pads = [](Dispatcher dispatcher, bool few_bits, bool padded_before) {
    Execution execution;
    set_dispatcher(dispatcher, execution);
    use_transformer_engine_experts(/*has_biases=*/false, execution);
    pad_expert_rows(few_bits, padded_before, execution);
    return execution.expert_padding;
  };
  EXPECT_TRUE(pads(Dispatcher::AllToAll, true, false));
  EXPECT_TRUE(pads(Dispatcher::DeepEp, true, false));
  EXPECT_FALSE(pads(Dispatcher::HybridEp, true, false));
  EXPECT_FALSE(pads(Dispatcher::AllToAll, false, false));
  EXPECT_FALSE(pads(Dispatcher::AllToAll, true, true));
  Execution plain;
  pad_expert_rows(true, false, plain);
  EXPECT_FALSE(plain.expert_padding);  // no kernels of TransformerEngine
  EXPECT_FALSE(plain.eager_expert_bias);
  use_transformer_engine_experts(/*has_biases=*/true, plain);
  EXPECT_TRUE(plain.expert_kernels && plain.eager_expert_bias);
}

}  // namespace
}  // namespace orrery::plan
