// SPDX-License-Identifier: Apache-2.0
#include "base/limits.hpp"
#include "models/network.hpp"
#include "plan/plan.hpp"
#include "plan/stage/offload_time.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

namespace {

// Layers of a network as partitions on the device, host memory behind them.
struct Partitions {
  int count = 0;
  ByteCount weights;  // of one
  SimTime forward;
  SimTime backward;
  bool training = false;
};

sim::TierRun run_partitions(const Partitions& parts, const sim::TierGraph& graph,
                            const sim::TierPolicy& policy, int rounds) {
  constexpr int kDevice = 0;
  constexpr int kHost = 1;
  const std::vector<sim::TierObject> objects(
      static_cast<std::size_t>(parts.count),
      {"partition", parts.weights, {{kHost, parts.weights}}});
  std::vector<sim::TierStep> steps;
  for (int round = 0; round < rounds; ++round) {
    for (int part = 0; part < parts.count; ++part) {
      steps.push_back({part, parts.forward, {}});
    }
    for (int part = parts.count - 1; parts.training && part >= 0; --part) {
      steps.push_back({part, parts.backward, {{kHost, parts.weights}}});
    }
  }
  return sim::run_tiers(graph, kDevice, objects, steps, policy);
}

}  // namespace

Json tiers_run(const JsonReader& value, ObjectReader& run) {
  const JsonReader described = run.required("tiers");
  run.finish();
  ObjectReader tiers = described.object();
  plan::Plan plan;
  plan.network = models::load_network(tiers.required("network").string());
  plan.cluster = topologies::load_cluster(tiers.required("cluster").string());
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.precision = parse_dtype(tiers.string_or("precision", "fp16"), described.where());
  plan.sequence = tiers.integer_or("sequence", plan.network.spec.sequence, 1, limits::kMaxSequence);
  const auto batch = tiers.integer_or("batch", 1, 1, limits::kMaxBatch);
  const int resident = static_cast<int>(tiers.required("k").integer(1, limits::kMaxLayers));
  const int together = static_cast<int>(tiers.integer_or("k_moved", 1, 1, resident));
  Partitions parts;
  parts.training = tiers.boolean_or("training", false);
  tiers.finish();
  plan::BlockCosts costs(plan);
  for (const int index : plan.network.chain) {
    const models::Block& block = plan.network.blocks[static_cast<std::size_t>(index)];
    if (block.kind != models::BlockKind::Layer) {
      continue;
    }
    const plan::BlockCost& cost = costs.of(index, {}, batch);
    ++parts.count;
    parts.forward = cost.forward.time;
    parts.backward = cost.backward.time;
    std::int64_t elements = 0;
    for (const plan::StateGroup& group : cost.states) {
      elements += group.elements;
    }
    parts.weights = ByteCount(elements * 2);
  }
  if (resident > parts.count) {
    value.fail("more partitions are resident than the network has layers");
  }
  const sim::TierGraph graph = plan::tier_graph(plan.cluster, plan.profile);
  const sim::TierPolicy policy{.resident = resident, .batch = together};
  // The third round is in steady state.
  const sim::TierRun three = run_partitions(parts, graph, policy, 3);
  const sim::TierRun two = run_partitions(parts, graph, policy, 2);
  const double round = to_seconds(three.makespan - two.makespan).value();
  const double compute = to_seconds(two.busy).value() / 2;
  // The same without computing: what the transfers alone take, latencies included.
  parts.forward = SimTime{};
  parts.backward = SimTime{};
  const double moved = to_seconds(run_partitions(parts, graph, policy, 3).makespan -
                                  run_partitions(parts, graph, policy, 2).makespan)
                           .value();
  const double all = static_cast<double>(parts.weights.value()) * parts.count;
  return Json::Object{{"round_s", round},
                      {"compute_s", compute},
                      {"transfer_s", moved},
                      {"partitions", parts.count},
                      {"weights_bytes", all},
                      {"peak_bytes", static_cast<double>(three.peak.value())},
                      {"saving", 1 - static_cast<double>(three.peak.value()) / all}};
}

}  // namespace orrery::studies
