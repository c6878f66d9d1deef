// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/mixed_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/text.hpp"
#include "plan/mixed/simulate.hpp"
#include "plan/replay/memory_replay.hpp"
#include "studies/rows/contradictions.hpp"
#include "studies/rows/metric.hpp"
#include "studies/rows/row_choice.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/validation/row_labels.hpp"

namespace orrery::studies {

namespace {

constexpr std::string_view kGpus = "mixed: nodes ";
constexpr std::string_view kOrder = "nodes in stage order: ";

using Unmade = tl::unexpected<std::string>;

// One pool for every GPU, with as many nodes as the order of stages names.
tl::expected<std::shared_ptr<plan::MixedMachine>, std::string> machine_of(
    const Measurement& row, const std::vector<std::string>& gpus,
    const std::map<std::string, int>& nodes) {
  auto machine = std::make_shared<plan::MixedMachine>();
  machine->cluster.name = row.gpu;
  const int per_node = static_cast<int>(row.gpus_per_node.value_or(1));
  for (const std::string& gpu : gpus) {
    auto cluster =
        make_cluster({gpu, nodes.at(gpu) * per_node, per_node, row.intra_node, row.inter_node});
    if (!cluster) {
      return Unmade(cluster.error());
    }
    machine->profiles.push_back(costmodel::load_profile("", cluster->gpu));
    const std::string name = cluster->node.name;
    machine->cluster.pools.push_back({name, std::move(*cluster)});
  }
  return machine;
}

// Replicas whose stages are on the same GPUs are one group.
std::vector<plan::ReplicaGroup> groups_of(const std::vector<std::vector<std::string>>& nodes,
                                          const std::vector<std::string>& gpus,
                                          std::int64_t micro_batches) {
  std::vector<plan::ReplicaGroup> groups;
  for (std::size_t replica = 0; replica < nodes.front().size(); ++replica) {
    std::vector<int> pools;
    for (const std::vector<std::string>& stage : nodes) {
      const auto found = std::find(gpus.begin(), gpus.end(), stage[replica]);
      pools.push_back(static_cast<int>(found - gpus.begin()));
    }
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.pools == pools; });
    if (same != groups.end()) {
      ++same->replicas;
    } else {
      groups.push_back({.replicas = 1, .micro_batches = micro_batches, .pools = std::move(pools)});
    }
  }
  return groups;
}

tl::expected<plan::MixedPlan, std::string> mixed_plan(Measurement& row, RowResult& result) {
  const std::vector<std::vector<std::string>> nodes = stated_nodes(row.notes);
  if (nodes.empty()) {
    return Unmade("the order of the nodes is not stated");
  }
  std::vector<std::string> gpus;
  std::map<std::string, int> count;
  for (const std::vector<std::string>& stage : nodes) {
    if (stage.size() != nodes.front().size()) {
      return Unmade("stages of different numbers of nodes are not modelled");
    }
    for (const std::string& gpu : stage) {
      if (++count[gpu] == 1) {
        gpus.push_back(gpu);
      }
    }
  }
  const auto machine = machine_of(row, gpus, count);
  if (!machine) {
    return Unmade(machine.error());
  }
  row.gpu = gpus.front();
  for (const std::string& gpu : gpus) {
    if (topologies::load_gpu(gpu).peak_of(DType::Tf32).value() > 0) {
      row.gpu = gpu;  // has every precision that a framework may choose
    }
  }
  const auto shape = chosen_plan(row, result.assumed);
  if (!shape) {
    return Unmade(shape.error());
  }
  if (static_cast<std::size_t>(shape->pp) != nodes.size() ||
      static_cast<std::size_t>(shape->dp) != nodes.front().size()) {
    return Unmade("the nodes are not one for each stage of each replica");
  }
  plan::MixedPlan plan;
  plan.shape = *shape;
  plan.machine = *machine;
  plan.groups = groups_of(nodes, gpus, shape->num_micro_batches());
  // A plan has one precision. Without TF32 a GPU runs such products in fp32.
  const bool tf32 =
      std::all_of(plan.machine->cluster.pools.begin(), plan.machine->cluster.pools.end(),
                  [](const topologies::Pool& pool) {
                    return pool.cluster.gpu.peak_of(DType::Tf32).value() > 0;
                  });
  if (plan.shape.precision == DType::Tf32 && !tf32) {
    plan.shape.precision = DType::Fp32;
    result.assumed.emplace_back("fp32 products on all GPUs (some have no TF32)");
  }
  plan::check_mixed_plan(plan, row.where);
  return plan;
}

// Of the fullest device: every stage replayed on its own pool.
double peak_memory(const plan::MixedPlan& plan, const Measurement& row, Quantity quantity) {
  double most = 0;
  for (const plan::ReplicaGroup& group : plan.groups) {
    for (std::size_t pool = 0; pool < plan.num_pools(); ++pool) {
      plan::Plan view = plan::pool_view(plan, pool);
      plan::set_view(plan, group.micro_batches, view);
      const auto peaks = plan::replay_memory(view, row_memory(row));
      for (std::size_t device = 0; device < peaks.size(); ++device) {
        if (group.pools[device] == static_cast<int>(pool)) {
          const ByteCount peak = quantity == Quantity::AllocatedMemory  ? peaks[device].allocated
                                 : quantity == Quantity::ReservedMemory ? peaks[device].reserved
                                                                        : peaks[device].device();
          most = std::max(most, peak.bytes().value());
        }
      }
    }
  }
  return most;
}

}  // namespace

bool is_mixed_row(const Measurement& row) { return to_lower(row.gpu).starts_with(kGpus); }

std::vector<std::vector<std::string>> stated_nodes(const std::string& notes) {
  std::vector<std::vector<std::string>> stages;
  const std::size_t begin = to_lower(notes).find(kOrder);
  if (begin == std::string::npos) {
    return stages;
  }
  const std::string_view text = std::string_view(notes).substr(begin + kOrder.size());
  for (const std::string_view stage : split(text.substr(0, text.find(';')), '|')) {
    stages.emplace_back();
    for (const std::string_view gpu : split(stage, '+')) {
      stages.back().emplace_back(trim(gpu));
    }
  }
  return stages;
}

void predict_mixed_row(const Measurement& stated, int interval_draws, RowResult& result) {
  Measurement row = stated;
  const std::string gpus = row.gpu;
  const auto plan = mixed_plan(row, result);
  if (!plan) {
    result.skipped_because = plan.error();
    return;
  }
  const std::vector<std::string> contradicted = contradictions(stated, plan->shape);
  result.assumed.insert(result.assumed.end(), contradicted.begin(), contradicted.end());
  label_row(row, plan->shape, result);
  result.subject = fmt::format("{}, {} x {}", row.model_name, plan->num_gpus(), gpus);
  result.gpu = "mixed";
  result.plan_group.clear();  // not to be ranked with runs on the first GPU alone
  result.network_group.clear();
  const auto target = measured_target(row, plan->shape.network);
  if (!target) {
    result.skipped_because = target.error();
    return;
  }
  if (target->quantity == Quantity::IterationTime) {
    const plan::MixedSimulation run = plan::MixedSimulator(*plan).run(*plan, interval_draws);
    result.predicted = run.iteration_time.value();
    if (interval_draws > 0) {
      result.low = run.interval_low.value();
      result.high = run.interval_high.value();
    }
    result.quantity = "iteration_time_s";
  } else if (is_memory(target->quantity)) {
    result.predicted = peak_memory(*plan, row, target->quantity);
    result.quantity = "memory_bytes";
  } else {
    result.skipped_because = "times of single layers are not modelled on mixed GPUs";
    return;
  }
  result.measured = target->value;
}

}  // namespace orrery::studies
