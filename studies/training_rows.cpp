// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "plan/block_cost.hpp"
#include "plan/simulate.hpp"
#include "studies/metric.hpp"
#include "studies/predictions.hpp"
#include "studies/row_plan.hpp"

namespace orrery::studies {
namespace {

std::string_view name_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::IterationTime:
      return "iteration_time_s";
    case Quantity::LayerForwardTime:
      return "layer_forward_time_s";
    case Quantity::LayerBackwardTime:
      return "layer_backward_time_s";
    case Quantity::AllocatedMemory:
      return "allocated_memory_bytes";
    case Quantity::DeviceMemory:
      return "device_memory_bytes";
  }
  return "";
}

double layer_time(const plan::Plan& plan, bool backward) {
  plan::BlockCosts costs(plan);
  for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
    const int block = plan.network.chain[position];
    const auto& stored = plan.network.blocks[static_cast<std::size_t>(block)];
    if (stored.kind == models::BlockKind::Layer) {
      const plan::BlockCost& cost =
          costs.of(block, plan.layout_of(static_cast<int>(position)), plan.micro_batch);
      return to_seconds((backward ? cost.backward : cost.forward).time).value();
    }
  }
  return 0;
}

double peak_memory(const plan::Plan& plan, bool of_device) {
  ByteCount peak;
  for (const plan::StageMemory& stage : plan::Simulator(plan).memory(plan)) {
    peak = std::max(peak, of_device ? stage.total() : stage.allocated());
  }
  return peak.bytes().value();
}

double predict(const plan::Plan& plan, Quantity quantity) {
  switch (quantity) {
    case Quantity::IterationTime:
      return plan::simulate(plan, {.record_spans = false, .interval_draws = plan::kIntervalDraws}).iteration_time.value();
    case Quantity::LayerForwardTime:
      return layer_time(plan, false);
    case Quantity::LayerBackwardTime:
      return layer_time(plan, true);
    case Quantity::AllocatedMemory:
      return peak_memory(plan, false);
    case Quantity::DeviceMemory:
      return peak_memory(plan, true);
  }
  return 0;
}

std::string subject_of(const Measurement& row) {
  return fmt::format("{}, {} x {}, tp {} cp {} pp {}, mb {}, {}", row.model_name,
                     row.gpus.value_or(0), row.gpu, row.tp.value_or(1), row.cp.value_or(1),
                     row.pp.value_or(1), row.micro_batch.value_or(0), row.recompute);
}

}  // namespace

RowResult predict_training_row(const Measurement& row) {
  RowResult result;
  result.id = row.id;
  result.config_id = row.config_id;
  result.source = row.source;
  result.subject = subject_of(row);
  result.full = row.full;
  result.memory = is_memory_metric(row.metric);
  result.quantity = result.memory ? "memory_bytes" : "time_s";
  const auto plan = row_plan(row);
  if (!plan) {
    result.skipped_because = plan.error();
    return result;
  }
  const auto target = measured_target(row, plan->network);
  if (!target) {
    result.skipped_because = target.error();
    return result;
  }
  try {
    result.predicted = predict(*plan, target->quantity);
    result.measured = target->value;
    result.quantity = name_of(target->quantity);
  } catch (const Error& error) {
    result.skipped_because = error.what();
  }
  return result;
}

std::vector<RowResult> predict_training(const CsvTable& table, const std::string& source,
                                        int jobs) {
  const std::vector<Measurement> rows = read_measurements(table, source);
  std::vector<RowResult> results(rows.size());
  parallel_for(rows.size(), jobs,
               [&](std::size_t index) { results[index] = predict_training_row(rows[index]); });
  return results;
}

}  // namespace orrery::studies
