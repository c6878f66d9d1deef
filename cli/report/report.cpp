// SPDX-License-Identifier: Apache-2.0
#include "cli/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/common.hpp"
#include "plan/block_rules.hpp"
#include "plan/document/plan_text.hpp"
#include "plan/packs.hpp"
#include "plan/stage/validated_pace.hpp"
#include "sim/pipeline/list_name.hpp"
#include "sim/pipeline/pipeline_path.hpp"

namespace orrery::cli {
namespace {

std::string communication_name(const std::string& key) {
  if (key.starts_with("tp")) {  // rows and depth of a mesh, too
    return "tensor-parallel communication";
  }
  if (key.starts_with("cp")) {
    return "context-parallel communication";
  }
  if (key == "ep") {
    return "expert-parallel communication";
  }
  if (key == "pp") {
    return "pipeline transfers";
  }
  if (key == "vp") {  // sums and broadcasts between shards of embedding and head
    return "vocabulary-parallel communication";
  }
  if (key == "amax") {
    return "reductions of largest magnitudes";
  }
  if (key == "offload") {
    return "copies to and from the host";
  }
  return "data-parallel communication";
}

std::string nodes_text(const plan::Plan& plan, std::int64_t span) {
  const topologies::Cluster& cluster = plan.cluster;
  const bool aligned = cluster.node.gpus % span == 0 || cluster.num_nodes == 1;
  constexpr std::string_view kSome = "in one node, but of some groups across two";
  return std::string(span > cluster.node.gpus ? "across nodes" : aligned ? "in one node" : kSome);
}

// How many ranks a group has, so far from one another, and how many nodes it spans.
std::string ranks_text(const plan::Plan& plan, std::int64_t degree, std::string_view ranks,
                       std::int64_t stride) {
  return fmt::format("{} {} {}", degree, ranks, nodes_text(plan, stride * degree));
}

// Context ranks hold the same parameters as data ranks. Replicas of groups that shard the states
// add up the gradients of their shards. Where nothing is replicated, tensor ranks still add up the
// gradients of parameters that each of them has whole.
std::string data_group_text(const plan::Plan& plan) {
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  const std::int64_t copies = std::int64_t{layout.cp} * plan.dp;
  if (copies == 1 && layout.tp > 1) {
    return ranks_text(plan, layout.tp, "tensor-parallel ranks", 1);
  }
  const bool sharded = layout.shard_degree > 0 && layout.shard_degree < copies;
  const std::int64_t shards = sharded ? layout.shard_degree : copies;
  std::string text = ranks_text(plan, shards, "ranks", layout.tp);
  if (sharded) {
    text += ", " + ranks_text(plan, copies / shards, "replicas of them", layout.tp * shards);
  }
  return text;
}

// Axes of tensor and context ranks, of which each has a key of its own.
constexpr std::ptrdiff_t kBlockAxes = 5;

std::string group_text(const plan::Plan& plan, const std::string& key) {
  if (key == "offload") {
    return "";
  }
  if (key == "dp") {
    return data_group_text(plan);
  }
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  if (key.starts_with("cp") && !plan.packs.empty() && !plan::runs_packed_pipeline(plan)) {
    const std::int64_t span = std::int64_t{layout.tp} * plan::pack_shapes(plan).front().group;
    return fmt::format("{} ranks, {}", plan::group_sizes_text(plan), nodes_text(plan, span));
  }
  const plan::Mesh mesh = plan::mesh_of(layout, plan::expert_replicas(layout));
  std::int64_t degree = layout.tp;
  std::int64_t stride = mesh.stride(plan::Axis::Tensor);
  const auto axis = std::find_if(plan::kAxes.begin(), plan::kAxes.begin() + kBlockAxes,
                                 [&](plan::Axis each) { return plan::to_text(each) == key; });
  if (axis != plan::kAxes.begin() + kBlockAxes) {
    degree = mesh.of(*axis);
    stride = mesh.stride(*axis);
  } else if (key == "ep") {
    degree = layout.ep;
    stride = plan::expert_span(layout) / degree;
  } else if (key == "amax") {
    degree = std::int64_t{layout.tp} * layout.cp *
             (plan.execution.amax_ranks == plan::AmaxRanks::All ? plan.dp : 1);
  } else if (key == "pp" || key == "vp") {
    stride = std::int64_t{layout.tp} * layout.cp * plan.dp;
    degree = plan.pp;
  }
  return ranks_text(plan, degree, "ranks", stride);
}

std::string interconnect_note(const plan::Plan& plan, const TimeShare& share,
                              const plan::Simulation& simulation) {
  const auto& exposed = simulation.breakdown.exposed_communication;
  return exposed.contains(share.key) ? group_text(plan, share.key) : "";
}

std::string time_table(const plan::Plan& plan, const plan::Simulation& simulation) {
  TextTable table({{"where the time goes (busiest stage)"},
                   {"time", Align::Right},
                   {"share", Align::Right},
                   {"group"}});
  const plan::TimeBreakdown& breakdown = simulation.breakdown;
  for (const TimeShare& share : time_shares(simulation)) {
    table.add_row({share.name, format_duration(share.time),
                   percent(share.time / simulation.iteration_time),
                   interconnect_note(plan, share, simulation)});
    if (share.key == "compute" && breakdown.recompute.value() > 0) {
      table.add_row({"  of it recomputation", format_duration(breakdown.recompute),
                     percent(breakdown.recompute / simulation.iteration_time), ""});
    }
  }
  table.add_rule();
  table.add_row({"iteration", format_duration(simulation.iteration_time), "100.0 %", ""});
  return table.text();
}

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

std::string cost_text(const plan::Plan& plan, const plan::Simulation& simulation) {
  const std::optional<double> dollars = dollars_per_trillion_tokens(plan, simulation);
  return dollars ? fmt::format(
                       "cost              {:.0f} USD per trillion tokens, at {:.2f} USD per "
                       "GPU and hour\n",
                       *dollars, (plan.cluster.gpu.price * kHour).value())
                 : std::string();
}

std::vector<TimeShare> known_shares(const plan::Simulation& simulation) {
  const plan::TimeBreakdown& breakdown = simulation.breakdown;
  std::vector<TimeShare> shares = {{"compute", "compute", breakdown.compute}};
  for (const auto& [key, time] : breakdown.exposed_communication) {
    shares.push_back({key, communication_name(key) + ", exposed", time});
  }
  shares.push_back({"bubble", "bubble", breakdown.bubble});
  shares.push_back({"optimizer", "optimizer", breakdown.optimizer});
  return shares;
}

}  // namespace

bool is_rounding(Seconds difference) { return std::abs(difference.value()) < 1e-12; }

Seconds other_time(const plan::Simulation& simulation) {
  Seconds rest = simulation.iteration_time;
  for (const TimeShare& share : known_shares(simulation)) {
    rest -= share.time;
  }
  return is_rounding(rest) ? Seconds() : rest;
}

std::vector<TimeShare> time_shares(const plan::Simulation& simulation) {
  std::vector<TimeShare> shares = known_shares(simulation);
  const Seconds rest = other_time(simulation);
  if (std::abs(rest / simulation.iteration_time) > 5e-4) {
    shares.push_back({"other", "slowdown by overlap and waiting", rest});
  }
  return shares;
}

std::optional<double> dollars_per_trillion_tokens(const plan::Plan& plan,
                                                  const plan::Simulation& simulation) {
  if (plan.cluster.gpu.price.value() <= 0) {
    return std::nullopt;
  }
  return plan.cluster.gpu.price.value() / simulation.tokens_per_second_per_gpu * 1e12;
}

std::string subject_text(const plan::Plan& plan) {
  return fmt::format("{} on {} ({} x {}), batch {}, sequence {}, {}", plan.network.spec.name,
                     plan.cluster.name, plan.cluster.num_gpus(), plan.cluster.gpu.name, plan.batch,
                     plan.sequence, to_text(plan.precision));
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

std::string explanation(const plan::Plan& plan, const plan::Simulation& simulation) {
  std::string text = subject_text(plan) + "\n" + plan::layout_text(plan) + "\n\n";
  if (simulation.does_not_fit) {
    text += fmt::format("DOES NOT FIT: {}\n\n", *simulation.does_not_fit);
  }
  text += fmt::format("iteration time    {} (80 % interval {})\n",
                      format_duration(simulation.iteration_time),
                      interval_text(simulation.interval_low, simulation.interval_high));
  text +=
      fmt::format("throughput        {:.1f} tokens/s/GPU\n", simulation.tokens_per_second_per_gpu);
  text += fmt::format("utilisation       MFU {}, HFU {}\n", percent(simulation.mfu_fraction),
                      percent(simulation.hfu_fraction));
  if (const std::string counting = attention_counting_text(plan, simulation); !counting.empty()) {
    text += fmt::format("                  {}", counting);
  }
  text += fmt::format("bubble            {} of the span of the stage that waits most\n",
                      percent(simulation.bubble_fraction));
  if (!simulation.synchronous) {
    text += fmt::format(
        "asynchronous      {} per micro-batch in steady state; gradients are up to {} update{} "
        "late, {} of the weights; not the same training as a synchronous schedule\n",
        format_duration(simulation.steady_period), simulation.staleness,
        simulation.staleness == 1 ? "" : "s", counted(simulation.weight_versions, "version"));
  }
  text += cost_text(plan, simulation);
  text += fmt::format("\n{}\n{}\n{}", time_table(plan, simulation), path_text(plan, simulation),
                      memory_table(plan, simulation));
  text +=
      "ends: what embedding and head keep; buffers: of communication; context: CUDA and "
      "allocator\n";
  return text + tiers_text(plan, simulation);
}

}  // namespace orrery::cli
