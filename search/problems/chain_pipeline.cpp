// SPDX-License-Identifier: Apache-2.0
#include "search/problems/chain_pipeline.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace orrery::search {

namespace {

sim::PipelineCosts costs_of(const ChainPipeline& pipeline, const ChainLinks& links) {
  sim::PipelineCosts costs;
  int used = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    const ChainStage& stage = pipeline.stages[s];
    const double r = stage.replicas;
    const int end = used + stage.replicas;
    costs.forward.push_back(to_sim_time(Seconds(pipeline.forward(stage) / r)));
    costs.backward.push_back(to_sim_time(Seconds(pipeline.backward(stage) / r)));
    if (s + 1 < pipeline.stages.size()) {
      const int next = pipeline.stages[s + 1].replicas;
      const double send = pipeline.chain->cut(stage.last) / std::max(stage.replicas, next) /
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

// The same with every transfer as a pass of its channel, a device between those of the stages:
// activations and gradients share it, one after the other.
sim::PipelineCosts with_channels(const sim::PipelineCosts& stages) {
  sim::PipelineCosts costs;
  for (std::size_t s = 0; s < stages.forward.size(); ++s) {
    costs.forward.push_back(stages.forward[s]);
    costs.backward.push_back(stages.backward[s]);
    if (s < stages.send_forward.size()) {
      costs.forward.push_back(stages.send_forward[s]);
      costs.backward.push_back(stages.send_backward[s]);
    }
  }
  costs.send_forward.assign(costs.forward.size() - 1, {});
  costs.send_backward = costs.send_forward;
  costs.input_grad.assign(costs.forward.size(), {});
  costs.weight_grad = costs.input_grad;
  return costs;
}

// The last all-reduce, in seconds. Stages are each `spacing`-th virtual stage of the run.
double end_of_reductions(const ChainPipeline& pipeline, const ChainLinks& links,
                         const sim::PipelineResult& result, std::size_t spacing) {
  double last = to_seconds(result.makespan).value();
  int used = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    const ChainStage& stage = pipeline.stages[s];
    const double r = stage.replicas;
    const int next = used + stage.replicas;
    if (stage.replicas > 1) {
      const double reduce = 2 * (r - 1) / r * pipeline.chain->parameters(stage.first, stage.last) /
                            links.slowest(used, next, used, next);
      last = std::max(last, to_seconds(result.last_backward_end[s * spacing]).value() + reduce);
    }
    used = next;
  }
  return last;
}

}  // namespace

ChainLinks::ChainLinks(std::vector<std::vector<double>> matrix, std::vector<int> order) {
  for (const int row : order) {
    matrix_.emplace_back();
    for (const int column : order) {
      matrix_.back().push_back(
          matrix[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)]);
    }
  }
}

double ChainLinks::slowest(int a, int b, int c, int d) const {
  if (matrix_.empty()) {
    return all_;
  }
  ORRERY_CHECK(b <= static_cast<int>(matrix_.size()) && d <= static_cast<int>(matrix_.size()),
               "a stage has devices that are not in the order");
  double least = std::numeric_limits<double>::infinity();
  for (int i = a; i < b; ++i) {
    for (int j = c; j < d; ++j) {
      least = i == j ? least
                     : std::min(least,
                                matrix_[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]);
    }
  }
  return least;
}

double ChainPipeline::forward(const ChainStage& stage) const {
  return chain->forward(0, chain->size()) > 0
             ? chain->forward(stage.first, stage.last)
             : forward_fraction * chain->time(stage.first, stage.last);
}

double ChainPipeline::backward(const ChainStage& stage) const {
  return chain->time(stage.first, stage.last) - (recompute ? 0 : forward(stage));
}

double ChainPipeline::memory(const ChainStage& stage, std::int64_t held) const {
  const double all = chain->activations(stage.first, stage.last) / stage.replicas;
  const double input = chain->cut(stage.first) / stage.replicas;
  const auto count = static_cast<double>(held);
  return chain->parameters(stage.first, stage.last) +
         (recompute ? count * input + all : count * all);
}

ChainRun run_chain(const ChainPipeline& pipeline, const ChainLinks& links,
                   const sim::PipelineOrder& order) {
  ChainRun run{sim::evaluate_pipeline(order, costs_of(pipeline, links)), 0};
  run.iteration = end_of_reductions(pipeline, links, run.result, 1);
  return run;
}

double iteration_with_channels(const ChainPipeline& pipeline, const ChainLinks& links,
                               int micro_batches) {
  const sim::PipelineCosts costs = with_channels(costs_of(pipeline, links));
  sim::ScheduleParams params;
  params.stages = static_cast<int>(costs.forward.size());
  params.micro_batches = micro_batches;
  const sim::PipelineOrder order = sim::find_schedule("1f1b", "pipeline").order(params);
  return end_of_reductions(pipeline, links, sim::evaluate_pipeline(order, costs), 2);
}

}  // namespace orrery::search
