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
  ChainRun times{sim::evaluate_pipeline(order, costs_of(pipeline, links)), 0};
  times.iteration = to_seconds(times.result.makespan).value();
  int used = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    const ChainStage& stage = pipeline.stages[s];
    const double r = stage.replicas;
    const int next = used + stage.replicas;
    if (stage.replicas > 1) {
      const double reduce = 2 * (r - 1) / r * pipeline.chain->parameters(stage.first, stage.last) /
                            links.slowest(used, next, used, next);
      const double end = to_seconds(times.result.last_backward_end[s]).value();
      times.iteration = std::max(times.iteration, end + reduce);
    }
    used = next;
  }
  return times;
}

double iteration_under_1f1b(const ChainPipeline& pipeline, const ChainLinks& links,
                            int micro_batches) {
  sim::ScheduleParams params;
  params.stages = static_cast<int>(pipeline.stages.size());
  params.micro_batches = micro_batches;
  return run_chain(pipeline, links, sim::find_schedule("1f1b", "pipeline").order(params)).iteration;
}

}  // namespace orrery::search
