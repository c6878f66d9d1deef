// SPDX-License-Identifier: Apache-2.0
// The kinds of runs that a headline can name (docs/headlines.md), one file each, and the values a
// run takes from others:
//   {"=": expression}             a number, or with "unit" a quantity, or any earlier result
//   {"data": "vgg16"}             studies/data/vgg16.json
//   {"repeat": n, "of": [...]}    in a list: its entries n times
#pragma once

#include <string_view>

#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::studies {

// What a path names: "run.member.0.member".
const Json& resolve(const JsonReader& path, const Json& results);

// The run with the values of earlier results filled in.
Json fill_values(const JsonReader& run, const Json& results);

// The value, which must be an object.
const Json& object_of(const JsonReader& value);

// The network (under that key), cluster, sequence and precision of a run; the rest by default.
plan::Plan plan_of_run(const JsonReader& value, ObjectReader& run, std::string_view network);

// What the framework of a run ("framework", a name of rows/framework_facts.hpp) does; without one
// the execution stays as it is.
void apply_framework(ObjectReader& run, plan::Plan& plan);

// One pipeline schedule, as `orrery schedule --json`; its stages may differ ("times").
Json schedule_run(const JsonReader& value, ObjectReader& run);
// One plan, simulated: degrees, schedule ("order") and stages as stated.
Json plan_run(const JsonReader& value, ObjectReader& run);
Json simulation_json(const plan::Simulation& simulation);
// What the blocks of a network cost on a cluster: the cost model that plans are made of.
Json blocks_run(const JsonReader& value, ObjectReader& run);
// The synchronous pipeline of a cut chain: stages with replicas, links of different speed.
Json chain_run(const JsonReader& value, ObjectReader& run);
// Requests served by a network on a cluster: the best serving plan, as `orrery plan --serve
// --json`.
Json serving_run(const JsonReader& value, ObjectReader& run);
// One plan of a network, cluster and layout, at a given or the largest micro-batch.
Json layout_run(const JsonReader& value, ObjectReader& run);
// Lengths of sequences drawn from quantiles.
Json lengths_run(const JsonReader& value, ObjectReader& run);
// One plan: `parallelism`, `layout` of all blocks and `execution` as in its document.
Json document_run(const JsonReader& value, ObjectReader& run);
// Data parallelism of a list of gradients (plan/block/ddp.hpp) around the measured iteration of one
// GPU.
Json ddp_run(const JsonReader& value, ObjectReader& run);
// The layers of a network as partitions in host memory, some of them on the device
// (sim/engine/tiers.hpp).
Json tiers_run(const JsonReader& value, ObjectReader& run);

}  // namespace orrery::studies
