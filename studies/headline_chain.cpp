// SPDX-License-Identifier: Apache-2.0
// A cut chain as a synchronous pipeline on the simulator: a stage's replicas share every
// micro-batch and all-reduce their gradients after their last backward; a transfer between stages
// is shared by the wider side and takes the slowest link between them.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "search/chain.hpp"
#include "studies/headline_kinds.hpp"
#include "studies/schedule_run.hpp"

namespace orrery::studies {

namespace {

constexpr int kMaxLayers = 2048;
constexpr int kMaxDevices = 1024;

// Bandwidths between devices: one for all, or a matrix in the order of `device_order`.
class Links {
 public:
  Links(ObjectReader& run, int devices) {
    const JsonReader bandwidth = run.required("bandwidth");
    if (!bandwidth.json().is_array()) {
      all_ = bandwidth.bandwidth().value();
      return;
    }
    for (const JsonReader& row : bandwidth.array(kMaxDevices)) {
      matrix_.emplace_back();
      for (const JsonReader& entry : row.array(kMaxDevices)) {
        matrix_.back().push_back(entry.bandwidth(true).value());
      }
    }
    for (const std::vector<double>& row : matrix_) {
      if (row.size() != matrix_.size() || static_cast<int>(matrix_.size()) < devices) {
        bandwidth.fail(fmt::format("expected a square matrix for {} devices", devices));
      }
    }
    order_.resize(matrix_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (const auto order = run.optional("device_order")) {
      const std::vector<JsonReader> entries = order->array(kMaxDevices);
      if (entries.size() != order_.size()) {
        order->fail("expected one entry a device");
      }
      for (std::size_t i = 0; i < entries.size(); ++i) {
        order_[i] = static_cast<std::size_t>(
            entries[i].integer(0, static_cast<std::int64_t>(order_.size()) - 1));
      }
    }
  }

  // Slowest link between devices [a, b) and [c, d) of the order.
  double slowest(int a, int b, int c, int d) const {
    if (matrix_.empty()) {
      return all_;
    }
    double least = std::numeric_limits<double>::infinity();
    for (int i = a; i < b; ++i) {
      for (int j = c; j < d; ++j) {
        const std::size_t from = order_[static_cast<std::size_t>(i)];
        const std::size_t to = order_[static_cast<std::size_t>(j)];
        least = from == to ? least : std::min(least, matrix_[from][to]);
      }
    }
    return least;
  }

 private:
  double all_ = 0;
  std::vector<std::vector<double>> matrix_;
  std::vector<std::size_t> order_;
};

std::vector<search::ChainStage> read_cut(ObjectReader& run, int layers) {
  const JsonReader list = run.required("stages");
  std::vector<search::ChainStage> stages;
  for (const JsonReader& entry : list.array(kMaxDevices)) {
    ObjectReader reader = entry.object();
    const int first = stages.empty() ? 0 : stages.back().last;
    search::ChainStage stage;
    stage.first = static_cast<int>(reader.required("first").integer(first, first));
    stage.last = static_cast<int>(reader.required("last").integer(first + 1, layers));
    stage.replicas = static_cast<int>(reader.integer_or("replicas", 1, 1, kMaxDevices));
    reader.ignore_rest();  // planners say more about a stage
    stages.push_back(stage);
  }
  if (stages.empty() || stages.back().last != layers) {
    list.fail(fmt::format("the stages must cover all {} layers", layers));
  }
  return stages;
}

struct Pipeline {
  const search::Chain& chain;
  std::vector<search::ChainStage> stages;
  // Of a stage's time where the layers state one sum of both passes.
  double forward_fraction = 1.0 / 3;
  bool recompute = false;

  double forward(const search::ChainStage& stage) const {
    const double stated = chain.forward(stage.first, stage.last);
    const bool split = chain.forward(0, chain.size()) > 0;
    return split ? stated : forward_fraction * chain.time(stage.first, stage.last);
  }
  double backward(const search::ChainStage& stage) const {
    return chain.time(stage.first, stage.last) - forward(stage) + (recompute ? forward(stage) : 0);
  }
};

sim::PipelineCosts costs_of(const Pipeline& pipeline, const Links& links) {
  sim::PipelineCosts costs;
  int used = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    const search::ChainStage& stage = pipeline.stages[s];
    const double r = stage.replicas;
    const int end = used + stage.replicas;
    costs.forward.push_back(to_sim_time(Seconds(pipeline.forward(stage) / r)));
    costs.backward.push_back(to_sim_time(Seconds(pipeline.backward(stage) / r)));
    if (s + 1 < pipeline.stages.size()) {
      const int next = pipeline.stages[s + 1].replicas;
      const double send = pipeline.chain.cut(stage.last) / std::max(stage.replicas, next) /
                          links.slowest(used, end, end, end + next);
      costs.send_forward.push_back(to_sim_time(Seconds(send)));
    }
    used = end;
  }
  costs.send_backward = costs.send_forward;
  costs.input_grad.assign(costs.forward.size(), {});
  costs.weight_grad = costs.input_grad;
  return costs;
}

// The pipeline, or the last all-reduce of gradients among the replicas of a stage.
double iteration_time(const Pipeline& pipeline, const Links& links,
                      const sim::PipelineResult& result) {
  double end = to_seconds(result.makespan).value();
  int used = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    const search::ChainStage& stage = pipeline.stages[s];
    const double r = stage.replicas;
    const int next = used + stage.replicas;
    if (stage.replicas > 1) {
      const double reduce = 2 * (r - 1) / r * pipeline.chain.parameters(stage.first, stage.last) /
                            links.slowest(used, next, used, next);
      end = std::max(end, to_seconds(result.last_backward_end[s]).value() + reduce);
    }
    used = next;
  }
  return end;
}

// Parameters, and what the micro-batches held keep; with recomputation the input of each and all of
// one.
double memory_of(const Pipeline& pipeline, std::size_t s, std::int64_t held) {
  const search::ChainStage& stage = pipeline.stages[s];
  const double all = pipeline.chain.activations(stage.first, stage.last) / stage.replicas;
  const double input = pipeline.chain.cut(stage.first) / stage.replicas;
  const auto count = static_cast<double>(held);
  return pipeline.chain.parameters(stage.first, stage.last) +
         (pipeline.recompute ? count * input + all : count * all);
}

}  // namespace

Json chain_run(const JsonReader& value, ObjectReader& run) {
  const search::Chain chain = search::read_chain(run, kMaxLayers);
  Pipeline pipeline{chain, read_cut(run, chain.size())};
  pipeline.forward_fraction = run.number_or("forward_fraction", pipeline.forward_fraction, 0, 1);
  pipeline.recompute = run.boolean_or("recompute", false);
  int devices = 0;
  for (const search::ChainStage& stage : pipeline.stages) {
    devices += stage.replicas;
  }
  const Links links(run, devices);
  sim::ScheduleParams params;
  params.stages = static_cast<int>(pipeline.stages.size());
  params.micro_batches =
      static_cast<int>(run.required("micro_batches").integer(1, limits::kMaxBatch));
  params.warm_up = static_cast<int>(run.integer_or("warm_up", 0, 0, limits::kMaxBatch));
  const sim::Schedule& schedule = sim::find_schedule(run.string_or("order", "1f1b"), value.where());
  run.finish();
  if (schedule.splits_backward || schedule.uses_chunks || !schedule.synchronous) {
    value.fail("a chain runs with one chunk a device and fused backwards: order gpipe or 1f1b");
  }
  const std::string broken = schedule.check(params);
  if (!broken.empty()) {
    value.fail(broken);
  }
  const ScheduleRun done =
      run_schedule(schedule.order(params), true, costs_of(pipeline, links), 1, false);
  Json::Object result = to_json(done.measures, true);
  result.emplace_back("iteration_s", iteration_time(pipeline, links, done.result));
  Json memory = Json::array();
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    memory.push(memory_of(pipeline, s, done.result.devices[s].peak_chunks));
  }
  result.emplace_back("memory_bytes", std::move(memory));
  result.emplace_back("devices", devices);
  return result;
}

}  // namespace orrery::studies
