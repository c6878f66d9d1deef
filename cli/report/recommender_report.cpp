// SPDX-License-Identifier: Apache-2.0
#include "cli/report/recommender_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/command/command.hpp"
#include "cli/show/show.hpp"
#include "plan/simulation/layout_text.hpp"
#include "plan/simulation/reported_collectives.hpp"
#include "plan/stage/memory.hpp"

namespace orrery::cli {

namespace {

// Means over ranks and units have parts of bytes.
std::int64_t whole_bytes(Bytes bytes) { return std::llround(bytes.value()); }

Json loads_json(const plan::RecommenderCost& cost) {
  Json loads = Json::array();
  for (const plan::TableLoad& load : cost.ranks) {
    loads.push(Json::Object{{"lookup_s", load.lookup.value()},
                            {"update_s", load.update.value()},
                            {"bytes", whole_bytes(load.bytes)},
                            {"buffer_bytes", whole_bytes(load.buffers)}});
  }
  return loads;
}

// By the mean rank; of all tables of a sharding there is one collective a step.
Bytes sent_bytes(const plan::TableExchange& one) {
  return plan::ring_bytes(one.kind, one.bytes, one.ranks);
}

Json to_json(const plan::RecommenderCost& cost) {
  Json held = Json::array();
  for (const auto& one : cost.held) {
    held.push(Json::Object{{"tables", one.group},
                           {"shape", one.shape},
                           {"bytes", whole_bytes(one.bytes)},
                           {"layout", one.layout},
                           {"least", one.least},
                           {"most", one.most}});
  }
  Json exchanges = Json::array();
  for (const plan::TableExchange& one : cost.exchanges) {
    exchanges.push(Json::Object{{"pass", one.forward ? "forward" : "backward"},
                                {"collective", sim::to_text(one.kind)},
                                {"axes", plan::axes_text(one.axes)},
                                {"ranks", one.ranks},
                                {"count", 1},
                                {"buffer_bytes", whole_bytes(one.bytes)},
                                {"sent_bytes", whole_bytes(sent_bytes(one))},
                                {"imbalance", one.imbalance},
                                {"time_s", one.time.value()},
                                {"tensor", one.of}});
  }
  return Json::Object{{"tables", std::move(held)},
                      {"collectives", std::move(exchanges)},
                      {"ranks", loads_json(cost)},
                      {"lookups", cost.lookups},
                      {"unique_rows", cost.unique_rows},
                      {"dense_parameters", cost.dense_parameters},
                      {"lookup_s", cost.lookup.value()},
                      {"update_s", cost.update.value()},
                      {"dense_forward_s", cost.dense_forward.value()},
                      {"dense_backward_s", cost.dense_backward.value()},
                      {"dense_reduction_s", cost.dense_reduction.value()},
                      {"iteration_time_s", cost.step.value()},
                      {"pipelined_iteration_time_s", cost.pipelined.value()},
                      {"peak_memory_bytes", whole_bytes(cost.fullest_bytes)},
                      {"fits", cost.fits}};
}

std::string held_text(const plan::RecommenderCost& cost) {
  TextTable table(
      {{"tables"}, {"on a rank", Align::Right}, {"each"}, {"bytes", Align::Right}, {"layout"}});
  for (const auto& one : cost.held) {
    const std::string count = one.least == one.most ? std::to_string(one.most)
                                                    : fmt::format("{} to {}", one.least, one.most);
    table.add_row({one.group, count, one.shape, format_bytes(one.bytes), one.layout});
  }
  return table.text();
}

std::string exchanges_text(const plan::RecommenderCost& cost) {
  TextTable table({{"pass"},
                   {"collective"},
                   {"axes"},
                   {"ranks", Align::Right},
                   {"count", Align::Right},
                   {"buffer", Align::Right},
                   {"sent", Align::Right},
                   {"most / mean", Align::Right},
                   {"time", Align::Right},
                   {"of"}});
  for (const plan::TableExchange& one : cost.exchanges) {
    table.add_row({one.forward ? "forward" : "backward", std::string(sim::to_text(one.kind)),
                   plan::axes_text(one.axes), std::to_string(one.ranks), "1",
                   format_bytes(one.bytes), format_bytes(sent_bytes(one)),
                   fmt::format("{:.2f}", one.imbalance), format_duration(one.time), one.of});
  }
  return table.text();
}

std::string step_text(const plan::RecommenderCost& cost) {
  TextTable table({{"part of a step"}, {"time", Align::Right}});
  const auto row = [&](const char* name, Seconds time) {
    table.add_row({name, format_duration(time)});
  };
  row("indices to their tables", cost.exchange_indices);
  row("lookups", cost.lookup);
  row("pooled rows to their samples", cost.exchange_forward);
  row("dense network, forward", cost.dense_forward);
  row("dense network, backward", cost.dense_backward);
  row("sum of dense gradients, beside it", cost.dense_reduction);
  row("gradients to their tables", cost.exchange_backward);
  row("update of rows", cost.update);
  row("step", cost.step);
  row("step, indices sent ahead", cost.pipelined);
  if (cost.nested.value() > 0) {
    row("rows that two batches share", cost.shared_rows);
    row("step, batches and micro-batches nested", cost.nested);
  }
  return table.text();
}

Json exposed_json(const plan::RecommenderCost& cost) {
  Json exposed = Json::object();
  const auto add = [&](const std::string& kind, Seconds time) {
    const Json* known = exposed.find(kind);
    exposed.set(kind, time.value() + (known == nullptr ? 0.0 : known->as_number()));
  };
  for (const plan::TableExchange& one : cost.exchanges) {
    add(std::string(sim::to_text(one.kind)), one.time);
  }
  const Seconds late = std::max(Seconds(), cost.dense_reduction - cost.dense_backward);
  if (late.value() > 0) {
    add(std::string(sim::to_text(sim::CommKind::AllReduce)), late);
  }
  return exposed;
}

}  // namespace

std::string recommender_text(const plan::Recommender& network, const plan::RecommenderCost& cost) {
  const auto by_work = [](const plan::TableLoad& a, const plan::TableLoad& b) {
    return a.lookup < b.lookup;
  };
  const auto [least, most] = std::minmax_element(cost.ranks.begin(), cost.ranks.end(), by_work);
  const std::string fewest = format_duration(least->lookup);
  const std::string longest = format_duration(most->lookup);
  return fmt::format(
      "{} on {}, {} samples a step\n\n{}\n{}\n{}\nlookups take {} on a rank; {} of {} rows looked "
      "up are distinct;\nthe fullest rank holds {}{}:\n{} of tables, {} of "
      "indices, pooled rows and gradients of whole tables,\n{} of the dense network, {} of "
      "context\n",
      network.name, network.cluster.name, network.batch, held_text(cost), exchanges_text(cost),
      step_text(cost), fewest == longest ? longest : fmt::format("{} to {}", fewest, longest),
      format_count(cost.unique_rows), format_count(cost.lookups), format_bytes(cost.fullest_bytes),
      cost.fits
          ? ""
          : fmt::format(", more than the {} of a {}",
                        format_bytes(network.cluster.gpu.memory.bytes()), network.cluster.gpu.name),
      format_bytes(cost.table_bytes), format_bytes(cost.buffer_bytes),
      format_bytes(cost.dense_bytes), format_bytes(plan::context_bytes().bytes()));
}

Json::Object recommender_json(const plan::Recommender& network, const plan::RecommenderCost& cost) {
  const double gpus = network.cluster.num_gpus();
  const double samples = static_cast<double>(network.batch) / cost.iteration().value();
  const double mfu = cost.dense_flops / (network.cluster.gpu.peak_of(network.precision).value() *
                                         gpus * cost.iteration().value());
  return {
      {"iteration_time_s", cost.iteration().value()},
      {"iteration_time_interval_s", Json::Array{cost.step_low.value(), cost.step_high.value()}},
      {"pipelined_iteration_time_s", cost.pipelined.value()},
      {"samples_per_s", samples},
      {"samples_per_s_per_gpu", samples / gpus},
      {"mfu", mfu},
      {"hfu", mfu},
      {"bubble_fraction", 0.0},
      {"compute_s", (cost.lookup + cost.update + cost.dense_forward + cost.dense_backward).value()},
      {"exposed_communication_s", exposed_json(cost)},
      {"fits", cost.fits},
      {"peak_memory_bytes", Json::Array{whole_bytes(cost.fullest_bytes)}},
      {"memory_bytes", Json::Array{Json::Object{{"tables", whole_bytes(cost.table_bytes)},
                                                {"dense", whole_bytes(cost.dense_bytes)},
                                                {"context", plan::context_bytes().value()},
                                                {"buffers", whole_bytes(cost.buffer_bytes)}}}},
      {"layout", to_json(cost)},
      {"plan", plan::to_json(network)}};
}

Shown show_recommender(const Json& document, const std::string& where) {
  const plan::Recommender network = plan::read_recommender(document, where);
  const plan::RecommenderCost cost = plan::simulate_recommender(network);
  return {recommender_text(network, cost), to_json(cost), ""};
}

int simulate_recommender(const Json& document, const std::string& where,
                         const std::string& report_path, const OutputOptions& output) {
  const plan::Recommender network = plan::read_recommender(document, where);
  const plan::RecommenderCost cost =
      in_file(where, [&] { return plan::simulate_recommender(network); });
  const std::string text = recommender_text(network, cost);
  if (output.json) {
    print_json(recommender_json(network, cost));
  } else {
    print(text);
  }
  if (!report_path.empty()) {
    write_result(report_path, text, output);
  }
  if (!cost.fits) {
    note(fmt::format("orrery: this plan does not fit: its fullest rank needs {}",
                     format_bytes(cost.fullest_bytes)));
    return kInfeasible;
  }
  return kOk;
}

}  // namespace orrery::cli
