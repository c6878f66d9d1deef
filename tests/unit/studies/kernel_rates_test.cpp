// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/kernel_rates.hpp"

#include <gmock/gmock.h>

#include "base/csv.hpp"
#include "studies/validation/predictions.hpp"

namespace orrery::studies {
namespace {

using ::testing::HasSubstr;

// Of the only row of a table.
RowResult only_row(const std::string& text) {
  const std::vector<RowResult> rows = predict_kernels(parse_csv(text, "k.csv"), "k.csv", 1);
  EXPECT_EQ(rows.size(), 1U);
  return rows.front();
}

// 2 x 4096^3 FLOPs in 200 us are 687 TFLOP/s.
TEST(KernelRates, RowsWhoseRateContradictsTheirTimeAreSkipped) {
  const std::string header = "gpu,dtype,m,n,k,time_us,tflops\n";
  const RowResult row = only_row(header + "H100-SXM,bf16,4096,4096,4096,200,100\n");
  EXPECT_THAT(row.skipped_because,
              HasSubstr("k.csv:2: tflops: 100, but the sizes and 200 us give 687"));
  EXPECT_EQ(row.predicted, 0);
  for (const std::string rate : {"687.19", "687", "", "n/a"}) {
    const RowResult sound = only_row(header + "H100-SXM,bf16,4096,4096,4096,200," + rate + "\n");
    EXPECT_EQ(sound.skipped_because, "") << rate;
    EXPECT_GT(sound.predicted, 0) << rate;
  }
  EXPECT_EQ(only_row("gpu,dtype,m,n,k,time_us\nH100-SXM,bf16,4096,4096,4096,200\n").skipped_because,
            "");
}

// The same rule as in a fit: microseconds that a table calls milliseconds, and the reverse.
TEST(KernelRates, RowsInAnotherUnitAreSkipped) {
  const auto skipped = [](const std::string& text) { return only_row(text).skipped_because; };
  const std::string gemm = "gpu,dtype,m,n,k,time_us\nH100-SXM,bf16,4096,4096,4096,";
  EXPECT_THAT(skipped(gemm + "0.2\n"), HasSubstr("k.csv:2: 687 PFLOP/s, but a h100-sxm5-80gb"));
  EXPECT_THAT(skipped(gemm + "2e6\n"), HasSubstr("k.csv:2: 2 s, where h100-sxm5-80gb needs"));
  const std::string attention =
      "gpu,impl,dtype,batch,heads,kv_heads,seqlen,head_dim,causal,time_us\n"
      "H100-SXM,x,bf16,4,32,32,4096,128,True,";
  EXPECT_THAT(skipped(attention + "1\n"), HasSubstr("k.csv:2: 550 PFLOP/s"));
  const std::string cast = "gpu,op,m,k,time_us\nB200,bf16_to_fp8_scale,16384,16384,";
  EXPECT_EQ(skipped(cast + "190\n"), "");
  EXPECT_THAT(skipped(cast + "0.19\n"), HasSubstr("k.csv:2: "));
  const std::string copies =
      "gpu,link,direction,bytes,GBps\nV100-PCIE-32GB,PCIe3 x16 pinned,h2d,"
      "1073741824,";
  EXPECT_EQ(skipped(copies + "12\n"), "");
  EXPECT_THAT(skipped(copies + "12000\n"), HasSubstr("k.csv:2: a copy at 12"));
  EXPECT_THAT(skipped(copies + "0.012\n"), HasSubstr("in another unit?"));
}

TEST(KernelRates, CollectivesInAnotherUnitAreSkipped) {
  const std::string header = "file,gpu,nodes,gpus_per_node,ranks,collective,bytes,time_us\n";
  const auto row_of = [&](const std::string& time) {
    const std::string text = header + "l.txt,H100-SXM,1,8,8,all_reduce,1073741824," + time + "\n";
    return predict_collectives(parse_csv(text, "c.csv"), "c.csv", 1).front();
  };
  EXPECT_EQ(row_of("4500").skipped_because, "");
  const RowResult row = row_of("4.5");
  EXPECT_THAT(row.skipped_because, HasSubstr("c.csv:2: all-reduce of 1 GiB in 4.5e-06 s, where"));
  EXPECT_EQ(row.predicted, 0);
}

TEST(KernelRates, AttentionAndCasts) {
  const std::string attention =
      "gpu,impl,dtype,batch,heads,kv_heads,seqlen,head_dim,causal,time_us,tflops\n"
      "H100-SXM,x,bf16,4,32,32,4096,128,True,";
  EXPECT_THAT(only_row(attention + "1000,900\n").skipped_because, HasSubstr("k.csv:2: tflops"));
  EXPECT_EQ(only_row(attention + "1000,549.8\n").skipped_because, "");  // half of 4 b h s^2 d
  const std::string cast = "gpu,op,m,k,time_us,GBps\nB200,bf16_to_fp8_scale,16384,16384,190,";
  EXPECT_THAT(only_row(cast + "2000\n").skipped_because, HasSubstr("k.csv:2: GBps"));
  EXPECT_EQ(only_row(cast + "4238\n").skipped_because, "");
}

}  // namespace
}  // namespace orrery::studies
