// SPDX-License-Identifier: Apache-2.0
// SPP: synchronous pipelines on GPUs whose links differ. First an order of the devices by recursive
// minimum cuts of the bandwidth graph, so that neighbours are well connected (RDO); then stages,
// replicas and mapping along that order with the least bottleneck over stages, channels and
// amortised gradient all-reduces, for each number of stages and replicas of the last one (PRM); of
// these the one whose iteration, simulated under 1F1B, is shortest.
#include <algorithm>
#include <limits>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/chain_pipeline.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
using Matrix = std::vector<std::vector<double>>;

// Global minimum cut of the devices in `members` (Stoer-Wagner); returns one side.
std::vector<int> minimum_cut(const Matrix& bandwidth, const std::vector<int>& members) {
  const std::size_t n = members.size();
  Matrix weight(n, std::vector<double>(n));
  std::vector<std::vector<int>> merged(n);
  for (std::size_t i = 0; i < n; ++i) {
    merged[i] = {members[i]};
    for (std::size_t j = 0; j < n; ++j) {
      weight[i][j] =
          bandwidth[static_cast<std::size_t>(members[i])][static_cast<std::size_t>(members[j])];
    }
  }
  std::vector<bool> gone(n, false);
  double best = kNever;
  std::vector<int> side;
  for (std::size_t phase = 0; phase + 1 < n; ++phase) {
    std::vector<double> attached(n, 0.0);
    std::vector<bool> added(n, false);
    std::size_t previous = n;
    std::size_t last = n;
    for (std::size_t step = phase; step < n; ++step) {
      std::size_t next = n;
      for (std::size_t i = 0; i < n; ++i) {
        if (!gone[i] && !added[i] && (next == n || attached[i] > attached[next])) {
          next = i;
        }
      }
      added[next] = true;
      previous = last;
      last = next;
      for (std::size_t i = 0; i < n; ++i) {
        attached[i] += i == next ? 0 : weight[next][i];
      }
    }
    if (attached[last] < best) {
      best = attached[last];
      side = merged[last];
    }
    gone[last] = true;
    merged[previous].insert(merged[previous].end(), merged[last].begin(), merged[last].end());
    for (std::size_t i = 0; i < n; ++i) {
      weight[previous][i] += weight[last][i];
      weight[i][previous] = weight[previous][i];
    }
  }
  std::sort(side.begin(), side.end());
  return side;
}

// Recursive device ordering: both sides of the cut, each ordered, one after the other.
std::vector<int> device_order(const Matrix& bandwidth, const std::vector<int>& members) {
  if (members.size() <= 1) {
    return members;
  }
  const std::vector<int> side = minimum_cut(bandwidth, members);
  std::vector<int> rest;
  std::set_difference(members.begin(), members.end(), side.begin(), side.end(),
                      std::back_inserter(rest));
  const bool side_first = side.front() < rest.front();
  std::vector<int> order = device_order(bandwidth, side_first ? side : rest);
  const std::vector<int> second = device_order(bandwidth, side_first ? rest : side);
  order.insert(order.end(), second.begin(), second.end());
  return order;
}

class Mapping {
 public:
  Mapping(const Chain& chain, Matrix bandwidth, std::vector<int> order, int micro_batches)
      : chain_(chain),
        bandwidth_(std::move(bandwidth)),
        order_(std::move(order)),
        devices_(static_cast<int>(order_.size())),
        micro_batches_(micro_batches),
        most_stages_(std::min(devices_, chain.size())),
        cells_(index(most_stages_ + 1, 0, 0, 0)) {
    measure_links();
    solve();
  }

  // Of all plans with so many stages, the least bottleneck with `replicas` on the last one.
  double bottleneck(int stages, int replicas) const {
    return at(stages, chain_.size(), devices_, replicas).cost;
  }
  std::vector<ChainStage> plan(int stages, int replicas) const {
    std::vector<ChainStage> list;
    for (int last = chain_.size(), used = devices_; stages > 0; --stages) {
      const Cell& cell = at(stages, last, used, replicas);
      list.insert(list.begin(), {cell.cut, last, replicas});
      last = cell.cut;
      used -= replicas;
      replicas = cell.replicas_before;
    }
    return list;
  }
  int most_stages() const { return most_stages_; }
  int devices() const { return devices_; }

 private:
  struct Cell {
    double cost = kNever;
    int cut = 0;
    int replicas_before = 0;
  };
  // Layers [0, last) as so many stages on the first `used` devices of the order, the last stage on
  // `replicas`.
  const Cell& at(int stages, int last, int used, int replicas) const {
    return cells_[index(stages, last, used, replicas)];
  }
  std::size_t index(int stages, int last, int used, int replicas) const {
    const auto row = static_cast<std::size_t>(devices_ + 1);
    return ((static_cast<std::size_t>(stages - 1) * static_cast<std::size_t>(chain_.size() + 1) +
             static_cast<std::size_t>(last)) *
                row +
            static_cast<std::size_t>(used)) *
               row +
           static_cast<std::size_t>(replicas);
  }

  // Slowest pair of devices at positions [a, b) and [b, c) of the order; and within [a, b).
  double between(int a, int b, int c) const { return between_[link(a, b, c)]; }
  double within(int a, int b) const { return between_[link(a, a, b)]; }
  std::size_t link(int a, int b, int c) const {
    const auto n = static_cast<std::size_t>(devices_ + 1);
    return (static_cast<std::size_t>(a) * n + static_cast<std::size_t>(b)) * n +
           static_cast<std::size_t>(c);
  }
  double pair(int i, int j) const {
    return bandwidth_[static_cast<std::size_t>(order_[static_cast<std::size_t>(i)])]
                     [static_cast<std::size_t>(order_[static_cast<std::size_t>(j)])];
  }

  // `within` stands where the first part is empty.
  void measure_links() {
    const auto n = static_cast<std::size_t>(devices_ + 1);
    between_.assign(n * n * n, kNever);
    for (int a = 0; a < devices_; ++a) {
      for (int b = a; b < devices_; ++b) {
        for (int c = b + 1; c <= devices_; ++c) {
          double least = between_[link(a, b, c - 1)];
          for (int i = a; i < (a == b ? c - 1 : b); ++i) {
            least = std::min(least, pair(i, c - 1));
          }
          between_[link(a, b, c)] = least;
        }
      }
    }
  }

  // Compute of one micro-batch shared by the replicas, and their all-reduce spread over the batch.
  double stage_cost(int first, int last, int used, int replicas) const {
    const double reduce = replicas == 1
                              ? 0
                              : 2.0 * (replicas - 1) / replicas * chain_.parameters(first, last) /
                                    within(used - replicas, used);
    return std::max(chain_.time(first, last) / replicas, reduce / micro_batches_);
  }

  void solve() {
    for (int last = 1; last <= chain_.size(); ++last) {
      for (int used = 1; used <= devices_; ++used) {
        cells_[index(1, last, used, used)] = {stage_cost(0, last, used, used), 0, 0};
      }
    }
    for (int stages = 2; stages <= most_stages_; ++stages) {
      for (int last = stages; last <= chain_.size(); ++last) {
        for (int used = stages; used <= devices_; ++used) {
          for (int replicas = 1; replicas <= used - stages + 1; ++replicas) {
            cells_[index(stages, last, used, replicas)] = best_cut(stages, last, used, replicas);
          }
        }
      }
    }
  }

  Cell best_cut(int stages, int last, int used, int replicas) const {
    Cell best;
    const int before = used - replicas;
    for (int cut = last - 1; cut >= stages - 1; --cut) {
      const double stage = stage_cost(cut, last, used, replicas);
      if (stage >= best.cost) {
        continue;
      }
      for (int r = 1; r <= before - stages + 2; ++r) {
        // Activation and gradient, each replica of the wider side with its share.
        const double channel =
            2 * chain_.cut(cut) / std::max(r, replicas) / between(before - r, before, used);
        const double cost = std::max({at(stages - 1, cut, before, r).cost, stage, channel});
        if (cost < best.cost) {
          best = {cost, cut, r};
        }
      }
    }
    return best;
  }

  const Chain& chain_;
  Matrix bandwidth_;
  std::vector<int> order_;
  int devices_;
  int micro_batches_;
  int most_stages_;
  std::vector<Cell> cells_;
  std::vector<double> between_;
};

constexpr int kMaxLayers = 512;
constexpr double kMaxCells = 3e7;

Matrix read_bandwidth(ObjectReader& problem) {
  const JsonReader rows = problem.required("bandwidth");
  Matrix bandwidth;
  for (const JsonReader& row : rows.array(64)) {
    bandwidth.emplace_back();
    for (const JsonReader& entry : row.array(64)) {
      bandwidth.back().push_back(entry.bandwidth(true).value());
    }
  }
  for (std::size_t i = 0; i < bandwidth.size(); ++i) {
    if (bandwidth[i].size() != bandwidth.size()) {
      rows.fail("expected a square matrix, one row and one column a device");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (bandwidth[i][j] != bandwidth[j][i] || bandwidth[i][j] <= 0) {
        rows.fail("expected a symmetric matrix of bandwidths above zero");
      }
    }
  }
  if (bandwidth.empty()) {
    rows.fail("expected at least one device");
  }
  return bandwidth;
}

struct Choice {
  std::vector<ChainStage> stages;
  double bottleneck = kNever;
  double time = kNever;
};

Json plan(ObjectReader& problem) {
  const Chain chain = read_chain(problem, kMaxLayers);
  const Matrix bandwidth = read_bandwidth(problem);
  const double devices = static_cast<double>(bandwidth.size());
  if (std::min<double>(chain.size(), devices) * chain.size() * devices * devices > kMaxCells) {
    problem.value().fail("the problem is too large to solve", "merge layers or devices");
  }
  const int micro_batches =
      static_cast<int>(problem.required("micro_batches").integer(1, 1'000'000));
  problem.finish();
  std::vector<int> members(bandwidth.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i] = static_cast<int>(i);
  }
  const std::vector<int> order = device_order(bandwidth, members);
  const Mapping mapping(chain, bandwidth, order, micro_batches);
  const ChainLinks links(bandwidth, order);
  Choice best;
  Json bottlenecks = Json::array();
  for (int stages = 1; stages <= mapping.most_stages(); ++stages) {
    double least = kNever;
    for (int replicas = 1; replicas <= mapping.devices() - stages + 1; ++replicas) {
      const double bottleneck = mapping.bottleneck(stages, replicas);
      if (bottleneck == kNever) {
        continue;
      }
      least = std::min(least, bottleneck);
      ChainPipeline pipeline{&chain, mapping.plan(stages, replicas)};
      const double time = iteration_with_channels(pipeline, links, micro_batches);
      if (time < best.time) {
        best = {std::move(pipeline.stages), bottleneck, time};
      }
    }
    bottlenecks.push(least < kNever ? Json(least) : Json());
  }
  Json devices_json = Json::array();
  for (const int device : order) {
    devices_json.push(device);
  }
  Json answer = Json::object();
  answer.set("device_order", std::move(devices_json));
  answer.set("stages", to_json(best.stages));
  answer.set("bottleneck_s", best.bottleneck);
  answer.set("iteration_s", best.time);
  answer.set("least_bottleneck_s_by_stages", std::move(bottlenecks));
  return answer;
}

}  // namespace

extern const Planner planner_spp = {
    .name = "spp",
    .description = "device order, stages and replicas on links of different speed",
    .source = "Luo et al., SPP, INFOCOM 2022 (arXiv 2204.10562), sections IV and V",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "layers": [{"forward": "5 ms", "backward": "10 ms", "output": "4 MB", "parameters": "20 MB",
              "count": 6}],
  "bandwidth": [["0 GB/s", "50 GB/s", "3 GB/s", "3 GB/s"], ["50 GB/s", "0 GB/s", "3 GB/s", "3 GB/s"],
                ["3 GB/s", "3 GB/s", "0 GB/s", "50 GB/s"], ["3 GB/s", "3 GB/s", "50 GB/s", "0 GB/s"]],
  "micro_batches": 8})",
    .plan = plan,
};

}  // namespace orrery::search
