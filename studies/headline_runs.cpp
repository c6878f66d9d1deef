// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>

#include "base/limits.hpp"
#include "plan/plan.hpp"
#include "plan/simulate.hpp"
#include "search/planner.hpp"
#include "search/search.hpp"
#include "studies/headline.hpp"
#include "studies/schedule_run.hpp"

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
Json schedule_result(const JsonReader& value, ObjectReader& run) {
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
  const ScheduleMeasures measures =
      run_schedule(schedule.order(params), schedule.synchronous, share, false).measures;
  Json::Object result = to_json(measures, schedule.synchronous);
  result.emplace_back("transfers", measures.transfers);
  return result;
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
Json search_result(const JsonReader& value, ObjectReader& run) {
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
Json planner_result(const JsonReader& value, ObjectReader& run) {
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
constexpr std::array kKinds = {RunKind{"schedule", schedule_result},
                               RunKind{"network", search_result},
                               RunKind{"planner", planner_result}};

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
