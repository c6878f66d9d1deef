// SPDX-License-Identifier: Apache-2.0
// Words of tables of kernels: layouts, stages, number formats and links in other spellings, and
// rows that measured nothing.
#include <gmock/gmock.h>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "studies/validation/predictions.hpp"

namespace orrery::studies {
namespace {

using ::testing::HasSubstr;

RowResult table_row(const std::string& text) {
  const std::vector<RowResult> rows = predict_kernels(parse_csv(text, "k.csv"), "k.csv", 1);
  EXPECT_EQ(rows.size(), 1U);
  return rows.front();
}

RowResult deepbench_row(const std::string& transposes) {
  return table_row("gpu,dtype,m,n,k,trans_a,trans_b,time_us\nV100-SXM2-16GB,fp16,2048,1024,8192," +
                   transposes + ",500\n");
}

TEST(KernelTables, TransposesInAnySpelling) {
  const double both_plain = deepbench_row("N,N").predicted;
  const double first = deepbench_row("T,N").predicted;
  const double second = deepbench_row("N,T").predicted;
  EXPECT_NE(first, both_plain);
  EXPECT_NE(second, both_plain);
  for (const char* cells : {"t,n", "True,False", "1,0"}) {
    EXPECT_EQ(deepbench_row(cells).predicted, first) << cells;
  }
  for (const char* cells : {"n,t", "False,True", "0,1"}) {
    EXPECT_EQ(deepbench_row(cells).predicted, second) << cells;
  }
  EXPECT_EQ(deepbench_row("t,True").skipped_because, "both operands transposed");
  EXPECT_EQ(deepbench_row("N,x").skipped_because, "trans_b \"x\": T or N");
  EXPECT_EQ(deepbench_row(",").skipped_because, "trans_a \"\": T or N");
}

RowResult simumax_row(const std::string& op, const std::string& layout, const std::string& output) {
  const std::string rate = op.starts_with("fp32") ? "60" : "1350";  // what a B200 can reach
  return table_row("gpu,op,b,m,n,k,layout,accumulate,out_dtype,tflops\nB200," + op +
                   ",1,4096,2048,8192," + layout + ",False," + output + "," + rate + "\n");
}

TEST(KernelTables, LayoutsOfTrainingInAnyCase) {
  for (const auto& [upper, lower] : {std::pair("TN", "tn"), {"NN", "nn"}, {"NT", "nt"}}) {
    const RowResult row = simumax_row("matmul", lower, "bf16");
    EXPECT_EQ(row.predicted, simumax_row("matmul", upper, "bf16").predicted) << lower;
    EXPECT_EQ(row.kind, std::string("gemm-") + lower);
  }
  EXPECT_NE(simumax_row("matmul", "nn", "bf16").predicted,
            simumax_row("matmul", "tn", "bf16").predicted);
  EXPECT_EQ(simumax_row("matmul", "TT", "bf16").skipped_because, "layout \"TT\": TN, NN or NT");
}

TEST(KernelTables, LayoutsBesideTimes) {
  const auto timed = [](const std::string& layout) {
    return table_row("gpu,dtype,m,n,k,layout,time_us\nV100-SXM2-16GB,fp16,1024,2048,8192," +
                     layout + ",500\n");
  };
  EXPECT_EQ(timed("NN").predicted, deepbench_row("N,N").predicted);
  EXPECT_EQ(timed("nt").predicted, deepbench_row("N,T").predicted);
  EXPECT_EQ(timed("").predicted, deepbench_row("T,N").predicted);
  EXPECT_EQ(timed("row").skipped_because, "layout \"row\": TN, NN or NT");
}

TEST(KernelTables, StagesOfExpertsInOtherWords) {
  const auto stage = [](const std::string& name) {
    return table_row(
        "gpu,ng,M,N,K,dtype,main_grad_dtype,efficiency,peak_tflops,stage\n"
        "B200,8,1024,4096,7168,bf16,float32,0.5,2250," +
        name + "\n");
  };
  EXPECT_EQ(stage("dgrad").predicted, stage("bwd_grad_act").predicted);
  EXPECT_EQ(stage("wgrad").predicted, stage("bwd_grad_w").predicted);
  EXPECT_NE(stage("wgrad").predicted, stage("fwd").predicted);
  EXPECT_EQ(stage("bwd").skipped_because, "stage \"bwd\": fwd, bwd_grad_act or bwd_grad_w");
}

TEST(KernelTables, NumberFormatsInAnySpelling) {
  const double wide = simumax_row("matmul", "NT", "fp32").predicted;
  EXPECT_GT(wide, simumax_row("matmul", "NT", "bf16").predicted);
  for (const char* output : {"FP32", "float32", "torch.float32", "float"}) {
    EXPECT_EQ(simumax_row("matmul", "NT", output).predicted, wide) << output;
  }
  EXPECT_EQ(simumax_row("matmul", "NT", "int32").skipped_because, "unknown dtype \"int32\"");
  EXPECT_THAT(simumax_row("fp16_matmul", "TN", "bf16").groups.front(), HasSubstr("-fp16"));
  EXPECT_THAT(simumax_row("fp32_matmul", "TN", "fp32").groups.front(), HasSubstr("-fp32"));
  EXPECT_THAT(simumax_row("FP8_matmul", "TN", "bf16").groups.front(), HasSubstr("-fp8"));
  EXPECT_THAT(simumax_row("int8_matmul", "TN", "bf16").skipped_because, HasSubstr("int8_matmul"));
  const auto timed = [](const std::string& dtype) {
    return table_row("gpu,dtype,m,n,k,time_us\nH100-SXM," + dtype + ",4096,4096,4096,4000\n");
  };
  for (const auto& [word, name] : {std::pair("mxfp8", "fp8"),
                                   {"e5m2", "fp8"},
                                   {"float", "fp32"},
                                   {"f32", "fp32"},
                                   {"f16", "fp16"}}) {
    EXPECT_GT(timed(word).predicted, 0) << word;
    EXPECT_EQ(timed(word).predicted, timed(name).predicted) << word;
  }
}

TEST(KernelTables, RowsThatMeasuredNothingAreSkipped) {
  const std::string header = "gpu,dtype,m,n,k,time_us,tflops\nH100-SXM,bf16,4096,4096,4096,";
  EXPECT_EQ(table_row(header + ",549\n").skipped_because, "time_us is not stated");
  EXPECT_EQ(table_row(header + "n/a,\n").skipped_because, "time_us is not stated");
  EXPECT_EQ(table_row(header + "0,\n").skipped_because, "time_us is 0: not measured");
  EXPECT_EQ(table_row("gpu,dtype,tflops,m,n,k\nH100-SXM,bf16,,1024,10240,5120\n").skipped_because,
            "tflops is not stated");
  EXPECT_THROW(table_row(header + "-5,\n"), Error);
  EXPECT_THROW(table_row(header + "fast,\n"), Error);
  const auto collective = [](const std::string& time) {
    return predict_collectives(parse_csv("file,gpu,nodes,gpus_per_node,collective,bytes,time_us\n"
                                         "x.txt,H100-80GB-SXM,1,8,all_reduce,1048576," +
                                             time + "\n",
                                         "c.csv"),
                               "c", 1)
        .front()
        .skipped_because;
  };
  EXPECT_EQ(collective("0"), "time_us is 0: not measured");
  EXPECT_EQ(collective(""), "time_us is not stated");
  EXPECT_THROW(collective("-5"), Error);
}

TEST(KernelTables, CopiesAreByTheLinkThatTheyName) {
  const auto copied = [](const std::string& gpu, const std::string& link) {
    return table_row("gpu,link,direction,bytes,GBps\n" + gpu + "," + link + ",h2d,268435456,400\n");
  };
  const double pcie = copied("GH200", "PCIe5 x16 pinned").predicted;
  const double chip = copied("GH200", "NVLink-C2C").predicted;
  EXPECT_LT(6 * chip, pcie);  // 450 and 63 GB/s
  EXPECT_GT(8 * chip, pcie);
  EXPECT_EQ(copied("V100-SXM2-32GB", "NVLink2 pinned (AC922)").skipped_because, "");
  EXPECT_THAT(copied("H100-SXM", "NVLink-C2C").skipped_because,
              HasSubstr("no node with h100-sxm5-80gb is known to have the link \"NVLink-C2C\""));
}

TEST(KernelTables, CollectivesAreNamedAsInFits) {
  const auto collective = [](const std::string& name) {
    return predict_collectives(parse_csv("file,gpu,nodes,gpus_per_node,collective,bytes,time_us\n"
                                         "x.txt,H100-80GB-SXM,1,8," +
                                             name + ",67108864,400\n",
                                         "c.csv"),
                               "c", 1)
        .front();
  };
  EXPECT_EQ(collective("all_gather_into_tensor").predicted, collective("all_gather").predicted);
  EXPECT_EQ(collective("reduce").predicted, collective("ncclBcast").predicted);
  EXPECT_GT(collective("reduce").predicted, 0);
  EXPECT_EQ(collective("alltoallv").skipped_because, "collective \"alltoallv\" is not modelled");
}

}  // namespace
}  // namespace orrery::studies
