// SPDX-License-Identifier: Apache-2.0
#include "studies/schedule_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/pipeline/unit_times.hpp"
#include "sim/pipeline/versions.hpp"
#include "studies/rows/table_cells.hpp"

namespace orrery::studies {

namespace {

constexpr int kActivationParts = 1 << 20;  // that a schedule sees of what a forward keeps
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
constexpr double kLongest = 1e3;  // seconds: many times multiplied it stays in the range of times

SimTime duration_of(const JsonReader& value) {
  const Seconds time = value.duration();
  if (time.value() > kLongest) {
    value.fail(fmt::format("longer than {} s", kLongest));
  }
  return to_sim_time(time);
}

// What a row leaves out keeps its time; of a stage forward and input gradient are stated.
void read_times(ObjectReader& object, bool of_stage, CostTable::Row& row) {
  const auto member = [&](std::string_view key) {
    return of_stage ? std::optional(object.required(key)) : object.optional(key);
  };
  if (const auto value = member("forward")) {
    row.forward = duration_of(*value);
  }
  if (const auto value = member("input_grad")) {
    row.input_grad = duration_of(*value);
  }
  if (const auto value = object.optional("weight_grad")) {
    row.weight_grad = duration_of(*value);
  }
}

// Rows of micro-batches, each once.
class UnitRows {
 public:
  explicit UnitRows(CostTable& table) : table_(table) {}
  void add(const CostTable::UnitRow& unit, const std::string& where) {
    if (!known_.emplace(unit.stage, unit.micro_batch).second) {
      bad_input(where, fmt::format("micro-batch {} of stage {} is there twice", unit.micro_batch,
                                   unit.stage));
    }
    table_.units.push_back(unit);
  }

 private:
  CostTable& table_;
  std::set<std::pair<int, int>> known_;  // stage and micro-batch
};

CostTable read_json_table(const std::string& path) {
  CostTable table;
  const Json document = read_json_file(path);
  ObjectReader object = JsonReader(document, path).object();
  object.expect_schema("orrery-schedule-costs", 1);
  for (const JsonReader& entry : object.required("stages").array(limits::kMaxLayers)) {
    ObjectReader reader = entry.object();
    CostTable::Row row;
    read_times(reader, true, row);
    if (const auto send = reader.optional("send")) {
      row.send = duration_of(*send);
    }
    if (const auto prediction = reader.optional("prediction")) {
      row.prediction = duration_of(*prediction);
    }
    if (const auto reduce = reader.optional("reduce")) {
      row.reduce = duration_of(*reduce);
    }
    if (const auto bytes = reader.optional("activation")) {
      row.activation = bytes->byte_count(true);
    }
    if (const auto bytes = reader.optional("weight_grad_activation")) {
      row.weight_grad_activation = bytes->byte_count(true);
      if (*row.weight_grad_activation > row.activation) {
        bytes->fail("more than the activation", "the part that only the weight gradient frees");
      }
    }
    reader.finish();
    table.stages.push_back(row);
  }
  if (const auto units = object.optional("micro_batches")) {
    UnitRows rows(table);
    for (const JsonReader& entry : units->array(limits::kMaxPasses)) {
      ObjectReader reader = entry.object();
      CostTable::UnitRow unit;
      unit.stage = static_cast<int>(
          reader.required("stage").integer(0, static_cast<std::int64_t>(table.stages.size()) - 1));
      unit.micro_batch =
          static_cast<int>(reader.required("micro_batch").integer(0, limits::kMaxBatch - 1));
      unit.row = table.stages[static_cast<std::size_t>(unit.stage)];
      read_times(reader, false, unit.row);
      reader.finish();
      rows.add(unit, entry.where());
    }
  }
  object.finish();
  return table;
}

constexpr auto kColumns = std::to_array<std::string_view>(
    {"stage", "micro_batch", "forward_s", "input_grad_s", "weight_grad_s", "send_s", "prediction_s",
     "reduce_s", "activation_bytes", "weight_grad_activation_bytes"});

// What rows of micro-batches take over from their stage.
constexpr auto kOfStages = std::to_array<std::string_view>(
    {"send_s", "prediction_s", "reduce_s", "activation_bytes", "weight_grad_activation_bytes"});

CostTable read_csv_table(const std::string& path) {
  CostTable table;
  const CsvTable csv = read_csv_file(path);
  csv.expect_columns(kColumns);
  UnitRows rows(table);
  for (std::size_t line = 0; line < csv.num_rows(); ++line) {
    const Cells cells(csv, line);
    const auto time = [&](std::string_view column, std::optional<SimTime> fallback) {
      const auto value = cells.number(column);
      if (value && *value > kLongest) {
        bad_input(csv.where(line, column), fmt::format("longer than {} s", kLongest));
      }
      if (!value && !fallback) {
        bad_input(csv.where(line, column), "a time is missing", "0 if there is none");
      }
      return value ? to_sim_time(Seconds(*value)) : *fallback;
    };
    const std::optional<std::int64_t> number = cells.count("stage", limits::kMaxLayers);
    if (!number) {
      bad_input(csv.where(line, "stage"), "a stage is missing");
    }
    const auto stage = static_cast<std::size_t>(*number);
    const auto micro_batch = cells.count("micro_batch", limits::kMaxBatch - 1);
    if (micro_batch ? stage >= table.stages.size() : stage != table.stages.size()) {
      bad_input(csv.where(line, "stage"), fmt::format("stage {} is out of order", stage),
                "list stages 0, 1, ... first, then rows with a micro_batch");
    }
    // What a row of a micro-batch leaves out is as in the others.
    const std::optional<CostTable::Row> before =
        micro_batch ? std::optional(table.stages[stage]) : std::nullopt;
    CostTable::Row row = before.value_or(CostTable::Row{});
    row.forward = time("forward_s", before ? std::optional(before->forward) : std::nullopt);
    row.input_grad =
        time("input_grad_s", before ? std::optional(before->input_grad) : std::nullopt);
    row.weight_grad = time("weight_grad_s", row.weight_grad);
    if (micro_batch) {
      for (const std::string_view column : kOfStages) {
        if (!cells.optional_text(column).empty()) {
          bad_input(csv.where(line, column), "a micro-batch has times alone", "leave it empty");
        }
      }
      rows.add({static_cast<int>(stage), static_cast<int>(*micro_batch), row},
               csv.where(line, "micro_batch"));
      continue;
    }
    row.send = time("send_s", SimTime{});
    row.prediction = time("prediction_s", SimTime{});
    row.reduce = time("reduce_s", SimTime{});
    row.activation = ByteCount(cells.count("activation_bytes", kMostBytes).value_or(0));
    if (const auto bytes = cells.count("weight_grad_activation_bytes", kMostBytes)) {
      row.weight_grad_activation = ByteCount(*bytes);
      if (*row.weight_grad_activation > row.activation) {
        bad_input(csv.where(line, "weight_grad_activation_bytes"), "more than activation_bytes",
                  "the part that only the weight gradient frees");
      }
    }
    table.stages.push_back(row);
  }
  return table;
}

// A column that only some schedules have a use for.
bool states_any(const CostTable& table, SimTime CostTable::Row::*column) {
  return std::any_of(table.stages.begin(), table.stages.end(),
                     [column](const auto& row) { return row.*column > SimTime{}; });
}

// Row and multiple of a virtual stage. Rows state times of a whole micro-batch, of
// a device's share or of a virtual stage; all times are multiplied by `scale`, so that those of its
// chunks and slices divide without rounding.
class Shares {
 public:
  Shares(const sim::PipelineOrder& order, const CostTable& table)
      : order_(order), table_(table), of_copies_(sim::has_copies(order)) {
    const std::size_t devices = order.passes.size();
    const auto stages = static_cast<std::size_t>(of_copies_ ? order.chains.front().stages
                                                            : order.num_virtual_stages);
    // A stage that is all of its device's share: told apart where micro-batches run in slices.
    per_device_ =
        !of_copies_ && table.stages.size() == devices && (stages != devices || order.slices > 1);
    if (!of_copies_ && states_any(table, &CostTable::Row::reduce)) {
      bad_input(table.where, "an all-reduce is stated, but every stage is on one device",
                "leave reduce out, or give --replicas by stage to a schedule that takes them");
    }
    if (order.versions != sim::Versions::Predicted &&
        states_any(table, &CostTable::Row::prediction)) {
      bad_input(table.where, "a prediction is stated, but the schedule predicts no weights",
                "leave prediction out, or name xpipe");
    }
    if (of_copies_ && table.stages.size() != stages) {
      bad_input(table.where,
                fmt::format("{} stages, but the schedule has {}, on {} devices",
                            table.stages.size(), stages, devices),
                fmt::format("give {} of them", stages));
    }
    if (!per_device_ && table.stages.size() != stages) {
      bad_input(table.where,
                fmt::format("{} stages, but the schedule has {} devices and {} virtual stages",
                            table.stages.size(), devices, stages),
                devices == stages ? fmt::format("give {} of them", stages)
                                  : fmt::format("give {} or {} of them", devices, stages));
    }
  }

  std::int64_t scale() const {
    if (!per_device_) {
      return order_.slices;
    }
    return order_.parts.empty() ? sim::pieces_of(order_) : order_.parts_per_share;
  }
  std::size_t row_of(std::size_t stage) const {
    return per_device_  ? order_.device_of[stage]
           : of_copies_ ? static_cast<std::size_t>(sim::stage_of_copy(order_, stage))
                        : stage;
  }
  std::int64_t parts(std::size_t stage) const {
    return per_device_ && !order_.parts.empty() ? order_.parts[stage] : 1;
  }
  SimTime send(std::size_t from, std::size_t to) const {
    const bool crosses = order_.device_of[from] != order_.device_of[to];
    return crosses ? table_.stages[row_of(from)].send * scale() : SimTime{};
  }
  SimTime edge(const sim::Edge& edge) const {
    return of_copies_ ? table_.stages[row_of(edge.from)].reduce * scale()
                      : send(edge.from, edge.to);
  }

 private:
  const sim::PipelineOrder& order_;
  const CostTable& table_;
  bool of_copies_;
  bool per_device_ = false;
};

void set_units(const sim::PipelineOrder& order, const CostTable& table, const Shares& shares,
               sim::PipelineCosts& costs) {
  const auto units = static_cast<std::size_t>(order.micro_batches);
  sim::give_units_times(order.micro_batches, costs);
  for (const CostTable::UnitRow& unit : table.units) {
    bool found = false;
    for (const sim::Chain& chain : sim::chains_of(order)) {
      for (int s = chain.first; s < chain.first + chain.stages; ++s) {
        const auto stage = static_cast<std::size_t>(s);
        for (int slice = 0; slice < order.slices; ++slice) {
          const int number = unit.micro_batch * order.slices + slice - chain.first_unit;
          const int at = number / chain.stride;
          if (shares.row_of(stage) != static_cast<std::size_t>(unit.stage) || number < 0 ||
              number % chain.stride != 0 || at >= chain.units) {
            continue;
          }
          found = true;
          const std::size_t slot = stage * units + static_cast<std::size_t>(at);
          const std::int64_t parts = shares.parts(stage);
          costs.unit_forward[slot] = unit.row.forward * parts;
          costs.unit_input_grad[slot] = unit.row.input_grad * parts;
          costs.unit_weight_grad[slot] = unit.row.weight_grad * parts;
          costs.unit_backward[slot] = (unit.row.input_grad + unit.row.weight_grad) * parts;
        }
      }
    }
    if (!found) {
      bad_input(table.where,
                fmt::format("no stage {} runs micro-batch {}", unit.stage, unit.micro_batch));
    }
  }
}

}  // namespace

bool CostTable::splits_activations() const {
  return std::any_of(stages.begin(), stages.end(),
                     [](const Row& row) { return row.weight_grad_activation.has_value(); });
}

CostTable read_cost_table(const std::string& path) {
  CostTable table = path.ends_with(".csv") ? read_csv_table(path) : read_json_table(path);
  table.where = path;
  if (table.stages.empty()) {
    bad_input(path, "no stages");
  }
  return table;
}

sim::ShareCosts table_costs(const sim::PipelineOrder& order, const CostTable& table) {
  const Shares shares(order, table);
  sim::ShareCosts result;
  result.scale = shares.scale();
  sim::PipelineCosts& costs = result.costs;
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  for (std::size_t s = 0; s < stages; ++s) {
    const CostTable::Row& row = table.stages[shares.row_of(s)];
    const std::int64_t parts = shares.parts(s);
    costs.forward.push_back(row.forward * parts);
    costs.input_grad.push_back(row.input_grad * parts);
    costs.weight_grad.push_back(row.weight_grad * parts);
    costs.backward.push_back((row.input_grad + row.weight_grad) * parts);
    const auto of_stage = [&](ByteCount bytes) {
      return ByteCount(bytes.value() / shares.scale() * parts);
    };
    costs.activation.push_back(of_stage(row.activation));
    if (table.splits_activations()) {
      costs.weight_grad_activation.push_back(
          of_stage(row.weight_grad_activation.value_or(row.activation)));
    }
    if (s + 1 < stages) {
      costs.send_forward.push_back(shares.send(s, s + 1));
    }
  }
  costs.send_backward = costs.send_forward;
  for (const sim::Edge& edge : order.edges) {
    costs.edge_latency.push_back(shares.edge(edge));
  }
  if (!table.units.empty()) {
    set_units(order, table, shares, costs);
  }
  std::vector<SimTime> predictions;
  for (std::size_t s = 0; s < stages; ++s) {
    predictions.push_back(table.stages[shares.row_of(s)].prediction * shares.parts(s));
  }
  sim::add_predictions(order, predictions, costs);
  sim::keep_in_range(order, result);
  return result;
}

void plan_with_table(const sim::PipelineOrder& order, const CostTable& table,
                     sim::ScheduleParams& params) {
  const sim::PipelineCosts costs = table_costs(order, table).costs;
  params.times.clear();
  for (std::size_t s = 0; s < costs.forward.size(); ++s) {
    params.times.push_back({costs.forward[s], costs.input_grad[s], costs.weight_grad[s],
                            s < costs.send_forward.size() ? costs.send_forward[s] : SimTime{}});
  }
  sim::in_lowest_terms(params.times);
  params.timed_on = order.device_of;
  if (!table.splits_activations()) {
    return;
  }
  params.activation = kActivationParts;
  for (std::size_t s = 0; s < costs.activation.size(); ++s) {
    const auto all = static_cast<double>(costs.activation[s].value());
    const auto late = static_cast<double>(costs.weight_grad_activation[s].value());
    const double part = all > 0 ? late / all : 1.0;
    params.weight_grad_activations.push_back(std::llround(part * kActivationParts));
  }
}

}  // namespace orrery::studies
