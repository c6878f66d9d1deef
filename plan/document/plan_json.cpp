// SPDX-License-Identifier: Apache-2.0
// The Plan document. Integers and doubles are printed so that they read back equal, hence
// read_plan(to_json(plan)) simulates to the same picosecond. What a hand-written document leaves
// out takes the default of plan.hpp; `stages` defaults to the even cut.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "plan/document/embedded_documents.hpp"
#include "plan/document/execution_json.hpp"
#include "plan/document/layout_json.hpp"
#include "plan/mixed/plan.hpp"
#include "plan/modules.hpp"
#include "plan/packs.hpp"
#include "plan/plan.hpp"
#include "plan/plan_parts.hpp"
#include "plan/serving/serving.hpp"
#include "plan/stages.hpp"
#include "sim/orders/schedule_document.hpp"

namespace orrery::plan {
namespace {

constexpr std::string_view kSchema = "orrery-plan";
constexpr std::int64_t kVersion = 1;

Json texts_to_json(const std::vector<std::string>& texts) {
  Json array = Json::array();
  for (const std::string& text : texts) {
    array.push(text);
  }
  return array;
}

// A workload of requests: the longest of them is the sequence.
void read_served(const JsonReader& value, Plan& plan) {
  Serving serving;
  serving.requests = read_requests(value);
  plan.batch = 1;
  plan.sequence = longest_request(generate_requests(serving.requests));
  if (plan.sequence > limits::kMaxSequence) {
    value.fail(fmt::format("prompt and output of a request are {} tokens, more than {}",
                           plan.sequence, limits::kMaxSequence));
  }
  plan.serving = std::make_shared<const Serving>(std::move(serving));
}

void read_workload(const JsonReader& value, Plan& plan) {
  ObjectReader object = value.object();
  if (const auto requests = object.optional("requests")) {
    read_served(*requests, plan);
  } else {
    plan.batch = object.required("batch").integer(1, limits::kMaxBatch);
    plan.sequence = object.required("sequence").integer(1, limits::kMaxSequence);
  }
  if (const auto precision = object.optional("precision")) {
    plan.precision = parse_dtype(precision->string(), precision->where());
  }
  object.finish();
}

// A number of equal slices, or the tokens of each.
void read_slices(const JsonReader& value, Plan& plan) {
  if (!value.json().is_array()) {
    plan.slices = static_cast<int>(value.integer(1, limits::kMaxSequence));
    return;
  }
  for (const JsonReader& tokens : value.array(limits::kMaxSequence)) {
    plan.slice_tokens.push_back(tokens.integer(1, limits::kMaxSequence));
  }
  if (plan.slice_tokens.empty()) {
    value.fail("no slices");
  }
  plan.slices = static_cast<int>(plan.slice_tokens.size());
}

void read_parallelism(const JsonReader& value, Plan& plan) {
  ObjectReader object = value.object();
  plan.dp = degree_or(object, "dp", plan.dp);
  plan.pp = degree_or(object, "pp", plan.pp);
  plan.chunks = degree_or(object, "chunks", plan.chunks);
  if (const auto schedule = object.optional("schedule"); schedule && schedule->json().is_object()) {
    plan.schedule_document = std::make_shared<const sim::ScheduleDocument>(
        sim::read_schedule_document(schedule->json(), schedule->where()));
    plan.schedule = plan.schedule_document->name;
  } else if (schedule) {
    plan.schedule = schedule->string();
  }
  if (const auto cap = object.optional("activation_cap")) {
    plan.activation_cap = cap->number(1.0, 1e9);
  }
  if (const auto slices = object.optional("slices")) {
    read_slices(*slices, plan);
  }
  plan.encoder_parts = static_cast<int>(object.integer_or("encoder_parts", 1, 1, 65536));
  plan.servers = static_cast<int>(object.integer_or("servers", 0, 0, limits::kMaxDevices));
  plan.clock_distance = static_cast<int>(object.integer_or("clock_distance", 0, 0, 4));
  plan.micro_batch = object.integer_or("micro_batch", plan.micro_batch, 1, limits::kMaxBatch);
  if (const auto packs = object.optional("packs")) {
    plan.packs = read_packs(*packs);
  }
  object.finish();
}

std::vector<int> read_stages(const JsonReader& value) {
  std::vector<int> stages;
  for (const JsonReader& count : value.array(limits::kMaxLayers)) {
    stages.push_back(static_cast<int>(count.integer(1, 4 * limits::kMaxLayers)));
  }
  return stages;
}

Json workload_json(const Plan& plan) {
  Json workload = Json::object();
  if (plan.serving) {
    workload.set("requests", to_json(plan.serving->requests));
  } else {
    workload.set("batch", plan.batch);
    workload.set("sequence", plan.sequence);
  }
  workload.set("precision", to_text(plan.precision));
  return workload;
}

Json parallelism_json(const Plan& plan) {
  Json parallelism = Json::Object{{"dp", plan.dp}, {"pp", plan.pp}};
  if (!plan.serving) {
    parallelism.set("chunks", plan.chunks);
    parallelism.set("schedule",
                    plan.schedule_document ? plan.schedule_document->json : Json(plan.schedule));
    parallelism.set("micro_batch", plan.micro_batch);
    if (!plan.slice_tokens.empty()) {
      Json tokens = Json::array();
      for (const std::int64_t count : plan.slice_tokens) {
        tokens.push(count);
      }
      parallelism.set("slices", std::move(tokens));
    } else if (plan.slices > 1) {
      parallelism.set("slices", plan.slices);
    }
    if (plan.activation_cap > 0) {
      parallelism.set("activation_cap", plan.activation_cap);
    }
    const auto set_unusual = [&](std::string_view key, int value, int usual) {
      if (value != usual) {
        parallelism.set(key, value);
      }
    };
    set_unusual("encoder_parts", plan.encoder_parts, 1);
    set_unusual("servers", plan.servers, 0);
    set_unusual("clock_distance", plan.clock_distance, 0);
    if (!plan.packs.empty()) {
      parallelism.set("packs", packs_json(plan.packs));
    }
  }
  return parallelism;
}

std::vector<int> default_stages(const Plan& plan) {
  std::vector<int> stages =
      cut_stages(plan.network, plan.sequence, plan.pp, plan.chunks, module_cut(plan));
  return stages.empty() ? even_stages(plan.network, plan.pp * plan.chunks) : stages;
}

}  // namespace

Json to_json(const Plan& plan) {
  Json stages = Json::array();
  for (const int count : plan.stage_blocks) {
    stages.push(count);
  }
  Json blocks = Json::array();
  for (const BlockRun& run : plan.blocks) {
    blocks.push(to_json(run));
  }
  const Json& network = plan.network.document;
  Json document = Json::Object{
      {"schema", kSchema},
      {"version", kVersion},
      {"workload", workload_json(plan)},
      {"parallelism", parallelism_json(plan)},
      {"stages", std::move(stages)},
      {"blocks", std::move(blocks)},
      {"execution", to_json(plan.execution)},
      {"memory_reserve", exact_bytes_text(plan.memory_reserve.value())},
      {"network",
       Json::Object{{"document", network.is_null() ? models::to_json(plan.network.spec) : network},
                    {"overrides", texts_to_json(plan.network.overrides)}}},
      {"cluster", Json::Object{{"name", plan.cluster.name},
                               {"document", plan.cluster.document},
                               {"overrides", texts_to_json(plan.cluster.overrides)}}},
      {"profile", costmodel::to_json(plan.profile)},
  };
  if (plan.serving) {
    document.set("serving", to_json(plan.serving->options));
  }
  return document;
}

void read_plan_parts(ObjectReader& object, const std::string& where, Plan& plan) {
  read_workload(object.required("workload"), plan);
  if (const auto parallelism = object.optional("parallelism")) {
    read_parallelism(*parallelism, plan);
  }
  for (const JsonReader& run : object.required("blocks").array(4 * limits::kMaxLayers)) {
    plan.blocks.push_back(read_block_run(run));
  }
  if (const auto execution = object.optional("execution")) {
    plan.execution = read_execution(*execution);
  }
  if (const auto reserve = object.optional("memory_reserve")) {
    plan.memory_reserve = reserve->byte_count(true);
  }
  plan.network = read_embedded_network(object.required("network"));
  if (const auto stages = object.optional("stages")) {
    plan.stage_blocks = read_stages(*stages);
  } else {
    if (std::int64_t{plan.pp} * plan.chunks > limits::kMaxLayers) {
      bad_input(where, fmt::format("pp x chunks = {} x {}: more stages than any network has layers",
                                   plan.pp, plan.chunks));
    }
    plan.stage_blocks = default_stages(plan);
  }
}

Plan read_plan(const Json& document, const std::string& where) {
  if (is_mixed_plan(document)) {
    topologies::refuse_mixed_cluster(where);
  }
  ObjectReader object = JsonReader(document, where).object();
  object.expect_schema(kSchema, kVersion);
  Plan plan;
  read_plan_parts(object, where, plan);
  plan.cluster = read_embedded_cluster(object.required("cluster"));
  const JsonReader profile = object.required("profile");
  plan.profile = costmodel::read_profile(profile.json(), profile.where(), plan.cluster.gpu);
  if (plan.serving) {
    plan.batch = plan.dp;
    if (const auto options = object.optional("serving")) {
      plan.serving = std::make_shared<const Serving>(
          Serving{plan.serving->requests, read_serving_options(*options)});
    }
  }
  object.finish();
  check_plan(plan, where);
  return plan;
}

}  // namespace orrery::plan
