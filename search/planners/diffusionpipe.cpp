// SPDX-License-Identifier: Apache-2.0
// DiffusionPipe: cut the trainable backbone of a diffusion model into stages on equal numbers of
// replicas, minimising (M + 2 S - 2) x the longest stage or transfer + gradient synchronisation;
// with self-conditioning, an extra forward of every micro-batch in some of the iterations, the mean
// of both kinds of iterations; then fill the bubbles of the 1F1B pipeline (intervals with a set of
// idle devices) with the frozen layers of the next iteration, whole layers at the full local batch
// first, a part of the batch where only that fits.
#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/backbone_cut.hpp"
#include "sim/orders/self_conditioning.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/schedule.hpp"

namespace orrery::search {
namespace {

struct Problem {
  Backbone backbone;
  std::vector<double> frozen;  // seconds of each frozen layer on one device, whole batch
};

sim::PipelineCosts costs_of_backbone(const Problem& problem, const BackboneCut& cut) {
  sim::PipelineCosts costs;
  for (const ChainStage& stage : cut.stages) {
    costs.forward.push_back(to_sim_time(
        Seconds(problem.backbone.layers.forward(stage.first, stage.last) / stage.replicas)));
    costs.backward.push_back(to_sim_time(
        Seconds(problem.backbone.layers.backward(stage.first, stage.last) / stage.replicas)));
    if (stage.first > 0) {
      costs.send_forward.push_back(to_sim_time(Seconds(
          problem.backbone.layers.cut(stage.first) / stage.replicas / problem.backbone.bandwidth)));
    }
  }
  costs.send_backward = costs.send_forward;
  return costs;
}

// Of the extra forwards, behind those of the backbone.
void add_extra_forwards(const Problem& problem, const BackboneCut& cut, sim::PipelineCosts& costs) {
  const std::vector<SimTime> forwards = costs.forward;
  const std::vector<SimTime> sends = costs.send_forward;
  costs.forward.insert(costs.forward.end(), forwards.begin(), forwards.end());
  costs.backward.resize(costs.forward.size());
  costs.send_forward.emplace_back();  // between the chains
  costs.send_forward.insert(costs.send_forward.end(), sends.begin(), sends.end());
  costs.send_backward = costs.send_forward;
  costs.edge_latency = {
      to_sim_time(Seconds(way_back(problem.backbone, static_cast<int>(cut.stages.size()))))};
}

struct Simulated {
  int warm_up = 0;  // 1: doubled
  sim::PipelineResult result;
};

sim::PipelineResult run_backbone(const Problem& problem, const BackboneCut& cut, int extra,
                                 int warm_up) {
  const int stages = static_cast<int>(cut.stages.size());
  const sim::PipelineOptions options{.steady_state = false, .record_spans = true};
  sim::PipelineCosts costs = costs_of_backbone(problem, cut);
  if (extra > 0) {
    add_extra_forwards(problem, cut, costs);
    return sim::evaluate_pipeline(
        sim::self_conditioned_1f1b(stages, problem.backbone.micro_batches, warm_up > 0), costs,
        options);
  }
  sim::ScheduleParams params;
  params.stages = stages;
  params.micro_batches = problem.backbone.micro_batches;
  params.warm_up = warm_up;
  return sim::evaluate_pipeline(sim::find_schedule("1f1b", "").order(params), costs, options);
}

// 1F1B with the stages' real times; transfers take their latency. Of the simulated time the
// estimate is an upper bound, in which slots of stages and transfers follow each other without a
// wait: where the plain warm-up waits longer, the doubled one is run.
Simulated simulate_backbone(const Problem& problem, const BackboneCut& cut, int extra) {
  Simulated plain{0, run_backbone(problem, cut, extra, 0)};
  const int stages = static_cast<int>(cut.stages.size());
  const double back = extra * way_back(problem.backbone, stages);
  const double longest = cut.estimates[static_cast<std::size_t>(extra)].longest;
  const double estimate = (problem.backbone.micro_batches + 2 * stages - 2) * longest + back;
  if (to_seconds(plain.result.makespan).value() <= estimate * (1 + 1e-9)) {
    return plain;
  }
  Simulated doubled{1, run_backbone(problem, cut, extra, 1)};
  return doubled.result.makespan < plain.result.makespan ? std::move(doubled) : std::move(plain);
}

// An interval and how many devices idle in all of it.
struct Bubble {
  double start = 0;
  double end = 0;
  int devices = 0;
};

// In order of time. O(passes log passes).
std::vector<Bubble> bubbles(const sim::PipelineResult& result, int replicas) {
  std::vector<std::pair<SimTime, int>> changes;  // of the number of idle devices
  for (const auto& spans : result.spans) {
    SimTime free;
    const auto idle_until = [&](SimTime end) {
      if (end > free) {
        changes.emplace_back(free, replicas);
        changes.emplace_back(end, -replicas);
      }
    };
    for (const sim::PassSpan& span : spans) {
      idle_until(span.start);
      free = span.end;
    }
    idle_until(result.makespan);
  }
  std::sort(changes.begin(), changes.end());
  std::vector<Bubble> all;
  int idle = 0;
  for (std::size_t i = 0; i + 1 < changes.size(); ++i) {
    idle += changes[i].second;
    if (idle > 0 && changes[i].first < changes[i + 1].first) {
      all.push_back(
          {to_seconds(changes[i].first).value(), to_seconds(changes[i + 1].first).value(), idle});
    }
  }
  return all;
}

// What of a frozen layer runs in bubbles.
struct Filled {
  double start = 0;
  double end = 0;
  double left = 0;  // device-seconds that do not
};

// Frozen layers in dependency order, each on all devices that idle: whole layers while they fit
// into a bubble, then the part of the next one's batch that fits. A layer starts when all parts of
// the one before it are done, so bubbles are left with idle times only when no layer is left.
std::vector<Filled> fill(const std::vector<Bubble>& gaps, const std::vector<double>& frozen) {
  std::vector<Filled> filled;
  for (const Bubble& gap : gaps) {
    for (double now = gap.start; now < gap.end;) {
      if (filled.empty() || filled.back().left <= 0) {
        if (filled.size() == frozen.size()) {
          return filled;
        }
        filled.push_back({now, now, frozen[filled.size()]});
      }
      Filled& layer = filled.back();
      const double room = (gap.end - now) * gap.devices;
      now = layer.left < room ? now + layer.left / gap.devices : gap.end;
      layer.left = std::max(0.0, layer.left - room);
      layer.end = now;
    }
  }
  return filled;
}

Json to_json(const std::vector<Filled>& filled, const std::vector<double>& frozen) {
  Json layers = Json::array();
  for (std::size_t layer = 0; layer < filled.size(); ++layer) {
    Json entry = Json::object();
    entry.set("layer", static_cast<int>(layer));
    entry.set("start_s", filled[layer].start);
    entry.set("end_s", filled[layer].end);
    entry.set("share", frozen[layer] > 0 ? 1 - filled[layer].left / frozen[layer] : 1.0);
    layers.push(std::move(entry));
  }
  return layers;
}

Problem read(ObjectReader& reader) {
  Problem problem{{read_chain(reader, 256)}, {}};
  problem.backbone.devices = static_cast<int>(reader.required("devices").integer(1, 1024));
  problem.backbone.micro_batches =
      static_cast<int>(reader.required("micro_batches").integer(1, 4096));
  problem.backbone.bandwidth = reader.required("bandwidth").bandwidth().value();
  if (const auto frozen = reader.optional("frozen_layers")) {
    for (const JsonReader& entry : frozen->array(1024)) {
      problem.frozen.push_back(entry.duration().value());
    }
  }
  problem.backbone.conditioned = reader.number_or("self_conditioning", 0, 0, 1);
  return problem;
}

// An iteration without (0) or with (1) the extra forward: estimate, simulation and filling.
void add_iteration(const Problem& problem, const BackboneCut& best, int extra, Json& answer) {
  const auto [warm_up, result] = simulate_backbone(problem, best, extra);
  const double makespan = to_seconds(result.makespan).value();
  const std::vector<Bubble> gaps = bubbles(result, best.stages.front().replicas);
  double idle = 0;
  for (const Bubble& gap : gaps) {
    idle += (gap.end - gap.start) * gap.devices;
  }
  const std::vector<Filled> filled = fill(gaps, problem.frozen);
  const double all = std::accumulate(problem.frozen.begin(), problem.frozen.end(), 0.0);
  double placed = 0;
  for (std::size_t layer = 0; layer < filled.size(); ++layer) {
    placed += problem.frozen[layer] - filled[layer].left;
  }
  // What is left runs before the iteration, data-parallel on all devices.
  const double before = std::max(0.0, all - placed) / problem.backbone.devices;
  answer.set("estimate_s", best.estimates[static_cast<std::size_t>(extra)].cost);
  answer.set("backbone_s", makespan);
  answer.set("warm_up", warm_up);
  answer.set("iteration_s", makespan + before);
  answer.set("iteration_without_filling_s", makespan + all / problem.backbone.devices);
  answer.set("bubble_fraction",
             std::max(0.0, idle - placed) / ((makespan + before) * problem.backbone.devices));
  answer.set("bubble_fraction_without_filling", idle / (makespan * problem.backbone.devices));
  answer.set("filling", to_json(filled, problem.frozen));
}

Json plan(ObjectReader& reader) {
  const Problem problem = read(reader);
  // The number of stages where the problem gives it (0: whichever is best).
  const auto wanted = static_cast<int>(reader.integer_or("stages", 0, 1, problem.backbone.devices));
  reader.finish();
  BackboneCut best;
  for (int stages = 1; stages <= std::min(problem.backbone.devices, problem.backbone.layers.size());
       ++stages) {
    if (problem.backbone.devices % stages != 0 || (wanted > 0 && stages != wanted)) {
      continue;
    }
    BackboneCut cut = cut_backbone(problem.backbone, stages);
    if (cut.cost < best.cost) {
      best = std::move(cut);
    }
  }
  if (best.stages.empty()) {
    return infeasible("\"stages\" must divide the devices and not exceed the layers");
  }
  Json answer = Json::object();
  answer.set("stages", to_json(best.stages));
  add_iteration(problem, best, 0, answer);
  if (problem.backbone.conditioned > 0) {
    Json with = Json::object();
    add_iteration(problem, best, 1, with);
    const auto mean = [&](std::string_view key) {
      return (1 - problem.backbone.conditioned) * answer.find(key)->as_number() +
             problem.backbone.conditioned * with.find(key)->as_number();
    };
    const double filled = mean("iteration_s");
    const double unfilled = mean("iteration_without_filling_s");
    answer.set("with_self_conditioning", std::move(with));
    answer.set("mean_iteration_s", filled);
    answer.set("mean_iteration_without_filling_s", unfilled);
  }
  return answer;
}

}  // namespace

extern const Planner planner_diffusionpipe = {
    .name = "diffusionpipe",
    .description =
        "stages of a diffusion backbone, and its bubbles filled with frozen layers; "
        "\"self_conditioning\": the share of iterations with one more forward",
    .source = "Tian et al., DiffusionPipe, MLSys 2024 (arXiv 2405.01248), sections 4 and 5",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "layers": [{"forward": "20 ms", "backward": "40 ms", "output": "10 MB", "parameters": "50 MB",
              "count": 8}],
  "frozen_layers": ["40 ms", "80 ms", "40 ms"], "devices": 4, "micro_batches": 4,
  "bandwidth": "50 GB/s"})",
    .plan = plan,
};

}  // namespace orrery::search
