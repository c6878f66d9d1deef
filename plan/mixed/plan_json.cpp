// SPDX-License-Identifier: Apache-2.0
// The document of a mixed plan.
#include <fmt/format.h>

#include <algorithm>

#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "plan/mixed/plan.hpp"
#include "plan/plan_parts.hpp"

namespace orrery::plan {

namespace {

constexpr std::string_view kSchema = "orrery-mixed-plan";

const std::string& pool_name(const MixedPlan& plan, int pool) {
  return plan.machine->cluster.pools[static_cast<std::size_t>(pool)].name;
}

}  // namespace

bool is_mixed_plan(const Json& document) {
  const Json* schema = document.is_object() ? document.find("schema") : nullptr;
  return schema != nullptr && *schema == Json(std::string(kSchema));
}

namespace {

// "fast", or ["fast", "slow"] by tensor-parallel rank.
Json pools_json(const MixedPlan& plan, const ReplicaGroup& group, std::size_t device) {
  const std::vector<int>* team = group.team_of(device);
  if (team == nullptr) {
    return Json(pool_name(plan, group.pools[device]));
  }
  Json names = Json::array();
  for (const int pool : *team) {
    names.push(pool_name(plan, pool));
  }
  return names;
}

}  // namespace

Json to_json(const MixedPlan& plan) {
  const Json shape = to_json(plan.shape);
  Json document = Json::object();
  for (const auto& [name, value] : shape.as_object()) {
    if (name == "schema") {
      document.set(name, kSchema);
    } else if (name == "cluster") {
      document.set(name, plan.machine->cluster.document);
    } else if (name == "profile") {
      Json profiles = Json::object();
      for (std::size_t pool = 0; pool < plan.num_pools(); ++pool) {
        profiles.set(plan.machine->cluster.pools[pool].name,
                     costmodel::to_json(plan.machine->profiles[pool]));
      }
      document.set("profiles", std::move(profiles));
    } else {
      document.set(name, value);
    }
    if (name == "parallelism") {
      Json groups = Json::array();
      for (const ReplicaGroup& group : plan.groups) {
        Json pools = Json::array();
        for (std::size_t device = 0; device < group.pools.size(); ++device) {
          pools.push(pools_json(plan, group, device));
        }
        groups.push(Json::Object{{"replicas", group.replicas},
                                 {"micro_batches", group.micro_batches},
                                 {"pools", std::move(pools)}});
      }
      document.set("replicas", std::move(groups));
    }
  }
  return document;
}

namespace {

ReplicaGroup read_group(const JsonReader& value, const topologies::MixedCluster& cluster) {
  std::vector<std::string> names;
  for (const topologies::Pool& pool : cluster.pools) {
    names.push_back(pool.name);
  }
  ObjectReader object = value.object();
  ReplicaGroup group;
  group.replicas = static_cast<int>(object.integer_or("replicas", 1, 1, limits::kMaxDevices));
  group.micro_batches = object.required("micro_batches").integer(1, limits::kMaxBatch);
  const auto pool_of = [&](const JsonReader& pool) {
    const auto found = std::find(names.begin(), names.end(), pool.string());
    if (found == names.end()) {
      pool.fail(fmt::format("no pool is called \"{}\"", printable(pool.string())),
                nearest_hint(pool.string(), names));
    }
    return static_cast<int>(found - names.begin());
  };
  std::vector<std::vector<int>> teams;
  bool any_team = false;
  for (const JsonReader& pool : object.required("pools").array(limits::kMaxLayers)) {
    std::vector<int>& team = teams.emplace_back();
    if (!pool.json().is_array()) {
      group.pools.push_back(pool_of(pool));
      continue;
    }
    for (const JsonReader& rank : pool.array(TensorShares::kMaxRanks)) {
      team.push_back(pool_of(rank));
    }
    if (team.empty()) {
      pool.fail("no pool", "one for each tensor-parallel rank");
    }
    group.pools.push_back(team.front());
    any_team = true;
  }
  if (any_team) {
    group.teams = std::move(teams);
  }
  object.finish();
  return group;
}

}  // namespace

MixedPlan read_mixed_plan(const Json& document, const std::string& where) {
  ObjectReader object = JsonReader(document, where).object();
  object.expect_schema(kSchema, 1);
  MixedPlan plan;
  read_plan_parts(object, where, plan.shape);
  auto machine = std::make_shared<MixedMachine>();
  const JsonReader cluster = object.required("cluster");
  machine->cluster = topologies::read_mixed_cluster(cluster.json(), cluster.where());
  for (const JsonReader& group : object.required("replicas").array(limits::kMaxDevices)) {
    plan.groups.push_back(read_group(group, machine->cluster));
  }
  const auto profiles = object.optional("profiles");
  std::optional<ObjectReader> stated;
  if (profiles) {
    stated = profiles->object();
  }
  for (const topologies::Pool& pool : machine->cluster.pools) {
    if (stated) {
      const JsonReader profile = stated->required(pool.name);
      machine->profiles.push_back(
          costmodel::read_profile(profile.json(), profile.where(), pool.cluster.gpu));
    } else {
      machine->profiles.push_back(costmodel::load_profile("", pool.cluster.gpu));
    }
  }
  if (stated) {
    stated->finish();
  }
  object.finish();
  plan.shape.cluster = machine->cluster.pools.front().cluster;
  plan.shape.profile = machine->profiles.front();
  plan.machine = std::move(machine);
  check_mixed_plan(plan, where);
  return plan;
}

}  // namespace orrery::plan
