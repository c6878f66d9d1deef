// SPDX-License-Identifier: Apache-2.0
// DynaPipe's plan of an iteration over samples of different length: micro-batches, their replicas,
// the order in each, and what the executors of its devices do
// (search/problems/micro_batches.hpp, search/problems/communication_plan.hpp). Of several ways to
// recompute the first that fits is taken: none, selective, full.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/communication_plan.hpp"
#include "search/problems/micro_batches.hpp"

namespace orrery::search {
namespace {

constexpr int kMostClusters = 6;
constexpr double kMostPasses = 4e6;

std::vector<Sample> read_samples(ObjectReader& problem) {
  std::vector<Sample> samples;
  const JsonReader list = problem.required("samples");
  for (const JsonReader& entry : list.array(4096)) {
    const std::vector<JsonReader> lengths = entry.array(2);
    if (lengths.empty()) {
      entry.fail("expected [input tokens] or [input tokens, target tokens]");
    }
    samples.push_back(
        {lengths[0].number(1, 1e9), lengths.size() > 1 ? lengths[1].number(0, 1e9) : 0.0});
  }
  if (samples.empty()) {
    list.fail("expected at least one sample");
  }
  sort_samples(samples);
  return samples;
}

MicroBatchModel read_model(ObjectReader& object, std::string recompute) {
  MicroBatchModel model;
  model.recompute = std::move(recompute);
  model.base = object.required("per_micro_batch").duration().value();
  model.per_token = object.required("per_token").duration().value();
  model.per_token_squared = object.required("per_token_squared").duration().value();
  model.bytes_per_token = object.required("activations_per_token").bytes(true).value();
  if (const auto share = object.optional("backward_share")) {
    model.backward_share = share->number(0, 1);
  }
  return model;
}

// Of the problem itself, or a list of them by what they recompute, the first preferred.
std::vector<MicroBatchModel> read_models(ObjectReader& problem) {
  const auto modes = problem.optional("recompute");
  if (!modes) {
    return {read_model(problem, "none")};
  }
  std::vector<MicroBatchModel> models;
  for (const JsonReader& entry : modes->array(16)) {
    ObjectReader object = entry.object();
    std::string name = object.required("name").string();
    models.push_back(read_model(object, std::move(name)));
    object.finish();
  }
  if (models.empty()) {
    modes->fail("expected at least one way to recompute");
  }
  return models;
}

Json instructions_json(const sim::PipelineResult& run, const std::vector<int>& order) {
  Json devices = Json::array();
  for (const std::vector<Instruction>& list : communication_plan(run)) {
    Json instructions = Json::array();
    for (const Instruction& one : list) {
      Json instruction = Json::Object{{"do", std::string(to_text(one.action))}};
      if (one.micro_batch >= 0) {
        instruction.set("micro_batch", order[static_cast<std::size_t>(one.micro_batch)]);
      }
      if (one.peer >= 0) {
        instruction.set("peer", one.peer);
      }
      instructions.push(std::move(instruction));
    }
    devices.push(std::move(instructions));
  }
  return devices;
}

Json replica_json(const OrderedMicroBatches& ordered, bool instructions) {
  Json replica = Json::object();
  replica.set("order", Json(Json::Array(ordered.order.begin(), ordered.order.end())));
  replica.set("makespan_s", ordered.makespan);
  replica.set("sorted_makespan_s", ordered.as_sorted);
  if (instructions) {
    replica.set("instructions", instructions_json(ordered.run, ordered.order));
  }
  return replica;
}

// Micro-batches in the order of the samples, each with its replica.
void set_groups(const MicroBatches& found, int replicas, Json& answer) {
  std::vector<double> load(static_cast<std::size_t>(replicas), 0.0);
  Json::Array times;
  Json groups = Json::array();
  for (const MicroBatch& one : found.list) {
    load[static_cast<std::size_t>(one.replica)] += one.time;
    times.emplace_back(one.time);
    groups.push(Json::Object{{"samples", one.last - one.first},
                             {"time_s", one.time},
                             {"activation_bytes", one.bytes},
                             {"replica", one.replica}});
  }
  answer.set("count", static_cast<std::int64_t>(found.list.size()));
  answer.set("times_s", Json(std::move(times)));
  answer.set("micro_batches", std::move(groups));
  answer.set("score_s", found.score);
  answer.set("longest_s", found.longest);
  answer.set("largest_replica_s", *std::max_element(load.begin(), load.end()));
}

Json plan(ObjectReader& problem) {
  const std::vector<Sample> samples = read_samples(problem);
  Pipelines pipelines;
  const JsonReader stages = problem.required("stages");
  pipelines.stages = static_cast<int>(stages.integer(1, 4096));
  pipelines.chunks = static_cast<int>(problem.integer_or("chunks", 1, 1, 64));
  pipelines.replicas = static_cast<int>(problem.integer_or("replicas", 1, 1, 1024));
  const std::vector<MicroBatchModel> models = read_models(problem);
  PipelineModel model;
  model.stages = pipelines.stages;
  model.memory = problem.required("memory").bytes().value();
  model.clusters = static_cast<int>(problem.integer_or("clusters", 3, 1, kMostClusters));
  if (const auto send = problem.optional("send")) {
    model.send = send->duration().value();
  }
  const auto gap = problem.optional("gap");
  const auto instructions = problem.optional("instructions");
  problem.finish();
  // 1F1B holds a micro-batch for every stage; else one may take all of the memory.
  const MicroBatches found =
      make_micro_batches(samples, models, pipelines, {model.memory / model.stages, model.memory},
                         gap ? gap->duration().value() : 0);
  if (!found.found()) {
    return infeasible(fmt::format("a single sample does not fit the memory{}",
                                  models.size() > 1 ? ", whatever is recomputed" : ""));
  }
  const double passes = 2.0 * static_cast<double>(found.list.size()) * model.stages;
  if (passes > kMostPasses) {
    stages.fail(
        fmt::format("{} stages run {} passes of {} micro-batches, more than {}: take fewer "
                    "stages or samples",
                    model.stages, passes, found.list.size(), kMostPasses));
  }
  model.backward_share = models[found.mode].backward_share;
  Json answer = Json::object();
  set_groups(found, pipelines.replicas, answer);
  answer.set("recompute", models[found.mode].recompute);
  Json replicas = Json::array();
  double slowest = 0;
  for (int replica = 0; replica < pipelines.replicas; ++replica) {
    const OrderedMicroBatches ordered = order_micro_batches(found.list, replica, model);
    slowest = std::max(slowest, ordered.makespan);
    replicas.push(replica_json(ordered, instructions && instructions->boolean()));
  }
  answer.set("replicas", std::move(replicas));
  answer.set("iteration_s", slowest);
  return answer;
}

}  // namespace

extern const Planner planner_dynapipe = {
    .name = "dynapipe",
    .description =
        "micro-batches of samples of different length, their replicas, order and messages",
    .source =
        "Jiang et al., DynaPipe, EuroSys 2024 (arXiv 2311.10418), section 5, and its communication "
        "plan",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "samples": [[512], [100], [120], [90], [480], [60]], "stages": 4, "replicas": 2,
  "per_micro_batch": "1 ms", "per_token": "10 us", "per_token_squared": "1 ns",
  "activations_per_token": "1 MB", "memory": "8 GB"})",
    .plan = plan,
};

}  // namespace orrery::search
