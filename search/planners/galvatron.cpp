// SPDX-License-Identifier: Apache-2.0
// Galvatron: one hybrid-parallel strategy for every layer. For each batch and pipeline degree the
// layers of a stage choose among the leaves of a decision tree (DP, SDP, TP and their order) so
// that time plus the cost of handing over between different layouts is least within memory; the
// batch and pipeline degree with most samples per second win. Networks of several layer types are
// first cut into stages of even memory by a greedy rule.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "search/planner.hpp"
#include "search/problems/galvatron_cost.hpp"
#include "search/problems/pareto_chain.hpp"

namespace orrery::search {
namespace {

using galvatron::LayerType;
using galvatron::MicroBatchRule;
using galvatron::Problem;
using galvatron::Space;
using galvatron::Strategy;

constexpr int kMostLayers = 1024;
constexpr std::array<std::string_view, 7> kSpaces = {"full", "dp",    "tp",   "pp",
                                                     "sdp",  "dp+tp", "dp+pp"};

LayerType read_layer(const JsonReader& value, int devices) {
  ObjectReader object = value.object();
  LayerType layer;
  layer.count = static_cast<int>(object.required("count").integer(1, kMostLayers));
  layer.forward_ms = object.required("forward_ms").number(0, 1e9);
  layer.parameters_mib = object.required("parameters_mib").number(0, 1e9);
  ObjectReader activation = object.required("activation_mib").object();
  for (int tp = 1; tp <= devices; tp *= 2) {
    layer.activation_mib[tp] = activation.required(fmt::format("{}", tp)).number(0, 1e9);
  }
  activation.finish();
  layer.sequence = object.required("sequence").number(0, 1e9);
  layer.hidden = object.required("hidden").number(0, 1e9);
  layer.decoder = object.boolean_or("decoder", false);
  object.finish();
  return layer;
}

std::optional<double> optional_number(ObjectReader& object, std::string_view key) {
  const std::optional<JsonReader> value = object.optional(key);
  return value ? std::optional<double>(value->number(0, 1e9)) : std::nullopt;
}

MicroBatchRule read_rule(const JsonReader& value, int devices) {
  ObjectReader object = value.object();
  MicroBatchRule rule;
  for (auto [key, field] : {std::pair{"pp", &rule.pp}, std::pair{"tp", &rule.tp}}) {
    if (const std::optional<JsonReader> degree = object.optional(key)) {
      *field = static_cast<int>(degree->integer(1, devices));
    }
  }
  rule.equal = optional_number(object, "equal");
  rule.below = optional_number(object, "below");
  rule.up_to = optional_number(object, "up_to");
  rule.per_sample = object.number_or("per_sample", 0, 0, 1e6);
  rule.constant = object.number_or("constant", 0, 0, 1e6);
  object.finish();
  if (rule.per_sample == 0 && rule.constant == 0) {
    value.fail("a rule needs per_sample or constant above 0");
  }
  return rule;
}

void read_links(ObjectReader& object, Problem& problem) {
  ObjectReader links = object.required("links").object();
  for (int pp = 1; pp <= problem.devices; pp *= 2) {
    const std::optional<JsonReader> row = links.optional(fmt::format("{}", pp));
    if (!row) {
      continue;
    }
    ObjectReader groups = row->object();
    for (const std::string& group : groups.keys()) {
      problem.links[pp][group] = groups.required(group).number(0, 1e9);
    }
    groups.finish();
  }
  links.finish();
}

Problem read_problem(ObjectReader& object) {
  Problem problem;
  problem.where = object.value().where();
  const JsonReader devices = object.required("devices");
  problem.devices = static_cast<int>(devices.integer(1, 1024));
  if ((problem.devices & (problem.devices - 1)) != 0) {
    devices.fail("the decision tree needs a power of two devices");
  }
  const std::string space = object.string_or("space", "full");
  if (const std::optional<JsonReader> given = object.optional("space")) {
    given->one_of(kSpaces);
  }
  problem.space =
      static_cast<Space>(std::find(kSpaces.begin(), kSpaces.end(), space) - kSpaces.begin());
  problem.memory_mib = object.required("memory_mib").integer(1, 1 << 30);
  ObjectReader batches = object.required("batches").object();
  problem.first_batch = static_cast<int>(batches.required("first").integer(1, 1 << 20));
  problem.last_batch =
      static_cast<int>(batches.required("last").integer(problem.first_batch, 1 << 20));
  problem.batch_step = static_cast<int>(batches.required("step").integer(1, 1 << 20));
  batches.finish();
  for (const JsonReader& layer : object.required("layers").array(64)) {
    problem.layers.push_back(read_layer(layer, problem.devices));
  }
  if (problem.layers.empty()) {
    object.value().fail("no layers", "give /layers with at least one layer type");
  }
  problem.other_states_mib = object.number_or("other_states_mib", 0, 0, 1e9);
  problem.other_activation_mib = object.number_or("other_activation_mib", 0, 0, 1e9);
  problem.extra_overhead_ms = object.number_or("extra_overhead_ms", 0, 0, 1e9);
  problem.context_mib = object.number_or("context_mib", problem.context_mib, 0, 1e9);
  problem.overlap_slowdown = object.number_or("overlap_slowdown", problem.overlap_slowdown, 1, 2);
  if (const std::optional<JsonReader> rules = object.optional("micro_batches")) {
    for (const JsonReader& rule : rules->array(64)) {
      problem.micro_batches.push_back(read_rule(rule, problem.devices));
    }
  }
  read_links(object, problem);
  return problem;
}

std::int64_t whole_mib(double mib) { return static_cast<std::int64_t>(std::ceil(mib)); }

// Layer types one after the other: the type of each layer.
std::vector<const LayerType*> chain_of(const Problem& problem) {
  std::vector<const LayerType*> chain;
  for (const LayerType& type : problem.layers) {
    chain.insert(chain.end(), static_cast<std::size_t>(type.count), &type);
  }
  return chain;
}

// Layers per stage: even for one layer type; else from the last stage on, each takes layers until
// its memory, at the cheapest leaf of every layer, is nearest the average. All leaves count, also
// those outside the space searched.
std::vector<int> cut_stages(const Problem& problem, const std::vector<const LayerType*>& chain,
                            int pp, int batch) {
  const int count = static_cast<int>(chain.size());
  if (problem.layers.size() == 1 || pp == 1) {
    return std::vector<int>(static_cast<std::size_t>(pp), count / pp);
  }
  const std::vector<Strategy> strategies = galvatron::leaves(problem.devices, pp, Space::Full);
  std::vector<double> least;
  for (const LayerType* layer : chain) {
    double value = 1e300;
    for (const Strategy& s : strategies) {
      value = std::min(value, galvatron::layer_mib(*layer, s, batch));
    }
    least.push_back(value);
  }
  const double other = galvatron::other_mib(problem, batch, problem.devices);
  const double average = (std::accumulate(least.begin(), least.end(), 0.0) + other) / pp;
  std::vector<int> stages(static_cast<std::size_t>(pp), 0);
  int next = count - 1;
  for (int stage = pp - 1; stage >= 0; --stage) {
    double used = stage == 0 ? other : 0;
    while (next >= 0 &&
           (stage == 0 || average - used >= 0.5 * least[static_cast<std::size_t>(next)])) {
      used += least[static_cast<std::size_t>(next--)];
      ++stages[static_cast<std::size_t>(stage)];
    }
  }
  if (stages[0] == 0) {
    ++stages[0];
    --stages[1];
  }
  return stages;
}

struct Found {
  double seconds = 0;  // of a step
  int batch = 0;
  int pp = 0;
  std::vector<std::vector<Strategy>> stages;
  std::vector<std::int64_t> memory_mib;  // by stage
};

std::optional<Found> best_for(const Problem& problem, int pp, int batch) {
  const std::vector<Strategy> strategies = galvatron::leaves(problem.devices, pp, problem.space);
  const std::vector<const LayerType*> chain = chain_of(problem);
  if (strategies.empty() || (problem.layers.size() == 1 && chain.size() % pp != 0)) {
    return std::nullopt;
  }
  std::vector<double> switches;
  for (const Strategy& from : strategies) {
    for (const Strategy& to : strategies) {
      switches.push_back(galvatron::switch_seconds(problem, from, to, batch));
    }
  }
  // The artifact counts embedding and head on every stage of equal layers, else on the first.
  const bool equal = problem.layers.size() == 1;
  const std::int64_t other = whole_mib(galvatron::other_mib(problem, batch, problem.devices / pp));
  Found found{0, batch, pp, {}, {}};
  std::size_t first = 0;
  for (const int count : cut_stages(problem, chain, pp, batch)) {
    if (equal && !found.stages.empty()) {
      found.stages.push_back(found.stages.front());
      found.memory_mib.push_back(found.memory_mib.front());
      continue;
    }
    const std::int64_t reserved = found.stages.empty() ? other : 0;
    std::vector<LayerChoices> layers;
    for (int i = 0; i < count; ++i) {
      LayerChoices choices;
      for (const Strategy& s : strategies) {
        choices.time.push_back(galvatron::layer_seconds(problem, *chain[first], s, batch));
        choices.memory.push_back(whole_mib(galvatron::layer_mib(*chain[first], s, batch)));
      }
      layers.push_back(std::move(choices));
      ++first;
    }
    const std::optional<ChainPlan> stage =
        layers.empty() || problem.memory_mib <= reserved
            ? std::nullopt
            : best_chain_plan(layers, switches, problem.memory_mib - reserved);
    if (!stage) {
      return std::nullopt;
    }
    found.seconds += stage->time * (equal ? pp : 1);
    found.memory_mib.push_back(stage->memory + (equal ? other : reserved));
    found.stages.emplace_back();
    for (const int choice : stage->strategies) {
      found.stages.back().push_back(strategies[static_cast<std::size_t>(choice)]);
    }
  }
  return found;
}

std::optional<Found> best_for(const Problem& problem, int batch) {
  std::optional<Found> best;
  for (int pp = 1; pp <= problem.devices; pp *= 2) {
    std::optional<Found> found = best_for(problem, pp, batch);
    if (found && (!best || found->seconds < best->seconds)) {
      best = std::move(found);
    }
  }
  return best;
}

Json stage_json(const std::vector<Strategy>& stage, std::int64_t memory_mib) {
  Json runs = Json::array();
  for (std::size_t i = 0; i < stage.size();) {
    std::size_t end = i;
    while (end < stage.size() && stage[end].text() == stage[i].text()) {
      ++end;
    }
    Json run = Json::object();
    run.set("layers", static_cast<std::int64_t>(end - i));
    run.set("strategy", stage[i].text());
    runs.push(std::move(run));
    i = end;
  }
  Json json = Json::object();
  json.set("memory_mib", memory_mib);
  json.set("runs", std::move(runs));
  return json;
}

Json plan(ObjectReader& object) {
  const Problem problem = read_problem(object);
  object.finish();
  std::optional<Found> best;
  double rate = 0;
  // As the artifact: larger batches are not tried after one that nothing fits.
  for (int batch = problem.first_batch; batch <= problem.last_batch; batch += problem.batch_step) {
    std::optional<Found> found = best_for(problem, batch);
    if (!found) {
      break;
    }
    if (batch / found->seconds > rate) {
      rate = batch / found->seconds;
      best = std::move(found);
    }
  }
  if (!best) {
    return infeasible(fmt::format("no strategy fits {} MiB at batch {}", problem.memory_mib,
                                  problem.first_batch));
  }
  Json stages = Json::array();
  for (std::size_t i = 0; i < best->stages.size(); ++i) {
    stages.push(stage_json(best->stages[i], best->memory_mib[i]));
  }
  Json answer = Json::object();
  answer.set("samples_per_s", rate);
  answer.set("step_s", best->seconds);
  answer.set("batch", best->batch);
  answer.set("pp", best->pp);
  answer.set("stages", std::move(stages));
  return answer;
}

}  // namespace

extern const Planner planner_galvatron = {
    .name = "galvatron",
    .description = "a layout for every layer: samples per second within memory",
    .source = "Miao et al., Galvatron, PVLDB 16(3), 2022 (arXiv 2211.13878), section 3, artifact",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "devices": 2, "memory_mib": 6000, "batches": {"first": 2, "last": 16, "step": 2},
  "layers": [{"count": 4, "forward_ms": 2.3, "parameters_mib": 77, "sequence": 512, "hidden": 1280,
              "activation_mib": {"1": 94, "2": 52.5}}],
  "other_states_mib": 793, "other_activation_mib": 313,
  "micro_batches": [{"pp": 2, "per_sample": 0.5}, {"constant": 1}],
  "links": {"1": {"2": 0.26}}})",
    .plan = plan,
};

}  // namespace orrery::search
