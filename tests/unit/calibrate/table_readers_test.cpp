// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <map>

#include "calibrate/collective_log.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/reading_builder.hpp"
#include "tests/unit/calibrate/reader_files.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

class TableReaders : public ReaderFiles {
 protected:
  // The only sample of a table of one row.
  Sample one(const std::string& text) const {
    const Reading reading = read(write("t.csv", text));
    EXPECT_EQ(reading.files.size(), 1U);
    EXPECT_EQ(reading.files.front().samples.size(), 1U);
    return reading.files.front().samples.front();
  }
};

// A hostile table may have a reason of its own in every row.
TEST(ReadingBuilder, ReasonsAreFewAndPrintable) {
  ReadingBuilder builder("t.csv", {});
  builder.add({}, {});
  for (int row = 0; row < 1000; ++row) {
    builder.left_out("kernel \x1b" + std::to_string(row));
    builder.left_out("kernel \x1b" + std::to_string(row % 7));
  }
  const Reading reading = builder.finish();
  ASSERT_LE(reading.remarks.size(), 101U);
  EXPECT_EQ(reading.remarks.front(), "t.csv: left out 144 x kernel \\x1b0");
  EXPECT_EQ(reading.remarks.back(), "t.csv: and 900 more remarks");
}

TEST_F(TableReaders, GemmTimes) {
  const Sample sample =
      one("gpu,dtype,m,n,k,time_us,tflops\nH100-SXM,fp8_e4m3,64,128,256,5.25,0.8\n");
  const GemmSample expected{.m = 64, .n = 128, .k = 256, .dtype = DType::Fp8};
  EXPECT_EQ(std::get<GemmSample>(sample.shape), expected);
  EXPECT_DOUBLE_EQ(sample.time.median.value(), 5.25e-6);
  EXPECT_EQ(sample.source, "t.csv:2");
  EXPECT_TRUE(sample.flags.graph);
}

TEST_F(TableReaders, EfficiencyTimesPeakIsARate) {
  const Sample sample =
      one("gpu,op,b,m,n,k,layout,accumulate,out_dtype,efficiency,peak_tflops,tflops\n"
          "B200,matmul,1,1000,1000,1000,NT,True,fp32,0.5,2000,1000\n");
  const auto& gemm = std::get<GemmSample>(sample.shape);
  EXPECT_EQ(gemm.layout, GemmLayout::NT);
  EXPECT_TRUE(gemm.accumulate);
  EXPECT_EQ(gemm.output, DType::Fp32);
  EXPECT_DOUBLE_EQ(sample.time.median.value(), 2e9 / 1000e12);
}

TEST_F(TableReaders, GroupedStagesAreThreeMultiplications) {
  const std::string header =
      "gpu,op,ng,M,N,K,dtype,out_dtype,main_grad_dtype,stage,accumulate,efficiency,peak_tflops\n";
  const auto gemm = [&](const std::string& stage) {
    return std::get<GemmSample>(
        one(header + "B200,group_matmul,4,10,20,30,bf16,bf16,fp32," + stage + ",True,0.5,2000\n")
            .shape);
  };
  EXPECT_EQ(gemm("fwd"), (GemmSample{.m = 10, .n = 20, .k = 30, .groups = 4}));
  EXPECT_EQ(gemm("bwd_grad_act"),
            (GemmSample{.m = 10, .n = 30, .k = 20, .groups = 4, .layout = GemmLayout::NN}));
  EXPECT_EQ(gemm("bwd_grad_w"), (GemmSample{.m = 20,
                                            .n = 30,
                                            .k = 10,
                                            .groups = 4,
                                            .layout = GemmLayout::NT,
                                            .output = DType::Fp32,
                                            .accumulate = true}));
}

TEST_F(TableReaders, ColumnMajorOperandsAreSwapped) {
  const auto gemm = [&](const std::string& a, const std::string& b) {
    return std::get<GemmSample>(one("gpu,dtype,m,n,k,trans_a,trans_b,time_us,tflops\n"
                                    "V100,fp32,1760,16,1024," +
                                    a + "," + b + ",68,0.85\n")
                                    .shape);
  };
  EXPECT_EQ(gemm("T", "N").m, 16);
  EXPECT_EQ(gemm("T", "N").n, 1760);
  EXPECT_EQ(gemm("T", "N").layout, GemmLayout::TN);
  EXPECT_EQ(gemm("N", "N").layout, GemmLayout::NN);
  EXPECT_EQ(gemm("N", "T").layout, GemmLayout::NT);
}

// Taken for another layout, a product would be fitted as a kernel that it is not.
TEST_F(TableReaders, LayoutsInAnySpelling) {
  const auto deepbench = [&](const std::string& transposes) {
    return "gpu,dtype,m,n,k,trans_a,trans_b,time_us\nV100,fp32,1760,16,1024," + transposes +
           ",68\n";
  };
  const auto simumax = [&](const std::string& op, const std::string& layout) {
    return "gpu,op,b,m,n,k,layout,accumulate,out_dtype,efficiency,peak_tflops\nB200," + op +
           ",1,1000,1000,1000," + layout + ",True,FP32,0.5,2000\n";
  };
  const auto gemm = [&](const std::string& text) { return std::get<GemmSample>(one(text).shape); };
  EXPECT_EQ(gemm(deepbench("t,n")).layout, GemmLayout::TN);
  EXPECT_EQ(gemm(deepbench("False,True")).layout, GemmLayout::NT);
  EXPECT_EQ(gemm(deepbench("0,0")).layout, GemmLayout::NN);
  EXPECT_EQ(gemm(simumax("matmul", "nt")).layout, GemmLayout::NT);
  EXPECT_EQ(gemm(simumax("matmul", "nn")).output, DType::Fp32);
  EXPECT_EQ(gemm(simumax("fp8_matmul", "TN")).dtype, DType::Fp8);
  EXPECT_EQ(gemm("gpu,dtype,m,n,k,layout,time_us\nB200,bf16,64,64,64,nn,5\n").layout,
            GemmLayout::NN);
  EXPECT_EQ(gemm("gpu,ng,M,N,K,dtype,out_dtype,main_grad_dtype,stage,accumulate,efficiency,"
                 "peak_tflops\nB200,4,10,20,30,bf16,bf16,fp32,wgrad,True,0.5,2000\n")
                .layout,
            GemmLayout::NT);
  EXPECT_THAT(message_of(write("l.csv", deepbench("N,x"))),
              HasSubstr("l.csv:2: trans_b: \"x\" is neither T nor N"));
  EXPECT_THAT(message_of(write("l.csv", simumax("matmul", "TT"))),
              HasSubstr("l.csv:2: layout: layout \"TT\" is none of TN, NN, NT"));
}

TEST_F(TableReaders, FiguresOfAttentionInAnySpelling) {
  const Sample both =
      one("gpu,impl,pass_,dtype,batch,heads,seqlen,head_dim,causal,tflops\n"
          "A100-SXM4-80GB,flash-attn v2,FWD+BWD,fp16,2,10,1000,100,0,150\n");
  EXPECT_EQ(both.implementation, "FlashAttention-2");
  EXPECT_TRUE(std::get<AttentionSample>(both.shape).both_passes);
}

TEST_F(TableReaders, AttentionRatesCountWhatTheirSourceCounts) {
  const std::string simumax =
      "gpu,op,batch,seq_len,head_num,kv_head_num,qk_head_dim,v_head_dim,qkv_contiguous,"
      "efficiency,peak_tflops,tflops\nB200,sdp_bwd,1,1000,10,2,100,100,True,0.5,2000,1000\n";
  const Sample backward = one(simumax);
  EXPECT_TRUE(std::get<AttentionSample>(backward.shape).backward);
  EXPECT_EQ(std::get<AttentionSample>(backward.shape).kv_heads, 2);
  EXPECT_DOUBLE_EQ(backward.time.median.value(), 5.0 * 1e6 * 10 * 200 / 1000e12);
  const Sample figure =
      one("gpu,impl,pass_,dtype,batch,heads,seqlen,head_dim,causal,tflops\n"
          "H100-SXM5-80GB,FlashAttention-3,fwd,fp16,2,10,1000,100,1,500\n");
  EXPECT_DOUBLE_EQ(figure.time.median.value(), 2.0 * 2 * 10 * 1e6 * 100 / 500e12);
  const Sample both =
      one("gpu,impl,pass_,dtype,batch,heads,seqlen,head_dim,causal,tflops\n"
          "A100-SXM4-80GB,FlashAttention-2,fwd+bwd,fp16,2,10,1000,100,0,150\n");
  EXPECT_TRUE(std::get<AttentionSample>(both.shape).both_passes);
  EXPECT_DOUBLE_EQ(both.time.median.value(), 3.5 * 4.0 * 2 * 10 * 1e6 * 100 / 150e12);
}

TEST_F(TableReaders, MemoryKernelsCountEachOperandOnce) {
  const Sample norm =
      one("gpu,kernel,impl,pass_,x_name,x,config,time_us_p50,time_us_p20,time_us_p80,date\n"
          "H100 80GB HBM3,layer_norm,liger,backward,N,1024,\"{\"\"M\"\": 4096, \"\"dtype\"\": "
          "\"\"torch.float32\"\"}\",20,19,22,2024-09-03\n");
  const auto& kernel = std::get<MemorySample>(norm.shape);
  EXPECT_EQ(kernel.bytes_read, 2LL * 4096 * 1024 * 4);
  EXPECT_EQ(kernel.bytes_written, 4096LL * 1024 * 4);
  EXPECT_TRUE(kernel.backward);
  EXPECT_DOUBLE_EQ(norm.time.p75.value(), 22e-6);
  // Of 1,000 words 16,384 tokens ask for 1,000: they are read once, and a row a token is written.
  const Sample embedding =
      one("gpu,kernel,impl,pass_,x_name,x,config,time_us_p50,time_us_p20,time_us_p80,date\n"
          "A100-SXM4-80GB,embedding,liger,forward,V,1000,\"{\"\"B\"\": 8, \"\"T\"\": 2048, "
          "\"\"D\"\": 4096, \"\"dtype\"\": \"\"torch.float32\"\"}\",190,189,192,2024-09-03\n");
  const auto& lookup = std::get<MemorySample>(embedding.shape);
  EXPECT_NEAR(static_cast<double>(lookup.bytes_read), 1000.0 * 4096 * 4, 100);
  EXPECT_EQ(lookup.bytes_written, 16384LL * 4096 * 4);
  const Sample adam =
      one("gpu,model,tp,micro_batch,param_bytes_total,optimizer_ms\nA100,x,2,1,4000,10\n");
  EXPECT_EQ(std::get<MemorySample>(adam.shape).bytes_read, 16'000);
  EXPECT_EQ(std::get<MemorySample>(adam.shape).bytes_written, 14'000);
}

TEST_F(TableReaders, CopiesAndLaunches) {
  const Sample copy =
      one("gpu,link,direction,bytes,GBps,source\nV100-PCIE-32GB,PCIe3 x16 pinned,d2h,8000,2,x\n");
  EXPECT_EQ(std::get<HostCopySample>(copy.shape),
            (HostCopySample{.bytes = 8000, .direction = CopyDirection::DeviceToHost}));
  EXPECT_DOUBLE_EQ(copy.time.median.value(), 4e-6);
  const std::string launches =
      write("l.csv", "source,what,values\nx,\"launch latency, GPU event (us)\",4;6;5\n");
  EXPECT_THAT(message_of(launches), HasSubstr("does not say which GPU"));
  const Reading reading = read_foreign(launches, "", {.partial = false, .device = "A100"});
  EXPECT_DOUBLE_EQ(reading.files.front().samples.front().time.median.value(), 5e-6);
  EXPECT_EQ(reading.files.front().header.gpu, "a100-sxm4-80gb");
}

// "kernels/*.csv --gpu l40s" must not make an L40S of an H100.
TEST_F(TableReaders, TheNameOfAFileTellsTheGpuThatItDoesNotState) {
  const std::string text = "m,n,k,cublas_us\n4096,4096,4096,200\n";
  const auto gpu = [&](const std::string& name, const std::string& given) {
    return read_foreign(write(name, text), "", {.partial = false, .device = given})
        .files.front()
        .header.gpu;
  };
  EXPECT_EQ(gpu("gemm-h100-sxm-bf16-repeat.csv", "l40s"), "h100-sxm5-80gb");
  EXPECT_EQ(gpu("gemm-h100-sxm-bf16-repeat.csv", ""), "h100-sxm5-80gb");
  EXPECT_EQ(gpu("h100.csv", "h100-pcie-80gb"), "h100-pcie-80gb");  // another form of it
  EXPECT_EQ(gpu("gemm.csv", "l40s"), "l40s");
}

TEST_F(TableReaders, BlankCellsOfTheGpuAreThatOfTheUser) {
  const std::string path = write("g.csv",
                                 "gpu,dtype,m,n,k,time_us,tflops\n"
                                 ",bf16,4096,4096,4096,200,687.19\n");
  EXPECT_THAT(message_of(path), HasSubstr("does not say which GPU"));
  const auto gpu = [&](const std::string& file) {
    return read_foreign(file, "", {.partial = false, .device = "h100-sxm5-80gb"})
        .files.front()
        .header.gpu;
  };
  EXPECT_EQ(gpu(path), "h100-sxm5-80gb");
  EXPECT_EQ(gpu(write("c.csv",
                      "gpu,nodes,gpus_per_node,ranks,collective,bytes,time_us,time_inplace_us\n"
                      ",1,8,8,all_reduce,1024,20,\n")),
            "h100-sxm5-80gb");
}

TEST_F(TableReaders, OtherSeparatorsAreNamed) {
  const auto refused = [&](const std::string& text) { return message_of(write("s.csv", text)); };
  EXPECT_THAT(refused("gpu;dtype;m;n;k;time_us;tflops\nH100-SXM;bf16;64;128;128;2,7;0,7\n"),
              HasSubstr("s.csv:1: columns are separated by ';' (separate them by commas)"));
  EXPECT_THAT(refused("gpu\tdtype\tm\tn\tk\ttime_us\nB200\tbf16\t1\t1\t1\t1\n"),
              HasSubstr("s.csv:1: columns are separated by tabs"));
  EXPECT_THAT(refused("a;b\n1;2\n"), HasSubstr("the format is not recognised"));
}

TEST_F(TableReaders, FaultsNameFileLineAndColumn) {
  const std::string header = "gpu,dtype,m,n,k,time_us,tflops\n";
  const auto refused = [&](const std::string& rows) {
    return message_of(write("b.csv", header + rows));
  };
  EXPECT_THAT(refused("B200,bf16,1,1,1,0,1\n"), HasSubstr("b.csv:2: time_us"));
  EXPECT_THAT(refused("B200,bf16,1,1,1,-3,1\n"), HasSubstr("not positive"));
  EXPECT_THAT(refused("B200,bf16,1,1,1,\"3,5\",1\n"), HasSubstr("decimal comma"));
  EXPECT_THAT(refused("B200,bf16,1,1,1,nan,1\n"), HasSubstr("b.csv:2"));
  EXPECT_THAT(refused("B200,bf16,1,1\n"), HasSubstr("b.csv:2"));
  EXPECT_THAT(refused(""), HasSubstr("holds no samples"));
  EXPECT_THAT(message_of(write("m.csv", "gpu,dtype,m,n,k,time_ms\nB200,bf16,1,1,1,1\n")),
              HasSubstr("a table of aiconfigurator-gemm has time_us, too"));
  EXPECT_THAT(message_of(write("n.csv", "a,b\n1,2\n")), HasSubstr("not recognised"));
  EXPECT_THAT(message_of(write("e.csv", "")), HasSubstr("empty"));
  for (const char* cut : {"{\"results\":[", "{\n \"version\": 3, \"args\": [\"all", "[1,"}) {
    const std::string message = message_of(write("c.json", cut));
    EXPECT_THAT(message, testing::Not(HasSubstr("not recognised"))) << cut;
    EXPECT_THAT(message, HasSubstr("cut off or damaged")) << cut;
  }
  EXPECT_THAT(message_of(write("w.json", "{\"results\": []}")), HasSubstr("not recognised"));
}

// Rates of the same row tell where sizes were swapped or times are in another unit.
TEST_F(TableReaders, RatesMustFitSizesAndTimes) {
  const auto refused = [&](const std::string& text) { return message_of(write("r.csv", text)); };
  const std::string gemm = "gpu,dtype,m,n,k,time_us,tflops\n";
  EXPECT_EQ(refused(gemm + "B200,bf16,4096,4096,4096,600,229.1\n"), "");
  EXPECT_EQ(refused(gemm + "B200,bf16,4096,4096,4096,600,\n"), "");
  EXPECT_THAT(refused(gemm + "B200,bf16,4096,4096,1024,600,229.1\n"),
              HasSubstr("r.csv:2: tflops: 229.1, but the sizes and 600 us give 57.27"));
  EXPECT_THAT(refused(gemm + "B200,bf16,4096,4096,4096,0.6,229.1\n"), HasSubstr("r.csv:2: tflops"));
  EXPECT_THAT(refused("gpu,dtype,m,n,k,trans_a,trans_b,time_us,tflops\n"
                      "V100,fp32,1760,16,1024,N,N,68,2.9\n"),
              HasSubstr("r.csv:2: tflops"));
  const std::string attention =
      "gpu,impl,dtype,batch,heads,kv_heads,seqlen,head_dim,causal,time_us,tflops\n";
  EXPECT_EQ(refused(attention + "B200,fa,bf16,1,32,8,4096,128,True,400,343.6\n"), "");
  EXPECT_THAT(refused(attention + "B200,fa,bf16,1,32,8,4096,128,False,400,343.6\n"),
              HasSubstr("r.csv:2: tflops"));
  const std::string cast = "gpu,op,m,k,time_us,GBps\n";
  EXPECT_EQ(refused(cast + "B200,bf16_to_fp8_scale,1024,1024,10,314.6\n"), "");
  EXPECT_EQ(refused(cast + "B200,amax_scale,1024,1024,10,209.7\n"), "");
  EXPECT_THAT(refused(cast + "B200,amax_scale,1024,1024,10,314.6\n"), HasSubstr("r.csv:2: GBps"));
  const std::string shares =
      "gpu,op,b,m,n,k,layout,accumulate,out_dtype,efficiency,peak_tflops,tflops\n";
  EXPECT_THAT(refused(shares + "B200,mm,1,64,64,64,TN,False,bf16,0.5,2000,800\n"),
              HasSubstr("r.csv:2: tflops: 800, but efficiency x peak_tflops is 1000"));
  EXPECT_THAT(refused("gpu,dtype,tflops,theory_tflops,efficiency,m,n,k\n"
                      "B200,bf16,1745,2250,0.5,64,64,64\n"),
              HasSubstr("r.csv:2: tflops: 1745, but efficiency x theory_tflops is 1125"));
}

TEST_F(TableReaders, BandwidthsMustFitCollectives) {
  const std::string header =
      "gpu,nodes,gpus_per_node,ranks,collective,dtype,bytes,time_us,time_inplace_us,busbw_GBps\n";
  const auto refused = [&](const std::string& row) {
    return message_of(write("r.csv", header + row));
  };
  EXPECT_EQ(refused("B200,1,8,8,all_reduce,float,1048576,41.2,,44.54\n"), "");
  EXPECT_EQ(refused("B200,1,8,8,all_gather,float,1048576,,41.2,22.27\n"), "");
  EXPECT_THAT(refused("B200,1,8,8,all_reduce,float,1048576,41.2,40,25.45\n"),
              HasSubstr("r.csv:2: busbw_GBps: busbw 25.45 GB/s, but 1 MiB in 4.12e-05 s of "
                        "all-reduce on 8 ranks are 44.54 GB/s"));
  EXPECT_THAT(message_of(write("u.txt", "\xFF\xFE#")), HasSubstr("u.txt: text in UTF-16"));
}

TEST_F(TableReaders, RowsThatComeTwiceCountOnce) {
  const std::string header = "gpu,dtype,m,n,k,time_us,tflops\n";
  const std::string row = "B200,bf16,4096,4096,4096,600,229.1\n";
  const Reading reading = read(write("d.csv", header + row + row + header + row));
  EXPECT_EQ(reading.files.front().samples.size(), 1U);
  ASSERT_EQ(reading.remarks.size(), 1U);
  EXPECT_EQ(reading.remarks.front(), "d.csv: left out 3 x row that repeats an earlier one");
}

TEST_F(TableReaders, PartialReadsTheRest) {
  const std::string path = write("p.csv",
                                 "gpu,dtype,m,n,k,time_us,tflops\nB200,bf16,1,1,1,0,1\n"
                                 "B200,bf16,2,2,2,5,0.0\nB200,bf16,3,3");
  const Reading reading = read(path, true);
  ASSERT_EQ(reading.files.size(), 1U);
  EXPECT_EQ(reading.files.front().samples.size(), 1U);
  EXPECT_EQ(reading.remarks.size(), 2U);
}

// Lines that are no rows cost themselves alone, and later ones keep their numbers.
TEST_F(TableReaders, PartialLeavesOutBrokenLines) {
  const std::string path =
      write("b.csv",
            "gpu,dtype,m,n,k,time_us\nB200,bf16,64,64,64,5\nB200,bf16,64\n"
            "\"B200,bf16,64,64,64,6\nB200,bf16,64,64,128,6\nB200,bf16,64,64,256,0\n");
  EXPECT_THAT(message_of(path), HasSubstr("b.csv:3: 3 cells"));
  const Reading reading = read(path, true);
  ASSERT_EQ(reading.files.size(), 1U);
  ASSERT_EQ(reading.files.front().samples.size(), 2U);
  EXPECT_EQ(reading.files.front().samples.back().source, "b.csv:5");
  ASSERT_EQ(reading.remarks.size(), 3U);
  EXPECT_THAT(reading.remarks[0], HasSubstr("b.csv:3: 3 cells"));
  EXPECT_THAT(reading.remarks[1], HasSubstr("b.csv:4: quoted cell without an end"));
  EXPECT_THAT(reading.remarks[2], HasSubstr("b.csv:6: time_us: 0"));
  // The names of the columns are no row.
  const std::string nameless =
      write("h.csv", "gpu,dtype,m,n,k,time_us,\"\nB200,bf16,64,64,64,5,\n");
  EXPECT_THAT(message_of(nameless, true), HasSubstr("h.csv:1"));
}

TEST(GpuNames, TranslateOnlyWhatIsCertain) {
  EXPECT_EQ(gpu_of("NVIDIA H100 80GB HBM3"), "h100-sxm5-80gb");
  EXPECT_EQ(gpu_of("NVIDIA A100-SXM4-40GB"), "a100-sxm4-40gb");
  EXPECT_EQ(gpu_of("Tesla V100-SXM2-16GB"), "v100-sxm2-16gb");
  EXPECT_EQ(gpu_of("H100 PCIe"), "h100-pcie-80gb");
  EXPECT_EQ(gpu_of("NVIDIA H200"), "h200-sxm5-141gb");
  EXPECT_EQ(gpu_of("MI100"), "mi100-32gb");
  EXPECT_EQ(gpu_of("MI60"), "");
  EXPECT_EQ(node_of("h100-sxm5-80gb", "AWS p5 EFA 32x100Gb/s"), "p5");
  EXPECT_EQ(node_of("h100-sxm5-80gb", "NVSwitch (NVLink4)"), "hgx-h100");
}

TEST_F(TableReaders, EveryPublishedKernelTable) {
  if (!std::filesystem::is_directory(shared("kernels"))) {
    GTEST_SKIP() << "samples are not here";
  }
  std::map<std::string, std::size_t> samples;
  for (const auto& entry : std::filesystem::directory_iterator(shared("kernels"))) {
    try {
      const SampleReader& reader = detect_reader(entry.path().string());
      for (const SampleFile& file :
           reader.read(entry.path().string(), {.partial = false, .device = "A100"}).files) {
        samples[std::string(reader.name)] += file.samples.size();
        EXPECT_EQ(read_samples(parse_json(sample_text(file), "again"), "again"), file);
      }
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("not recognised"));
    }
  }
  EXPECT_EQ(samples["aiconfigurator-gemm"], 48'047U);
  EXPECT_EQ(samples["aiconfigurator-attention"], 6'123U);
  EXPECT_EQ(samples["gemm-repeat"], 7'200U);
  EXPECT_EQ(samples["simumax-gemm"], 513U);
  EXPECT_EQ(samples["simumax-grouped"], 66U);
  EXPECT_EQ(samples["simumax-attention"], 60U);
  EXPECT_EQ(samples["deepbench-gemm"], 865U);
  EXPECT_EQ(samples["liger"], 182U);
  EXPECT_EQ(samples["launch-points"], 2U);
  EXPECT_EQ(samples.size(), 20U);
}

TEST_F(TableReaders, EveryPublishedCollective) {
  const std::filesystem::path rows = shared("nccl-logs") / "rows.csv";
  if (!std::filesystem::exists(rows)) {
    GTEST_SKIP() << "samples are not here";
  }
  std::size_t out_of_place = 0;
  std::size_t one_process = 0;
  for (const SampleFile& file : read(rows.string()).files) {
    EXPECT_FALSE(file.header.gpu.empty()) << file.header.device;
    EXPECT_FALSE(file.header.node.empty()) << file.header.device;
    one_process += launch_mode(file.header) == LaunchMode::OneProcess ? file.samples.size() : 0;
    for (const Sample& sample : file.samples) {
      out_of_place += std::get<CollectiveSample>(sample.shape).in_place ? 0 : 1;
    }
  }
  EXPECT_EQ(out_of_place, 4833U - 59U);
  EXPECT_GT(one_process, 100U);
}

}  // namespace
}  // namespace orrery::calibrate
