// SPDX-License-Identifier: Apache-2.0
// Superpipeline: a network in equal partitions that live in host memory, k of them on the device at
// once, of which k' are exchanged together. Both numbers are tried out, for inference (forward,
// again and again) or training (forward, then backward in reverse order, after which a partition's
// weights and gradients travel back), on sim/partitions.hpp; the answer is the fastest pair that
// fits the memory, of equally fast ones that with the fewest partitions, then the fewest together.
// O(partitions^4) steps of the engine at most: no larger k is tried once nothing is waited for.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "sim/partitions.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kMostPartitions = 96;
constexpr double kEqual = 1e-9;                              // of a round
constexpr std::int64_t kMostBytes = std::int64_t{64} << 40;  // of a partition
constexpr double kLongestRound = 4e4;  // seconds; simulated time holds a hundred rounds of them

Seconds compute_of(const sim::Partitions& layers) {
  return to_seconds(layers.forward + layers.backward) * static_cast<double>(layers.count);
}

struct Pair {
  int k = 0;
  int moved = 0;
  Seconds round;
  ByteCount peak;
};

sim::TierGraph host_behind(ObjectReader& problem) {
  const BytesPerSecond bandwidth = problem.required("host_bandwidth").bandwidth();
  const auto latency = problem.optional("latency");
  const Seconds start = latency ? latency->duration() : Seconds();
  const int group = problem.boolean_or("half_duplex", false) ? 0 : -1;
  sim::TierGraph graph;
  graph.tiers = {{"device", ByteCount(), {}}, {"host", ByteCount(), {}}};
  graph.channels = {{1, 0, bandwidth, start, group}, {0, 1, bandwidth, start, group}};
  return graph;
}

Pair run_pair(const sim::Partitions& layers, const sim::TierGraph& graph, int k, int moved) {
  const sim::PartitionRound round = sim::partition_round(
      layers, graph, {.resident = k, .batch = moved, .dirty = sim::DirtySpace::OfObject});
  return {k, moved, round.time, round.peak};
}

Json to_json(const sim::Partitions& layers, const Pair& pair) {
  const double all = static_cast<double>(layers.resident().value()) * layers.count;
  const auto peak = static_cast<double>(pair.peak.value());
  return Json::Object{{"k", pair.k},
                      {"k_moved", pair.moved},
                      {"round_s", pair.round.value()},
                      {"stall_s", std::max(Seconds(), pair.round - compute_of(layers)).value()},
                      {"peak_bytes", peak},
                      {"saving", 1 - peak / all}};
}

ByteCount read_bytes(const JsonReader& value) {
  const ByteCount bytes = value.byte_count();
  if (bytes.value() > kMostBytes) {
    value.fail("a partition is at most 64 TiB");
  }
  return bytes;
}

// With nothing beside it: a partition's passes, transfers and latencies one after the other.
void check_round(const ObjectReader& problem, const sim::Partitions& layers,
                 const sim::TierGraph& graph) {
  Seconds alone = to_seconds(layers.forward) + to_seconds(layers.backward);
  for (const sim::TierChannel& channel : graph.channels) {
    alone += (layers.resident().bytes() / channel.bandwidth + channel.latency) * 2.0;
  }
  if (alone.value() * layers.count > kLongestRound) {
    problem.value().fail(
        fmt::format("a round of all partitions may take longer than {} s", kLongestRound));
  }
}

sim::Partitions read_layers(ObjectReader& problem) {
  sim::Partitions layers;
  layers.count = static_cast<int>(problem.required("partitions").integer(1, kMostPartitions));
  layers.weights = read_bytes(problem.required("weights"));
  layers.forward = to_sim_time(problem.required("forward").duration());
  const auto backward = problem.optional("backward");
  const auto gradients = problem.optional("gradients");
  layers.training = backward.has_value();
  if (backward) {
    layers.backward = to_sim_time(backward->duration());
  }
  if (gradients) {
    layers.gradients = read_bytes(*gradients);
    if (!layers.training) {
      gradients->fail("there are none without a backward", "state \"backward\"");
    }
  }
  return layers;
}

Json plan(ObjectReader& problem) {
  const sim::Partitions layers = read_layers(problem);
  const sim::TierGraph graph = host_behind(problem);
  check_round(problem, layers, graph);
  const auto memory = problem.optional("memory");
  const ByteCount room = memory ? memory->byte_count() : layers.resident() * layers.count;
  const auto other = problem.optional("other_memory");
  const ByteCount beside = other ? other->byte_count() : ByteCount();
  problem.finish();
  if (layers.resident() + beside > room) {
    return infeasible("one partition and what is beside it do not fit the memory");
  }
  std::vector<Pair> best;  // of every k
  for (int k = 1; k <= layers.count; ++k) {
    if (layers.resident() * k + beside > room) {
      break;
    }
    Pair fastest = run_pair(layers, graph, k, 1);
    for (int moved = 2; moved <= k; ++moved) {
      Pair pair = run_pair(layers, graph, k, moved);
      if (pair.round < fastest.round * (1 - kEqual)) {
        fastest = pair;
      }
    }
    best.push_back(fastest);
    if (fastest.round <= compute_of(layers) * (1 + kEqual)) {
      break;  // nothing is waited for
    }
  }
  const Pair* chosen = &best.front();
  Json choices = Json::array();
  for (const Pair& pair : best) {
    choices.push(to_json(layers, pair));
    chosen = pair.round < chosen->round * (1 - kEqual) ? &pair : chosen;
  }
  Json answer = to_json(layers, *chosen);
  answer.set("compute_s", compute_of(layers).value());
  answer.set("choices", std::move(choices));
  return answer;
}

}  // namespace

extern const Planner planner_superpipeline = {
    .name = "superpipeline",
    .description = "partitions on the device at once, and how many are exchanged together",
    .source = "Abbasi and Lim, Superpipeline, 2024 (arXiv 2410.08791)",
    .example = R"({"schema": "orrery-problem", "version": 1, "partitions": 16,
  "weights": "80 MB", "gradients": "80 MB", "forward": "4 ms", "backward": "8 ms",
  "host_bandwidth": "16 GB/s", "latency": "10 us", "memory": "1.5 GB", "other_memory": "400 MB"})",
    .plan = plan,
};

}  // namespace orrery::search
