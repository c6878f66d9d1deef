// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/metric.hpp"

#include <gmock/gmock.h>

#include "studies/rows/metric_name.hpp"
#include "studies/rows/row_network.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::HasSubstr;
using testing::predicted;
using testing::row_of;

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

tl::expected<Target, std::string> target(const Changes& changes) {
  const Measurement row = row_of(changes);
  const auto spec = row_network(row, *find_framework(row.framework));
  return measured_target(row, models::build_network(*spec, "t.csv"));
}

double seconds(const Changes& changes) { return target(changes).value().value; }

TEST(MetricTest, TimesStayTimes) {
  EXPECT_EQ(seconds({{"measured_value", "1.25"}}), 1.25);
  const Target forward =
      *target({{"measured_metric", "layer_forward_ms"}, {"measured_value", "7.7"}});
  EXPECT_EQ(forward.quantity, Quantity::LayerForwardTime);
  EXPECT_DOUBLE_EQ(forward.value, 7.7e-3);
}

// 16 sequences of 2,048 tokens on 8 GPUs: 4,096 tokens and 2 samples a GPU.
TEST(MetricTest, ThroughputBecomesTime) {
  EXPECT_DOUBLE_EQ(
      seconds({{"measured_metric", "tokens_per_s_per_gpu"}, {"measured_value", "8192"}}), 0.5);
  EXPECT_DOUBLE_EQ(seconds({{"measured_metric", "samples_per_s"}, {"measured_value", "32"}}), 0.5);
  EXPECT_DOUBLE_EQ(seconds({{"measured_metric", "samples_per_s_per_gpu"}, {"measured_value", "4"}}),
                   0.5);
}

TEST(MetricTest, UsesTheBatchOfTheDegreesWhenTheGlobalOneIsBlank) {
  EXPECT_DOUBLE_EQ(
      seconds(
          {{"measured_metric", "samples_per_s"}, {"measured_value", "32"}, {"global_batch", ""}}),
      0.5);  // 1 x 8 x 2
}

TEST(MetricTest, TheDerivedTimeComesFirst) {
  EXPECT_DOUBLE_EQ(seconds({{"measured_metric", "mfu"},
                            {"measured_value", "0.5"},
                            {"aux_metrics", "derived_iteration_s=12.021"}}),
                   12.021);
}

// 72 B l s h^2 (1 + s/6h + V/12lh) with B 16, l 24, s 2048, h 2048, V 50257:
// 2.37496577e14 x (1 + 1/6 + 50257/589824) = 2.97314e14 FLOPs; 8 x 0.5 x 312e12 FLOP/s.
TEST(MetricTest, UtilisationByTheNarayananFormula) {
  const double flops =
      72.0 * 16 * 24 * 2048 * 2048.0 * 2048.0 * (1.0 + 1.0 / 6.0 + 50257.0 / (12.0 * 24 * 2048));
  EXPECT_NEAR(flops, 2.9731e14, 1e10);
  EXPECT_DOUBLE_EQ(
      seconds({{"measured_metric", "mfu"},
               {"measured_value", "0.5"},
               {"flops_convention", "Narayanan formula without recompute; peak 312e12"}}),
      flops / (8 * 0.5 * 312e12));
}

TEST(MetricTest, HardwareFlopsCountTheRecomputedForward) {
  const double flops =
      96.0 * 16 * 24 * 2048 * 2048.0 * 2048.0 * (1.0 + 1.0 / 6.0 + 50257.0 / (16.0 * 24 * 2048));
  EXPECT_DOUBLE_EQ(seconds({{"measured_metric", "tflops_per_gpu"},
                            {"measured_value", "140"},
                            {"flops_convention", "Megatron SC21 formula incl. recompute"}}),
                   flops / (8 * 140e12));
}

TEST(MetricTest, RecomputationThatIsNotCounted) {
  const auto counted = [](const std::string& convention) {
    return seconds({{"measured_metric", "tflops_per_gpu"},
                    {"measured_value", "140"},
                    {"recompute", "full"},
                    {"flops_convention", convention}});
  };
  for (const std::string denial :
       {"MFU (not including recompute)", "hardware FLOPs excluding recomputation",
        "HFU; recompute not counted", "MFU, not incl. recompute"}) {
    EXPECT_DOUBLE_EQ(counted(denial), counted("model FLOPs")) << denial;
  }
  EXPECT_GT(counted("hardware FLOPs including recompute"), counted("model FLOPs"));
  EXPECT_DOUBLE_EQ(counted("SC21 formula, not including recompute"), counted("72*B*l*s*h^2"));
}

// The metric's name says that they are counted, whatever paper has the formula.
TEST(MetricTest, HardwareUtilisationCountsWhatIsRecomputed) {
  const auto time = [](const std::string& metric, const std::string& recompute) {
    return seconds({{"measured_metric", metric},
                    {"measured_value", "0.5"},
                    {"recompute", recompute},
                    {"flops_convention", "PaLM appendix B"}});
  };
  EXPECT_DOUBLE_EQ(time("hfu", "full"), 4.0 / 3.0 * time("mfu", "full"));
  EXPECT_DOUBLE_EQ(time("hfu", "none"), time("mfu", "none"));
}

// 6 N + 12 L h s a token: 6e9 + 12 x 24 x 2048 x 2048 = 7.207959552e9; 32,768 tokens a step.
TEST(MetricTest, SixNConventionCountsTheStatedParameters) {
  const Changes row = {{"measured_metric", "mfu"},
                       {"measured_value", "0.4"},
                       {"flops_convention", "mfu=(6*N*s + 12*L*d*s^2)*seq/s"}};
  EXPECT_NE(seconds(row), 7207959552.0 * 32768 / (8 * 0.4 * 312e12));  // those of the network
  Changes complete = row;
  complete["params_b"] = "1.0";
  EXPECT_DOUBLE_EQ(seconds(complete), 7207959552.0 * 32768 / (8 * 0.4 * 312e12));
}

TEST(MetricTest, PeakOfHopperDependsOnTheSource) {
  const Changes row = {{"gpu", "H100-80GB-SXM"},
                       {"precision", "fp8"},
                       {"measured_metric", "mfu"},
                       {"measured_value", "0.5"},
                       {"flops_convention", "72*B*l*s*h^2; peak fp8 1979e12"}};
  Changes bf16_peak = row;
  bf16_peak["flops_convention"] = "72*B*l*s*h^2";
  EXPECT_NEAR(seconds(bf16_peak) / seconds(row), 1979.0 / 989.0, 1e-12);
}

// What a token uses of a mixture of experts, by whatever formula; nothing was recomputed.
TEST(MetricTest, MixturesCountTheExpertsOfAToken) {
  const Changes mixture = {{"model_family", "mixtral"},
                           {"model_name", "Mixtral-8x7B"},
                           {"layers", "32"},
                           {"hidden", "4096"},
                           {"heads", "32"},
                           {"kv_heads", "8"},
                           {"ffn_hidden", "14336"},
                           {"moe_ffn_hidden", "14336"},
                           {"vocab", "32000"},
                           {"tied_embeddings", "0"},
                           {"experts", "8"},
                           {"top_k", "2"},
                           {"params_b", "46.7"},
                           {"measured_metric", "mfu"},
                           {"measured_value", "0.4"},
                           {"flops_convention", "6ND"}};
  const double by_hand = 6 * 12.9e9 * 16 * 2048 / (8 * 0.4 * 312e12);
  EXPECT_NEAR(seconds(mixture) / by_hand, 1.0, 0.01);
  Changes hardware = mixture;
  hardware["measured_metric"] = "hfu";
  hardware["flops_convention"] = "";
  Changes model = hardware;
  model["measured_metric"] = "mfu";
  EXPECT_DOUBLE_EQ(seconds(hardware), seconds(model));
}

TEST(MetricTest, WordsOfCounting) {
  const auto counted = [](const std::string& convention) {
    return seconds({{"measured_metric", "tflops_per_gpu"},
                    {"measured_value", "140"},
                    {"params_b", "1.3"},
                    {"recompute", "full"},
                    {"flops_convention", convention}});
  };
  for (const std::string alone : {"6N, attention ignored", "6N (no attention FLOPs)", "6N"}) {
    EXPECT_DOUBLE_EQ(counted(alone), counted("6ND")) << alone;
  }
  for (const std::string whole : {"with activation recomputation", "counts recomputation",
                                  "Megatron 96Blsh^2", "96 B s l h^2 (1 + s/6h + V/16lh)"}) {
    EXPECT_DOUBLE_EQ(counted(whole), counted("SC21")) << whole;
  }
  EXPECT_DOUBLE_EQ(counted("6ND * 4/3"), counted("8ND"));
  EXPECT_DOUBLE_EQ(counted("6 * N + 12 * n_layer * d_model * seq"), counted("6N + 12Lhs"));
  EXPECT_DOUBLE_EQ(counted("model FLOPs, 16 nodes"), counted("model FLOPs"));
}

TEST(MetricTest, PeaksAsTheyAreStated) {
  const auto of = [](const std::string& gpu, const std::string& precision,
                     const std::string& convention) {
    return seconds({{"gpu", gpu},
                    {"precision", precision},
                    {"measured_metric", "mfu"},
                    {"measured_value", "0.5"},
                    {"flops_convention", convention}});
  };
  const double h100 = of("H100-80GB-SXM", "bf16", "MFU") * 989;
  EXPECT_NEAR(of("H100 PCIe", "bf16", "MFU, peak 756e12") * 756, h100, 1e-9 * h100);
  EXPECT_NEAR(of("H100 PCIe", "bf16", "MFU") * 756, h100, 1e-3 * h100);
  EXPECT_NEAR(of("H100-80GB-SXM", "fp8", "MFU, peak 1979 TFLOPS") * 1979, h100, 1e-9 * h100);
  EXPECT_NEAR(of("H100-80GB-SXM", "fp8", "MFU; peak bf16 989e12, fp8 1979e12") * 1979, h100,
              1e-9 * h100);
  EXPECT_NEAR(of("A100-80GB-SXM", "tf32", "MFU of 156e12 peak tf32") * 156, h100, 1e-9 * h100);
  EXPECT_NEAR(of("H100-80GB-SXM", "fp8", "MFU, peak 1,979 TFLOPS") * 1979, h100, 1e-9 * h100);
  EXPECT_NEAR(of("H100-80GB-SXM", "fp8", "MFU, peak 1.979 PFLOP/s") * 1979, h100, 1e-9 * h100);
  EXPECT_NEAR(of("H100-80GB-SXM", "fp8", "MFU, fp8 peak") * 1979, h100, 1e-3 * h100);
  EXPECT_NEAR(of("H100-80GB-SXM", "mxfp8", "MFU; peak bf16 989e12, fp8 1979e12") * 1979, h100,
              1e-9 * h100);
  EXPECT_NEAR(of("H100-80GB-SXM", "bf16", "MFU, fp8 peak not used") * 989, h100, 1e-9 * h100);
  for (const std::string words :
       {"model FLOPs / 1979 TFLOPS", "model FLOPs over 1.979 PFLOP/s", "MFU; H100 peak 1979",
        "MFU, peak of 1,979", "MFU against 1979 peak"}) {
    EXPECT_NEAR(of("H100-80GB-SXM", "fp8", words) * 1979, h100, 1e-9 * h100) << words;
  }
  for (const std::string words :
       {"MFU, 93% of peak", "MFU, peak of 8 H100", "MFU, sequence 2048",
        "model FLOPs over peak; sequence 2048", "model FLOPs; 163 TFLOP/s achieved"}) {
    EXPECT_NEAR(of("H100-80GB-SXM", "fp8", words) * 989, h100, 1e-9 * h100) << words;
  }
}

TEST(MetricTest, MemoryIsCountedInBinaryUnits) {
  const Target gib = *target({{"measured_metric", "peak_mem_gib"}, {"measured_value", "10"}});
  EXPECT_EQ(gib.quantity, Quantity::AllocatedMemory);
  EXPECT_DOUBLE_EQ(gib.value, 10 * kGib);
  const Target device = *target({{"measured_metric", "peak_mem_gb"},
                                 {"measured_value", "10"},
                                 {"notes", "nvidia-smi snapshot"}});
  EXPECT_EQ(device.quantity, Quantity::DeviceMemory);
  EXPECT_TRUE(is_memory(device.quantity));
}

TEST(MetricTest, RefusesWhatCannotBeCompared) {
  EXPECT_THAT(target({{"measured_metric", "normalized_throughput"}}).error(),
              HasSubstr("normalized_throughput"));
  EXPECT_THAT(target({{"measured_metric", "peak_activation_mem_gib"}}).error(),
              HasSubstr("cannot be compared"));
  EXPECT_THAT(target({{"measured_metric", "tflops_per_gpu"}}).error(), HasSubstr("counts FLOPs"));
}

TEST(MetricTest, MetricsHoweverTheyAreSpelt) {
  const auto named = [](const std::string& text) {
    const MetricName metric = metric_name(text);
    return std::pair(metric.name, metric.scale);
  };
  for (const std::string text : {"tokens_per_s_per_gpu", "tokens/s/GPU", "tokens_per_sec_per_gpu",
                                 "tokens per second per device", "throughput_tok_s_chip"}) {
    EXPECT_EQ(named(text), std::pair(std::string("tokens_per_s_per_gpu"), 1.0)) << text;
  }
  for (const std::string text : {"iteration_s", "step_time_s", "seconds per step", "s/iter"}) {
    EXPECT_EQ(named(text), std::pair(std::string("iteration_s"), 1.0)) << text;
  }
  EXPECT_EQ(named("step_time_ms"), std::pair(std::string("iteration_s"), 1e-3));
  EXPECT_EQ(named("elapsed time per iteration (ms)"), std::pair(std::string("iteration_s"), 1e-3));
  EXPECT_EQ(named("it/s").first, "iterations_per_s");
  EXPECT_EQ(named("MFU (%)"), std::pair(std::string("mfu"), 0.01));
  EXPECT_EQ(named("samples_per_sec").first, "samples_per_s");
  EXPECT_EQ(named("TFLOP/s/GPU").first, "tflops_per_gpu");
  EXPECT_EQ(named("max_memory_mib"), std::pair(std::string("peak_mem_gib"), 1.0 / 1024.0));
  EXPECT_EQ(named("total_mem_gib").first, "total_mem_gib");
  EXPECT_EQ(named("ktokens/s"), std::pair(std::string("tokens_per_s"), 1e3));
  EXPECT_EQ(named("global wps"), std::pair(std::string("tokens_per_s"), 1.0));
  EXPECT_EQ(named("tokens/s/H100").first, "tokens_per_s_per_gpu");
  EXPECT_EQ(named("tokens per s per MI300X").first, "tokens_per_s_per_gpu");
  EXPECT_EQ(named("tokens/s (H100)").first, "tokens/s (h100)");  // of one or of all
  EXPECT_EQ(named("A100-hours per 1B tokens").first, "tokens_per_s_per_gpu");
  EXPECT_EQ(named("aggregate petaFLOP/s"), std::pair(std::string("tflops"), 1e3));
  EXPECT_EQ(named("fraction of peak"), std::pair(std::string("peak_share"), 1.0));
  EXPECT_EQ(named("bwd time per layer (ms)").first, "layer_backward_ms");
  EXPECT_EQ(named("steps/min"), std::pair(std::string("iterations_per_s"), 1.0 / 60));
  EXPECT_EQ(named("train_step_timing in s"), std::pair(std::string("iteration_s"), 1.0));
  EXPECT_EQ(named("train_samples_per_second").first, "samples_per_s");
  EXPECT_EQ(named("gpu_mem_gb").first, "peak_mem_gb");
  EXPECT_EQ(named("mem_per_gpu_gib").first, "peak_mem_gib");
  EXPECT_EQ(row_of({{"measured_metric", "step_time_ms"}, {"measured_value", "250"}}).value, 0.25);
  EXPECT_EQ(predicted({{"measured_metric", "samples_pers"}}).skipped_because,
            "metric \"samples_pers\" cannot be compared (did you mean \"samples_per_s\"?)");
  EXPECT_EQ(predicted({{"measured_value", ""}}).skipped_because, "measured_value is not stated");
}

// What stands behind "per" tells a time of something from a rate of it.
TEST(MetricTest, TimesOfSamplesAndTokens) {
  for (const std::string text : {"s/sample", "sec per sample", "s/image", "sample time (s)"}) {
    const MetricName metric = metric_name(text);
    EXPECT_EQ(metric.name, "samples_per_s") << text;
    EXPECT_TRUE(metric.is_inverse) << text;
    EXPECT_DOUBLE_EQ(metric.converted(0.5), 2) << text;
  }
  for (const std::string text :
       {"seconds per token", "time per token (s)", "latency per token (s)", "s_per_token"}) {
    EXPECT_EQ(metric_name(text).name, "tokens_per_s") << text;
    EXPECT_TRUE(metric_name(text).is_inverse) << text;
  }
  EXPECT_DOUBLE_EQ(metric_name("ms/token").converted(0.5), 2000);
  for (const std::string text : {"samples/s", "samples_per_s", "images per sec", "tokens_s",
                                 "training throughput (tokens per second)", "tokens/time (s)"}) {
    EXPECT_FALSE(metric_name(text).is_inverse) << text;
  }
  // The row has 16 samples of 2048 tokens.
  EXPECT_DOUBLE_EQ(seconds({{"measured_metric", "s/sample"}, {"measured_value", "0.125"}}), 2);
  EXPECT_DOUBLE_EQ(seconds({{"measured_metric", "time per token (ms)"}, {"measured_value", "0.5"}}),
                   16.384);
}

TEST(MetricTest, RatesOfOtherUnits) {
  const auto named = [](const std::string& text) {
    const MetricName metric = metric_name(text);
    EXPECT_TRUE(metric.is_known) << text;
    return std::pair(metric.name, metric.converted(1));
  };
  const auto near = [&](const std::string& text, const std::string& name, double value) {
    EXPECT_EQ(named(text).first, name) << text;
    EXPECT_NEAR(named(text).second, value, 1e-9 * value) << text;
  };
  near("aggregate tokens/s", "tokens_per_s", 1);
  near("cluster tokens/s", "tokens_per_s", 1);
  near("k tokens/s", "tokens_per_s", 1e3);
  near("M tokens/s", "tokens_per_s", 1e6);
  near("million tokens per second", "tokens_per_s", 1e6);
  near("tokens per day", "tokens_per_s", 1.0 / 86400);
  near("B tokens per day", "tokens_per_s", 1e9 / 86400);
  near("tokens/s/node", "tokens_per_s_per_node", 1);
  near("tokens per GPU-hour", "tokens_per_s_per_gpu", 1.0 / 3600);
  near("samples/min", "samples_per_s", 1.0 / 60);
  near("examples/s", "samples_per_s", 1);
  near("sentences/s", "samples_per_s", 1);
  near("tokens/s/rank", "tokens_per_s_per_gpu", 1);
  near("tokens/s/accelerator", "tokens_per_s_per_gpu", 1);
  near("steps/hour", "iterations_per_s", 1.0 / 3600);
  near("days per 1T tokens", "tokens_per_s", 1e12 / 86400);
  near("days for 300B tokens", "tokens_per_s", 300e9 / 86400);
  near("days (300B tokens)", "tokens_per_s", 300e9 / 86400);
  near("GPU hours (300B tokens)", "tokens_per_s_per_gpu", 300e9 / 3600);
  near("GPU-hours per 1T tokens", "tokens_per_s_per_gpu", 1e12 / 3600);
  near("time per 100 iterations (s)", "iteration_s", 0.01);
  for (const std::string text : {"s/batch", "batch time (s)", "step duration (s)",
                                 "latency per iteration (s)", "end-to-end iteration time (s)"}) {
    near(text, "iteration_s", 1);
  }
  near("iteration_min", "iteration_s", 60);
  near("model FLOPs utilization", "mfu", 1);
  near("model FLOPs utilisation (%)", "mfu", 0.01);
  near("mfu_pct", "mfu", 0.01);
  near("mfu_percent", "mfu", 0.01);
  near("% of theoretical peak", "peak_share", 0.01);
  near("GFLOP/s per GPU", "tflops_per_gpu", 1e-3);
  near("aggregate PFLOP/s", "tflops", 1e3);
  near("total TFLOP/s", "tflops", 1);
  near("TFLOPS", "tflops_of_some", 1);
  for (const std::string text : {"peak memory usage (GiB)", "memory footprint (GiB)",
                                 "peak HBM (GiB)", "max. memory used (GiB)"}) {
    near(text, "peak_mem_gib", 1);
  }
  near("Peak mem. (GB)", "peak_mem_gb", 1);
  near("torch.cuda.max_memory_allocated (GiB)", "peak_mem_allocated_gib", 1);
  for (const std::string text :
       {"micro-batch time (s)", "tokens per step", "time to first token (s)", "tokens",
        "batch size", "peak memory saved (GiB)"}) {
    EXPECT_FALSE(metric_name(text).is_known) << text;
  }
}

TEST(MetricTest, FiguresOfNodesAndOfAllGpus) {
  const auto figure = [](const Changes& changes) {
    const Measurement row = row_of(changes);
    return std::pair(row.metric, row.value);
  };
  using Figure = std::pair<std::string, double>;
  EXPECT_EQ(figure({{"measured_metric", "aggregate PFLOP/s"}, {"measured_value", "1.2"}}),
            Figure("tflops_per_gpu", 150));
  EXPECT_EQ(figure({{"measured_metric", "tokens/s/node"}, {"measured_value", "8000"}}),
            Figure("tokens_per_s_per_gpu", 1000));
  EXPECT_EQ(figure({{"measured_metric", "throughput"}, {"measured_value", "645k tokens/s"}}),
            Figure("tokens_per_s", 645'000));
  EXPECT_EQ(figure({{"measured_metric", "tokens/s"}, {"measured_value", "645k tokens/s"}}),
            Figure("tokens_per_s", 645'000));
  EXPECT_EQ(figure({{"measured_metric", "% of peak"}, {"measured_value", "50"}}),
            Figure("tflops_per_gpu", 156));
  // An A100 computes 312 TFLOP/s in 16 bits.
  EXPECT_EQ(figure({{"measured_metric", "TFLOP/s"}, {"measured_value", "150"}}),
            Figure("tflops_per_gpu", 150));
  EXPECT_EQ(figure({{"measured_metric", "TFLOP/s"}, {"measured_value", "1200"}}),
            Figure("tflops_per_gpu", 150));
  EXPECT_THAT(row_of({{"measured_metric", "TFLOP/s"}, {"measured_value", "1200"}}).remarks,
              ::testing::Contains("measured 1200 TFLOP/s as of all 8 GPUs"));
  EXPECT_EQ(
      row_of(
          {{"measured_metric", "tokens/s/node"}, {"measured_value", "8000"}, {"gpus_per_node", ""}})
          .unknown,
      "tokens_per_s_per_node without gpus_per_node");
}

TEST(MetricTest, FiguresOfNoUnitAreToldByTheirSize) {
  EXPECT_THAT(predicted({{"measured_value", "200000"}}).skipped_because,
              HasSubstr("compute less than 0.01 % of what their peak rate does"));
  EXPECT_EQ(predicted({{"measured_value", "200"}}).skipped_because, "");
}

}  // namespace
}  // namespace orrery::studies
