// SPDX-License-Identifier: Apache-2.0
// Nodes and networks that a row names beside its GPU, and what it leaves open of them.
#include <gmock/gmock.h>

#include "studies/rows/gpu_words.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/validation/predictions.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::predicted;
using testing::row_of;

std::string variant_of(const std::string& gpu, const std::string& links,
                       const std::string& network) {
  return gpu_of_stated_node(row_of({{"gpu", gpu}, {"intra_node", links}, {"inter_node", network}}));
}

TEST(StatedNodes, TellTheMemoryOfTheirGpus) {
  EXPECT_EQ(variant_of("A100", "", "4x100Gb EFA (p4d.24xlarge)"), "a100-sxm4-40gb");
  EXPECT_EQ(variant_of("NVIDIA A100", "a2-highgpu-8g", "100 Gb/s"), "a100-sxm4-40gb");
  EXPECT_EQ(variant_of("V100", "p3.16xlarge", ""), "v100-sxm2-16gb");
  EXPECT_EQ(variant_of("A100", "p4de", ""), "");            // as it is
  EXPECT_EQ(variant_of("A100-80GB", "", "p4d"), "");        // says more
  EXPECT_EQ(variant_of("A100 PCIe", "", "p4d"), "");        // says more
  EXPECT_EQ(variant_of("H100", "", "p4d"), "");             // another GPU
  EXPECT_EQ(variant_of("A100 (DGX A100)", "p4d", ""), "");  // names its own node
  const Changes on_p4d = {
      {"gpu", "A100"}, {"inter_node", "4x100Gb EFA (p4d)"}, {"gpus", "16"}, {"dp", "4"}};
  EXPECT_THAT(predicted(on_p4d).assumed, Contains("GPU A100 as a100-sxm4-40gb"));
  EXPECT_EQ(
      row_cluster(row_of({{"gpu", "A100"}, {"inter_node", "ND96amsr_A100_v4"}})).value().node.name,
      "ndmv4");
}

TEST(StatedNodes, OfV100s) {
  const auto cluster = row_cluster(row_of({{"gpu", "Tesla V100S-PCIE-32GB"}})).value();
  EXPECT_EQ(cluster.gpu.name, "v100s-pcie-32gb");
  EXPECT_EQ(cluster.node.name, "v100s-pcie-8");
  EXPECT_EQ(stated_gpu("V100S"), "v100s-pcie-32gb");
  EXPECT_EQ(stated_gpu("V100-PCIE-32GB"), "v100-pcie-32gb");
  EXPECT_DOUBLE_EQ(cluster.gpu.peak_of(DType::Fp16).value(), 130e12);
}

// The module of a DGX-2 is another than that of a DGX-1, whatever "SXM" it is.
TEST(StatedNodes, TellTheModuleOfTheirGpus) {
  EXPECT_EQ(stated_gpu("V100-32GB-SXM (DGX-2)"), "v100-sxm3-32gb");
  EXPECT_EQ(stated_gpu("V100-32GB-SXM"), "v100-sxm2-32gb");
  EXPECT_EQ(stated_gpu("A100-80GB-SXM (p4d)"), "a100-sxm4-80gb");  // which carries 40 GB
}

TEST(StatedNodes, AreOfOneGpu) {
  EXPECT_EQ(stated_gpu("A100 and H100"), "");
  EXPECT_EQ(stated_gpu("A100 and A100"), "a100-sxm4-80gb");
  EXPECT_EQ(stated_gpu("some A100 of 40GB"), "a100-sxm4-40gb");  // a module unless it says PCIe
  EXPECT_EQ(stated_gpu("some A100 of 40GB, PCIe"), "a100-pcie-40gb");
}

Changes on_two_nodes(const std::string& gpu, const std::string& network) {
  return {{"gpu", gpu}, {"inter_node", network}, {"gpus", "16"}, {"dp", "4"}};
}

// EFA is the network of one cloud.
TEST(StatedNodes, HaveTheNetworkOfTheirCloud) {
  const auto node = [](const std::string& gpu, const std::string& network) {
    return row_cluster(row_of(on_two_nodes(gpu, network))).value().node;
  };
  EXPECT_EQ(node("H100-80GB-SXM", "EFA").name, "p5");
  EXPECT_EQ(node("A100-80GB-SXM", "EFA 400 Gbps").name, "p4de");
  EXPECT_EQ(node("A100-80GB-SXM", "AWS p4d").name, "p4de");  // whose sibling that is
  EXPECT_EQ(node("A100-40GB-SXM", "AWS p4d").name, "p4d");
  EXPECT_EQ(node("H100-80GB-SXM", "AWS p4d").name, "hgx-h100");
  EXPECT_EQ(node("H100-80GB-SXM", "InfiniBand").name, "hgx-h100");
  EXPECT_EQ(node("RTX-3090", "EFA").name, "rtx-3090-8");  // which that cloud does not have
}

TEST(StatedNodes, SayWhichNetworkIsTaken) {
  const auto notes = [](const std::string& network) {
    return cluster_notes(row_of(on_two_nodes("H100-80GB-SXM", network)));
  };
  EXPECT_THAT(notes("8x400Gb IB NDR"), IsEmpty());
  EXPECT_THAT(notes("DGX H100"), IsEmpty());  // a node's
  EXPECT_THAT(notes(""), ElementsAre("network of hgx-h100"));
  EXPECT_THAT(notes("RoCE (rate not stated)"),
              ElementsAre("inter_node \"RoCE (rate not stated)\" as the network of hgx-h100"));
  EXPECT_THAT(cluster_notes(row_of({{"inter_node", "RoCE"}})), IsEmpty());  // one node
  Changes halves = on_two_nodes("H100-80GB-SXM", "");
  halves["gpus"] = "12";
  EXPECT_THAT(cluster_notes(row_of(halves)),
              ElementsAre("6 GPUs of every 8 in use", "network of hgx-h100"));
}

TEST(StatedNodes, WhatGpusLeaveOpenIsRemarked) {
  EXPECT_THAT(gpu_notes("V100-SXM2"), ElementsAre("GPU V100-SXM2 as v100-sxm2-32gb"));
  EXPECT_THAT(gpu_notes("A100 PCIe"), ElementsAre("GPU A100 PCIe as a100-pcie-80gb"));
  EXPECT_THAT(gpu_notes("AMD MI250X"), ElementsAre("GPU AMD MI250X as mi250x-gcd"));
  EXPECT_THAT(gpu_notes("MI250X GCD"), IsEmpty());
  EXPECT_THAT(gpu_notes("H100 (500W)"),
              ::testing::IsSupersetOf({"h100-sxm5-80gb of 700 W, not 500"}));
  EXPECT_THAT(gpu_notes("A100-80GB-SXM (400 W)"), IsEmpty());
  for (const std::string clear :
       {"A100-SXM4-40GB", "V100-SXM2-16GB", "RTX 4090", "MI300X OAM", "H100 80GB HBM3",
        "H100-96GB-HBM2e-SXM-500W (Grand Teton)", "B200 192GB", "abacus"}) {
    EXPECT_THAT(gpu_notes(clear), IsEmpty()) << clear;
  }
}

TEST(StatedNodes, GpusThatNobodyKnowsHaveAHint) {
  EXPECT_EQ(gpu_hint("MI300A"), " (did you mean \"mi300x\"?)");
  EXPECT_EQ(gpu_hint("H10O"), " (did you mean \"h100\"?)");
  EXPECT_EQ(gpu_hint("Ascend 910B"), "");
  EXPECT_EQ(predicted({{"gpu", ""}}).skipped_because, "gpu is not stated");
}

// An MI250X of 128 GB is a module: software sees two GPUs.
TEST(StatedNodes, ModulesAreCountedByTheirGpus) {
  const auto cluster = make_cluster({"MI250X-128GB", 32, 4, "", ""});
  ASSERT_FALSE(cluster);
  EXPECT_THAT(cluster.error(), HasSubstr("state 64 GPUs, 8 a node"));
  EXPECT_TRUE(make_cluster({"MI250X-128GB", 64, 8, "", ""}));
  EXPECT_EQ(make_cluster({"A800 40GB PCIe", 8, 8, "", ""})->gpu.name, "a100-pcie-40gb");
}

}  // namespace
}  // namespace orrery::studies
