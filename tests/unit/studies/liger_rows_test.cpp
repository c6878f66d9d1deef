// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/liger_rows.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/csv.hpp"

namespace orrery::studies {
namespace {

const costmodel::DeviceModel& h100() {
  static const topologies::Gpu gpu = topologies::load_gpu("h100-sxm5-80gb");
  static const costmodel::DeviceModel model(gpu, costmodel::load_profile("", gpu));
  return model;
}

tl::expected<KernelPoint, std::string> point(const std::string& impl, const std::string& pass) {
  const std::string text =
      "gpu,kernel,impl,pass_,x_name,x,config,time_us_p50\n"
      "H100 80GB HBM3,layer_norm," +
      impl + "," + pass +
      ",N,8192,\"{\"\"M\"\": 4096, \"\"dtype\"\": \"\"torch.float32\"\"}\",95\n";
  const CsvTable table = parse_csv(text, "liger.csv");
  EXPECT_NE(find_kernel_table(table), nullptr);
  return liger_point(Cells(table, 0), h100());
}

// 4096 x 8192 floats are read and written once.
TEST(LigerRowsTest, FusedKernelsStream) {
  const auto found = point("liger", "forward");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->kind, "norm");
  EXPECT_EQ(found->measured, Seconds(95e-6));
  const Seconds streamed =
      h100().memory_bound(Bytes(2.0 * 4 * 4096 * 8192), costmodel::MemoryKernel::Norm);
  EXPECT_GT(found->predict(), streamed);
  EXPECT_LT(found->predict(), streamed + Seconds(6e-6));
  EXPECT_NEAR(found->predict() / found->measured, 1, 0.1);
}

// 16,384 tokens ask for rows of 16 KiB. Of a small table they find all but the first in the cache,
// of a large one nothing unless the kernel takes its columns in turn, as Liger's does.
TEST(LigerRowsTest, RowsThatAreReadAgainComeFromTheCacheWhereTheyStay) {
  const auto lookup = [](const std::string& impl, int words) {
    const CsvTable table =
        parse_csv("gpu,kernel,impl,pass_,x_name,x,config,time_us_p50\nH100 80GB HBM3,embedding," +
                      impl + ",forward,V," + std::to_string(words) +
                      ",\"{\"\"B\"\": 8, \"\"T\"\": 2048, \"\"D\"\": 4096, \"\"dtype\"\": "
                      "\"\"torch.float32\"\"}\",95\n",
                  "liger.csv");
    return liger_point(Cells(table, 0), h100())->predict();
  };
  const double whole = 16384.0 * 4096 * 4;
  const Seconds all_from_memory =
      h100().memory_bound(Bytes(2 * whole), costmodel::MemoryKernel::Elementwise);
  const Seconds written = h100().memory_bound(Bytes(whole), costmodel::MemoryKernel::Elementwise);
  EXPECT_GT(lookup("torch_compile", 8192), all_from_memory);
  EXPECT_LT(lookup("liger", 8192), all_from_memory);
  EXPECT_LT(lookup("torch_compile", 1000), 0.8 * all_from_memory);
  EXPECT_GT(lookup("torch_compile", 1000), 1.15 * written);
}

TEST(LigerRowsTest, OthersAreRefusedWithTheirReason) {
  EXPECT_EQ(point("huggingface", "forward").error(), "a chain of kernels (huggingface)");
  EXPECT_NE(point("liger", "backward").error().find("backward"), std::string::npos);
  EXPECT_EQ(point("liger", "full").error(), "forward and backward together");
}

}  // namespace
}  // namespace orrery::studies
