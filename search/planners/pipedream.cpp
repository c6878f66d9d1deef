// SPDX-License-Identifier: Apache-2.0
// PipeDream's partition with replication: cut a chain into stages, each on a number of replicas, so
// that the slowest stage or transfer of the asynchronous pipeline is as fast as possible. One
// dynamic program per level of the machine (GPUs of a server, then servers), from the inside out.
// The answer is also run under PipeDream's schedule.
#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/dealt_pipeline.hpp"

namespace orrery::search {
namespace {

struct Level {
  int workers = 1;
  double bandwidth = 0;  // bytes/s between its workers
};

constexpr double kNever = std::numeric_limits<double>::infinity();

// Stages in devices of the innermost level, and what the recurrence counts besides their passes.
struct Stages {
  std::vector<ChainStage> stages;
  std::vector<double> bandwidth;  // of the link before each; that before the first is not used
  std::vector<double> reduce;     // seconds of all-reduces after a mini-batch of every replica
};

// A(first, last, workers): least bottleneck of layers [first, last) on that many workers of a
// level.
class Partition {
 public:
  // `inner` is the table of the level below (null: a worker is one device).
  Partition(const Chain& chain, const Level& level, const Partition* inner, bool all_starts)
      : chain_(chain),
        level_(level),
        inner_(inner),
        starts_(all_starts ? chain.size() : 1),
        devices_(level.workers * (inner == nullptr ? 1 : inner->devices_)) {
    const auto cells = static_cast<std::size_t>(starts_) *
                       static_cast<std::size_t>(chain.size() + 1) *
                       static_cast<std::size_t>(level.workers + 1);
    cells_.resize(cells);
    for (int first = 0; first < starts_; ++first) {
      solve(first);
    }
  }

  double bottleneck(int first, int last, int workers) const {
    return at(first, last, workers).cost;
  }
  int devices() const { return devices_; }

  // Adds those of [first, last), `multiplier` times as many replicas of each.
  void append_stages(int first, int last, int workers, int multiplier, Stages& all) const {
    const Cell& cell = at(first, last, workers);
    if (cell.cut > first) {
      append_stages(first, cell.cut, workers - cell.replicas, multiplier, all);
    }
    const std::size_t begin = all.stages.size();
    const int outside = multiplier * cell.replicas;
    if (inner_ != nullptr) {
      inner_->append_stages(cell.cut, last, inner_->level_.workers, outside, all);
    } else {
      all.stages.push_back({cell.cut, last, outside});
      all.bandwidth.push_back(0);
      all.reduce.push_back(0);
    }
    all.bandwidth[begin] = cell.cut > first ? level_.bandwidth : all.bandwidth[begin];
    for (std::size_t s = begin; s < all.stages.size(); ++s) {
      const int inside = all.stages[s].replicas / outside;
      all.reduce[s] += reduce_time(cell.cut, last, cell.replicas) * inside;
    }
  }

 private:
  struct Cell {
    double cost = kNever;
    int cut = 0;
    int replicas = 0;
  };

  const Cell& at(int first, int last, int workers) const {
    return cells_[index(first, last, workers)];
  }
  std::size_t index(int first, int last, int workers) const {
    return (static_cast<std::size_t>(first) * static_cast<std::size_t>(chain_.size() + 1) +
            static_cast<std::size_t>(last)) *
               static_cast<std::size_t>(level_.workers + 1) +
           static_cast<std::size_t>(workers);
  }

  // One stage of layers [first, last) on m replicas, data parallel with an all-reduce a step.
  double stage_time(int first, int last, int m) const {
    const double time = inner_ == nullptr ? chain_.time(first, last)
                                          : inner_->bottleneck(first, last, inner_->level_.workers);
    return (time + reduce_time(first, last, m)) / m;
  }
  // All-reduce between m workers of this level, shared by the devices inside each.
  double reduce_time(int first, int last, int m) const {
    const int inside = inner_ == nullptr ? 1 : inner_->devices_;
    return 4 * (m - 1) * chain_.parameters(first, last) / (level_.bandwidth * m) / inside;
  }

  // Activation and gradient over a cut, one for each of m replicas in turn.
  double transfer_time(int cut, int m) const {
    return 2 * chain_.cut(cut) / (level_.bandwidth * m);
  }

  // The last stage of [first, last) receives over the cut before it and sends over the one behind
  // it, over the links of its own replicas.
  void solve(int first) {
    for (int last = first + 1; last <= chain_.size(); ++last) {
      for (int workers = 1; workers <= level_.workers; ++workers) {
        Cell best{std::max(stage_time(first, last, workers), transfer_time(last, workers)), first,
                  workers};
        for (int cut = first + 1; cut < last; ++cut) {
          for (int m = 1; m < workers; ++m) {
            const double cost =
                std::max({at(first, cut, workers - m).cost, stage_time(cut, last, m),
                          transfer_time(cut, m), transfer_time(last, m)});
            if (cost < best.cost) {
              best = {cost, cut, m};
            }
          }
        }
        cells_[index(first, last, workers)] = best;
      }
    }
  }

  const Chain& chain_;
  Level level_;
  const Partition* inner_;
  int starts_;
  int devices_;
  std::vector<Cell> cells_;
};

// Seconds per mini-batch of the plan as PipeDream's schedule runs it, with the recurrence's costs;
// 0 where the replicas repeat too late to run.
double simulated_period(const Chain& chain, const Stages& plan) {
  ChainDelays delays{.send = {}, .reduce = plan.reduce, .half_duplex = true};
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const bool last = s + 1 == plan.stages.size();
    delays.send.push_back(last ? 0 : chain.cut(plan.stages[s].last) / plan.bandwidth[s + 1]);
  }
  const std::optional<DealtTimes> times = run_dealt({&chain, plan.stages}, delays);
  return times ? times->period : 0;
}

// All layers on every worker: the same recurrence with one stage on each level.
double data_parallel_time(const Chain& chain, const std::vector<Level>& levels) {
  double time = chain.time(0, chain.size());
  int inside = 1;
  for (const Level& level : levels) {
    const double m = level.workers;
    const double reduce = 4 * (m - 1) * chain.parameters(0, chain.size()) / (level.bandwidth * m);
    time = (time + reduce / inside) / m;
    inside *= level.workers;
  }
  return time;
}

constexpr int kMaxLayers = 512;
constexpr double kMaxWork = 4e9;  // inner steps of the dynamic program, some seconds

Json plan(ObjectReader& problem) {
  const Chain chain = read_chain(problem, kMaxLayers);
  const JsonReader list = problem.required("levels");
  std::vector<Level> levels;
  for (const JsonReader& entry : list.array(4)) {
    ObjectReader reader = entry.object();
    levels.push_back({static_cast<int>(reader.required("workers").integer(1, 4096)),
                      reader.required("bandwidth").bandwidth().value()});
    reader.finish();
  }
  if (levels.empty()) {
    list.fail("expected at least one level, the innermost first");
  }
  problem.finish();
  std::vector<Partition> tables;
  tables.reserve(levels.size());
  const double n = chain.size();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const bool outermost = i + 1 == levels.size();
    const double workers = levels[i].workers;
    if ((outermost ? 1 : n / 3) * n * n * workers * workers / 4 > kMaxWork) {
      list.fail("the partition is too large to solve", "merge layers or split workers into levels");
    }
    tables.emplace_back(chain, levels[i], i == 0 ? nullptr : &tables.back(), !outermost);
  }
  const Partition& top = tables.back();
  Stages found;
  top.append_stages(0, chain.size(), levels.back().workers, 1, found);
  Json answer = Json::object();
  const double bottleneck = top.bottleneck(0, chain.size(), levels.back().workers);
  answer.set("stages", to_json(found.stages));
  answer.set("bottleneck_s", bottleneck);
  if (const double period = simulated_period(chain, found); period > 0) {
    answer.set("simulated_s", period);
  }
  answer.set("speedup_over_one_device", chain.time(0, chain.size()) / bottleneck);
  answer.set("data_parallel_s", data_parallel_time(chain, levels));
  // Mini-batches in flight: devices over replicas of the input stage, rounded up.
  const int input = found.stages.front().replicas;
  answer.set("in_flight", (top.devices() + input - 1) / input);
  return answer;
}

}  // namespace

extern const Planner planner_pipedream = {
    .name = "pipedream",
    .description = "stages and replicas of a chain with the least bottleneck, level by level",
    .source = "Narayanan et al., PipeDream, SOSP 2019 (arXiv 1806.03377), section 3.1",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "layers": [{"forward": "10 ms", "backward": "20 ms", "output": "8 MB", "parameters": "1 MB",
              "count": 6},
             {"forward": "1 ms", "backward": "2 ms", "output": "1 MB", "parameters": "400 MB"}],
  "levels": [{"workers": 4, "bandwidth": "1 GB/s"}]})",
    .plan = plan,
};

}  // namespace orrery::search
