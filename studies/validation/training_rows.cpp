// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "plan/block/cost.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/interval.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "studies/rows/blank_cells.hpp"
#include "studies/rows/contradictions.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/metric.hpp"
#include "studies/rows/row_choice.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/validation/mixed_rows.hpp"
#include "studies/validation/predictions.hpp"
#include "studies/validation/row_labels.hpp"

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
    case Quantity::ReservedMemory:
      return "reserved_memory_bytes";
    case Quantity::DeviceMemory:
      return "device_memory_bytes";
  }
  return "";
}

struct Prediction {
  double value = 0;
  std::optional<double> low;
  std::optional<double> high;
};

// The first layer of the network, under the draws of the interval.
Prediction layer_prediction(const plan::Plan& plan, bool backward, int draws) {
  plan::BlockCosts costs(plan);
  for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
    const int block = plan.network.chain[position];
    const auto& stored = plan.network.blocks[static_cast<std::size_t>(block)];
    if (stored.kind != models::BlockKind::Layer) {
      continue;
    }
    const plan::BlockPlan& layout = plan.layout_of(static_cast<int>(position));
    const plan::BlockCost& cost = costs.of(block, layout, plan.micro_batch);
    const plan::PassCost& pass = backward ? cost.backward : cost.forward;
    const Seconds nominal = to_seconds(pass.time);
    if (draws == 0) {
      return {nominal.value(), std::nullopt, std::nullopt};
    }
    const plan::TimeInterval interval = *plan::sampled_interval(
        plan::spreads_of(plan), nominal, draws, [&](const plan::CostFactors& factors) {
          costs.set_factors(factors);
          return to_seconds(pass.time);
        });
    return {nominal.value(), interval.low.value(), interval.high.value()};
  }
  return {};
}

// What no run on these GPUs can have measured; empty: nothing speaks against it.
std::string impossible(const Measurement& row, const plan::Plan& plan, const Target& target) {
  constexpr double kRounding = 1.1;
  const topologies::Gpu& gpu = plan.cluster.gpu;
  if (is_memory(target.quantity) && target.value > kRounding * gpu.memory.bytes().value()) {
    return fmt::format("measured {} of memory, but a {} has {}", format_bytes(Bytes(target.value)),
                       gpu.name, format_bytes(gpu.memory.bytes()));
  }
  const double peak = gpu.peak_of(plan.precision).value();
  if (row.metric == "tflops_per_gpu" && row.value * 1e12 > kRounding * peak) {
    return fmt::format("measured {:g} TFLOP/s, but a {} computes {} in {}", row.value, gpu.name,
                       format_flop_rate(FlopsPerSecond(peak)), to_text(plan.precision));
  }
  return "";
}

Prediction iteration_prediction(const plan::Plan& plan, Seconds measured, int draws,
                                RowResult& result) {
  const plan::Simulation run =
      plan::simulate(plan, {.record_spans = false, .interval_draws = draws});
  // Model FLOPs at the peak rate. Formats of fewer bits have a higher one, and causal attention
  // counts in full: four times as fast no run can be.
  constexpr double kFastest = 4;
  const Seconds at_peak = run.iteration_time * run.mfu_fraction;
  if (measured * kFastest < at_peak) {
    result.skipped_because =
        fmt::format("measured {}, but its model FLOPs take {} at the peak rate of {} GPUs",
                    format_duration(measured), format_duration(at_peak), plan.cluster.num_gpus());
  }
  // A unit that is none: a run of so little of the peak is told from one of a tiny network, which
  // its launches hold up, by the plan's own share of it.
  constexpr double kSlowest = 1e-4;
  if (at_peak < measured * kSlowest && run.mfu_fraction > 10 * kSlowest) {
    result.skipped_because = fmt::format(
        "measured {}, in which {} GPUs compute less than 0.01 % of what their peak rate does",
        format_duration(measured), plan.cluster.num_gpus());
  }
  if (run.does_not_fit) {
    result.assumed.push_back("memory beyond the card: " + *run.does_not_fit);
  }
  if (draws == 0) {
    return {run.iteration_time.value(), std::nullopt, std::nullopt};
  }
  return {run.iteration_time.value(), run.interval_low.value(), run.interval_high.value()};
}

Prediction peak_memory(const plan::Plan& plan, const Measurement& row, Quantity quantity) {
  std::vector<plan::MemoryPeak> devices = plan::replay_memory(plan, row_memory(row));
  if (framework_of(row).facts.logs_last_stage && plan.pp > 1 && !devices.empty()) {
    const std::size_t last_stage = plan.stage_blocks.size() - 1;
    devices = {devices.at(plan::schedule_devices(plan).at(last_stage))};
  }
  ByteCount peak;
  for (const plan::MemoryPeak& device : devices) {
    peak = std::max(peak, quantity == Quantity::AllocatedMemory  ? device.allocated
                          : quantity == Quantity::ReservedMemory ? device.reserved
                                                                 : device.device());
  }
  return {peak.bytes().value(), std::nullopt, std::nullopt};
}

Prediction predict(const plan::Plan& plan, const Measurement& row, const Target& target, int draws,
                   RowResult& result) {
  switch (target.quantity) {
    case Quantity::IterationTime:
      return iteration_prediction(plan, Seconds(target.value), draws, result);
    case Quantity::LayerForwardTime:
      return layer_prediction(plan, false, draws);
    case Quantity::LayerBackwardTime:
      return layer_prediction(plan, true, draws);
    case Quantity::AllocatedMemory:
    case Quantity::ReservedMemory:
    case Quantity::DeviceMemory:
      return peak_memory(plan, row, target.quantity);
  }
  return {};
}

}  // namespace

RowResult predict_training_row(const Measurement& stated, int interval_draws) {
  Measurement row = stated;
  RowResult result;
  result.id = row.id;
  result.config_id = row.config_id;
  result.source = row.source;
  result.full = row.full;
  result.subject = fmt::format("{}, {} x {}", row.model(), row.gpus.value_or(0), row.gpu);
  result.memory = is_memory_metric(row.metric);
  result.quantity = result.memory ? "memory_bytes" : "time_s";
  if (row.value <= 0 || !row.unknown.empty()) {
    result.skipped_because = row.unknown.empty() ? "measured_value is not stated" : row.unknown;
    return result;
  }
  try {
    if (is_mixed_row(row)) {
      predict_mixed_row(row, interval_draws, result);
      return result;
    }
    const auto plan = chosen_plan(row, result.assumed);
    if (!plan) {
      result.skipped_because = plan.error();
      return result;
    }
    for (const auto& lines : {blank_cells(stated, row, *plan), contradictions(stated, *plan)}) {
      result.assumed.insert(result.assumed.end(), lines.begin(), lines.end());
    }
    label_row(row, *plan, result);
    const auto target = measured_target(row, plan->network);
    if (!target) {
      result.skipped_because = target.error();
      return result;
    }
    if (std::string reason = impossible(row, *plan, *target); !reason.empty()) {
      result.skipped_because = std::move(reason);
      return result;
    }
    const Prediction prediction = predict(*plan, row, *target, interval_draws, result);
    if (!result.skipped_because.empty()) {
      return result;
    }
    result.predicted = prediction.value;
    result.low = prediction.low;
    result.high = prediction.high;
    result.measured = target->value;
    result.quantity = name_of(target->quantity);
  } catch (const Error& error) {
    result.skipped_because = error.what();
  }
  return result;
}

std::vector<RowResult> predict_training(const CsvTable& table, const std::string& source,
                                        const ValidateOptions& options) {
  const std::vector<Measurement> rows = read_measurements(table, source);
  std::vector<RowResult> results(rows.size());
  parallel_for(rows.size(), options.jobs, [&](std::size_t index) {
    results[index] = predict_training_row(rows[index], options.interval_draws);
  });
  return results;
}

}  // namespace orrery::studies
