// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>

#include "base/limits.hpp"
#include "plan/plan.hpp"
#include "plan/simulate.hpp"
#include "search/planner.hpp"
#include "search/search.hpp"
#include "sim/pipeline.hpp"
#include "sim/share_costs.hpp"
#include "studies/headline.hpp"

namespace orrery::studies {

namespace {

int small_integer(ObjectReader& run, std::string_view key, int fallback) {
  return static_cast<int>(run.integer_or(key, fallback, 0, limits::kMaxBatch));
}

SimTime cost(ObjectReader& run, std::string_view key, double fallback) {
  return to_sim_time(Seconds(run.number_or(key, fallback, 0, 1e5)));
}

// {"schedule": NAME, "stages", "micro_batches", "chunks", "slices", "warm_up", "replicas", "cap",
// "iterations", "forward", "input_grad", "weight_grad", "latency"}: `orrery schedule --json`.
Json run_schedule(const JsonReader& value, ObjectReader& run) {
  const sim::Schedule& schedule =
      sim::find_schedule(run.required("schedule").string(), value.where());
  sim::ScheduleParams params;
  params.stages = small_integer(run, "stages", 1);
  params.micro_batches = small_integer(run, "micro_batches", 1);
  params.chunks = small_integer(run, "chunks", 1);
  params.slices = small_integer(run, "slices", 1);
  params.warm_up = small_integer(run, "warm_up", 0);
  params.replicas = small_integer(run, "replicas", 1);
  params.iterations = small_integer(run, "iterations", 0);
  params.cap = run.number_or("cap", 0, 0, 1e9);
  params.activation = run.integer_or("activation", 1, 1, 1LL << 40);
  params.weight_grad_activation =
      run.integer_or("weight_grad_activation", params.activation, 0, params.activation);
  const sim::PassTimes share{.forward = cost(run, "forward", 1),
                             .input_grad = cost(run, "input_grad", 1),
                             .weight_grad = cost(run, "weight_grad", 1),
                             .send = cost(run, "latency", 0)};
  params.times = {share};
  run.finish();
  const std::string broken = schedule.check(params);
  if (!broken.empty()) {
    value.fail(broken);
  }
  const sim::PipelineOrder order = schedule.order(params);
  const auto [costs, scale] = sim::share_costs(order, share);
  const sim::PipelineResult result = sim::evaluate_pipeline(order, costs);
  const auto seconds = [scale = static_cast<double>(scale)](SimTime time) {
    return to_seconds(time).value() / scale;
  };
  Json idle = Json::array();
  Json peaks = Json::array();
  for (const sim::DeviceUse& use : result.devices) {
    idle.push(seconds(sim::idle_of(use)));
    peaks.push(static_cast<double>(use.peak_chunks) / sim::pieces_of(order));
  }
  return Json::Object{{"makespan", seconds(result.makespan)},
                      {"bubble_fraction", sim::bubble_fraction(result)},
                      {"transfers", sim::num_transfers(order)},
                      {"idle", std::move(idle)},
                      {"peak_activations", std::move(peaks)}};
}

Json simulation_json(const plan::Simulation& simulation) {
  Json peaks = Json::array();
  for (const plan::StageMemory& memory : simulation.memory) {
    peaks.push(memory.total().value());
  }
  Json exposed = Json::object();
  for (const auto& [kind, time] : simulation.breakdown.exposed_communication) {
    exposed.set(kind, time.value());
  }
  return Json::Object{{"iteration_time_s", simulation.iteration_time.value()},
                      {"tokens_per_s_per_gpu", simulation.tokens_per_second_per_gpu},
                      {"mfu", simulation.mfu_fraction},
                      {"hfu", simulation.hfu_fraction},
                      {"bubble_fraction", simulation.bubble_fraction},
                      {"exposed_communication_s", std::move(exposed)},
                      {"peak_memory_bytes", std::move(peaks)}};
}

// {"network", "cluster", "batch", "sequence", "precision", "fix", "forbid", "allow", "set"}: the
// best plan of what is left, as `orrery plan` finds it.
Json run_search(const JsonReader& value, ObjectReader& run) {
  std::vector<std::string> network_settings;
  std::vector<std::string> cluster_settings;
  const auto read_settings = [&run](std::string_view key, std::vector<std::string>& settings) {
    if (const auto list = run.optional(key)) {
      for (const JsonReader& entry : list->array(64)) {
        settings.push_back(entry.string());
      }
    }
  };
  read_settings("set_network", network_settings);
  read_settings("set_cluster", cluster_settings);
  plan::Plan base;
  base.network = models::load_network(run.required("network").string(), network_settings);
  base.cluster = topologies::load_cluster(run.required("cluster").string(), cluster_settings);
  base.profile = costmodel::load_profile("", base.cluster.gpu);
  base.batch = run.required("batch").integer(1, limits::kMaxBatch);
  base.sequence = run.integer_or("sequence", base.network.spec.sequence, 1, limits::kMaxSequence);
  base.precision = parse_dtype(run.string_or("precision", "bf16"), value.where());
  search::Options options;
  options.constraints.fix(run.string_or("fix", ""));
  options.constraints.forbid(run.string_or("forbid", ""));
  if (const auto allowed = run.optional("allow")) {
    options.constraints.allow(allowed->string());
  }
  options.constraints.apply(base.execution);
  run.finish();
  const search::Outcome outcome = search::search(base, options);
  if (!outcome.best) {
    value.fail("no plan of this space fits", outcome.closest_overflow);
  }
  return simulation_json(outcome.best->simulation);
}

// {"planner": NAME, "problem": {...}}: `orrery planner`.
Json run_planner(const JsonReader& value, ObjectReader& run) {
  const search::Planner& planner =
      search::find_planner(run.required("planner").string(), value.where());
  const JsonReader problem = run.required("problem");
  run.finish();
  return search::run_planner(planner, problem.json(), problem.where());
}

struct RunKind {
  std::string_view key;  // the member that tells the kinds apart
  Json (*run)(const JsonReader&, ObjectReader&);
};
constexpr std::array kKinds = {RunKind{"schedule", run_schedule}, RunKind{"network", run_search},
                               RunKind{"planner", run_planner}};

}  // namespace

Json run_of_headline(const JsonReader& run) {
  ObjectReader reader = run.object();
  for (const RunKind& kind : kKinds) {
    if (reader.has(kind.key)) {
      return kind.run(run, reader);
    }
  }
  run.fail("expected a run with \"schedule\", \"network\" or \"planner\"");
}

}  // namespace orrery::studies
