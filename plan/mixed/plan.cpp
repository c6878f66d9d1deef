// SPDX-License-Identifier: Apache-2.0
#include "plan/mixed/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "plan/block_rules.hpp"
#include "plan/plan_parts.hpp"
#include "plan/plan_schedule.hpp"

namespace orrery::plan {

namespace {

constexpr std::string_view kSchema = "orrery-mixed-plan";

const topologies::Pool& pool_at(const MixedPlan& plan, int pool) {
  return plan.machine->cluster.pools[static_cast<std::size_t>(pool)];
}

}  // namespace

std::vector<std::int64_t> MixedPlan::gpus_used() const {
  std::vector<std::int64_t> used(num_pools(), 0);
  const BlockPlan& first = shape.blocks.front().layout;
  for (const ReplicaGroup& group : groups) {
    for (const int pool : group.pools) {
      used[static_cast<std::size_t>(pool)] += std::int64_t{first.tp} * first.cp * group.replicas;
    }
  }
  return used;
}

std::int64_t MixedPlan::num_gpus() const {
  const std::vector<std::int64_t> used = gpus_used();
  return std::accumulate(used.begin(), used.end(), std::int64_t{0});
}

std::vector<int> MixedPlan::pools_of_device(int device) const {
  std::vector<int> pools;
  for (const ReplicaGroup& group : groups) {
    pools.push_back(group.pools[static_cast<std::size_t>(device)]);
  }
  std::sort(pools.begin(), pools.end());
  pools.erase(std::unique(pools.begin(), pools.end()), pools.end());
  return pools;
}

void set_view(const MixedPlan& plan, std::int64_t micro_batches, Plan& view) {
  const Plan& shape = plan.shape;
  view.dp = shape.dp;
  view.pp = shape.pp;
  view.chunks = shape.chunks;
  view.schedule = shape.schedule;
  view.schedule_document = shape.schedule_document;
  view.activation_cap = shape.activation_cap;
  view.micro_batch = shape.micro_batch;
  view.stage_blocks = shape.stage_blocks;
  view.blocks = shape.blocks;
  view.batch = micro_batches * shape.micro_batch * shape.dp;
}

Plan pool_view(const MixedPlan& plan, std::size_t pool) {
  Plan view = plan.shape;
  view.cluster = plan.machine->cluster.pools[pool].cluster;
  view.profile = plan.machine->profiles[pool];
  return view;
}

namespace {

class Checker {
 public:
  Checker(const MixedPlan& plan, const std::string& where) : plan_(plan), where_(where) {}

  void check() const {
    check_supported();
    check_groups();
    for (std::size_t pool = 0; pool < plan_.num_pools(); ++pool) {
      check_pool(pool);
    }
    check_gpus();
    for (int device = 0; device < plan_.shape.pp; ++device) {
      check_data_ranks(device);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& message, const std::string& hint = {}) const {
    bad_input(where_, message, hint);
  }

  void check_supported() const {
    const Plan& shape = plan_.shape;
    constexpr const char* kOneKind = "on a cluster of one kind of nodes it can be planned";
    if (shape.blocks.empty()) {
      fail("`blocks` is empty");
    }
    if (shape.serving) {
      fail("a plan of a mixed cluster serves no requests", kOneKind);
    }
    if (shape.slices > 1) {
      fail("a plan of a mixed cluster cuts no sequences into slices", kOneKind);
    }
    for (const BlockRun& run : shape.blocks) {
      if (run.layout.offload.any()) {
        fail("a plan of a mixed cluster offloads nothing", kOneKind);
      }
    }
    const ScheduleTraits traits = schedule_traits(shape);
    if (!traits.synchronous || traits.two_directions || traits.shares_output_layer ||
        traits.fills_frozen || traits.by_modules || traits.copies_to_host ||
        traits.spreads_attention || traits.packs_sequences) {
      fail(fmt::format("schedule {}: on a mixed cluster schedules are synchronous, one chain of "
                       "stages, with the output layer on the last",
                       shape.schedule),
           "1f1b, gpipe, interleaved and zero-bubble schedules are");
    }
  }

  void check_groups() const {
    const Plan& shape = plan_.shape;
    std::int64_t replicas = 0;
    std::int64_t micro_batches = 0;
    for (const ReplicaGroup& group : plan_.groups) {
      if (static_cast<int>(group.pools.size()) != shape.pp) {
        fail(fmt::format("a group of `replicas` names {} pools, but pp = {}", group.pools.size(),
                         shape.pp),
             "one pool for each pipeline stage");
      }
      replicas += group.replicas;
      micro_batches += group.replicas * group.micro_batches;
    }
    if (replicas != shape.dp) {
      fail(fmt::format("the counts of `replicas` sum to {}, but dp = {}", replicas, shape.dp));
    }
    if (micro_batches * shape.micro_batch != shape.batch) {
      fail(fmt::format("replicas x micro_batches x micro_batch sum to {} x {}, but batch = {}",
                       micro_batches, shape.micro_batch, shape.batch));
    }
  }

  bool is_used(std::size_t pool) const {
    return std::any_of(plan_.groups.begin(), plan_.groups.end(), [&](const ReplicaGroup& group) {
      return std::find(group.pools.begin(), group.pools.end(), static_cast<int>(pool)) !=
             group.pools.end();
    });
  }

  void check_pool(std::size_t pool) const {
    if (!is_used(pool)) {
      return;
    }
    Plan view = pool_view(plan_, pool);
    for (const ReplicaGroup& group : plan_.groups) {
      set_view(plan_, group.micro_batches, view);
      check_plan_parts(view, where_);
    }
  }

  void check_gpus() const {
    const std::vector<std::int64_t> used = plan_.gpus_used();
    for (std::size_t pool = 0; pool < used.size(); ++pool) {
      const topologies::Pool& here = plan_.machine->cluster.pools[pool];
      if (used[pool] > here.cluster.num_gpus()) {
        fail(fmt::format("the plan needs {} GPUs of pool \"{}\", which has {}", used[pool],
                         here.name, here.cluster.num_gpus()),
             "fewer replicas, or stages on another pool");
      }
    }
  }

  // Where the ranks that share a stage's states are of several kinds.
  void check_data_ranks(int device) const {
    if (plan_.pools_of_device(device).size() < 2) {
      return;
    }
    for (const BlockRun& run : plan_.shape.blocks) {
      if (run.layout.zero_stage >= 2) {
        fail(fmt::format("zero_stage = {}, but the replicas of stage {} are on different pools",
                         run.layout.zero_stage, device),
             "ZeRO-2 and 3 meet in every micro-batch; zero_stage 0 and 1 meet once a step");
      }
      if (mesh_of(run.layout, run.layout.ep).of(Axis::Expert) > 1) {
        fail(fmt::format("ep = {}, but the replicas of stage {} are on different pools",
                         run.layout.ep, device),
             "expert-parallel ranks meet in every layer: put the stage on one pool");
      }
      const BlockPlan& first = plan_.shape.blocks.front().layout;
      if (run.layout.tp != first.tp || run.layout.cp != first.cp) {
        fail(fmt::format("blocks of different tp or cp, but the replicas of stage {} are on "
                         "different pools",
                         device),
             "replicas trade no samples then: give all blocks one tp and cp");
      }
    }
  }

  const MixedPlan& plan_;
  const std::string& where_;
};

}  // namespace

void check_mixed_plan(const MixedPlan& plan, const std::string& where) {
  Checker(plan, where).check();
}

std::string replicas_text(const MixedPlan& plan) {
  std::string text;
  for (const ReplicaGroup& group : plan.groups) {
    text += fmt::format("{}{} replica{} of {} micro-batches on ", text.empty() ? "" : "; ",
                        group.replicas, group.replicas == 1 ? "" : "s", group.micro_batches);
    for (std::size_t first = 0; first < group.pools.size();) {
      std::size_t end = first + 1;
      while (end < group.pools.size() && group.pools[end] == group.pools[first]) {
        ++end;
      }
      text += fmt::format("{}{} x {}", first == 0 ? "" : ", ",
                          pool_at(plan, group.pools[first]).name, end - first);
      first = end;
    }
  }
  return text;
}

bool is_mixed_plan(const Json& document) {
  const Json* schema = document.is_object() ? document.find("schema") : nullptr;
  return schema != nullptr && *schema == Json(std::string(kSchema));
}

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
        for (const int pool : group.pools) {
          pools.push(pool_at(plan, pool).name);
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
  for (const JsonReader& pool : object.required("pools").array(limits::kMaxLayers)) {
    const auto found = std::find(names.begin(), names.end(), pool.string());
    if (found == names.end()) {
      pool.fail(fmt::format("no pool is called \"{}\"", printable(pool.string())),
                nearest_hint(pool.string(), names));
    }
    group.pools.push_back(static_cast<int>(found - names.begin()));
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
