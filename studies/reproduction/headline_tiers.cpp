// SPDX-License-Identifier: Apache-2.0
#include "base/limits.hpp"
#include "models/network.hpp"
#include "plan/plan.hpp"
#include "plan/stage/offload_time.hpp"
#include "sim/partitions.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

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
  sim::Partitions parts;  // layers of the network
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
  const sim::PartitionRound round = sim::partition_round(parts, graph, policy);
  // The same without computing: what the transfers alone take, latencies included.
  parts.forward = SimTime{};
  parts.backward = SimTime{};
  const sim::PartitionRound moved = sim::partition_round(parts, graph, policy);
  const double all = static_cast<double>(parts.weights.value()) * parts.count;
  return Json::Object{{"round_s", round.time.value()},
                      {"compute_s", round.busy.value()},
                      {"transfer_s", moved.time.value()},
                      {"partitions", parts.count},
                      {"weights_bytes", all},
                      {"peak_bytes", static_cast<double>(round.peak.value())},
                      {"saving", 1 - static_cast<double>(round.peak.value()) / all}};
}

}  // namespace orrery::studies
