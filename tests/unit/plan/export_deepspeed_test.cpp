// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/document/untold.hpp"
#include "plan/importer.hpp"
#include "tests/unit/plan/export_fixture.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const Exporter& deepspeed_exporter() { return find_exporter("deepspeed"); }

Plan from_deepspeed(const std::string& text, const Plan& plan) {
  return find_importer("deepspeed").read(text, "ds.json", plan.cluster, &plan.network);
}

// One of the sizes alone makes no mesh (deepspeed/__init__.py); the name of the type is the one
// that is read since 0.16.5.
TEST(DeepSpeedExport, TurnsUlyssesOn) {
  Plan plan = one_stage_plan({.cp = 2, .context = ContextParallel::Ulysses, .zero_stage = 2});
  for (const bool fp32 : {true, false}) {
    plan.execution.fp32_gradients = fp32;
    const std::string text = deepspeed_exporter().write(plan);
    EXPECT_THAT(text, HasSubstr(R"("data_parallel_size": 8)"));
    EXPECT_THAT(text, HasSubstr(R"("sequence_parallel_size": 2)"));
    EXPECT_THAT(text, HasSubstr(R"("seq_parallel_communication_data_type": ")" +
                                std::string(fp32 ? "fp32" : to_text(plan.precision))));
    EXPECT_THAT(text, Not(HasSubstr("seq_parallel_comm_data_type")));
    EXPECT_EQ(from_deepspeed(text, plan).execution.fp32_gradients, fp32);
    EXPECT_THAT(
        deepspeed_exporter().script(plan),
        ElementsAre(AllOf(HasSubstr("DistributedAttention"), HasSubstr("each of 2 ranks"))));
  }
  plan = one_stage_plan({.zero_stage = 2});
  EXPECT_THAT(deepspeed_exporter().write(plan), Not(HasSubstr("data_parallel_size")));
}

TEST(DeepSpeedExport, NamesAPathOnDisks) {
  Plan plan = one_stage_plan({.zero_stage = 3});
  Offload& offload = plan.blocks.front().layout.offload;
  offload.optimizer = offload.parameters = Tier::Disk;
  offload.gradients = Tier::Host;
  const Json zero = *parse_json(deepspeed_exporter().write(plan), "ds").find("zero_optimization");
  for (const char* const section : {"offload_optimizer", "offload_param"}) {
    EXPECT_EQ(zero.find(section)->find("device")->as_string(), "nvme");
    EXPECT_EQ(zero.find(section)->find("nvme_path")->as_string(), "/local_nvme");
  }
  EXPECT_THAT(deepspeed_exporter().script(plan),
              ElementsAre(HasSubstr("nvme_path /local_nvme is a placeholder")));
  offload.optimizer = offload.parameters = Tier::Host;
  EXPECT_THAT(deepspeed_exporter().write(plan), Not(HasSubstr("nvme_path")));
  EXPECT_THAT(deepspeed_exporter().script(plan), testing::IsEmpty());
}

// DeepSpeedZeroOptimizer takes any device for the host.
TEST(DeepSpeedExport, HasDisksUnderZero3Alone) {
  Plan plan = one_stage_plan({.zero_stage = 2});
  plan.blocks.front().layout.offload.optimizer = Tier::Disk;
  plan.blocks.front().layout.offload.gradients = Tier::Host;
  EXPECT_THAT(export_refusal("deepspeed", plan),
              AllOf(HasSubstr("optimizer on disk below ZeRO-3"), HasSubstr("--fix zero=3")));
  plan.blocks.front().layout.zero_stage = 3;
  EXPECT_EQ(export_refusal("deepspeed", plan), "");
}

TEST(DeepSpeedExport, SaysHowMicsIsBuilt) {
  const Plan plan = one_stage_plan({.zero_stage = 3, .shard_degree = 8});
  EXPECT_THAT(deepspeed_exporter().script(plan), ElementsAre(HasSubstr("MiCS_Init")));
  EXPECT_THAT(deepspeed_exporter().script(one_stage_plan({.zero_stage = 3, .shard_degree = 16})),
              testing::IsEmpty());
}

// Stages 1 and 2 do not read what ZeRO++ is told.
TEST(DeepSpeedExport, QuantisesUnderZero3Alone) {
  Plan plan = one_stage_plan({.zero_stage = 2});
  plan.execution.quantised_gather = plan.execution.quantised_reduce = true;
  EXPECT_THAT(deepspeed_exporter().write(plan), Not(HasSubstr("zero_quantized")));
  EXPECT_THAT(untold(deepspeed_exporter(), plan),
              AllOf(Contains("quantised_gather = true"), Contains("quantised_reduce = true")));
  plan.blocks.front().layout.zero_stage = 3;
  EXPECT_THAT(deepspeed_exporter().write(plan),
              AllOf(HasSubstr("zero_quantized_weights"), HasSubstr("zero_quantized_gradients")));
}

}  // namespace
}  // namespace orrery::plan
