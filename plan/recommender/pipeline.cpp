// SPDX-License-Identifier: Apache-2.0
#include "plan/recommender/pipeline.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "costmodel/device_model.hpp"
#include "plan/recommender/model.hpp"
#include "plan/recommender/table_placement.hpp"
#include "plan/stage/offload_time.hpp"
#include "sim/orders/nest_streams.hpp"

namespace orrery::plan {

namespace {

constexpr int kBatches = 8;  // simulated; the middle ones are steady
constexpr Bytes kDenseFeature(4);

// Virtual stages of one worker, as the schedule numbers them (sim/orders/nest_streams.hpp).
enum Stage : std::size_t { kExchange, kDense, kPrefetch, kCopy, kRouting, kRetrieval, kStages };
static_assert(kStages == sim::kNestStreams && kPrefetch == sim::kModelStreams);

// Tables keep their places; a micro-batch has a part of the samples.
RecommenderCost cost_of_micro_batch(const Recommender& network) {
  Recommender part = network;
  part.batch /= part.micro_batches;
  RecommenderModel model(part);
  std::vector<TableShare> shares;
  for (const TableGroup& group : part.tables) {
    shares.push_back(model.share(group));
  }
  return cost_of(model, part.tables, shares);
}

// Samples and their indices from the host, where the cluster says what its link takes.
Seconds copy_time(const Recommender& network) {
  if (network.cluster.node.host_link_per_gpu.value() <= 0) {
    return Seconds();
  }
  Bytes bytes = static_cast<double>(network.features) * kDenseFeature;
  for (const TableGroup& group : network.tables) {
    bytes += static_cast<double>(group.count) * group.pooling * kIndex;
  }
  const double samples =
      static_cast<double>(network.batch) / static_cast<double>(network.cluster.num_gpus());
  const sim::TierGraph tiers = tier_graph(network.cluster, network.profile);
  const sim::TierChannel& link = tiers.channels.front();
  return link.latency + bytes * samples / link.bandwidth;
}

// Rows on the mean rank: those of one batch, and those that two batches share.
struct Rows {
  Bytes distinct;
  Bytes shared;
};

Rows rows_of(const Recommender& network) {
  Rows rows;
  for (const TableGroup& group : network.tables) {
    const double draws = static_cast<double>(network.batch) * group.pooling;
    const double one = expected_distinct_rows(group.rows, group.slope, draws);
    const double two = expected_distinct_rows(group.rows, group.slope, 2 * draws);
    const Bytes bytes(static_cast<double>(group.count * group.dim * network.table_bytes));
    const double ranks = group.sharding == TableSharding::Data ? 1.0 : network.cluster.num_gpus();
    rows.distinct += one * bytes / ranks;
    rows.shared += (2 * one - two) * bytes / ranks;
  }
  return rows;
}

// Once a step, whatever the micro-batches: gradients of whole tables.
Seconds table_gradients(const RecommenderCost& cost) {
  Seconds time;
  for (const TableExchange& one : cost.exchanges) {
    time += one.of == "table gradients" ? one.time : Seconds();
  }
  return time;
}

SimTime end_of_batch(const sim::PipelineResult& result, std::uint32_t batch) {
  SimTime end;
  for (const std::vector<sim::PassSpan>& list : result.spans) {
    for (const sim::PassSpan& span : list) {
      if (span.pass.kind == sim::PassKind::Optimizer && span.pass.micro_batch == batch) {
        end = std::max(end, span.end);
      }
    }
  }
  return end;
}

}  // namespace

std::string_view nested_stage_name(std::size_t virtual_stage) {
  static constexpr std::array<std::string_view, kStages> kNames = {
      "rows exchanged",     "dense network",     "prefetch",
      "copy to the device", "indices exchanged", "lookups"};
  return kNames[virtual_stage];
}

NestedStep nested_step(const Recommender& network, const RecommenderCost& whole) {
  const RecommenderCost part = cost_of_micro_batch(network);
  const Rows rows = rows_of(network);
  const costmodel::DeviceModel device(network.cluster.gpu, network.profile,
                                      costmodel::Load::Sustained);
  NestedStep step;
  step.shared_rows = device.memory_bound(2 * rows.shared, costmodel::MemoryKernel::Embedding);
  step.buffers = 2 * rows.distinct;

  const sim::ScheduleParams params{
      .stages = 1, .micro_batches = network.micro_batches, .iterations = kBatches};
  const sim::Schedule& schedule = sim::find_schedule(kNestedSchedule, "schedule");
  ORRERY_CHECK(schedule.check(params).empty(), "the reader bounds the micro-batches");
  sim::PipelineOrder order = schedule.order(params);
  const Seconds once = table_gradients(whole);
  sim::PipelineCosts costs;
  costs.forward.resize(kStages);
  costs.forward[kExchange] = to_sim_time(part.exchange_forward);
  costs.forward[kDense] = to_sim_time(part.dense_forward);
  costs.forward[kCopy] = to_sim_time(copy_time(network));
  costs.forward[kRouting] = to_sim_time(whole.exchange_indices);
  costs.forward[kRetrieval] = to_sim_time(whole.lookup);
  costs.backward.resize(kStages);
  costs.backward[kExchange] = to_sim_time(part.exchange_backward - table_gradients(part));
  costs.backward[kDense] = to_sim_time(part.dense_backward);
  costs.optimizer.resize(kStages);
  costs.optimizer[kExchange] = to_sim_time(once + whole.update + step.shared_rows);
  costs.optimizer[kDense] =
      to_sim_time(std::max(Seconds(), whole.dense_reduction - part.dense_backward));
  costs.send_forward.resize(kStages - 1);
  costs.send_backward.resize(kStages - 1);
  step.run = sim::evaluate_pipeline(order, costs, {.steady_state = false, .record_spans = true});
  const SimTime steady =
      end_of_batch(step.run, kBatches - 1) - end_of_batch(step.run, kBatches / 2);
  step.period = to_seconds(steady) * (1.0 / (kBatches - 1 - kBatches / 2));
  step.order = std::move(order);
  step.passes = std::move(costs);
  return step;
}

void add_nested(const Recommender& network, RecommenderCost& cost) {
  const NestedStep nested = nested_step(network, cost);
  const double share = nested.period / cost.step;  // of what the parts take together
  cost.nested = nested.period;
  cost.shared_rows = nested.shared_rows;
  cost.step_low *= share;
  cost.step_high *= share;
  cost.buffer_bytes += nested.buffers;
  cost.fullest_bytes += nested.buffers;
  cost.fits = cost.fits && cost.fullest_bytes <= network.cluster.gpu.memory.bytes();
}

std::vector<int> nested_micro_batches(const Recommender& network) {
  std::vector<int> counts;
  const std::int64_t samples = network.batch / network.cluster.num_gpus();
  for (int count = 1; count <= kMostMicroBatches && samples % count == 0; count *= 2) {
    counts.push_back(count);
  }
  return counts;
}

}  // namespace orrery::plan
