// SPDX-License-Identifier: Apache-2.0
// LayerPipe: with delayed gradients any point of the loop F_0 .. F_n, D_n G_n .. D_0 G_0 (forward,
// propagated and weight gradient of every layer) can be a pipeline boundary, so a processor may own
// a contiguous arc of it, from the first forward on, instead of whole layers. The arcs with the
// least largest load, against the best cut into whole layers.
#include <algorithm>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/chain.hpp"

namespace orrery::search {
namespace {

// Whether `tasks` make at most `parts` runs of at most `load`.
bool fits(const std::vector<double>& tasks, int parts, double load) {
  double current = 0;
  int used = 1;
  for (const double task : tasks) {
    if (current + task > load) {
      ++used;
      current = 0;
    }
    current += task;
  }
  return used <= parts;
}

// Least largest sum of `parts` contiguous runs. It is the sum of one run, so those are searched.
double best_load(const std::vector<double>& tasks, int parts) {
  std::vector<double> sums;
  for (std::size_t first = 0; first < tasks.size(); ++first) {
    double sum = 0;
    for (std::size_t last = first; last < tasks.size(); ++last) {
      sum += tasks[last];
      sums.push_back(sum);
    }
  }
  std::sort(sums.begin(), sums.end());
  const double largest = *std::max_element(tasks.begin(), tasks.end());
  return *std::partition_point(sums.begin(), sums.end(), [&](double load) {
    // The sums of a run and of its tasks one by one differ by rounding.
    return load < largest || !fits(tasks, parts, load * (1 + 1e-12));
  });
}

Json plan(ObjectReader& problem) {
  const Chain chain = read_chain(problem, 256);
  const int processors = static_cast<int>(problem.required("processors").integer(1, 256));
  const double split = problem.number_or("weight_grad_share", 0.5, 0, 1);
  problem.finish();
  std::vector<double> arcs;
  std::vector<double> layers;
  for (int i = 0; i < chain.size(); ++i) {
    arcs.push_back(chain.layer(i).forward.value());
    layers.push_back(chain.time(i, i + 1));
  }
  for (int i = chain.size(); i-- > 0;) {
    arcs.push_back(chain.layer(i).backward.value() * (1 - split));
    arcs.push_back(chain.layer(i).backward.value() * split);
  }
  const double layer_load = best_load(layers, processors);
  // The search includes the cuts into whole layers.
  const double loop_load = best_load(arcs, processors);
  const double arc_load = std::min(loop_load, layer_load);
  Json answer = Json::object();
  answer.set("arc_load_s", arc_load);
  answer.set("layer_load_s", layer_load);
  answer.set("speedup", layer_load / arc_load);
  answer.set("whole_layers", layer_load < loop_load);  // no arcs of the loop are as fast
  return answer;
}

}  // namespace

extern const Planner planner_layerpipe = {
    .name = "layerpipe",
    .description = "arcs of the forward and gradient loop against whole layers on processors",
    .source = "Unnikrishnan and Parhi, LayerPipe, ICCAD 2021 (arXiv 2108.06629), section III",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "layers": [{"forward": "10 ms", "backward": "20 ms"}, {"forward": "3 ms", "backward": "6 ms"}],
  "processors": 3})",
    .plan = plan,
};

}  // namespace orrery::search
