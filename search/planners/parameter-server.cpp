// SPDX-License-Identifier: Apache-2.0
// Parameter servers: how many are needed before their traffic hides behind the computation. Every
// round each worker sends its gradients to all servers, a shard each, and, when all have come,
// reads the new parameters back; it computes meanwhile on those of the round before. The rounds are
// simulated with max-min fair links (each one for both directions); the closed forms of Zou et al.
// stand beside them: ceil(2 S N / (B T)) servers, and the speedup that an overhead leaves.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "search/planner.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::search {
namespace {

struct Setup {
  int workers = 1;
  double parameters = 0;  // bytes
  double server_rate = 0;
  double worker_rate = 0;
  Seconds compute;
};

constexpr int kRounds = 8;
constexpr int kWarmUp = 4;
constexpr double kEqual = 1e-9;  // of a time

// Steady time of a round.
double round_time(const Setup& setup, int servers) {
  sim::Program program;
  std::vector<sim::ResourceId> server_links;
  std::vector<sim::ResourceId> worker_links;
  std::vector<sim::StreamId> streams;
  for (int server = 0; server < servers; ++server) {
    server_links.push_back(program.add_resource(setup.server_rate, "server link"));
  }
  for (int worker = 0; worker < setup.workers; ++worker) {
    worker_links.push_back(program.add_resource(setup.worker_rate, "worker link"));
    streams.push_back(program.add_stream(static_cast<std::uint32_t>(worker),
                                         sim::StreamKind::Compute, "compute"));
  }
  const Bytes shard(setup.parameters / servers);
  const auto join = [&](const std::vector<sim::NodeId>& nodes) {
    const sim::NodeId all = program.add_flow({}, SimTime{}, Bytes(0.0), {}, {});
    for (const sim::NodeId node : nodes) {
      program.depend(all, node);
    }
    return all;
  };
  // A shard between every worker and every server; the node after which all are there.
  const auto transfer = [&](sim::NodeId after) {
    std::vector<sim::NodeId> flows;
    for (const sim::ResourceId worker : worker_links) {
      for (const sim::ResourceId server : server_links) {
        const std::vector<sim::ResourceId> route = {worker, server};
        flows.push_back(program.add_flow({}, SimTime{}, shard, route, {}));
        program.depend(flows.back(), after);
      }
    }
    return join(flows);
  };
  std::vector<sim::NodeId> pulled;
  std::vector<sim::NodeId> ends;
  for (int round = 0; round < kRounds + kWarmUp; ++round) {
    std::vector<sim::NodeId> computed;
    for (const sim::StreamId stream : streams) {
      computed.push_back(program.add_work(stream, to_sim_time(setup.compute), {}));
      if (round > 1) {
        program.depend(computed.back(), pulled[static_cast<std::size_t>(round) - 2]);
      }
    }
    ends.push_back(computed.back());
    pulled.push_back(transfer(transfer(join(computed))));
  }
  program.finalize();
  const sim::Timeline timeline = sim::run(program);
  const auto end_of = [&](int round) {
    return to_seconds(timeline.end[ends[static_cast<std::size_t>(round)]]).value();
  };
  return (end_of(kRounds + kWarmUp - 1) - end_of(kWarmUp - 1)) / kRounds;
}

Json plan(ObjectReader& problem) {
  Setup setup;
  setup.workers = static_cast<int>(problem.required("workers").integer(1, 64));
  setup.parameters = problem.required("parameters").byte_count().bytes().value();
  setup.server_rate = problem.required("server_bandwidth").bandwidth().value();
  setup.worker_rate = problem.required("worker_bandwidth").bandwidth().value();
  setup.compute = problem.required("compute").duration(false);
  const double overhead = problem.number_or("overhead_share", 0, 0, 1e3);
  const int most = static_cast<int>(problem.integer_or("max_servers", 16, 1, 64));
  problem.finish();
  const double traffic = 2 * setup.parameters * setup.workers / setup.server_rate;
  Json rounds = Json::array();
  int masking = 0;
  for (int servers = 1; servers <= most; ++servers) {
    const double time = round_time(setup, servers);
    rounds.push(time);
    if (masking == 0 && time <= setup.compute.value() * (1 + kEqual)) {
      masking = servers;
    }
  }
  // A quotient of decimal fractions that is whole may come out a rounding error above it.
  const double needed = std::ceil(traffic / setup.compute.value() * (1 - kEqual));
  const double n = setup.workers;
  return Json::Object{
      {"round_time_s", std::move(rounds)},
      {"masking_servers", masking},  // 0: more than were tried
      {"formula_servers", static_cast<std::int64_t>(needed)},
      {"workers_masked", 2 * setup.parameters / setup.worker_rate <= setup.compute.value()},
      {"speedup", n * (1 + overhead) / (1 + n * overhead)},
      {"all_reduce_bytes_per_worker", 2 * setup.parameters * (n - 1) / n}};
}

}  // namespace

extern const Planner planner_parameter_server = {
    .name = "parameter-server",
    .description = "servers needed to hide parameter traffic behind computation",
    .source = "Zou et al., Distributed Training Large-Scale Deep Architectures, 2017 (1709.06622)",
    .example = R"({"schema": "orrery-problem", "version": 1, "workers": 4,
  "parameters": "244 MB", "server_bandwidth": "1.25 GB/s", "worker_bandwidth": "1.25 GB/s",
  "compute": "500 ms", "max_servers": 8})",
    .plan = plan,
};

}  // namespace orrery::search
