// SPDX-License-Identifier: Apache-2.0
#include "base/limits.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

Json document_run(const JsonReader& value, ObjectReader& run) {
  plan::Plan base = plan_of_run(value, run, "document");
  base.batch = run.required("batch").integer(1, limits::kMaxBatch);
  const int blocks = static_cast<int>(base.network.chain.size());
  base.blocks = {{blocks, {}}};
  base.stage_blocks = {blocks};
  // The document of this plan with the members that the run states.
  Json document = plan::to_json(base);
  Json layout = Json::object();
  if (const auto stated = run.optional("layout")) {
    layout = object_of(*stated);
  }
  layout.set("count", blocks);
  Json list = Json::array();
  list.push(std::move(layout));
  document.set("blocks", std::move(list));
  Json rest = Json::object();
  for (const auto& [key, member] : document.as_object()) {
    if (key != "stages") {
      rest.set(key, member);
    }
  }
  for (const char* key : {"parallelism", "execution"}) {
    if (const auto stated = run.optional(key)) {
      rest.set(key, stated->json());
    }
  }
  run.finish();
  return simulation_json(plan::simulate(plan::read_plan(rest, value.where())));
}

}  // namespace orrery::studies
