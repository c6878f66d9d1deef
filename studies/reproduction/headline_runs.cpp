// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/simulation/simulate.hpp"
#include "search/planner.hpp"
#include "search/tree/search.hpp"
#include "studies/reproduction/headline.hpp"
#include "studies/reproduction/headline_kinds.hpp"
#include "studies/rows/framework_facts.hpp"

namespace orrery::studies {

namespace {

// {"network", "cluster", "batch", "sequence", "precision", "fix", "forbid", "allow", "set"}: the
// best plan of what is left, as `orrery plan` finds it.
Json search_result(const JsonReader& value, ObjectReader& run) {
  plan::Plan base = plan_of_run(value, run, "network");
  base.batch = run.required("batch").integer(1, limits::kMaxBatch);
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
constexpr std::array kKinds = {
    RunKind{"schedule", schedule_run},  RunKind{"network", search_result},
    RunKind{"planner", planner_result}, RunKind{"blocks", blocks_run},
    RunKind{"stages", chain_run},       RunKind{"simulate", plan_run},
    RunKind{"quantiles", lengths_run},  RunKind{"serves", serving_run},
    RunKind{"document", document_run},  RunKind{"gradients", ddp_run},
    RunKind{"tiers", tiers_run},        RunKind{"layout", layout_run}};

}  // namespace

Json simulation_json(const plan::Simulation& simulation) {
  Json peaks = Json::array();
  Json activations = Json::array();
  for (const plan::StageMemory& memory : simulation.memory) {
    peaks.push(memory.total().value());
    activations.push(memory.activations.value());
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
                      {"peak_memory_bytes", std::move(peaks)},
                      {"activation_bytes", std::move(activations)}};
}

plan::Plan plan_of_run(const JsonReader& value, ObjectReader& run, std::string_view network) {
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
  plan::Plan plan;
  plan.network = models::load_network(run.required(network).string(), network_settings);
  plan.cluster = topologies::load_cluster(run.required("cluster").string(), cluster_settings);
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.sequence = run.integer_or("sequence", plan.network.spec.sequence, 1, limits::kMaxSequence);
  plan.precision = parse_dtype(run.string_or("precision", "bf16"), value.where());
  return plan;
}

Json run_of_headline(const JsonReader& run) {
  ObjectReader reader = run.object();
  for (const RunKind& kind : kKinds) {
    if (reader.has(kind.key)) {
      return in_file(run.where(), [&] { return kind.run(run, reader); });
    }
  }
  run.fail(
      "expected a run with \"schedule\", \"network\", \"planner\", \"blocks\", \"simulate\", "
      "\"stages\", \"quantiles\", \"serves\", \"document\", \"gradients\", "
      "\"tiers\" or \"layout\"");
}

void apply_framework(ObjectReader& run, plan::Plan& plan) {
  const auto name = run.optional("framework");
  if (!name) {
    return;
  }
  const FrameworkFacts* framework = find_framework(name->string());
  if (framework == nullptr) {
    name->fail("unknown framework \"" + printable(name->string()) + "\"",
               "a name of studies/rows/framework_facts.cpp, as \"Megatron-LM\"");
  }
  plan.execution = framework->execution;
  if (framework->shared_output_runs_ahead && plan::schedule_traits(plan).shares_output_layer) {
    plan.execution.synchronised_messages = false;
  }
  if (framework->fp16_gradients && plan.precision == DType::Fp16) {
    plan.execution.fp32_gradients = false;
  }
}

}  // namespace orrery::studies
