// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "plan/recommender/recommender.hpp"

namespace orrery::plan {

namespace {

constexpr std::array<std::string_view, 5> kShardingNames = {"table", "column", "row", "table-row",
                                                            "data"};
constexpr std::int64_t kMostRows = 1'000'000'000'000;
constexpr std::int64_t kMostTables = 100'000;

std::vector<std::int64_t> read_widths(ObjectReader& object, std::string_view key) {
  std::vector<std::int64_t> widths;
  for (const JsonReader& width : object.required(key).array(100)) {
    widths.push_back(width.integer(1, limits::kMaxFfn));
  }
  if (widths.empty()) {
    object.required(key).fail("no layer");
  }
  return widths;
}

TableGroup read_group(const JsonReader& value) {
  ObjectReader object = value.object();
  TableGroup group;
  group.name = object.required("name").string();
  group.count = object.integer_or("count", group.count, 1, kMostTables);
  group.rows = object.required("rows").integer(1, kMostRows);
  group.dim = object.required("dim").integer(1, limits::kMaxHidden);
  group.pooling = object.number_or("pooling", group.pooling, 1e-6, 1e6);
  group.slope = object.number_or("slope", group.slope, 0, 10);
  if (const auto sharding = object.optional("sharding")) {
    const auto at =
        std::find(kShardingNames.begin(), kShardingNames.end(), sharding->one_of(kShardingNames));
    group.sharding = static_cast<TableSharding>(at - kShardingNames.begin());
    group.stated = true;
  }
  group.slices = static_cast<int>(object.integer_or("slices", 1, 1, limits::kMaxHidden));
  object.finish();
  const bool column = group.sharding == TableSharding::Column;
  if (!column && group.slices > 1) {
    value.fail(fmt::format("table \"{}\": slices belong to sharding column, not {}", group.name,
                           to_text(group.sharding)));
  }
  if (group.slices > group.dim) {
    value.fail(
        fmt::format("table \"{}\": dimension dim = {} is sharded by {} slices, more than its "
                    "size",
                    group.name, group.dim, group.slices));
  }
  if (group.dim % group.slices != 0) {
    value.fail(fmt::format("table \"{}\": dimension dim = {} is not divisible by {} slices",
                           group.name, group.dim, group.slices),
               fmt::format("remainder {}", group.dim % group.slices));
  }
  return group;
}

void check(const Recommender& network, const std::string& where) {
  const topologies::Gpu& gpu = network.cluster.gpu;
  if (gpu.peak_of(network.precision).value() <= 0) {
    bad_input(where, fmt::format("{} has no {} arithmetic", gpu.name, to_text(network.precision)));
  }
  const std::int64_t ranks = network.cluster.num_gpus();
  const std::int64_t samples = ranks * network.micro_batches;
  if (network.batch % samples != 0) {
    const std::string by =
        network.batch % ranks != 0
            ? fmt::format("the {} GPUs of {}", ranks, network.cluster.name)
            : fmt::format("{} GPUs x micro_batches = {}", ranks, network.micro_batches);
    const std::int64_t nearest = std::max<std::int64_t>(1, (network.batch + samples / 2) / samples);
    bad_input(where, fmt::format("batch = {} is not divisible by {}", network.batch, by),
              fmt::format("set batch to {}", nearest * samples));
  }
  for (const TableGroup& group : network.tables) {
    const std::int64_t parts = group.sharding == TableSharding::Row ? ranks
                               : group.sharding == TableSharding::TableRow
                                   ? network.cluster.node.gpus
                                   : 1;
    if (parts > group.rows) {
      bad_input(where, fmt::format("table \"{}\": dimension rows = {} is sharded by {} = {} ranks, "
                                   "more than its size",
                                   group.name, group.rows,
                                   group.sharding == TableSharding::Row ? "tp x dp" : "tp", parts));
    }
    if (network.dot && group.dim != network.bottom.back()) {
      bad_input(where,
                fmt::format("table \"{}\" has width {}, but the bottom network ends with {}: the "
                            "interaction multiplies them",
                            group.name, group.dim, network.bottom.back()),
                "set \"interaction\" to \"concat\"");
    }
  }
}

topologies::Cluster read_cluster_of(const JsonReader& value) {
  if (!value.json().is_string()) {
    return topologies::read_cluster(value.json(), value.where());
  }
  const std::string name = value.string();
  return in_file(value.where(), [&] { return topologies::load_cluster(name); });
}

costmodel::Profile named_profile(const JsonReader& value, const topologies::Gpu& gpu) {
  const std::string name = value.string();
  return in_file(value.where(), [&] { return costmodel::load_profile(name, gpu); });
}

// Cluster and profile are names or whole documents; the command line's go before them.
void read_hardware(ObjectReader& object, const RecommenderRun& run, Recommender& network) {
  const auto cluster = object.optional("cluster");
  if (run.cluster) {
    network.cluster = *run.cluster;
  } else if (cluster) {
    network.cluster = read_cluster_of(*cluster);
  } else {
    object.value().fail("no cluster", "state \"cluster\", or use orrery plan NETWORK CLUSTER");
  }
  const auto profile = object.optional("profile");
  const bool stated = profile && run.profile.empty();
  if (stated && profile->json().is_object()) {
    network.profile =
        costmodel::read_profile(profile->json(), profile->where(), network.cluster.gpu);
  } else if (stated && profile->json().is_string()) {
    network.profile = named_profile(*profile, network.cluster.gpu);
  } else {
    network.profile = costmodel::load_profile(run.profile, network.cluster.gpu);
  }
}

void read_batch(ObjectReader& object, const RecommenderRun& run, Recommender& network) {
  const auto batch = object.optional("batch");
  if (run.batch > 0) {
    network.batch = run.batch;
  } else if (batch) {
    network.batch = batch->integer(1, limits::kMaxBatch);
  } else {
    object.value().fail("no batch", "state \"batch\", or give --batch to orrery plan");
  }
}

// Schedules of recommendation: the one that is none, and the one that nests two pipelines.
void read_schedule(ObjectReader& object, Recommender& network) {
  constexpr std::array<std::string_view, 2> kSchedules = {"sequential", kNestedSchedule};
  if (const auto schedule = object.optional("schedule")) {
    network.nested = schedule->one_of(kSchedules) == kNestedSchedule;
  }
  network.micro_batches =
      static_cast<int>(object.integer_or("micro_batches", 1, 1, kMostMicroBatches));
  if (network.micro_batches > 1 && !network.nested) {
    object.value().fail(fmt::format("micro_batches belong to the schedule \"{}\"", kNestedSchedule),
                        "set \"schedule\", or leave micro_batches out");
  }
}

Json widths_json(const std::vector<std::int64_t>& widths) {
  Json array = Json::array();
  for (const std::int64_t width : widths) {
    array.push(width);
  }
  return array;
}

Json group_json(const TableGroup& group) {
  Json document = Json::Object{{"name", group.name},
                               {"count", group.count},
                               {"rows", group.rows},
                               {"dim", group.dim},
                               {"pooling", group.pooling},
                               {"slope", group.slope},
                               {"sharding", to_text(group.sharding)}};
  if (group.slices > 1) {
    document.set("slices", group.slices);
  }
  return document;
}

}  // namespace

std::string_view to_text(TableSharding sharding) {
  return kShardingNames[static_cast<std::size_t>(sharding)];
}

bool is_recommender(const Json& document) {
  const Json* schema = document.is_object() ? document.find("schema") : nullptr;
  return schema != nullptr && *schema == Json("orrery-recommender");
}

Json to_json(const Recommender& network) {
  Json tables = Json::array();
  for (const TableGroup& group : network.tables) {
    tables.push(group_json(group));
  }
  Json document =
      Json::Object{{"schema", "orrery-recommender"},
                   {"version", 1},
                   {"name", network.name},
                   {"batch", network.batch},
                   {"precision", to_text(network.precision)},
                   {"table_bytes", network.table_bytes},
                   {"dense", Json::Object{{"features", network.features},
                                          {"bottom", widths_json(network.bottom)},
                                          {"top", widths_json(network.top)},
                                          {"interaction", network.dot ? "dot" : "concat"}}},
                   {"tables", std::move(tables)},
                   {"cluster", network.cluster.document},
                   {"profile", costmodel::to_json(network.profile)}};
  if (network.nested) {
    document.set("schedule", kNestedSchedule);
    document.set("micro_batches", network.micro_batches);
  }
  return document;
}

Recommender read_recommender(const Json& document, const std::string& where,
                             const RecommenderRun& run) {
  ObjectReader object = JsonReader(document, where).object();
  object.expect_schema("orrery-recommender", 1);
  Recommender network;
  network.name = object.string_or("name", where);
  read_batch(object, run, network);
  read_schedule(object, network);
  if (const auto precision = object.optional("precision")) {
    network.precision = parse_dtype(precision->string(), precision->where());
  }
  if (!run.precision.empty()) {
    network.precision = parse_dtype(run.precision, "--precision");
  }
  network.table_bytes = static_cast<int>(object.integer_or("table_bytes", 4, 1, 8));
  {
    ObjectReader dense = object.required("dense").object();
    network.features = dense.required("features").integer(1, limits::kMaxHidden);
    network.bottom = read_widths(dense, "bottom");
    network.top = read_widths(dense, "top");
    if (const auto kind = dense.optional("interaction")) {
      constexpr std::array<std::string_view, 2> kKinds = {"dot", "concat"};
      network.dot = kind->one_of(kKinds) == "dot";
    }
    dense.finish();
  }
  std::set<std::string> names;
  for (const JsonReader& group : object.required("tables").array(kMostTables)) {
    network.tables.push_back(read_group(group));
    const std::string& name = network.tables.back().name;
    if (!names.insert(name).second) {
      group.fail(fmt::format("a second group of tables is called \"{}\"", printable(name)));
    }
  }
  read_hardware(object, run, network);
  object.finish();
  if (network.tables.empty()) {
    bad_input(where, "no embedding tables");
  }
  check(network, where);
  return network;
}

}  // namespace orrery::plan
