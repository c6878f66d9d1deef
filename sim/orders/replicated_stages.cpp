// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/replicated_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

constexpr std::int64_t kMostEdges = 1 << 21;

// As most are: what follows from it needs no look at every stage, of which refusals try many.
bool one_device_each(const ScheduleParams& params) {
  return params.replicas_of.empty() && params.replicas == 1;
}

std::int64_t edges_of(const std::vector<int>& replicas, std::int64_t turns) {
  return std::accumulate(
      replicas.begin(), replicas.end(), std::int64_t{0},
      [turns](std::int64_t sum, int r) { return sum + turns * (std::int64_t{r} - 1); });
}

struct DealtStage {
  int replicas;
  int ahead;       // forwards of a device before its first backward
  int per_update;  // micro-batches of a device
};

std::int64_t turns_of_all(const std::vector<int>& replicas) {
  std::int64_t turns = 1;
  int before = 1;
  for (const int r : replicas) {  // mostly as many as before
    turns = r == before ? turns : std::min(std::lcm(turns, std::int64_t{r}), kMaxVirtualStages + 1);
    before = r;
  }
  return turns;
}

void add_passes(PipelineOrder& order, const DealtStage& dealt, int stage) {
  const int turns = static_cast<int>(order.chains.size());
  const int stages = order.chains.front().stages;
  const int total = order.chains.front().units * turns / dealt.replicas;
  for (int k = 0; k < dealt.replicas; ++k) {
    const auto add = [&](PassKind kind, int n) {
      const int number = k + n * dealt.replicas;
      add_pass(order, kind, number % turns * stages + stage, number / turns);
    };
    for (int n = 0; n < std::min(dealt.ahead, total); ++n) {
      add(PassKind::Forward, n);
    }
    for (int n = 0; n < total; ++n) {
      add(PassKind::Backward, n);
      if ((n + 1) % dealt.per_update == 0) {
        add(PassKind::Optimizer, n);
      }
      if (n + dealt.ahead < total) {
        add(PassKind::Forward, n + dealt.ahead);
      }
    }
  }
}

// Updates wait for the gradients of the other replicas' micro-batches.
void add_all_reduce(PipelineOrder& order, const DealtStage& dealt, int stage) {
  const int stages = order.chains.front().stages;
  const int turns = static_cast<int>(order.chains.size());
  for (int turn = 0; turn < turns; turn += dealt.replicas) {
    const auto copy = [&](int k) { return (turn + k) * stages + stage; };
    add_exchange(order, dealt.replicas, Lane::Gradient, copy, Lane::Optimizer, copy);
  }
}

PipelineOrder dealt_order(const std::vector<DealtStage>& stages, int units) {
  std::vector<int> replicas;
  std::vector<int> first;  // device
  int devices = 0;
  for (const DealtStage& stage : stages) {
    first.push_back(devices);
    replicas.push_back(stage.replicas);
    devices += stage.replicas;
  }
  PipelineOrder order = bare_order(devices, 1);
  order.extended = true;
  const auto turns = static_cast<int>(turns_of_all(replicas));
  std::vector<std::uint16_t> device_of(stages.size());
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < stages.size(); ++i) {
      device_of[i] = static_cast<std::uint16_t>(first[i] + turn % replicas[i]);
    }
    add_chain(order, device_of, {.units = units / turns, .first_unit = turn, .stride = turns});
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    add_passes(order, stages[i], static_cast<int>(i));
    add_all_reduce(order, stages[i], static_cast<int>(i));
  }
  return order;
}

}  // namespace

std::vector<int> in_flight(const ScheduleParams& params) {
  const std::vector<int> replicas = replicas_of_all(params);
  std::vector<int> held(replicas.size());
  int later = 0;
  for (std::size_t i = replicas.size(); i-- > 0;) {
    later += replicas[i];
    held[i] = (later + replicas[i] - 1) / replicas[i];
  }
  return held;
}

int most_in_flight(const ScheduleParams& params) {
  if (one_device_each(params)) {
    return params.stages;
  }
  const std::vector<int> replicas = replicas_of_all(params);
  const std::vector<int> held = in_flight(params);
  return std::transform_reduce(
      held.begin(), held.end(), replicas.begin(), 0, [](int a, int b) { return std::max(a, b); },
      [](int each, int r) { return each * r; });
}

std::int64_t turns_of(const ScheduleParams& params) {
  return one_device_each(params) ? 1 : turns_of_all(replicas_of_all(params));
}

bool has_replicated_stages(const ScheduleParams& params) {
  if (one_device_each(params)) {
    return false;
  }
  const std::vector<int> replicas = replicas_of_all(params);
  return std::any_of(replicas.begin(), replicas.end(), [](int r) { return r > 1; });
}

Refusal check_replicated_stages(const ScheduleParams& params) {
  if (one_device_each(params)) {
    return {};
  }
  const std::vector<int> replicas = replicas_of_all(params);
  if (!params.replicas_of.empty() && replicas.size() != static_cast<std::size_t>(params.stages)) {
    return refused(fmt::format("replicas of {} stages are given", replicas.size()), Size::Stages,
                   static_cast<double>(replicas.size()));
  }
  if (std::any_of(replicas.begin(), replicas.end(), [](int r) { return r < 1; })) {
    return refused("a stage has no device", Size::Replicas, 1);
  }
  const std::int64_t turns = turns_of(params);
  if (std::int64_t{params.stages} * turns > kMaxVirtualStages ||
      edges_of(replicas, turns) > kMostEdges) {
    return refused(
        "the replicas of the stages repeat too late, after their least common multiple of "
        "micro-batches",
        Size::Replicas, 1);
  }
  return {};
}

Refusal check_turns(const ScheduleParams& params) {
  return check_multiple(params, turns_of(params), "least common multiple of the replicas");
}

PipelineOrder with_replicated_stages(const ScheduleParams& params, int iterations, int per_update,
                                     Versions versions) {
  const std::vector<int> replicas = replicas_of_all(params);
  const std::vector<int> held = in_flight(params);
  std::vector<DealtStage> stages;
  for (std::size_t i = 0; i < held.size(); ++i) {
    stages.push_back({replicas[i], held[i], std::max(1, per_update / replicas[i])});
  }
  PipelineOrder order = dealt_order(stages, params.micro_batches * iterations);
  order.iterations = iterations;
  order.versions = versions;
  return order;
}

}  // namespace orrery::sim
