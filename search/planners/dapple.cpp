// SPDX-License-Identifier: Apache-2.0
// DAPPLE's planner for synchronous pipelines: stages of a chain on machines of several GPUs, each
// stage on replicas placed on fresh machines, beside used GPUs, or scattered over used machines.
// It minimises the latency estimate with a pivot stage Q, of which the largest over Q is taken: a
// lower bound of the simulated time. Partial plans keep one best per state, as in the paper.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/chain.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Machines {
  int count = 1;
  int gpus = 1;       // of each
  double inside = 0;  // bytes/s
  double between = 0;
};

using Occupancy = std::vector<int>;  // used GPUs of each machine

struct Placed {
  ChainStage stage;
  Occupancy gpus;  // of each machine
};

// Whether two stages, or the replicas of one, sit on several machines.
bool far_apart(const Placed& a, const Placed& b) {
  int machines = 0;
  for (std::size_t i = 0; i < a.gpus.size(); ++i) {
    machines += a.gpus[i] + b.gpus[i] > 0 ? 1 : 0;
  }
  return machines > 1;
}

// Forward and backward of one micro-batch and the gradient all-reduce at the end.
struct Block {
  double forward = 0;
  double backward = 0;
  double reduce = 0;
};

// max over Q of: fill up to Q, (M - 1) micro-batches on Q, then the latest end of any all-reduce.
double latency(const std::vector<Block>& blocks, int micro_batches) {
  double worst = 0;
  double fill = 0;
  for (std::size_t q = 0; q < blocks.size(); ++q) {
    fill += blocks[q].forward;
    const double steady = (micro_batches - 1) * (blocks[q].forward + blocks[q].backward);
    double end = -kNever;
    for (std::size_t s = 0; s < blocks.size(); ++s) {
      double tail = 0;
      for (std::size_t a = std::min(s, q); a <= std::max(s, q); ++a) {
        tail += blocks[a].backward;
      }
      end = std::max(end, blocks[s].reduce + (s <= q ? tail : -tail));
    }
    worst = std::max(worst, fill + steady + end);
  }
  return worst;
}

class Search {
 public:
  Search(const Chain& chain, const Machines& machines, int micro_batches)
      : chain_(chain), machines_(machines), micro_batches_(micro_batches) {}

  double run(std::vector<Placed>& plan) {
    // States by layers planned, then by occupancy: fewer layers first.
    std::map<std::pair<int, Occupancy>, Partial> states;
    states[{0, Occupancy(static_cast<std::size_t>(machines_.count), 0)}] = {};
    double best = kNever;
    for (auto it = states.begin(); it != states.end(); ++it) {
      const auto& [first, used] = it->first;
      for (int last = first + 1; last <= chain_.size(); ++last) {
        for (const Occupancy& next : placements(used)) {
          Partial partial = it->second;
          partial.stages.push_back(place(first, last, used, next));
          const int free = free_gpus(next);
          if (last == chain_.size()) {
            const double time = estimate(partial.stages);
            if (time < best) {
              best = time;
              plan = partial.stages;
            }
            continue;
          }
          if (free == 0) {
            continue;
          }
          partial.estimate = estimate_with_rest(partial.stages, last, next);
          Partial& kept = states[{last, most_used_first(next, partial.stages)}];
          if (partial.estimate < kept.estimate) {
            kept = std::move(partial);
          }
        }
      }
    }
    return best;
  }

 private:
  struct Partial {
    std::vector<Placed> stages;
    double estimate = kNever;
  };

  // Machines are equal, so that states which differ in their order are one: the most used come
  // first, in all stages.
  static Occupancy most_used_first(const Occupancy& used, std::vector<Placed>& stages) {
    std::vector<std::size_t> order(used.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&used](std::size_t a, std::size_t b) { return used[a] > used[b]; });
    const auto in_order = [&order](const Occupancy& of) {
      Occupancy sorted;
      for (const std::size_t machine : order) {
        sorted.push_back(of[machine]);
      }
      return sorted;
    };
    for (Placed& stage : stages) {
      stage.gpus = in_order(stage.gpus);
    }
    return in_order(used);
  }

  int free_gpus(const Occupancy& used) const {
    return machines_.count * machines_.gpus - std::accumulate(used.begin(), used.end(), 0);
  }

  // The occupancies after taking r more GPUs by each of the three rules, for every r.
  std::vector<Occupancy> placements(const Occupancy& used) const {
    std::vector<Occupancy> all;
    for (int r = 1; r <= free_gpus(used); ++r) {
      for (const int rule : {0, 1, 2}) {
        Occupancy next = used;
        if (take(next, r, rule) && std::find(all.begin(), all.end(), next) == all.end()) {
          all.push_back(std::move(next));
        }
      }
    }
    return all;
  }

  // Rule 0: fresh machines first; 1: partly used machines first; 2: evenly over used machines.
  bool take(Occupancy& used, int r, int rule) const {
    const auto key = [&](std::size_t i) { return rule == 0 ? used[i] : -used[i]; };
    if (rule == 2) {
      return scatter(used, r);
    }
    std::vector<std::size_t> order(used.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    for (const std::size_t i : order) {
      const int taken = std::min(r, machines_.gpus - used[i]);
      used[i] += taken;
      r -= taken;
    }
    return r == 0;
  }
  bool scatter(Occupancy& used, int r) const {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i] > 0 && used[i] < machines_.gpus) {
        open.push_back(i);
      }
    }
    for (std::size_t next = 0; r > 0 && !open.empty(); next = (next + 1) % open.size()) {
      if (used[open[next]] < machines_.gpus) {
        ++used[open[next]];
        --r;
      } else {
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(next));
        if (open.empty()) {
          break;
        }
        next = next % open.size();
      }
    }
    return r == 0;
  }

  static Placed place(int first, int last, const Occupancy& before, const Occupancy& after) {
    Placed placed{{first, last, 0}, {}};
    for (std::size_t i = 0; i < before.size(); ++i) {
      placed.gpus.push_back(after[i] - before[i]);
      placed.stage.replicas += placed.gpus.back();
    }
    return placed;
  }

  // Stages and, as stages of their own, the transfers between them.
  std::vector<Block> blocks(const std::vector<Placed>& stages) const {
    std::vector<Block> result;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const ChainStage& stage = stages[i].stage;
      if (i > 0) {
        const double send = chain_.cut(stage.first) / bandwidth(stages[i - 1], stages[i]);
        result.push_back({send, send, 0});
      }
      const double r = stage.replicas;
      result.push_back({chain_.forward(stage.first, stage.last) / r,
                        chain_.backward(stage.first, stage.last) / r,
                        2 * (r - 1) / r * chain_.parameters(stage.first, stage.last) /
                            bandwidth(stages[i], stages[i])});
    }
    return result;
  }
  double bandwidth(const Placed& a, const Placed& b) const {
    return far_apart(a, b) ? machines_.between : machines_.inside;
  }

  double estimate(const std::vector<Placed>& stages) const {
    return latency(blocks(stages), micro_batches_);
  }
  double estimate_with_rest(std::vector<Placed> stages, int first, const Occupancy& used) const {
    Occupancy all(used.size(), machines_.gpus);
    stages.push_back(place(first, chain_.size(), used, all));
    return estimate(stages);
  }

  const Chain& chain_;
  Machines machines_;
  int micro_batches_;
};

Json plan(ObjectReader& problem) {
  const Chain chain = read_chain(problem, 64);
  const JsonReader count = problem.required("machines");
  Machines machines;
  machines.count = static_cast<int>(count.integer(1, 8));
  machines.gpus = static_cast<int>(problem.required("gpus_per_machine").integer(1, 16));
  machines.inside = problem.required("bandwidth_inside").bandwidth().value();
  machines.between = problem.required("bandwidth_between").bandwidth().value();
  const int micro_batches = static_cast<int>(problem.required("micro_batches").integer(1, 1 << 20));
  if (machines.count * machines.gpus > 32) {
    count.fail("expected at most 32 GPUs in all");
  }
  problem.finish();
  std::vector<Placed> placed;
  const double time = Search(chain, machines, micro_batches).run(placed);
  std::vector<ChainStage> stages;
  Json gpus = Json::array();
  for (const Placed& stage : placed) {
    stages.push_back(stage.stage);
    Json by_machine = Json::array();
    for (const int replicas : stage.gpus) {
      by_machine.push(replicas);
    }
    gpus.push(std::move(by_machine));
  }
  Json answer = Json::object();
  answer.set("stages", to_json(stages));
  answer.set("gpus_by_machine", std::move(gpus));
  answer.set("latency_s", time);
  return answer;
}

}  // namespace

extern const Planner planner_dapple = {
    .name = "dapple",
    .description = "stages, replicas and placement on machines of several GPUs, synchronous",
    .source = "Fan et al., DAPPLE, PPoPP 2021 (arXiv 2007.01045), section 4; AlibabaPAI/DAPPLE",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "layers": [{"forward": "5 ms", "backward": "10 ms", "output": "4 MB", "parameters": "5 MB",
              "count": 5},
             {"forward": "1 ms", "backward": "2 ms", "output": "1 MB", "parameters": "400 MB"}],
  "machines": 2, "gpus_per_machine": 2, "bandwidth_inside": "100 GB/s",
  "bandwidth_between": "3 GB/s", "micro_batches": 8})",
    .plan = plan,
};

}  // namespace orrery::search
