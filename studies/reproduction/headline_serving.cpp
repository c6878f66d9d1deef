// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/serving.hpp"
#include "plan/serving/simulate.hpp"
#include "search/serving_search.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

Json serving_run(const JsonReader& value, ObjectReader& run) {
  plan::Plan base = plan_of_run(value, run, "serves");
  auto serving = std::make_shared<plan::Serving>();
  serving->requests = plan::read_requests(run.required("requests"));
  base.sequence = plan::longest_request(plan::generate_requests(serving->requests));
  base.serving = std::move(serving);
  search::ServingSearch how;
  how.top = 1;
  if (const auto fixed = run.optional("fix")) {
    search::fix_serving(fixed->string(), how.fixed);
  }
  run.finish();
  const search::ServingOutcome outcome = search::search_serving(base, how);
  if (outcome.found.empty()) {
    value.fail("no serving plan fits: " + outcome.closest, outcome.nearest);
  }
  return plan::to_json(outcome.found.front().simulation);
}

}  // namespace orrery::studies
