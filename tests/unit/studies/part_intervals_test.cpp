// SPDX-License-Identifier: Apache-2.0
// The 80 % intervals of single kernels and collectives, and their coverage in every output.
#include <gmock/gmock.h>

#include <cmath>

#include "plan/simulation/interval.hpp"
#include "studies/validation/validation.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::TemporaryFile;

// By the spreads that the intervals of iterations are drawn from, so at the interval's end a time
// is 1.28 deviations from what is predicted.
TEST(PartIntervals, KernelsAndCollectivesCarryAnInterval) {
  const TemporaryFile gemm("gemm.csv",
                           "gpu,dtype,m,n,k,time_us\n"
                           "A100-SXM4-80GB,bf16,8192,8192,8192,4500\n"
                           "A100-SXM4-80GB,bf16,8192,8192,8192,45000\n");
  const TemporaryFile logs("logs.csv",
                           "file,gpu,nodes,gpus_per_node,ranks,collective,bytes,time_us\n"
                           "x.txt,H100-80GB-SXM,1,8,8,all_reduce,1073741824,4300\n"
                           "x.txt,H100-80GB-SXM,1,8,8,alltoall,1073741824,3000\n");
  const Validation validation = validate_files({gemm.path(), logs.path()}, {});
  const auto deviation = [&](std::size_t row) {
    const RowResult& of = validation.rows.at(row);
    EXPECT_NEAR(*of.low * *of.high, of.predicted * of.predicted, 1e-9 * *of.high);
    return std::log(*of.high / of.predicted) / costmodel::kIn80Percent;
  };
  const auto spread = [](const char* gpu) {
    return costmodel::load_profile("", topologies::load_gpu(gpu)).spread;
  };
  EXPECT_NEAR(deviation(0), std::hypot(spread("a100-sxm4-80gb").gemm, plan::kSiteSpreadGemm), 1e-9);
  EXPECT_NEAR(deviation(2), spread("h100-sxm5-80gb").intra_node_collective, 1e-9);
  EXPECT_NEAR(deviation(3), spread("h100-sxm5-80gb").all_to_all, 1e-9);
  EXPECT_EQ(validation.groups.at("gemm-a100-sxm4-80gb-bf16").coverage80, 0.5);
  EXPECT_EQ(validation.sources.at(validation.rows.front().source).full.time.coverage80, 0.5);
  const Json groups = *to_json(validation).find("groups");
  EXPECT_EQ(groups.find("gemm-a100-sxm4-80gb-bf16")->find("coverage80")->as_number(), 0.5);
  EXPECT_THAT(to_text(validation, {}), ::testing::HasSubstr("in interval"));
  EXPECT_THAT(to_markdown(validation), ::testing::HasSubstr("| 50.0 % | 2 | 0 |"));
}

}  // namespace
}  // namespace orrery::studies
