// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "costmodel/device_model.hpp"
#include "studies/validation/validation.hpp"
#include "tests/folders.hpp"
#include "tests/unit/base/testing.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

namespace fs = std::filesystem;
using testing::csv_of;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFile;

const std::string kFacts = orrery::test_folder().string() + "/data/measurements/training_runs.csv";
const fs::path kShared = orrery::shared_folder();

TEST(ValidateTest, PredictsEveryPublishedRun) {
  const Validation validation = validate_files({kFacts}, {});
  ASSERT_EQ(validation.rows.size(), 12U);
  for (const RowResult& row : validation.rows) {
    EXPECT_TRUE(row.simulated()) << row.id << ": " << row.skipped_because;
    EXPECT_LT(std::abs(row.error()), 0.6) << row.id;
  }
  EXPECT_LT(*validation.overall.time.median, 0.15);
  EXPECT_EQ(validation.overall.time.simulated, 11U);
  EXPECT_EQ(validation.overall.memory.simulated, 1U);
}

TEST(ValidateTest, DoesNotDependOnTheNumberOfJobs) {
  const Json one = to_json(validate_files({kFacts}, {.jobs = 1, .interval_draws = 16}));
  EXPECT_EQ(one.dump(),
            to_json(validate_files({kFacts}, {.jobs = 2, .interval_draws = 16})).dump());
}

TEST(ValidateTest, TimesCarryAnInterval) {
  const Validation validation = validate_files({kFacts}, {});
  for (const RowResult& row : validation.rows) {
    ASSERT_EQ(row.low.has_value(), !row.memory) << row.id;
    EXPECT_TRUE(row.memory || (*row.low <= row.predicted && row.predicted <= *row.high)) << row.id;
  }
  EXPECT_TRUE(validation.overall.time.coverage80.has_value());
  EXPECT_FALSE(validate_files({kFacts}, {.interval_draws = 0}).overall.time.coverage80.has_value());
}

// A row of partial confidence is completed and says how; the same row with full confidence is not.
TEST(ValidateTest, AssumptionsArePrinted) {
  const testing::Changes open = {
      {"recompute", ""}, {"vocab", ""}, {"micro_batch", ""}, {"num_microbatches", ""}};
  testing::Changes partial = open;
  partial["confidence"] = "partial";
  const TemporaryFile file("partial.csv", csv_of(partial));
  const RowResult row = validate_files({file.path()}, {}).rows.front();
  EXPECT_TRUE(row.simulated()) << row.skipped_because;
  EXPECT_THAT(row.assumed,
              ::testing::UnorderedElementsAre(
                  "vocab 50257", "micro_batch 2 (the fastest that fits)", "recompute none"));
  const TemporaryFile stated("stated.csv", csv_of(open));
  EXPECT_FALSE(validate_files({stated.path()}, {}).rows.front().simulated());
}

TEST(ValidateTest, RowsThatCannotBeSimulatedAreCounted) {
  const TemporaryFile file("skipped.csv", csv_of({{"schedule", "spiral"}}));
  const Validation validation = validate_files({file.path()}, {});
  EXPECT_EQ(validation.overall.time.skipped, 1U);
  EXPECT_EQ(validation.rows.front().skipped_because, "schedule \"spiral\" is not modelled");
}

TEST(ValidateTest, CollectivesFillGroupsAndKeepSmallSizesApart) {
  const TemporaryFile file(
      "collectives.csv",
      "file,gpu,nodes,gpus_per_node,ranks,collective,dtype,bytes,time_us\n"
      "a100-1x8-all_reduce-x.txt,A100-SXM4-80GB,1,8,8,all_reduce,half,512,20\n"
      "a100-1x8-all_reduce-x.txt,A100-SXM4-80GB,1,8,8,all_reduce,half,1073741824,8000\n"
      "a100-1x8-reduce-x.txt,A100-SXM4-80GB,1,8,8,reduce,half,1048576,30\n"
      "x-1x8-all_reduce-x.txt,Abacus,1,8,8,all_reduce,half,1048576,30\n"
      "a100-1x1-all_reduce-x.txt,A100-SXM4-80GB,1,1,1,all_reduce,half,1048576,5\n");
  const Validation validation = validate_files({file.path()}, {});
  EXPECT_EQ(validation.rows.back().skipped_because, "one rank alone is a copy on the device");
  EXPECT_EQ(validation.small_messages.simulated, 1U);
  EXPECT_EQ(validation.overall.time.simulated, 2U);  // a reduction is the reverse of a broadcast
  EXPECT_EQ(validation.overall.time.skipped, 2U);
  ASSERT_TRUE(validation.groups.contains("all-reduce-hgx-a100-one-node"));
  EXPECT_LT(*validation.groups.at("all-reduce-hgx-a100-one-node").median, 0.3);
}

TEST(ValidateTest, CollectivesInOtherWordsAndPlaces) {
  const TemporaryFile file(
      "places.csv",
      "file,gpu,nodes,gpus_per_node,ranks,collective,dtype,bytes,time_us\n"
      "x.txt,A100-SXM4-80GB,1,8,8,AllReduce,half,1073741824,8000\n"
      "x.txt,A100-SXM4-80GB,1,8,8,all-reduce,half,1073741824,8000\n"
      "x.txt,GB200,32,4,128,all_reduce,half,1048576,80\n"  // 64 GPUs of two domains
      "x.txt,A100-SXM4-80GB,1,16,16,all_reduce,half,1048576,30\n"
      "x.txt,A100-SXM4-80GB,1048576,8,,all_reduce,half,1048576,30\n");
  const std::vector<RowResult> rows = validate_files({file.path()}, {}).rows;
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_GT(rows[0].predicted, 0);
  EXPECT_EQ(rows[0].predicted, rows[1].predicted);
  EXPECT_GT(rows[2].predicted, 0) << rows[2].skipped_because;
  EXPECT_EQ(rows[3].skipped_because, "hgx-a100 has 8 GPUs, not 16");
  EXPECT_EQ(rows[4].skipped_because, "more than 1048576 ranks");
}

// A part of each node, cells that state nothing, and counts that contradict each other.
TEST(ValidateTest, RanksOfCollectivesAreThoseOfTheirColumn) {
  const TemporaryFile file("ranks.csv",
                           "file,gpu,nodes,gpus_per_node,ranks,collective,dtype,bytes,time_us\n"
                           "x.txt,H100-80GB-SXM,1,8,8,all_gather,half,1048576,30\n"
                           "x.txt,H100-80GB-SXM,1,4,4,all_gather,half,1048576,30\n"
                           "x.txt,H100-80GB-SXM,1,8,4,all_gather,half,1048576,30\n"
                           "x.txt,H100-80GB-SXM,2,8,15,all_gather,half,1048576,30\n"
                           "x.txt,H100-80GB-SXM,1,8,16,all_gather,half,1048576,30\n"
                           "x.txt,H100-80GB-SXM,1,8,8,all_gather,half,0,30\n"
                           "x.txt,H100-80GB-SXM,1,8,8,all_gather,half,1048576,n/a\n");
  const std::vector<RowResult> rows = validate_files({file.path()}, {}).rows;
  EXPECT_EQ(rows[2].predicted, rows[1].predicted);
  EXPECT_NE(rows[2].predicted, rows[0].predicted);
  EXPECT_EQ(rows[3].skipped_because, "15 ranks are not in equal parts on 2 nodes of 8 GPUs");
  EXPECT_EQ(rows[4].skipped_because, "16 ranks are not in equal parts on 1 node of 8 GPUs");
  EXPECT_EQ(rows[5].skipped_because, "no bytes are moved");
  EXPECT_EQ(rows[6].skipped_because, "time_us is not stated");
}

// The cell of the GPU names the machine: eight adapters instead of the usual four.
TEST(ValidateTest, CollectivesOfANamedMachine) {
  const TemporaryFile file(
      "machine.csv",
      "file,gpu,nodes,gpus_per_node,ranks,collective,dtype,bytes,time_us\n"
      "a100-2x8-all_reduce-a.txt,A100-SXM4 (DGX A100),2,8,16,all_reduce,half,1073741824,12000\n"
      "a100-2x8-all_reduce-b.txt,A100-SXM4-80GB,2,8,16,all_reduce,half,1073741824,12000\n");
  const Validation validation = validate_files({file.path()}, {});
  EXPECT_TRUE(validation.groups.contains("all-reduce-dgx-a100-several-nodes"));
  EXPECT_LT(validation.rows[0].predicted, 0.7 * validation.rows[1].predicted);
  EXPECT_EQ(validation.rows[1].assumed, std::vector<std::string>{"network of hgx-a100"});
}

TEST(ValidateTest, NamesOfToolsAndCloudsAreRead) {
  const TemporaryFile file("tools.csv",
                           "file,gpu,nodes,gpus_per_node,ranks,collective,dtype,bytes,time_us\n"
                           "x.txt,H100-80GB-SXM,1,8,8,all_reduce,half,1073741824,4000\n"
                           "x.txt,p5.48xlarge,1,8,8,all_reduce_perf,half,1073741824,4000\n"
                           "x.txt,H100-80GB-SXM,1,8,8,ncclAllReduce,half,1073741824,4000\n"
                           "x.txt,H100-80GB-SXM,1,8,8,gather,half,1073741824,4000\n");
  const std::vector<RowResult> rows = validate_files({file.path()}, {}).rows;
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_GT(rows[0].predicted, 0);
  EXPECT_EQ(rows[1].predicted, rows[0].predicted) << rows[1].skipped_because;
  EXPECT_EQ(rows[2].predicted, rows[0].predicted) << rows[2].skipped_because;
  EXPECT_EQ(rows[3].skipped_because, "collective \"gather\" is not modelled");
  const TemporaryFile gemm("words.csv",
                           "gpu,dtype,m,n,k,time_us,tflops\n"
                           "A100-SXM4-80GB,bf16,4096,4096,4096,560,245\n"
                           "BM.GPU.A100-v2.8,torch.bfloat16,4096,4096,4096,560,245\n");
  const std::vector<RowResult> kernels = validate_files({gemm.path()}, {}).rows;
  EXPECT_GT(kernels[0].predicted, 0);
  EXPECT_EQ(kernels[1].predicted, kernels[0].predicted) << kernels[1].skipped_because;
}

TEST(ValidateTest, KernelsFillGroups) {
  const TemporaryFile gemm("gemm.csv",
                           "gpu,dtype,m,n,k,time_us,tflops\n"
                           "A100-SXM4-80GB,bf16,8192,8192,8192,4500,244\n"
                           "A100-SXM4-80GB,int4,8192,8192,8192,4500,244\n");
  const TemporaryFile attention(
      "attention.csv",
      "gpu,impl,dtype,batch,heads,kv_heads,seqlen,head_dim,causal,time_us\n"
      "A100-SXM4-80GB,flash,bf16,4,32,32,4096,128,1,3000\n");
  const Validation validation = validate_files({gemm.path(), attention.path()}, {});
  EXPECT_LT(*validation.groups.at("gemm-a100-sxm4-80gb-bf16").median, 0.15);
  EXPECT_LT(*validation.groups.at("attention-a100-sxm4-80gb-bf16").median, 0.4);
  EXPECT_EQ(validation.overall.time.skipped, 1U);
}

// Column-major products; launches are hidden behind the calls before.
TEST(ValidateTest, DeepBenchIsColumnMajorAndTimesKernels) {
  const TemporaryFile file("deepbench.csv",
                           "gpu,dtype,m,n,k,trans_a,trans_b,time_us,tflops\n"
                           "V100,fp32,4096,16,4096,N,N,60,9\n"
                           "V100,fp32,16,4096,4096,N,N,60,9\n"
                           "V100,fp32,4096,16,4096,T,T,60,9\n");
  const std::vector<RowResult> rows = validate_files({file.path()}, {}).rows;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[0].subject, HasSubstr(": 16 x 4096 x 4096"));
  EXPECT_THAT(rows[1].subject, HasSubstr(": 4096 x 16 x 4096"));
  const topologies::Gpu gpu = topologies::load_gpu(rows[0].gpu);
  const costmodel::DeviceModel model(gpu, costmodel::load_profile("", gpu));
  costmodel::GemmShape shape{.m = 16, .n = 4096, .k = 4096, .dtype = DType::Fp32};
  shape.layout = costmodel::GemmLayout::NN;
  EXPECT_DOUBLE_EQ(rows[0].predicted, model.gemm(shape).value());
  EXPECT_EQ(rows[2].skipped_because, "both operands transposed");
}

// Stages of grouped products are other shapes, layouts and outputs.
TEST(ValidateTest, StagesOfExpertsAreToldApart) {
  const TemporaryFile file(
      "grouped.csv",
      "gpu,op,ng,M,N,K,dtype,out_dtype,main_grad_dtype,stage,accumulate,efficiency,peak_tflops\n"
      "B200,group_matmul,20,1232,5120,1536,bf16,bf16,fp32,fwd,False,0.3974,2250\n"
      "B200,group_matmul,20,1232,5120,1536,bf16,bf16,fp32,bwd_grad_act,False,0.3891,2250\n"
      "B200,group_matmul,20,1232,5120,1536,bf16,bf16,fp32,bwd_grad_w,True,0.3198,2250\n"
      "B200,group_matmul,160,154,3072,5120,bf16,bf16,fp32,bwd_grad_w,True,0.0937,2250\n");
  for (const RowResult& row : validate_files({file.path()}, {}).rows) {
    EXPECT_LT(std::abs(row.error()), 0.06) << row.subject;
  }
}

// One row of each other kind of table, with the time that makes it plausible.
TEST(ValidateTest, EveryKindOfKernelTableIsRead) {
  const struct {
    const char* text;
    const char* group;
  } tables[] = {
      {"gpu,op,b,m,n,k,layout,accumulate,out_dtype,efficiency,peak_tflops,tflops\n"
       "A100-PCIe,matmul,1,8192,8192,8192,NT,True,bf16,0.8,312,250\n",
       "gemm-nt-a100-pcie-80gb-bf16-from-1024"},
      {"gpu,op,ng,M,N,K,dtype,accumulate,efficiency,peak_tflops\n"
       "A100-PCIe,group_matmul,8,1024,5120,1536,bf16,False,0.6,312\n",
       "grouped-gemm-a100-pcie-80gb-bf16"},
      {"gpu,kind,groups,m,n,k,tflops,mem_GBps\nH800-SXM,dense,1,4096,7168,16384,1358,343\n",
       "gemm-h800-sxm5-80gb-fp8"},
      {"gpu,dtype,tflops,m,n,k\nNVIDIA A100 SXM,bf16,271.2,1024,10240,5120\n",
       "gemm-best-shape-a100-sxm4-80gb-bf16"},
      {"gpu,impl,pass_,dtype,batch,heads,seqlen,head_dim,causal,tflops\n"
       "A100-SXM4-80GB,FlashAttention-2,fwd+bwd,fp16,4,32,4096,64,1,150\n",
       "attention-both-passes-a100-sxm4-80gb-fp16"},
      {"gpu,op,batch,seq_len,head_num,kv_head_num,qk_head_dim,v_head_dim,tflops\n"
       "A100-PCIe,sdp_bwd,1,4096,128,128,128,128,250\n",
       "attention-backward-a100-pcie-80gb-bf16"},
      {"gpu,op,m,k,time_us\nB200,bf16_to_fp8_scale,16384,16384,190\n", "cast-b200-sxm-180gb-bf16"},
      {"gpu,tp,param_bytes_total,optimizer_ms\nA100-SXM4-80GB,1,2405502976,39.3\n",
       "optimizer-a100-sxm4-80gb-fp16"},
      {"gpu,init_GBps,scale_GBps\na100_80,1908,1737\n", "copy-a100-sxm4-80gb-fp32"},
      {"gpu,data_kB,GBps\na100_80,609280,1852.5\n", "read-a100-sxm4-80gb-fp32"},
      {"gpu,op,bytes,block,GBps\nH100-SXM,TRIAD,4294967296,128,3000\n",
       "stream-h100-sxm5-80gb-fp32"},
      {"gpu,link,direction,bytes,GBps\nV100-PCIE-32GB,PCIe3 x16 pinned,h2d,67108864,12.3\n",
       "host-copy-v100-pcie-32gb-fp32"},
  };
  for (const auto& table : tables) {
    const TemporaryFile file("kernel.csv", table.text);
    const Validation validation = validate_files({file.path()}, {});
    ASSERT_TRUE(validation.groups.contains(table.group))
        << table.group << ": " << validation.rows.front().skipped_because;
    EXPECT_LT(*validation.groups.at(table.group).median, 0.6) << table.group;
  }
}

// GPU and type stand in the file's name, the time is the median of the libraries.
TEST(ValidateTest, RepeatsOfSeveralLibraries) {
  const TemporaryFile file("gemm-h100-sxm-bf16-repeat.csv",
                           "m,n,k,vllm_us,trtllm_us,sglang_us\n4096,4096,4096,210,190,500\n");
  const Validation validation = validate_files({file.path()}, {});
  ASSERT_TRUE(validation.groups.contains("gemm-h100-sxm5-80gb-bf16"));
  EXPECT_DOUBLE_EQ(validation.rows.front().measured, 210e-6);
  const TemporaryFile unnamed("repeat.csv", "m,n,k,vllm_us\n4096,4096,4096,210\n");
  EXPECT_EQ(validate_files({unnamed.path()}, {}).rows.front().skipped_because,
            "unknown GPU \"orrery-studies-repeat\"");
}

TEST(ValidateTest, TransfersThatAreNotModelled) {
  const TemporaryFile reads("reads.csv", "gpu,data_kB,GBps\na100_80,1536,4315\n");
  const TemporaryFile copies("copies.csv",
                             "gpu,link,direction,bytes,GBps\n"
                             "V100-PCIE-32GB,PCIe3 x16 pinned,both,67108864,20\n"
                             "V100-PCIE-32GB,PCIe3 x16 pageable,h2d,67108864,4\n"
                             "V100-PCIE-32GB,PCIe3 x16 pinned,h2d,8000,2.5\n");
  const Validation validation = validate_files({reads.path(), copies.path()}, {});
  EXPECT_EQ(validation.overall.time.skipped, 4U);
  EXPECT_EQ(validation.rows[3].skipped_because, "small copies depend on the machine");
  EXPECT_EQ(validation.rows[0].skipped_because, "reads from the cache are not modelled");
  EXPECT_EQ(validation.rows[1].skipped_because, "only pinned copies one way are modelled");
  EXPECT_EQ(validation.rows[2].skipped_because, "only pinned copies one way are modelled");
}

TEST(ValidateTest, KernelRowsThatCannotBeComparedAreCounted) {
  const TemporaryFile figures("figures.csv",
                              "gpu,impl,pass_,dtype,batch,heads,seqlen,head_dim,causal,tflops\n"
                              "A100-SXM4-80GB,cuDNN,fwd,fp16,4,32,4096,64,1,150\n"
                              "Abacus,FlashAttention-2,fwd,fp16,4,32,4096,64,1,150\n");
  const TemporaryFile rates("rates.csv", "gpu,op,efficient_factor\nB200,default,0.7\n");
  const TemporaryFile index("index.csv",
                            "file,gpu,interconnect,nccl_version,launch,note\na.txt,H100,,,,\n");
  const TemporaryFile others(
      "others.csv", "source,what,gpu,scale,bytes,metric,value\na,b,c,1x8,1,busbw_GBps,1\n");
  const Validation validation =
      validate_files({figures.path(), rates.path(), index.path(), others.path()}, {});
  ASSERT_EQ(validation.overall.time.skipped, 5U);
  EXPECT_EQ(validation.rows[3].skipped_because, "an index of logs");
  EXPECT_EQ(validation.rows[4].skipped_because, "figures of machines that are not stated");
  EXPECT_EQ(validation.rows[0].skipped_because, "attention by cuDNN is not modelled");
  EXPECT_EQ(validation.rows[1].skipped_because, "unknown GPU \"Abacus\"");
  EXPECT_EQ(validation.rows[2].skipped_because, "a rate without a size");
}

TEST(ValidateTest, MalformedKernelCellsAreErrors) {
  for (const char* row : {"A100-SXM4-80GB,bf16,many,8,8,1", "A100-SXM4-80GB,bf16,8,8,8,-1",
                          "A100-SXM4-80GB,bf16,8,8,8,fast", "A100-SXM4-80GB,bf16,8,,8,1"}) {
    const TemporaryFile file("bad.csv", std::string("gpu,dtype,m,n,k,time_us\n") + row + "\n");
    EXPECT_THAT(message_of([&] { validate_files({file.path()}, {}); }), HasSubstr("bad.csv:2"));
  }
}

TEST(ValidateTest, CollectivesThatContradictTheirBandwidthAreErrors) {
  const TemporaryFile file(
      "bad.csv",
      "file,gpu,nodes,gpus_per_node,ranks,collective,bytes,time_us,busbw_GBps\n"
      "a.txt,H100-SXM,1,8,8,all_reduce,1048576,41.2,44.54\n"
      "a.txt,H100-SXM,1,8,8,all_reduce,1048576,41.2,25.45\n");
  EXPECT_THAT(message_of([&] { validate_files({file.path()}, {}); }),
              HasSubstr("bad.csv:3: busbw_GBps: busbw 25.45 GB/s, but"));
}

TEST(ValidateTest, RefusesOtherTables) {
  const TemporaryFile file("other.csv", "a,b\n1,2\n");
  EXPECT_THAT(message_of([&] { validate_files({file.path()}, {}); }),
              HasSubstr("not those of a table of measurements"));
  EXPECT_THAT(message_of([&] { validate_files({"/nowhere/x.csv"}, {}); }), HasSubstr("nowhere"));
}

TEST(ValidateSharedTest, SimulatesMostOfTheFullySpecifiedRows) {
  std::vector<std::string> files;
  for (const char* name :
       {"korthikanti2022", "simumax_b200", "vtrain_multinode_a100", "dgxc_benchmarking",
        "mosaic_llmfoundry", "torchtitan", "vocab_parallel"}) {
    files.push_back((kShared / "measurements" / (std::string(name) + ".csv")).string());
    if (!fs::exists(files.back())) {
      GTEST_SKIP() << "the shared measurements are absent";
    }
  }
  const Validation validation = validate_files(files, {.interval_draws = 0});
  const TimeAndMemory& overall = validation.overall;
  const std::size_t simulated = overall.time.simulated + overall.memory.simulated;
  const std::size_t all = simulated + overall.time.skipped + overall.memory.skipped;
  EXPECT_GE(static_cast<double>(simulated), 0.8 * static_cast<double>(all));
  EXPECT_LT(*overall.time.median, 0.15);
  EXPECT_LT(*overall.memory.median, 0.15);
}

// What one constant rate of FLOPs does on these tables; the issue that asked for the baseline
// states 17 % and 48 %, and 5.8 % for the weak scaling of the SC'21 table.
TEST(ValidateSharedTest, BaselinesAreKnown) {
  const auto file = [](const char* name) { return (kShared / "measurements" / name).string(); };
  if (!fs::exists(kShared / "measurements")) {
    GTEST_SKIP() << "the shared measurements are absent";
  }
  const Validation validation =
      validate_files({file("vtrain_multinode_a100.csv"), file("vtrain_singlenode_a100.csv"),
                      file("megatron_sc21.csv")},
                     {.interval_draws = 0});
  EXPECT_NEAR(*validation.sources.at("vtrain_multinode_a100").full.baseline.mean, 0.17, 0.03);
  EXPECT_NEAR(*validation.sources.at("vtrain_singlenode_a100").full.baseline.mean, 0.48, 0.03);
  EXPECT_NEAR(*validation.sources.at("megatron_sc21").partial.baseline.mean, 0.058, 0.025);
}

TEST(ValidateSharedTest, ReadsEveryMeasurementFile) {
  const fs::path folder = kShared / "measurements";
  if (!fs::exists(folder)) {
    GTEST_SKIP() << "the shared measurements are absent";
  }
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".csv") {
      files.push_back(entry.path().string());
    }
  }
  const Validation validation = validate_files(files, {.interval_draws = 0});
  EXPECT_GT(validation.rows.size(), 2000U);
  for (const RowResult& row : validation.rows) {
    EXPECT_TRUE(!row.simulated() || (row.predicted > 0 && std::isfinite(row.error()))) << row.id;
  }
}

}  // namespace
}  // namespace orrery::studies
