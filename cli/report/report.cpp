// SPDX-License-Identifier: Apache-2.0
#include "cli/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/common.hpp"
#include "cli/report/cost.hpp"
#include "cli/report/time_table.hpp"
#include "plan/document/plan_text.hpp"
#include "plan/stage/validated_pace.hpp"
#include "sim/pipeline/list_name.hpp"
#include "sim/pipeline/pipeline_path.hpp"

namespace orrery::cli {
namespace {

// All rows of a short list; else the first and last ones and the largest, "..." between them.
void add_some_rows(const std::vector<std::vector<std::string>>& rows, std::size_t largest,
                   TextTable& table) {
  constexpr std::size_t kAll = 12;
  constexpr std::size_t kEnds = 3;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool is_end = i < kEnds || i + kEnds >= rows.size();
    if (rows.size() > kAll && !is_end && i != largest) {
      continue;
    }
    if (i > shown) {
      std::vector<std::string> gap(rows[i].size());
      gap.front() = "...";
      table.add_row(std::move(gap));
    }
    table.add_row(rows[i]);
    shown = i + 1;
  }
}

std::string memory_table(const plan::Plan& plan, const plan::Simulation& simulation) {
  TextTable table({{"memory per GPU, stage"},
                   {"parameters", Align::Right},
                   {"gradients", Align::Right},
                   {"optimizer", Align::Right},
                   {"activations", Align::Right},
                   {"ends", Align::Right},
                   {"workspace", Align::Right},
                   {"buffers", Align::Right},
                   {"context", Align::Right},
                   {"peak", Align::Right},
                   {"of GPU", Align::Right},
                   {"largest part"}});
  const double capacity = plan.cluster.gpu.memory.bytes().value();
  const auto cells_of = [&](const plan::StageMemory& memory) {
    std::vector<std::string> cells;
    for (const ByteCount bytes :
         {memory.parameters, memory.gradients, memory.optimizer, memory.activations, memory.ends,
          memory.workspace, memory.communication, memory.context, memory.total()}) {
      cells.push_back(format_bytes(bytes.bytes()));
    }
    cells.push_back(percent(memory.total().bytes().value() / capacity, 0));
    cells.push_back(memory.peak_owner);
    return cells;
  };
  // Neighbouring stages that read alike share a row.
  std::vector<std::vector<std::string>> rows;
  std::size_t largest = 0;
  ByteCount largest_total;
  for (std::size_t first = 0; first < simulation.memory.size();) {
    std::vector<std::string> cells = cells_of(simulation.memory[first]);
    std::size_t end = first + 1;
    while (end < simulation.memory.size() && cells_of(simulation.memory[end]) == cells) {
      ++end;
    }
    if (simulation.memory[first].total() > largest_total) {
      largest = rows.size();
      largest_total = simulation.memory[first].total();
    }
    cells.insert(cells.begin(), end - first == 1 ? fmt::format("{}", first)
                                                 : fmt::format("{}-{}", first, end - 1));
    rows.push_back(std::move(cells));
    first = end;
  }
  add_some_rows(rows, largest, table);
  return table.text();
}

// Tensors that live beside the devices; nothing where none do.
std::string tiers_text(const plan::Plan& plan, const plan::Simulation& simulation) {
  const topologies::Node& node = plan.cluster.node;
  std::string text;
  const auto add = [&text](const char* tier, ByteCount used, ByteCount capacity) {
    if (used.value() > 0) {
      text += fmt::format("{} of a node: {} of {} for offloaded tensors\n", tier,
                          format_bytes(used.bytes()), format_bytes(capacity.bytes()));
    }
  };
  add("host memory", simulation.host_per_node, node.host_memory);
  add("disk", simulation.disk_per_node, node.disk);
  return text;
}

// The stages with most time on the path, and what follows the pipeline.
std::string path_text(const plan::Plan& plan, const plan::Simulation& simulation) {
  if (!has_path(plan, simulation)) {
    return "";
  }
  const sim::PipelinePath path = sim::pipeline_path(simulation.order, simulation.pipeline);
  std::vector<std::size_t> stages(path.on_device.size());
  std::iota(stages.begin(), stages.end(), std::size_t{0});
  std::stable_sort(stages.begin(), stages.end(), [&](std::size_t a, std::size_t b) {
    return path.on_device[a] > path.on_device[b];
  });
  std::string text = "critical path: ";
  constexpr std::size_t kListed = 3;
  for (std::size_t i = 0; i < std::min(kListed, stages.size()); ++i) {
    text += fmt::format("{}{} of passes on {} {}", i == 0 ? "" : ", ",
                        format_duration(to_seconds(path.on_device[stages[i]])),
                        sim::list_name(simulation.order, stages[i]), stages[i]);
  }
  SimTime others;
  for (std::size_t i = kListed; i < stages.size(); ++i) {
    others += path.on_device[stages[i]];
  }
  if (others.ps > 0) {
    text += fmt::format(", {} on the others", format_duration(to_seconds(others)));
  }
  text += fmt::format(", {} of transfers", format_duration(to_seconds(path.transfers)));
  const Seconds after = simulation.iteration_time - to_seconds(simulation.pipeline.makespan);
  text += fmt::format(", then {} of gradient reduction, optimizer and gathers\n",
                      format_duration(std::max(after, Seconds())));
  return text;
}

}  // namespace

std::string overrides_text(const std::vector<std::string>& overrides, ByteCount reserve) {
  std::string text;
  for (const std::string& one : overrides) {
    text += ", " + printable(one);
  }
  if (reserve > ByteCount()) {
    text += fmt::format(", {} of a GPU kept free", format_bytes(reserve.bytes()));
  }
  return text;
}

std::string subject_text(const plan::Plan& plan) {
  std::vector<std::string> overrides = plan.network.overrides;
  overrides.insert(overrides.end(), plan.cluster.overrides.begin(), plan.cluster.overrides.end());
  return fmt::format("{} on {} ({} x {}), batch {}, sequence {}, {}{}", plan.network.spec.name,
                     plan.cluster.name, plan.cluster.num_gpus(), plan.cluster.gpu.name, plan.batch,
                     plan.sequence, to_text(plan.precision),
                     overrides_text(overrides, plan.memory_reserve));
}

std::string interval_text(Seconds low, Seconds high) {
  return low < high ? fmt::format("{} to {}", format_duration(low), format_duration(high))
                    : "not drawn";
}

Json interval_json(Seconds low, Seconds high) {
  return low < high ? Json(Json::Array{low.value(), high.value()}) : Json();
}

std::string staleness_text(const plan::Simulation& simulation) {
  return simulation.synchronous
             ? ""
             : fmt::format(", asynchronous: staleness {}, {}", simulation.staleness,
                           counted(simulation.weight_versions, "weight version"));
}

ByteCount largest_memory(const plan::Simulation& simulation) {
  ByteCount largest;
  for (const plan::StageMemory& memory : simulation.memory) {
    largest = std::max(largest, memory.total());
  }
  return largest;
}

void add_replayed_verdict(const plan::Plan& plan, const std::vector<plan::MemoryPeak>& peaks,
                          plan::Simulation& simulation) {
  const plan::MemoryVerdict verdict = plan::replayed_verdict(plan, peaks);
  if (!verdict.fits && !simulation.does_not_fit) {
    simulation.does_not_fit = verdict.text;
  }
}

bool has_path(const plan::Plan& plan, const plan::Simulation& simulation) {
  return simulation.synchronous && !simulation.order.passes.empty() &&
         !simulation.pipeline.spans.empty() && !plan::validates_afterwards(plan);
}

namespace {

// Half of attention above this share of all model FLOPs is worth a line.
constexpr double kShareOfHalf = 0.2;

// Of all model FLOPs where causal attention counts by half; 1 where sequences differ.
double share_by_half(const plan::Plan& plan) {
  if (!plan.packs.empty() || !plan.joined_sequences.empty()) {
    return 1;
  }
  const models::Workload one = {1, plan.sequence};
  return models::model_flops(plan.network, one, /*causal_half=*/true) /
         models::model_flops(plan.network, one);
}

}  // namespace

std::string attention_counting_text(const plan::Plan& plan, const plan::Simulation& simulation) {
  const double share = share_by_half(plan);
  return share > 1 - kShareOfHalf
             ? ""
             : fmt::format("MFU counts causal attention in full; by half it is {}\n",
                           percent(simulation.mfu_fraction * share));
}

std::string figures_text(const plan::Plan& plan, const plan::Simulation& simulation,
                         std::string_view gpus) {
  std::string text;
  if (simulation.does_not_fit) {
    text += fmt::format("DOES NOT FIT: {}\n\n", *simulation.does_not_fit);
  }
  text += fmt::format("iteration time    {} (80 % interval {})\n",
                      format_duration(simulation.iteration_time),
                      interval_text(simulation.interval_low, simulation.interval_high));
  text += fmt::format("throughput        {:.1f} tokens/s/{}\n",
                      simulation.tokens_per_second_per_gpu, gpus);
  text += fmt::format("utilisation       MFU {}, HFU {}\n", percent(simulation.mfu_fraction),
                      percent(simulation.hfu_fraction));
  if (const std::string counting = attention_counting_text(plan, simulation); !counting.empty()) {
    text += fmt::format("                  {}", counting);
  }
  text += fmt::format("bubble            {} of the span of the stage that waits most\n",
                      percent(simulation.bubble_fraction));
  return text;
}

std::string explanation(const plan::Plan& plan, const plan::Simulation& simulation) {
  std::string text = subject_text(plan) + "\n" + plan::layout_text(plan) + "\n\n" +
                     figures_text(plan, simulation, "GPU");
  if (!simulation.synchronous) {
    text += fmt::format(
        "asynchronous      {} per micro-batch in steady state; gradients are up to {} update{} "
        "late, {} of the weights; not the same training as a synchronous schedule\n",
        format_duration(simulation.steady_period), simulation.staleness,
        simulation.staleness == 1 ? "" : "s", counted(simulation.weight_versions, "version"));
  }
  text += cost_text(gpus_used(plan), simulation);
  const std::string times = time_table(
      simulation, "busiest stage", [&](const std::string& kind) { return group_text(plan, kind); });
  text += fmt::format("\n{}\n{}\n{}", times, path_text(plan, simulation),
                      memory_table(plan, simulation));
  text +=
      "ends: what embedding and head keep; buffers: of communication; context: CUDA and "
      "allocator\n";
  return text + tiers_text(plan, simulation);
}

}  // namespace orrery::cli
