// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/validation.hpp"

namespace orrery::studies {
namespace {

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json spread_json(const ErrorSummary& summary) {
  return Json::Object{{"median_abs_error", number_or_null(summary.median)},
                      {"p90_abs_error", number_or_null(summary.p90)},
                      {"mean_abs_error", number_or_null(summary.mean)},
                      {"count", static_cast<std::int64_t>(summary.simulated)}};
}

Json summary_json(const ErrorSummary& summary) {
  Json json = Json::object();
  json.set("median_abs_error", number_or_null(summary.median));
  json.set("p90_abs_error", number_or_null(summary.p90));
  json.set("mean_abs_error", number_or_null(summary.mean));
  json.set("bias", number_or_null(summary.bias));
  json.set("simulated", static_cast<std::int64_t>(summary.simulated));
  json.set("skipped", static_cast<std::int64_t>(summary.skipped));
  return json;
}

Json judgement_json(const Judgement& judgement) {
  Json json = Json::object();
  json.set("time", summary_json(judgement.time));
  json.set("memory", summary_json(judgement.memory));
  json.set("coverage80", number_or_null(judgement.time.coverage80));
  const Ranking& ranking = judgement.ranking;
  json.set("kendall_tau", number_or_null(ranking.tau));
  json.set("kendall_tau_median", number_or_null(ranking.tau_median));
  json.set("regret", Json::Object{{"median", number_or_null(ranking.regret_median)},
                                  {"worst", number_or_null(ranking.regret_worst)}});
  json.set("ranked_groups", static_cast<std::int64_t>(ranking.groups));
  json.set("ranked_plans", static_cast<std::int64_t>(ranking.plans));
  json.set("ratio", spread_json(judgement.ratio));
  json.set("baseline", spread_json(judgement.baseline));
  return json;
}

Json row_json(const RowResult& row) {
  Json json = Json::object();
  json.set("id", row.id);
  json.set("source", row.source);
  json.set("config_id", row.config_id);
  json.set("confidence", row.full ? "full" : "partial");
  json.set("quantity", row.quantity);
  const bool simulated = row.simulated();
  json.set("predicted", simulated ? Json(row.predicted) : Json());
  json.set("measured", simulated ? Json(row.measured) : Json());
  json.set("error", simulated ? Json(row.error()) : Json());
  if (simulated && row.low && row.high) {
    json.set("interval", Json::Array{*row.low, *row.high});
  }
  Json assumed = Json::array();
  for (const std::string& assumption : row.assumed) {
    assumed.push(assumption);
  }
  json.set("assumed", std::move(assumed));
  json.set("skipped_because", simulated ? Json() : Json(row.skipped_because));
  return json;
}

}  // namespace

Json to_json(const Validation& validation) {
  Json json = Json::object();
  json.set("overall", judgement_json(validation.overall));
  json.set("partial", judgement_json(validation.partial));
  Json sources = Json::object();
  for (const auto& [name, source] : validation.sources) {
    Json entry = judgement_json(source.full);
    entry.set("partial", judgement_json(source.partial));
    sources.set(name, std::move(entry));
  }
  json.set("sources", std::move(sources));
  Json groups = Json::object();
  for (const auto& [name, summary] : validation.groups) {
    Json entry = Json::object();
    entry.set("time", summary_json(summary));
    entry.set("coverage80", number_or_null(summary.coverage80));
    groups.set(name, std::move(entry));
  }
  json.set("groups", std::move(groups));
  Json small = Json::object();
  small.set("time", summary_json(validation.small_messages));
  json.set("below_1_kib", std::move(small));
  Json rows = Json::array();
  for (const RowResult& row : validation.rows) {
    rows.push(row_json(row));
  }
  json.set("rows", std::move(rows));
  return json;
}

}  // namespace orrery::studies
