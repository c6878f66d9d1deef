// SPDX-License-Identifier: Apache-2.0
// DiffusionPipe: cut the trainable backbone of a diffusion model into stages on equal numbers of
// replicas, minimising (M + 2 S - 2) x the longest stage or transfer + gradient synchronisation;
// then fill the bubbles of the 1F1B pipeline with the frozen layers of the next iteration, whole
// layers at the full local batch first, a part of the batch where only that fits.
#include <algorithm>
#include <limits>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/chain.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/schedule.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Problem {
  Chain backbone;
  std::vector<double> frozen;  // seconds of each frozen layer on one device, whole batch
  int devices = 1;
  int micro_batches = 1;
  double bandwidth = 0;
};

struct Partition {
  double cost = kNever;  // (M + 2 S - 2) T0 + synchronisation
  double longest = 0;    // T0
  std::vector<ChainStage> stages;
};

// The cut into `stages` with the least longest stage or transfer, each on devices / stages
// replicas.
Partition cut(const Problem& problem, int stages) {
  const int n = problem.backbone.size();
  const int replicas = problem.devices / stages;
  const auto row = static_cast<std::size_t>(n) + 1;
  std::vector<double> best(row * (static_cast<std::size_t>(stages) + 1), kNever);
  std::vector<int> from(best.size(), 0);
  best[0] = 0;
  for (int stage = 0; stage < stages; ++stage) {
    for (int last = stage + 1; last <= n; ++last) {
      const auto to = static_cast<std::size_t>(stage + 1) * row + static_cast<std::size_t>(last);
      for (int first = stage; first < last; ++first) {
        const double time = problem.backbone.time(first, last) / replicas;
        const double send = 2 * problem.backbone.cut(first) / replicas / problem.bandwidth;
        const double cost =
            std::max({best[static_cast<std::size_t>(stage) * row + static_cast<std::size_t>(first)],
                      time, send});
        if (cost < best[to]) {
          best[to] = cost;
          from[to] = first;
        }
      }
    }
  }
  Partition partition;
  partition.longest = best.back();
  for (int stage = stages, last = n; stage > 0; --stage) {
    const int first = from[static_cast<std::size_t>(stage) * row + static_cast<std::size_t>(last)];
    partition.stages.insert(partition.stages.begin(), {first, last, replicas});
    last = first;
  }
  double synchronisation = 0;
  for (const ChainStage& stage : partition.stages) {
    synchronisation =
        std::max(synchronisation, 2.0 * (replicas - 1) / replicas *
                                      problem.backbone.parameters(stage.first, stage.last) /
                                      problem.bandwidth);
  }
  partition.cost = (problem.micro_batches + 2 * stages - 2) * partition.longest + synchronisation;
  return partition;
}

// 1F1B with the stages' real times; transfers take their latency.
sim::PipelineResult simulate(const Problem& problem, const Partition& partition) {
  sim::ScheduleParams params;
  params.stages = static_cast<int>(partition.stages.size());
  params.micro_batches = problem.micro_batches;
  const sim::PipelineOrder order = sim::find_schedule("1f1b", "").order(params);
  sim::PipelineCosts costs;
  for (const ChainStage& stage : partition.stages) {
    costs.forward.push_back(
        to_sim_time(Seconds(problem.backbone.forward(stage.first, stage.last) / stage.replicas)));
    costs.backward.push_back(
        to_sim_time(Seconds(problem.backbone.backward(stage.first, stage.last) / stage.replicas)));
    if (stage.first > 0) {
      costs.send_forward.push_back(to_sim_time(
          Seconds(problem.backbone.cut(stage.first) / stage.replicas / problem.bandwidth)));
    }
  }
  costs.send_backward = costs.send_forward;
  return sim::evaluate_pipeline(order, costs, {.steady_state = false, .record_spans = true});
}

struct Bubble {
  double start = 0;
  double length = 0;
  int devices = 0;
};

std::vector<Bubble> bubbles(const sim::PipelineResult& result, int replicas) {
  std::vector<Bubble> all;
  for (const auto& spans : result.spans) {
    SimTime free;
    for (const sim::PassSpan& span : spans) {
      if (span.start > free) {
        all.push_back({to_seconds(free).value(), to_seconds(span.start - free).value(), replicas});
      }
      free = span.end;
    }
    if (result.makespan > free) {
      all.push_back(
          {to_seconds(free).value(), to_seconds(result.makespan - free).value(), replicas});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Bubble& a, const Bubble& b) { return a.start < b.start; });
  return all;
}

struct Filling {
  double placed = 0;     // device-seconds of frozen work in bubbles
  double remaining = 0;  // device-seconds left for before the iteration
};

// Frozen layers in dependency order: a layer may start when all parts of the one before it are
// done, so bubbles in order of time take the next layer, or the part of its batch that fits.
Filling fill(const std::vector<Bubble>& gaps, const std::vector<double>& frozen) {
  Filling filling;
  std::vector<double> left = frozen;
  std::size_t next = 0;
  double ready = 0;     // when the layer before the next one ends
  double last_end = 0;  // of the parts of the next one so far
  for (const Bubble& gap : gaps) {
    const double end = gap.start + gap.length;
    double start = std::max(gap.start, ready);
    while (next < left.size() && start < end) {
      const double work = std::min(left[next], (end - start) * gap.devices);
      left[next] -= work;
      filling.placed += work;
      start += work / gap.devices;
      last_end = std::max(last_end, start);
      if (left[next] > 0) {
        break;
      }
      ready = last_end;
      start = ready;
      ++next;
    }
  }
  for (const double work : left) {
    filling.remaining += work;
  }
  return filling;
}

Problem read(ObjectReader& reader) {
  Problem problem{read_chain(reader, 256), {}, 1, 1, 0};
  problem.devices = static_cast<int>(reader.required("devices").integer(1, 1024));
  problem.micro_batches = static_cast<int>(reader.required("micro_batches").integer(1, 4096));
  problem.bandwidth = reader.required("bandwidth").bandwidth().value();
  if (const auto frozen = reader.optional("frozen_layers")) {
    for (const JsonReader& entry : frozen->array(1024)) {
      problem.frozen.push_back(entry.duration().value());
    }
  }
  return problem;
}

Json plan(ObjectReader& reader) {
  const Problem problem = read(reader);
  // The number of stages where the problem gives it (0: whichever is best).
  const auto wanted = static_cast<int>(reader.integer_or("stages", 0, 1, problem.devices));
  Partition best;
  for (int stages = 1; stages <= std::min(problem.devices, problem.backbone.size()); ++stages) {
    if (problem.devices % stages != 0 || (wanted > 0 && stages != wanted)) {
      continue;
    }
    Partition partition = cut(problem, stages);
    if (partition.cost < best.cost) {
      best = std::move(partition);
    }
  }
  if (best.stages.empty()) {
    return infeasible("\"stages\" must divide the devices and not exceed the layers");
  }
  const sim::PipelineResult result = simulate(problem, best);
  const double makespan = to_seconds(result.makespan).value();
  const int replicas = best.stages.front().replicas;
  double idle = 0;
  const std::vector<Bubble> gaps = bubbles(result, replicas);
  for (const Bubble& gap : gaps) {
    idle += gap.length * gap.devices;
  }
  const Filling filling = fill(gaps, problem.frozen);
  const double before = filling.remaining / problem.devices;  // data parallel on all devices
  const double frozen_first = (filling.remaining + filling.placed) / problem.devices;
  Json answer = Json::object();
  answer.set("stages", to_json(best.stages));
  answer.set("estimate_s", best.cost);
  answer.set("backbone_s", makespan);
  answer.set("iteration_s", makespan + before);
  answer.set("iteration_without_filling_s", makespan + frozen_first);
  answer.set("bubble_fraction", (idle - filling.placed) / ((makespan + before) * problem.devices));
  answer.set("bubble_fraction_without_filling", idle / (makespan * problem.devices));
  return answer;
}

}  // namespace

extern const Planner planner_diffusionpipe = {
    .name = "diffusionpipe",
    .description = "stages of a diffusion backbone, and its bubbles filled with frozen layers",
    .source = "Tian et al., DiffusionPipe, MLSys 2024 (arXiv 2405.01248), sections 4 and 5",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "layers": [{"forward": "20 ms", "backward": "40 ms", "output": "10 MB", "parameters": "50 MB",
              "count": 8}],
  "frozen_layers": ["40 ms", "80 ms", "40 ms"], "devices": 4, "micro_batches": 4,
  "bandwidth": "50 GB/s"})",
    .plan = plan,
};

}  // namespace orrery::search
