// SPDX-License-Identifier: Apache-2.0
// Parameters of serving plans that live on the host or on disk, against the formulas of
// Superpipeline (arXiv 2410.08791) and TPI-LLM (arXiv 2410.00531), and all-reduces by messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/serving/messages.hpp"
#include "plan/serving/weights.hpp"
#include "plan/stage/offload_time.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::HasSubstr;

constexpr double kLink = 1e9;  // bytes per second

sim::TierGraph host_link() {
  sim::TierGraph graph;
  graph.tiers = {{"device", ByteCount(), {}}, {"host", ByteCount(), {}}};
  graph.channels = {{1, 0, BytesPerSecond(kLink), Seconds(), -1}};
  return graph;
}

ServedWeights fetched(double compute, double load) {
  return {Tier::Host, ByteCount(static_cast<std::int64_t>(load * kLink)), Seconds(compute)};
}

Execution windowed(int resident, int together = 1) {
  Execution execution;
  execution.gathers_in_flight = resident;
  execution.fetched_together = together;
  return execution;
}

double iteration(const std::vector<ServedWeights>& blocks, const Execution& execution) {
  return fetched_iteration(blocks, execution, host_link()).value();
}

// Partitions of x = 1, of which whole groups are an iteration or not: max(x, u) each while k - k'
// >= k', else a group of k' waits max(0, k' u - (k - k') x) more.
TEST(ServingWeights, AWindowIsSuperpipelines) {
  for (const double load : {0.25, 1.0, 1.5, 3.0}) {
    for (const auto& [k, together] :
         {std::pair(1, 1), std::pair(2, 1), std::pair(4, 1), std::pair(3, 2), std::pair(4, 2),
          std::pair(6, 3), std::pair(4, 4)}) {
      const double looks_ahead = k - together;
      const double each = looks_ahead >= together
                              ? std::max(1.0, load)
                              : 1 + std::max(0.0, together * load - looks_ahead * 1.0) / together;
      for (const std::size_t count : {12, 13}) {
        const std::vector<ServedWeights> blocks(count, fetched(1, load));
        EXPECT_NEAR(iteration(blocks, windowed(k, together)), static_cast<double>(count) * each,
                    1e-9)
            << load << " " << k << " " << together;
        EXPECT_EQ(weights_held(blocks, k).device.value(), k * blocks.front().bytes.value());
      }
    }
  }
  // All of them: nothing moves once they have come.
  EXPECT_NEAR(iteration(std::vector<ServedWeights>(12, fetched(1, 3)), windowed(12)), 12, 1e-9);
}

// Llama-2-7B's measured blocks in a window of 4: 11 + 14 and 17 + 14 ms with their all-reduces,
// 18 and 30 ms to load. With 45 ms for an FFN a layer takes what its loads do.
TEST(ServingWeights, AWindowIsThatOfTpiLlm) {
  const auto layer = [](double load_ffn) {
    std::vector<ServedWeights> blocks;
    for (int index = 0; index < 32; ++index) {
      blocks.push_back(fetched(0.011 + 0.014, 0.018));
      blocks.push_back(fetched(0.017 + 0.014, load_ffn));
    }
    return iteration(blocks, windowed(4)) / 32;
  };
  EXPECT_NEAR(layer(0.030), 0.056, 1e-9);
  EXPECT_NEAR(layer(0.045), 0.063, 1e-9);
}

// Every second one stays: its time hides the copy of the next.
TEST(ServingWeights, BlocksThatStayHideCopies) {
  std::vector<ServedWeights> blocks;
  for (int index = 0; index < 6; ++index) {
    blocks.push_back(fetched(1, 2));
    blocks.push_back({Tier::Device, ByteCount(7), Seconds(1)});
  }
  EXPECT_NEAR(iteration(blocks, windowed(2)), 12, 1e-9);
  EXPECT_EQ(weights_held(blocks, 2).device.value(), 6 * 7 + 2 * 2 * kLink);
  EXPECT_EQ(weights_held(blocks, 2).host.value(), 6 * 2 * kLink);
  EXPECT_EQ(weights_fetched(blocks, 2).host.value(), 6 * 2 * kLink);
  EXPECT_EQ(weights_fetched(blocks, 6).host.value(), 0);
}

// The host brings some blocks ahead while the disk is behind with others: it takes more than an
// iteration until all wait for the link, which brings 21 GB in each.
TEST(ServingWeights, WhatIsAheadHasSettled) {
  sim::TierGraph graph = host_link();
  graph.tiers.push_back({"disk", ByteCount(), {}});
  graph.channels.push_back({2, 1, BytesPerSecond(0.7 * kLink), Seconds(), -1});
  std::vector<ServedWeights> blocks = {fetched(5, 1), fetched(1, 3), fetched(4, 6),
                                       fetched(1, 3), fetched(1, 3), fetched(2, 6)};
  blocks[0].home = Tier::Device;
  blocks[3].home = blocks[5].home = Tier::Disk;
  EXPECT_NEAR(fetched_iteration(blocks, windowed(4), graph).value(), 21, 1e-9);
}

TEST(ServingWeights, TheLargestWindowRunsOnIntoTheNextIteration) {
  const std::vector<ServedWeights> blocks = {fetched(1, 5), fetched(1, 1), fetched(1, 4)};
  EXPECT_EQ(weights_held(blocks, 2).device.value(), 9 * kLink);
}

// 80 layers of Llama-2-70B in fp32 over eight machines with a GPU of 16 GB, a disk and slow links.
Plan edge_plan(AllReduce all_reduce) {
  BlockPlan layout;
  layout.tp = 8;
  Plan plan = replicas_of("llama2-70b", "p3-2xlarge:8", layout, 1, DType::Fp32);
  plan.cluster.node.disk = ByteCount(1'000'000'000'000);
  plan.cluster.node.disk_bandwidth = BytesPerSecond(1.34e9);
  plan.cluster.node.scale_out.latency = Seconds(4e-3);  // four links of 1 ms
  plan.cluster.node.scale_out.nic_bandwidth = BytesPerSecond(300e6 / 8);
  plan.cluster.node.scale_out.efficiency_fraction = 1;
  BlockPlan away = layout;
  away.offload.parameters = Tier::Disk;
  plan.blocks = {{1, layout}, {80, away}, {1, layout}};
  Serving serving;
  serving.requests.count = 1;
  serving.requests.prompt = {.mean = 32};
  serving.requests.output = {.mean = 16};
  serving.options.token_budget = serving.options.max_requests = 256;
  serving.options.all_reduce = all_reduce;
  serve(plan, serving);
  check_plan(plan, "plan");
  return plan;
}

// A head whose weights are those of the embedding keeps them where the embedding passes through.
TEST(ServingWeights, TiedWeightsStayForTheHead) {
  Plan plan = replicas_of("gpt2", "p3-2xlarge:1", {}, 1, DType::Fp16);
  serve(plan, some_requests(1));
  const ByteCount whole = ServingModel(plan).memory().front().parameters;
  BlockPlan away;
  away.offload.parameters = Tier::Host;
  plan.execution.gathers_in_flight = 1;
  plan.blocks = {{1, away}, {plan.blocks.front().count - 1, {}}};
  const ServingMemory memory = ServingModel(plan).memory().front();
  EXPECT_EQ((memory.parameters - whole).value(), 2 * 50257 * 768);
  EXPECT_EQ(memory.host_parameters.value(), 2 * (50257 + 1024) * 768);
}

// A token takes what its parameters take from disk: 26 s and a tenth.
TEST(ServingWeights, ATokenOf70BOnEdgeDevices) {
  const Plan plan = edge_plan(AllReduce::Star);
  ServingModel model(plan);
  const double h = 8192;
  const double products = 2 * h * h + 2 * h * 1024 + 3 * h * 28672;
  const double bytes = 4 * (products / 8 + 2 * h);
  const ServingMemory memory = model.memory().front();
  EXPECT_EQ(memory.disk_parameters.value(), static_cast<std::int64_t>(80 * bytes));
  EXPECT_EQ(memory.host_parameters.value(), 0);
  const double ends = 4 * 2 * (32000.0 / 8) * h + 4 * h;
  EXPECT_NEAR(memory.parameters.bytes().value(), ends + 2 * bytes, 1);
  const IterationCost cost = model.cost(0, decoding(1, 40));
  EXPECT_NEAR(cost.time.value(), 80 * bytes / 1.34e9, 1e-3 * cost.time.value());
  EXPECT_NEAR(cost.time.value(), 26, 3);
  double parts = 0;
  for (const Seconds part : cost.parts) {
    parts += part.value();
  }
  EXPECT_NEAR(parts, cost.time.value(), 1e-9);
}

// Sixteen tokens, each of which the disk brings all parameters for.
TEST(ServingWeights, NoPlanIsFasterThanItsBound) {
  const Plan plan = edge_plan(AllReduce::Star);
  ServingModel model(plan);
  const Seconds bound = serving_bound(plan, model, generate_requests(plan.serving->requests));
  const ServingSimulation simulation = simulate_serving(plan);
  EXPECT_LE(bound, simulation.makespan);
  EXPECT_GT(bound, simulation.makespan * 0.9);
}

// 32 KiB in fp32: a star's messages meet at the master's port, a ring's begin fourteen times.
TEST(ServingWeights, AllReducesByMessages) {
  const double bytes = 4 * 8192;
  const double rate = 300e6 / 8;
  const auto time = [&](AllReduce all_reduce, double size) {
    const Plan plan = edge_plan(all_reduce);
    const BlockCosts costs(plan);
    const MessageLinks links{plan.cluster, costs.device(), all_reduce};
    return links.collective(sim::CommKind::AllReduce, Bytes(size), {8, 1, 8, 1, 1, 1}).value();
  };
  const double tau = 4e-3;
  EXPECT_NEAR(time(AllReduce::Star, bytes), 2 * (tau + 7 * bytes / rate), 0.02 * 2 * tau);
  EXPECT_NEAR(time(AllReduce::Tree, 8) / tau, 4, 0.05);
  EXPECT_NEAR(time(AllReduce::Star, 8) / tau, 2, 0.05);
  EXPECT_NEAR(time(AllReduce::Ring, bytes), 14 * (tau + bytes / 8 / rate), 0.02 * 14 * tau);
  EXPECT_EQ(time(AllReduce::Fastest, 8), time(AllReduce::Star, 8));
  EXPECT_EQ(time(AllReduce::Fastest, 1e8), time(AllReduce::Ring, 1e8));
}

// The receiver reads two terms and writes their sum.
TEST(ServingWeights, SumsTakeTheirTime) {
  Plan plan = edge_plan(AllReduce::Star);
  plan.cluster.node.scale_out.latency = Seconds();
  plan.cluster.node.scale_out.nic_bandwidth = BytesPerSecond(1e17);
  const BlockCosts costs(plan);
  const MessageLinks links{plan.cluster, costs.device(), AllReduce::Star};
  const Seconds time = links.collective(sim::CommKind::AllReduce, Bytes(1e9), {2, 1, 2, 1, 1, 1});
  EXPECT_GT(time, Bytes(3e9) / plan.cluster.gpu.hbm_bandwidth);
}

// One rank of a node has one of its adapters, eight pairs of ranks have all eight, sixteen share
// them. A degree that is tried beyond the nodes there are is timed as if its nodes were neighbours.
TEST(ServingWeights, MessagesLeaveByAdapters) {
  const auto time = [](const std::string& cluster, const costmodel::GroupShape& group) {
    const Plan plan = replicas_of("llama3-8b", cluster, {}, 1, DType::Bf16);
    const BlockCosts costs(plan);
    const MessageLinks links{plan.cluster, costs.device(), AllReduce::Ring};
    return links.collective(sim::CommKind::AllGather, Bytes(2e9), group).value();
  };
  const double one = 1e9 / 50e9;  // half of the bytes over 400 Gbit/s
  EXPECT_NEAR(time("hgx-h100:2", {2, 1, 2, 1, 1, 1}), one, 1e-3 * one);
  EXPECT_NEAR(time("hgx-h100:2", {2, 1, 2, 8, 1, 1}), one, 1e-3 * one);
  EXPECT_NEAR(time("hgx-h100:2", {2, 1, 2, 16, 1, 1}), 2 * one, 1e-3 * one);
  EXPECT_NEAR(time("hgx-h100:1", {2, 1, 2, 8, 1, 1}), one, 1e-3 * one);
}

TEST(ServingWeights, OnlySlowLinksNeedMessages) {
  EXPECT_TRUE(has_slow_links(edge_plan(AllReduce::Star).cluster));
  EXPECT_FALSE(has_slow_links(topologies::load_cluster("hgx-h100:4")));
  EXPECT_FALSE(has_slow_links(topologies::load_cluster("p3-2xlarge:8")));
}

// A link that is fast enough hides everything; then an iteration is that of resident parameters.
TEST(ServingWeights, AFastLinkHidesTheCopies) {
  Plan plan = edge_plan(AllReduce::Star);
  plan.cluster.node.disk_bandwidth = BytesPerSecond(1e15);
  plan.cluster.node.host_link_per_gpu = BytesPerSecond(1e15);
  plan.cluster.node.host_memory_bandwidth = BytesPerSecond(1e15);
  Plan whole = plan;
  whole.blocks = {{82, plan.blocks.front().layout}};
  const IterationCost cost = ServingModel(plan).cost(0, decoding(4, 40));
  EXPECT_NEAR(cost.time.value(), ServingModel(whole).cost(0, decoding(4, 40)).time.value(),
              1e-6 * cost.time.value());
}

// Keys and values come over the same link.
TEST(ServingWeights, TheCacheSharesTheLink) {
  Plan plan = edge_plan(AllReduce::Star);
  for (BlockRun& run : plan.blocks) {
    run.layout.offload.parameters = run.count == 80 ? Tier::Host : run.layout.offload.parameters;
  }
  plan.cluster.node.host_memory = ByteCount(1'000'000'000'000);
  plan.cluster.node.scale_out.latency = Seconds(1e-6);
  plan.cluster.node.scale_out.nic_bandwidth = BytesPerSecond(1e13);
  ServingModel alone(plan);
  Serving serving = *plan.serving;
  serving.options.host_cache = 0.5;
  serve(plan, serving);
  ServingModel both(plan);
  const Iteration decode = decoding(256, 2000);
  const double link = tier_graph(plan.cluster, plan.profile).channels.front().bandwidth.value();
  const double keys = 0.5 * 256 * 2000 * 80 * 4 * 2 * 128;  // a head of each in fp32
  EXPECT_NEAR(both.cost(0, decode).time.value() - keys / link, alone.cost(0, decode).time.value(),
              0.02 * keys / link);
}

// Eight ranks of a node, all of whose layers live elsewhere.
Plan one_node(Tier tier) {
  BlockPlan layout;
  layout.tp = 8;
  Plan plan = replicas_of("llama3-8b", "dgx-a100:1", layout, 1, DType::Bf16);
  serve(plan, some_requests(4));
  BlockPlan away = layout;
  away.offload.parameters = tier;
  plan.blocks = {{1, layout}, {32, away}, {1, layout}};
  return plan;
}

TEST(ServingWeights, RanksOfANodeShareItsDisk) {
  Plan plan = one_node(Tier::Disk);
  plan.cluster.node.disk_bandwidth = BytesPerSecond(4e9);
  ServingModel model(plan);
  const ByteCount each = model.memory().front().disk_parameters;
  EXPECT_NEAR(model.fetch_bound().value(), 8 * each.bytes().value() / 4e9, 1e-9);
  EXPECT_NEAR(model.cost(0, decoding(1, 10)).time.value(), model.fetch_bound().value(), 1e-3);
  plan.cluster.node.disk = each * 8;
  EXPECT_TRUE(serving_fits(model.memory(), 1, plan).fits);
  plan.cluster.node.disk = each * 8 - ByteCount(1);
  EXPECT_THAT(serving_fits(model.memory(), 1, plan).text, HasSubstr("of disk on each dgx-a100"));
}

// What parameters leave of the host's memory holds tokens: 32 layers of a head each.
TEST(ServingWeights, TheCacheSharesTheHost) {
  Plan plan = one_node(Tier::Host);
  const ByteCount each = ServingModel(plan).memory().front().host_parameters;
  Serving serving = *plan.serving;
  serving.options.host_cache = 0.5;
  serve(plan, serving);
  plan.cluster.node.host_memory = (each + ByteCount(1'000'000'000)) * 8;
  const double token = 0.5 * 32 * 2 * 2 * 128;
  EXPECT_EQ(ServingModel(plan).memory().front().kv_tokens, static_cast<std::int64_t>(1e9 / token));
}

std::string refusal(const std::function<void(Plan&)>& change) {
  Plan plan = edge_plan(AllReduce::Star);
  change(plan);
  return problem(plan);
}

TEST(ServingWeights, BadInput) {
  EXPECT_THAT(
      refusal([](Plan& plan) { plan.execution.gathers_in_flight = 81; }),
      HasSubstr("gathers_in_flight = 81 holds 81 blocks on the device, but stage 0 has 80"));
  EXPECT_THAT(refusal([](Plan& plan) { plan.execution.gathers_in_flight = 0; }),
              HasSubstr("holds all blocks on the device"));
  EXPECT_THAT(refusal([](Plan& plan) { plan.execution.fetched_together = 3; }),
              HasSubstr("fetched_together is 3"));
  EXPECT_THAT(refusal([](Plan& plan) { plan.cluster.node.disk = ByteCount(); }),
              HasSubstr("parameters: the nodes of p3-2xlarge:8 have no disk"));
  EXPECT_THAT(refusal([](Plan& plan) { plan.blocks[1].layout.offload.optimizer = Tier::Host; }),
              HasSubstr("no offload but of parameters"));
  EXPECT_THAT(refusal([](Plan& plan) {
                plan.blocks[1].layout.offload.activations_of.add(OperatorGroup::Norms);
              }),
              HasSubstr("no offload but of parameters"));
  EXPECT_THAT(refusal([](Plan& plan) { plan.blocks[1].layout.cp = 2; }),
              HasSubstr("share one layout"));
}

TEST(ServingWeights, TooLittleRoomOnTheHost) {
  Plan plan = edge_plan(AllReduce::Star);
  plan.blocks[1].layout.offload.parameters = Tier::Host;
  plan.cluster.node.host_memory = ByteCount(20'000'000'000);
  const ServingSimulation simulation = simulate_serving(plan);
  ASSERT_TRUE(simulation.does_not_fit.has_value());
  EXPECT_THAT(*simulation.does_not_fit, HasSubstr("of host memory on each p3-2xlarge"));
  EXPECT_THAT(simulation.nearest, HasSubstr("its nodes lack room"));
}

TEST(ServingWeights, PlansKeepTheirWindow) {
  Plan plan = edge_plan(AllReduce::Fastest);
  plan.cluster = topologies::load_cluster("p3-2xlarge:8");
  plan.execution = windowed(4, 2);
  plan.blocks[1].layout.offload.parameters = Tier::Host;
  const Plan again = read_plan(to_json(plan), "again");
  EXPECT_EQ(again.blocks, plan.blocks);
  EXPECT_EQ(again.execution, plan.execution);
  EXPECT_EQ(again.serving->options.all_reduce, AllReduce::Fastest);
}

}  // namespace
}  // namespace orrery::plan
