// SPDX-License-Identifier: Apache-2.0
// BaPipe: balance a chain over accelerators of different speed, choose how the pipeline executes,
// and move layers away from accelerators that are out of memory. The balance is the contiguous cut
// with the least bottleneck, of those the one with the least longest transfer; cuts whose transfer
// takes longer than the stages are not used.
// Accelerators that run a forward and a backward at once (FPGAs) may do so: a micro-batch's two
// transfers over a cut then have the whole slot each, and twice as many micro-batches are kept.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/chain.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Device {
  double speed = 1;  // 1 = the device the layers were profiled on
  double memory = kNever;
  bool concurrent = false;  // runs a forward and a backward of two micro-batches at once
};

struct Problem {
  Chain chain;
  std::vector<Device> devices;
  double bandwidth = 0;
  int micro_batches = 1;
};

struct Executor {
  std::string_view name;
  bool doubled;     // warm-up 2(n - i) - 1 instead of n - i
  bool overlapped;  // transfers do not stop compute
  bool concurrent;  // a forward and a backward at once
};
constexpr Executor kExecutors[] = {{"1f1b-as", false, true, false},
                                   {"1f1b-so", true, true, false},
                                   {"1f1b-sno", false, false, false},
                                   {"fbp-as", false, true, true}};

// Micro-batches whose activations stage i (0-based of n) keeps.
int kept(const Executor& executor, int stage, int stages, int micro_batches) {
  const int after = stages - stage;
  const int wanted = executor.concurrent ? 2 * after : executor.doubled ? 2 * after - 1 : after;
  return std::min(wanted, micro_batches);
}

double stage_memory(const Problem& problem, const Executor& executor, int first, int last,
                    int stage) {
  const int stages = static_cast<int>(problem.devices.size());
  return problem.chain.parameters(first, last) +
         kept(executor, stage, stages, problem.micro_batches) *
             problem.chain.activations(first, last);
}

struct Cut {
  double bottleneck = kNever;
  std::vector<ChainStage> stages;
};

struct Cost {
  double slot = 0;  // the stage, or its two transfers over a cut
  double send = 0;
};
Cost stage_cost(const Problem& problem, const Executor& executor, int first, int last, int stage) {
  const Device& device = problem.devices[static_cast<std::size_t>(stage)];
  if (stage_memory(problem, executor, first, last, stage) > device.memory) {
    return {kNever, kNever};
  }
  const double send = problem.chain.cut(first) / problem.bandwidth;
  // Forward and backward each send once over the cut, in a slot.
  const double sends = executor.concurrent ? 1 : 2;
  return {std::max(problem.chain.time(first, last) / device.speed, sends * send), send};
}

// Dynamic program over devices in order; a stage that does not fit is never used. The least
// bottleneck, or of the cuts within `bound` the least longest transfer.
Cut balance_within(const Problem& problem, const Executor& executor, double bound) {
  const int n = problem.chain.size();
  const int p = static_cast<int>(problem.devices.size());
  const auto row = static_cast<std::size_t>(n) + 1;
  std::vector<double> best(row * (static_cast<std::size_t>(p) + 1), kNever);
  std::vector<int> from(best.size(), 0);
  const auto at = [row](int stages, int layers) {
    return static_cast<std::size_t>(stages) * row + static_cast<std::size_t>(layers);
  };
  best[0] = 0;
  for (int stage = 0; stage < p; ++stage) {
    for (int last = stage + 1; last <= n - (p - 1 - stage); ++last) {
      for (int first = stage; first < last; ++first) {
        const auto [slot, send] = stage_cost(problem, executor, first, last, stage);
        const double own = bound == kNever ? slot : slot <= bound ? send : kNever;
        const double cost = std::max(best[at(stage, first)], own);
        if (cost < best[at(stage + 1, last)]) {
          best[at(stage + 1, last)] = cost;
          from[at(stage + 1, last)] = first;
        }
      }
    }
  }
  Cut cut{best[at(p, n)] < kNever ? 0 : kNever, {}};
  for (int stage = p, last = n; stage > 0 && cut.bottleneck < kNever; --stage) {
    const int first = from[at(stage, last)];
    const Cost cost = stage_cost(problem, executor, first, last, stage - 1);
    cut.bottleneck = std::max(cut.bottleneck, cost.slot);
    cut.stages.insert(cut.stages.begin(), {first, last, 1});
    last = first;
  }
  return cut;
}

Cut balance(const Problem& problem, const Executor& executor) {
  const Cut fastest = balance_within(problem, executor, kNever);
  return fastest.bottleneck == kNever
             ? fastest
             : balance_within(problem, executor, fastest.bottleneck * (1 + 1e-12));
}

// (M + N - 1) slots of the slowest stage, and what transfers of `send` each way between two stages
// add, as in 1F1B of equal stages: a round trip through the pipeline
// once with the doubled warm-up; with the plain one, one between two stages for every further
// micro-batch too, but each N-th, which is 2 c ((N - 1) M / N + N - 2) where N divides M. Without
// overlap every slot also sends and receives.
double executor_time(const Executor& executor, const Problem& problem, const Cut& cut,
                     double send) {
  const double stages = static_cast<double>(cut.stages.size());
  const double m = problem.micro_batches;
  if (!executor.overlapped) {
    return (m + stages - 1) * (cut.bottleneck + 2 * send);
  }
  const bool hides = executor.doubled || executor.concurrent;
  const double waits = hides ? 0 : std::floor((m - 1) * (stages - 1) / stages);
  return (m + stages - 1) * cut.bottleneck + 2 * send * (stages - 1 + waits);
}

Problem read(ObjectReader& reader) {
  Problem problem{read_chain(reader, 2048), {}, 0, 1};
  problem.bandwidth = reader.required("bandwidth").bandwidth().value();
  problem.micro_batches = static_cast<int>(reader.required("micro_batches").integer(1, 1'000'000));
  const JsonReader list = reader.required("devices");
  for (const JsonReader& entry : list.array(1024)) {
    ObjectReader device = entry.object();
    const int count = static_cast<int>(device.integer_or("count", 1, 1, 1024));
    Device read{device.number_or("speed", 1, 1e-6, 1e6), kNever};
    if (const auto memory = device.optional("memory")) {
      read.memory = memory->bytes().value();
    }
    read.concurrent = device.boolean_or("concurrent", false);
    device.finish();
    problem.devices.insert(problem.devices.end(), static_cast<std::size_t>(count), read);
  }
  const int devices = static_cast<int>(problem.devices.size());
  if (devices < 1 || devices > problem.chain.size()) {
    list.fail("expected between one device and one device a layer");
  }
  return problem;
}

Json plan(ObjectReader& reader) {
  const Problem problem = read(reader);
  reader.finish();
  double best_time = kNever;
  Cut best;
  std::string_view executor_name;
  Json times = Json::object();
  const bool concurrent = std::all_of(problem.devices.begin(), problem.devices.end(),
                                      [](const Device& device) { return device.concurrent; });
  for (const Executor& executor : kExecutors) {
    if (executor.concurrent && !concurrent) {
      continue;
    }
    const Cut cut = balance(problem, executor);
    if (cut.bottleneck == kNever) {
      continue;
    }
    double send = 0;
    for (const ChainStage& stage : cut.stages) {
      send = std::max(send, problem.chain.cut(stage.first) / problem.bandwidth);
    }
    const double time = executor_time(executor, problem, cut, send);
    times.set(std::string(executor.name), time);
    if (time < best_time) {
      best_time = time;
      best = cut;
      executor_name = executor.name;
    }
  }
  if (best_time == kNever) {
    return infeasible("no cut fits the devices' memory");
  }
  Json answer = Json::object();
  answer.set("stages", to_json(best.stages));
  answer.set("executor", executor_name);
  answer.set("bottleneck_s", best.bottleneck);
  answer.set("time_s", best_time);
  answer.set("executors_s", std::move(times));
  return answer;
}

}  // namespace

extern const Planner planner_bapipe = {
    .name = "bapipe",
    .description = "balanced stages for devices of different speed, and how the pipeline executes",
    .source = "Zhao et al., BaPipe, 2020 (arXiv 2012.12544), sections 3 and 4",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "layers": [{"forward": "5 ms", "backward": "10 ms", "output": "4 MB", "parameters": "10 MB",
              "activations": "100 MB", "count": 8}],
  "devices": [{"count": 2}, {"speed": 0.5, "memory": "8 GB"}],
  "bandwidth": "10 GB/s", "micro_batches": 16})",
    .plan = plan,
};

}  // namespace orrery::search
